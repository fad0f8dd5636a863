// The syntax tree of a chat template, and the parser that makes it.
//
// The language is the one in which transformers renders chat templates: Jinja 3 with trim_blocks, lstrip_blocks, break
// and continue, and {% generation %}. A template cannot reach files, so include, import, extends and block are
// rejected, and so are features that conversations do not need (autoescape, *args in calls, filters that make HTML).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llm/chat/jinja_value.h"

namespace anyaccel::llm::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

enum class ExpressionKind {
  Constant,     // constant
  Name,         // text
  List,         // children
  Tuple,        // children
  Dict,         // children: key, value, key, value, ...
  Negate,       // children[0]
  Plus,         // children[0]
  Not,          // children[0]
  Arithmetic,   // text is the operator: + - * / // % **; two children
  Concatenate,  // ~: children
  Compare,      // children[0] operators[0] children[1] operators[1] ...
  And,          // two children
  Or,           // two children
  Conditional,  // children: value, condition, other value (null: undefined)
  Attribute,    // children[0].text
  Subscript,    // children[0][children[1]]
  Slice,        // children[0][children[1]:children[2]:children[3]], absent ones null
  Call,         // children[0](children[1..], named)
  Filter,       // children[0] | text(children[1..], named)
  Test,         // children[0] is text(children[1..], named)
};

struct Expression {
  ExpressionKind kind = ExpressionKind::Constant;
  int line = 0;
  int height = 1;  // of the tree
  std::string text;
  Value constant;
  std::vector<ExpressionPtr> children;
  std::vector<std::string> operators;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

struct Statement;
using Body = std::vector<std::unique_ptr<const Statement>>;

// The target of an assignment or a for statement: a name, a member of a namespace, or several of them.
struct Target {
  std::string name;
  std::string member;           // of namespace `name`; empty otherwise
  std::vector<Target> several;  // if not empty, the value is unpacked into them
};

struct Parameter {
  std::string name;
  ExpressionPtr value;  // the default; null if there is none
};

enum class StatementKind {
  Text,         // text
  Output,       // expressions[0]
  If,           // expressions[i] is the condition of bodies[i]; a last body without one is the else
  For,          // target in expressions[0], if expressions[1] (or null): bodies[0], else bodies[1]
  Set,          // target = expressions[0]
  SetBlock,     // target = the text of bodies[0], after the filters
  Macro,        // text(parameters): bodies[0]
  CallBlock,    // expressions[0] is a call; bodies[0] with the parameters is its caller()
  FilterBlock,  // filters of bodies[0]
  With,         // parameters are assigned; bodies[0]
  Scope,        // bodies[0] (generation)
  Break,
  Continue,
};

struct Statement {
  StatementKind kind = StatementKind::Text;
  int line = 0;
  bool recursive = false;  // For
  std::string text;
  Target target;
  std::vector<ExpressionPtr> expressions;
  std::vector<Body> bodies;
  std::vector<Parameter> parameters;
  ExpressionPtr filters;  // a Filter expression whose innermost input is null
};

// Throws TemplateError, with the line, for text that is not such a template, that names an unknown filter or test
// outside of an if, or that is nested too deeply.
Body parse(std::string_view source);

// Return whether the interpreter implements a filter or test of this name.
bool is_filter(std::string_view name);
bool is_test(std::string_view name);

}  // namespace anyaccel::llm::jinja
