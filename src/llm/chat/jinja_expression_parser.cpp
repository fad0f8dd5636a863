// Implements jinja_expression_parser.h.
#include "llm/chat/jinja_expression_parser.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace anyaccel::llm::jinja {

namespace {

constexpr int max_nesting = 200;
constexpr int max_height = 500;

constexpr std::array reserved{"true", "false", "none", "and", "or", "not", "if", "else", "elif", "in", "is"};

}  // namespace

ExpressionParser::Depth::Depth(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.depth_ > max_nesting) parser_.fail("nested more than " + std::to_string(max_nesting) + " deep");
}

void ExpressionParser::fail(const std::string& message) const {
  throw TemplateError("line " + std::to_string(token().line) + ": " + message);
}

std::string ExpressionParser::describe(const Token& token) {
  if (token.kind == TokenKind::End) return "end of the template";
  if (token.kind == TokenKind::String) return "a string";
  if (token.kind == TokenKind::Text) return "text";
  return "'" + token.text + "'";
}

bool ExpressionParser::is_operator(std::string_view text, size_t ahead) const {
  return token(ahead).kind == TokenKind::Operator && token(ahead).text == text;
}

bool ExpressionParser::is_name(std::string_view text, size_t ahead) const {
  return token(ahead).kind == TokenKind::Name && token(ahead).text == text;
}

bool ExpressionParser::accept_operator(std::string_view text) {
  if (!is_operator(text)) return false;
  take();
  return true;
}

bool ExpressionParser::accept_name(std::string_view text) {
  if (!is_name(text)) return false;
  take();
  return true;
}

void ExpressionParser::expect_operator(std::string_view text) {
  if (!accept_operator(text)) fail("expected '" + std::string(text) + "', found " + describe(token()));
}

std::string ExpressionParser::expect_identifier(const char* what) {
  if (token().kind != TokenKind::Name) fail("expected " + std::string(what) + ", found " + describe(token()));
  return take().text;
}

std::string ExpressionParser::expect_assignable() {
  const std::string name = expect_identifier("a name");
  if (std::find(reserved.begin(), reserved.end(), name) != reserved.end() || name == "True" || name == "False" ||
      name == "None" || name == "loop") {
    fail("'" + name + "' cannot be assigned to");
  }
  return name;
}

void ExpressionParser::expect_block_end() {
  if (token().kind != TokenKind::BlockEnd) fail("expected '%}', found " + describe(token()));
  take();
}

std::unique_ptr<Expression> ExpressionParser::make(ExpressionKind kind, std::string text) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = token().line;
  expression->text = std::move(text);
  return expression;
}

void ExpressionParser::raise_height(Expression& parent, const Expression& child) const {
  parent.height = std::max(parent.height, child.height + 1);
  if (parent.height > max_height) fail("an expression is more than " + std::to_string(max_height) + " operators deep");
}

void ExpressionParser::adopt(Expression& parent, ExpressionPtr child) const {
  if (child) raise_height(parent, *child);
  parent.children.push_back(std::move(child));
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_condition) {
  ExpressionPtr first = with_condition ? parse_condition() : parse_or();
  if (!is_operator(",")) return first;
  auto tuple = make(ExpressionKind::Tuple);
  adopt(*tuple, std::move(first));
  while (accept_operator(",")) {
    if (token().kind == TokenKind::OutputEnd || token().kind == TokenKind::BlockEnd || is_operator(")")) break;
    adopt(*tuple, with_condition ? parse_condition() : parse_or());
  }
  return tuple;
}

ExpressionPtr ExpressionParser::parse_condition() {
  const Depth depth(*this);
  ExpressionPtr value = parse_or();
  while (is_name("if")) {
    auto condition = make(ExpressionKind::Conditional);
    take();
    adopt(*condition, std::move(value));
    adopt(*condition, parse_or());
    adopt(*condition, accept_name("else") ? parse_condition() : nullptr);
    value = std::move(condition);
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr left = parse_and();
  while (is_name("or")) left = binary(ExpressionKind::Or, std::move(left), &ExpressionParser::parse_and);
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr left = parse_not();
  while (is_name("and")) left = binary(ExpressionKind::And, std::move(left), &ExpressionParser::parse_not);
  return left;
}

ExpressionPtr ExpressionParser::binary(ExpressionKind kind, ExpressionPtr left,
                                       ExpressionPtr (ExpressionParser::*right)()) {
  auto expression = make(kind);
  expression->text = take().text;
  adopt(*expression, std::move(left));
  adopt(*expression, (this->*right)());
  return expression;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const Depth depth(*this);
  auto expression = make(ExpressionKind::Not);
  take();
  adopt(*expression, parse_not());
  return expression;
}

ExpressionPtr ExpressionParser::parse_compare() {
  auto expression = make(ExpressionKind::Compare);
  adopt(*expression, parse_sum());
  for (;;) {
    if (token().kind == TokenKind::Operator && (token().text == "==" || token().text == "!=" || token().text == "<" ||
                                                token().text == "<=" || token().text == ">" || token().text == ">=")) {
      expression->operators.push_back(take().text);
    } else if (accept_name("in")) {
      expression->operators.emplace_back("in");
    } else if (is_name("not") && is_name("in", 1)) {
      take();
      take();
      expression->operators.emplace_back("not in");
    } else {
      break;
    }
    adopt(*expression, parse_sum());
  }
  if (expression->operators.empty()) {
    auto only = std::move(expression->children[0]);
    return only;
  }
  return expression;
}

ExpressionPtr ExpressionParser::parse_sum() {
  ExpressionPtr left = parse_concatenation();
  while (is_operator("+") || is_operator("-")) {
    left = binary(ExpressionKind::Arithmetic, std::move(left), &ExpressionParser::parse_concatenation);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  ExpressionPtr first = parse_product();
  if (!is_operator("~")) return first;
  auto expression = make(ExpressionKind::Concatenate);
  adopt(*expression, std::move(first));
  while (accept_operator("~")) adopt(*expression, parse_product());
  return expression;
}

ExpressionPtr ExpressionParser::parse_product() {
  ExpressionPtr left = parse_power();
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    left = binary(ExpressionKind::Arithmetic, std::move(left), &ExpressionParser::parse_power);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_power() {
  ExpressionPtr left = parse_unary();
  while (is_operator("**")) left = binary(ExpressionKind::Arithmetic, std::move(left), &ExpressionParser::parse_unary);
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  const Depth depth(*this);
  ExpressionPtr value;
  if (is_operator("-") || is_operator("+")) {
    auto sign = make(is_operator("-") ? ExpressionKind::Negate : ExpressionKind::Plus);
    take();
    adopt(*sign, parse_unary(/*with_filters=*/false));
    value = std::move(sign);
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filters ? parse_filters(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token& first = token();
  if (first.kind == TokenKind::Name) return parse_name();
  if (first.kind == TokenKind::String) {
    auto constant = make(ExpressionKind::Constant);
    std::string text;
    while (token().kind == TokenKind::String) text += take().text;
    constant->constant = Value(std::move(text));
    return constant;
  }
  if (first.kind == TokenKind::Integer || first.kind == TokenKind::Float) return parse_number();
  if (is_operator("(")) {
    take();
    if (accept_operator(")")) return make(ExpressionKind::Tuple);
    ExpressionPtr inner = parse_tuple(/*with_condition=*/true);
    expect_operator(")");
    return inner;
  }
  if (is_operator("[")) return parse_list();
  if (is_operator("{")) return parse_dict();
  fail("unexpected " + describe(first));
}

ExpressionPtr ExpressionParser::parse_name() {
  const std::string name = token().text;
  auto expression = make(ExpressionKind::Constant, name);
  if (name == "true" || name == "True") {
    expression->constant = Value(true);
  } else if (name == "false" || name == "False") {
    expression->constant = Value(false);
  } else if (name == "none" || name == "None") {
    expression->constant = Value(None{});
  } else if (std::find(reserved.begin(), reserved.end(), name) != reserved.end()) {
    fail("unexpected '" + name + "'");
  } else if (name == "lipsum" || name == "cycler") {
    fail("the function '" + name + "' is not supported");
  } else if (name == "self") {
    fail("'self' is not supported, since there are no blocks");
  } else {
    expression->kind = ExpressionKind::Name;
  }
  take();
  return expression;
}

ExpressionPtr ExpressionParser::parse_number() {
  auto constant = make(ExpressionKind::Constant);
  const Token& number = take();
  const char* begin = number.text.data();
  const char* end = begin + number.text.size();
  if (number.kind == TokenKind::Float) {
    double value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc()) fail("the number " + number.text + " is out of range");
    constant->constant = Value(value);
    return constant;
  }
  int64_t value = 0;
  if (std::from_chars(begin, end, value).ec != std::errc()) fail("the number " + number.text + " is above 2^63 - 1");
  constant->constant = Value(value);
  return constant;
}

ExpressionPtr ExpressionParser::parse_list() {
  auto list = make(ExpressionKind::List);
  take();
  while (!accept_operator("]")) {
    if (!list->children.empty()) {
      expect_operator(",");
      if (accept_operator("]")) break;
    }
    adopt(*list, parse_condition());
  }
  return list;
}

ExpressionPtr ExpressionParser::parse_dict() {
  auto dict = make(ExpressionKind::Dict);
  take();
  while (!accept_operator("}")) {
    if (!dict->children.empty()) {
      expect_operator(",");
      if (accept_operator("}")) break;
    }
    adopt(*dict, parse_condition());
    expect_operator(":");
    adopt(*dict, parse_condition());
  }
  return dict;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr value) {
  for (;;) {
    if (is_operator(".")) {
      take();
      auto expression = make(ExpressionKind::Attribute);
      if (token().kind == TokenKind::Integer) {  // x.0 is x[0]
        expression->kind = ExpressionKind::Subscript;
        adopt(*expression, std::move(value));
        adopt(*expression, parse_number());
      } else {
        expression->text = expect_identifier("a name");
        adopt(*expression, std::move(value));
      }
      value = std::move(expression);
    } else if (is_operator("[")) {
      value = parse_subscript(std::move(value));
    } else if (is_operator("(")) {
      auto call = make(ExpressionKind::Call);
      adopt(*call, std::move(value));
      parse_arguments(*call);
      value = std::move(call);
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr value) {
  auto expression = make(ExpressionKind::Subscript);
  take();
  adopt(*expression, std::move(value));
  const auto part = [&]() -> ExpressionPtr {
    return is_operator(":") || is_operator("]") ? nullptr : parse_condition();
  };
  ExpressionPtr first = part();
  if (is_operator(":")) {
    expression->kind = ExpressionKind::Slice;
    take();
    ExpressionPtr second = part();
    ExpressionPtr third = accept_operator(":") ? part() : nullptr;
    adopt(*expression, std::move(first));
    adopt(*expression, std::move(second));
    adopt(*expression, std::move(third));
  } else {
    if (!first) fail("expected an index");
    if (is_operator(",")) fail("an index with commas is not supported");
    adopt(*expression, std::move(first));
  }
  expect_operator("]");
  return expression;
}

void ExpressionParser::parse_arguments(Expression& expression) {
  expect_operator("(");
  for (bool first = true; !accept_operator(")"); first = false) {
    if (!first) {
      expect_operator(",");
      if (accept_operator(")")) return;
    }
    if (is_operator("*") || is_operator("**")) fail("arguments with * are not supported");
    if (token().kind == TokenKind::Name && is_operator("=", 1)) {
      std::string name = take().text;
      take();
      ExpressionPtr value = parse_condition();
      raise_height(expression, *value);
      expression.named.emplace_back(std::move(name), std::move(value));
      continue;
    }
    if (!expression.named.empty()) fail("an argument without a name follows one with a name");
    adopt(expression, parse_condition());
  }
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr value, bool first_without_bar) {
  for (bool first = first_without_bar;; first = false) {
    if (first || is_operator("|")) {
      if (!first) take();
      auto filter = make(ExpressionKind::Filter, expect_identifier("the name of a filter"));
      adopt(*filter, std::move(value));
      if (is_operator("(")) parse_arguments(*filter);
      value = std::move(filter);
    } else if (value && is_name("is")) {
      value = parse_test(std::move(value));
    } else if (value && is_operator("(")) {
      auto call = make(ExpressionKind::Call);
      adopt(*call, std::move(value));
      parse_arguments(*call);
      value = std::move(call);
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr value) {
  take();
  const bool negated = accept_name("not");
  auto test = make(ExpressionKind::Test, expect_identifier("the name of a test"));
  adopt(*test, std::move(value));
  if (is_operator("(")) {
    parse_arguments(*test);
  } else {
    const Token& next = token();
    const bool is_argument =
        next.kind == TokenKind::String || next.kind == TokenKind::Integer || next.kind == TokenKind::Float ||
        is_operator("[") || is_operator("{") ||
        (next.kind == TokenKind::Name && next.text != "else" && next.text != "or" && next.text != "and");
    if (is_argument) {
      if (is_name("is")) fail("tests cannot be chained");
      // In "x is eq y if ..." and "x is a in y", these words end the test.
      if (!is_name("if") && !is_name("in") && !is_name("not") && !is_name("recursive")) {
        const Depth depth(*this);
        adopt(*test, parse_postfix(parse_primary()));
      }
    }
  }
  if (!negated) return test;
  auto expression = make(ExpressionKind::Not);
  adopt(*expression, std::move(test));
  return expression;
}

}  // namespace anyaccel::llm::jinja
