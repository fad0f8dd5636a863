// Runs the syntax tree of a chat template, within limits on steps, depth and output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "llm/chat/jinja_syntax.h"
#include "llm/chat/jinja_value.h"

namespace anyaccel::llm::jinja {

// The variables of a block. Macros keep the scope that they were defined in.
struct Scope {
  std::map<std::string, Value, std::less<>> variables;
  std::shared_ptr<Scope> parent;

  const Value* find(std::string_view name) const;
};

class Interpreter {
 public:
  Interpreter();

  // Renders the template with these variables. Throws TemplateError with the line of the failing expression, and
  // RejectedByTemplate if the template calls raise_exception().
  std::string run(const Body& body, const Dict& variables);

  // The following are called by functions, filters and tests.

  // Counts work: one step, and more for the bytes of strings that are created. Throws TemplateError beyond the limit.
  void charge(size_t bytes = 0);
  // Call before creating a string of `size` bytes or a list of `size` elements; throws TemplateError if that is too
  // large.
  void check_size(size_t size) const;
  Value call(const Value& function, const Arguments& arguments);
  // Evaluate `value | name(arguments)` and `value is name(arguments)`.
  Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments);
  bool apply_test(std::string_view name, const Value& value, const Arguments& arguments);
  // Look up value.name and value[index] as Jinja does; undefined if there is none.
  Value attribute(const Value& value, const std::string& name);
  Value subscript(const Value& value, const Value& index);

  static constexpr size_t max_output = size_t{64} << 20;
  static constexpr size_t bytes_per_step = 32;

 private:
  enum class Flow { Next, Break, Continue };
  class Depth;

  Flow run_body(const Body& body, const std::shared_ptr<Scope>& scope, std::string& out);
  Flow run_statement(const Statement& statement, const std::shared_ptr<Scope>& scope, std::string& out);
  void run_for(const Statement& statement, const std::shared_ptr<Scope>& scope, const Value& values, int64_t depth,
               std::string& out);
  Value make_macro(const Statement& statement, const std::string& name, const std::shared_ptr<Scope>& scope);
  std::string run_macro(const Statement& statement, const std::string& name, const std::shared_ptr<Scope>& scope,
                        const Arguments& arguments);
  void assign(const Target& target, const Value& value, const std::shared_ptr<Scope>& scope);
  Value evaluate(const Expression& expression, const std::shared_ptr<Scope>& scope);
  Value evaluate_here(const Expression& expression, const std::shared_ptr<Scope>& scope);
  Value evaluate_filter(const Expression& filter, const Value* innermost, const std::shared_ptr<Scope>& scope);
  bool compare(const Expression& expression, const std::shared_ptr<Scope>& scope);
  Value arithmetic(std::string_view op, const Value& a, const Value& b);
  Value slice(const Value& value, const Value& begin, const Value& end, const Value& step);
  Arguments arguments(const Expression& expression, const std::shared_ptr<Scope>& scope);
  void append(std::string& out, std::string_view text);

  std::shared_ptr<Scope> globals_;
  std::vector<std::shared_ptr<Scope>> scopes_of_macros_;
  size_t steps_ = 0;
  int depth_ = 0;
};

// Throws TemplateError for a name that a member of a namespace cannot have (transformers' rule).
void check_member_name(std::string_view name);
// Adds the functions that every template has: range, dict, namespace, joiner, raise_exception.
void add_globals(Scope& globals);
// Returns the method `name` of the value's Python type, bound to the value; undefined if the type has none.
Value method(const Value& value, const std::string& name);
// Evaluates text.format(arguments) with "{}", "{0}" and "{name}", without format specifications after a colon.
std::string format_braces(Interpreter& interpreter, const std::string& format, const Arguments& arguments);
// Evaluates `format % arguments` as Python does.
std::string format_percent(Interpreter& interpreter, std::string_view format, const Value& arguments);

}  // namespace anyaccel::llm::jinja
