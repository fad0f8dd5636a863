// Parses the expressions of chat templates, with the precedences of jinja2/parser.py: one function for each level, the
// weakest operator first. The parser of statements (jinja_parser.cpp) is derived from this class.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llm/chat/jinja_lexer.h"
#include "llm/chat/jinja_syntax.h"

namespace anyaccel::llm::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  // Counts the nesting of expressions and blocks while it exists. Throws TemplateError beyond a fixed depth, which
  // bounds the stack use here and in the interpreter.
  class Depth {
   public:
    explicit Depth(ExpressionParser& parser);
    ~Depth() { --parser_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    ExpressionParser& parser_;
  };

  // Throws TemplateError with the line of the current token.
  [[noreturn]] void fail(const std::string& message) const;
  static std::string describe(const Token& token);
  const Token& token(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[at_ < tokens_.size() - 1 ? at_++ : at_]; }
  bool is_operator(std::string_view text, size_t ahead = 0) const;
  bool is_name(std::string_view text, size_t ahead = 0) const;
  bool accept_operator(std::string_view text);
  bool accept_name(std::string_view text);
  void expect_operator(std::string_view text);
  std::string expect_identifier(const char* what);
  std::string expect_assignable();
  void expect_block_end();

  // Parses a condition, or several separated by commas, which make a tuple.
  ExpressionPtr parse_tuple(bool with_condition);
  ExpressionPtr parse_condition();
  // Parses the filters and tests that follow a value, or, if `value` is null, those of a block.
  ExpressionPtr parse_filters(ExpressionPtr value, bool first_without_bar = false);

 private:
  std::unique_ptr<Expression> make(ExpressionKind kind, std::string text = {}) const;
  // Chains of operators make trees as deep as nesting does, and visiting a tree uses stack for each level.
  void raise_height(Expression& parent, const Expression& child) const;
  void adopt(Expression& parent, ExpressionPtr child) const;
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  // Consumes the operator token and parses its right operand.
  ExpressionPtr binary(ExpressionKind kind, ExpressionPtr left, ExpressionPtr (ExpressionParser::*right)());
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary() { return parse_unary(/*with_filters=*/true); }
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_number();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr value);
  ExpressionPtr parse_subscript(ExpressionPtr value);
  // Parses "(a, b, c=1)" and appends it to the expression's children and named values.
  void parse_arguments(Expression& expression);
  ExpressionPtr parse_test(ExpressionPtr value);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace anyaccel::llm::jinja
