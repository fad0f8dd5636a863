// Implements the parser of chat templates, with the precedences of jinja2/parser.py.
#include <algorithm>
#include <array>
#include <charconv>

#include "llm/chat/jinja_lexer.h"
#include "llm/chat/jinja_syntax.h"

namespace anyaccel::llm::jinja {

namespace {

// Deepest nesting of expressions and blocks together. Bounds the stack, here and in the interpreter.
constexpr int max_nesting = 200;
constexpr int max_height = 500;

constexpr std::array reserved{"true", "false", "none", "and", "or", "not", "if", "else", "elif", "in", "is"};

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Body run() {
    Body body = parse_body({});
    if (token().kind != TokenKind::End) fail("unexpected " + describe(token()));
    return body;
  }

 private:
  class Depth {
   public:
    explicit Depth(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > max_nesting) parser_.fail("nested more than " + std::to_string(max_nesting) + " deep");
    }
    ~Depth() { --parser_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Parser& parser_;
  };

  [[noreturn]] void fail(const std::string& message) const {
    throw TemplateError("line " + std::to_string(token().line) + ": " + message);
  }

  static std::string describe(const Token& token) {
    if (token.kind == TokenKind::End) return "end of the template";
    if (token.kind == TokenKind::String) return "a string";
    if (token.kind == TokenKind::Text) return "text";
    return "'" + token.text + "'";
  }

  const Token& token(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[at_ < tokens_.size() - 1 ? at_++ : at_]; }
  bool is_operator(std::string_view text, size_t ahead = 0) const {
    return token(ahead).kind == TokenKind::Operator && token(ahead).text == text;
  }
  bool is_name(std::string_view text, size_t ahead = 0) const {
    return token(ahead).kind == TokenKind::Name && token(ahead).text == text;
  }
  bool accept_operator(std::string_view text) {
    if (!is_operator(text)) return false;
    take();
    return true;
  }
  bool accept_name(std::string_view text) {
    if (!is_name(text)) return false;
    take();
    return true;
  }
  void expect_operator(std::string_view text) {
    if (!accept_operator(text)) fail("expected '" + std::string(text) + "', found " + describe(token()));
  }
  std::string expect_identifier(const char* what) {
    if (token().kind != TokenKind::Name) fail("expected " + std::string(what) + ", found " + describe(token()));
    return take().text;
  }
  std::string expect_assignable() {
    const std::string name = expect_identifier("a name");
    if (std::find(reserved.begin(), reserved.end(), name) != reserved.end() || name == "True" || name == "False" ||
        name == "None" || name == "loop") {
      fail("'" + name + "' cannot be assigned to");
    }
    return name;
  }
  void expect_block_end() {
    if (token().kind != TokenKind::BlockEnd) fail("expected '%}', found " + describe(token()));
    take();
  }

  std::unique_ptr<Expression> make(ExpressionKind kind, std::string text = {}) const {
    auto expression = std::make_unique<Expression>();
    expression->kind = kind;
    expression->line = token().line;
    expression->text = std::move(text);
    return expression;
  }

  // Chains of operators make trees as deep as nesting does, and every visit of a tree uses stack.
  void raise_height(Expression& parent, const Expression& child) const {
    parent.height = std::max(parent.height, child.height + 1);
    if (parent.height > max_height)
      fail("an expression is more than " + std::to_string(max_height) + " operators deep");
  }
  void adopt(Expression& parent, ExpressionPtr child) const {
    if (child) raise_height(parent, *child);
    parent.children.push_back(std::move(child));
  }

  // ---- statements ----

  // Up to a block that begins with one of `ends`, whose name is then the current token.
  Body parse_body(const std::vector<std::string_view>& ends) {
    const Depth depth(*this);
    Body body;
    while (token().kind != TokenKind::End) {
      if (token().kind == TokenKind::Text) {
        auto statement = make_statement(StatementKind::Text);
        statement->text = take().text;
        body.push_back(std::move(statement));
      } else if (token().kind == TokenKind::OutputBegin) {
        auto statement = make_statement(StatementKind::Output);
        take();
        ExpressionPtr value = parse_tuple(/*with_condition=*/true);
        // safe makes a text that is not escaped again. Nothing is escaped here, so it has no effect at the end.
        while (value->kind == ExpressionKind::Filter && value->text == "safe") {
          value = std::move(const_cast<Expression&>(*value).children[0]);
        }
        check_no_safe(*value);
        statement->expressions.push_back(std::move(value));
        if (token().kind != TokenKind::OutputEnd) fail("expected '}}', found " + describe(token()));
        take();
        body.push_back(std::move(statement));
      } else {
        if (token(1).kind == TokenKind::Name && std::find(ends.begin(), ends.end(), token(1).text) != ends.end()) {
          take();
          return body;
        }
        take();
        body.push_back(parse_block());
      }
    }
    if (!ends.empty()) fail("expected {% " + std::string(ends.back()) + " %}, found the end of the template");
    return body;
  }

  // A filter "safe" elsewhere would make + and join() escape what it is joined with.
  void check_no_safe(const Expression& expression) const {
    if (expression.kind == ExpressionKind::Filter && expression.text == "safe") {
      fail("the filter 'safe' is supported at the end of {{ ... }} only");
    }
    for (const ExpressionPtr& child : expression.children) {
      if (child) check_no_safe(*child);
    }
    for (const auto& named : expression.named) check_no_safe(*named.second);
  }

  ExpressionPtr parse_value(bool with_condition = true) {
    ExpressionPtr value = parse_tuple(with_condition);
    check_no_safe(*value);
    return value;
  }

  std::unique_ptr<Statement> make_statement(StatementKind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = token().line;
    return statement;
  }

  std::unique_ptr<const Statement> parse_block() {
    if (token().kind != TokenKind::Name) fail("expected the name of a block, found " + describe(token()));
    const std::string name = token().text;
    if (name == "if") return parse_if();
    if (name == "for") return parse_for();
    if (name == "set") return parse_set();
    if (name == "macro") return parse_macro();
    if (name == "call") return parse_call_block();
    if (name == "filter") return parse_filter_block();
    if (name == "with") return parse_with();
    if (name == "generation") {
      auto statement = make_statement(StatementKind::Scope);
      take();
      expect_block_end();
      parse_bodies(*statement, "endgeneration");
      return statement;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail("'" + name + "' outside of a for block");
      auto statement = make_statement(name == "break" ? StatementKind::Break : StatementKind::Continue);
      take();
      expect_block_end();
      return statement;
    }
    constexpr std::array files{"include", "import", "from", "extends", "block"};
    if (std::find(files.begin(), files.end(), name) != files.end()) {
      fail("'" + name + "' would read other templates, which a chat template cannot");
    }
    fail("unknown block '" + name + "'");
  }

  // bodies[0] up to `end`, whose block is taken.
  void parse_bodies(Statement& statement, std::string_view end) {
    statement.bodies.push_back(parse_body({end}));
    take();
    expect_block_end();
  }

  std::unique_ptr<const Statement> parse_if() {
    auto statement = make_statement(StatementKind::If);
    take();
    for (;;) {
      statement->expressions.push_back(parse_value(/*with_condition=*/false));
      expect_block_end();
      statement->bodies.push_back(parse_body({"elif", "else", "endif"}));
      const std::string name = take().text;
      if (name == "elif") continue;
      expect_block_end();
      if (name == "else") parse_bodies(*statement, "endif");
      return statement;
    }
  }

  std::unique_ptr<const Statement> parse_for() {
    auto statement = make_statement(StatementKind::For);
    take();
    statement->target = parse_target(/*with_members=*/false);
    if (!accept_name("in")) fail("expected 'in', found " + describe(token()));
    statement->expressions.push_back(parse_value(/*with_condition=*/false));
    statement->expressions.push_back(accept_name("if") ? parse_condition() : nullptr);
    statement->recursive = accept_name("recursive");
    expect_block_end();
    ++loops_;
    statement->bodies.push_back(parse_body({"else", "endfor"}));
    --loops_;
    const std::string name = take().text;
    expect_block_end();
    if (name == "else") parse_bodies(*statement, "endfor");
    return statement;
  }

  Target parse_target(bool with_members) {
    Target target = parse_one_target(with_members);
    if (!is_operator(",")) return target;
    Target all;
    all.several.push_back(std::move(target));
    while (accept_operator(",")) {
      if (is_operator("=") || is_name("in")) break;
      all.several.push_back(parse_one_target(with_members));
    }
    return all;
  }

  Target parse_one_target(bool with_members) {
    const Depth depth(*this);
    if (accept_operator("(")) {
      Target target = parse_target(with_members);
      expect_operator(")");
      return target;
    }
    Target target;
    target.name = expect_assignable();
    if (with_members && accept_operator(".")) target.member = expect_identifier("a name");
    return target;
  }

  std::unique_ptr<const Statement> parse_set() {
    auto statement = make_statement(StatementKind::Set);
    take();
    statement->target = parse_target(/*with_members=*/true);
    if (accept_operator("=")) {
      statement->expressions.push_back(parse_value());
      expect_block_end();
      return statement;
    }
    statement->kind = StatementKind::SetBlock;
    if (!statement->target.several.empty()) fail("expected '=', found " + describe(token()));
    if (is_operator("|")) statement->filters = parse_filters(nullptr);
    if (statement->filters) check_no_safe_filters(*statement->filters);
    expect_block_end();
    parse_bodies(*statement, "endset");
    return statement;
  }

  void check_no_safe_filters(const Expression& filters) const {
    for (const Expression* filter = &filters; filter != nullptr; filter = filter->children[0].get()) {
      if (filter->text == "safe") fail("the filter 'safe' is supported at the end of {{ ... }} only");
    }
  }

  void parse_parameters(std::vector<Parameter>& parameters) {
    expect_operator("(");
    while (!accept_operator(")")) {
      if (!parameters.empty()) {
        expect_operator(",");
        if (accept_operator(")")) return;
      }
      Parameter parameter;
      parameter.name = expect_assignable();
      if (accept_operator("=")) {
        parameter.value = parse_condition();
        check_no_safe(*parameter.value);
      } else if (!parameters.empty() && parameters.back().value) {
        fail("a parameter without a default follows one with a default");
      }
      parameters.push_back(std::move(parameter));
    }
  }

  std::unique_ptr<const Statement> parse_macro() {
    auto statement = make_statement(StatementKind::Macro);
    take();
    statement->text = expect_assignable();
    parse_parameters(statement->parameters);
    expect_block_end();
    parse_macro_body(*statement, "endmacro");
    return statement;
  }

  void parse_macro_body(Statement& statement, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    parse_bodies(statement, end);
    loops_ = loops;
  }

  std::unique_ptr<const Statement> parse_call_block() {
    auto statement = make_statement(StatementKind::CallBlock);
    take();
    if (is_operator("(")) parse_parameters(statement->parameters);
    statement->expressions.push_back(parse_condition());
    check_no_safe(*statement->expressions[0]);
    if (statement->expressions[0]->kind != ExpressionKind::Call) fail("expected a call after 'call'");
    expect_block_end();
    parse_macro_body(*statement, "endcall");
    return statement;
  }

  std::unique_ptr<const Statement> parse_filter_block() {
    auto statement = make_statement(StatementKind::FilterBlock);
    take();
    statement->filters = parse_filters(nullptr, /*first_without_bar=*/true);
    check_no_safe_filters(*statement->filters);
    expect_block_end();
    parse_bodies(*statement, "endfilter");
    return statement;
  }

  std::unique_ptr<const Statement> parse_with() {
    auto statement = make_statement(StatementKind::With);
    take();
    while (token().kind != TokenKind::BlockEnd) {
      if (!statement->parameters.empty()) expect_operator(",");
      Parameter parameter;
      parameter.name = expect_assignable();
      expect_operator("=");
      parameter.value = parse_condition();
      check_no_safe(*parameter.value);
      statement->parameters.push_back(std::move(parameter));
    }
    expect_block_end();
    parse_bodies(*statement, "endwith");
    return statement;
  }

  // ---- expressions, from the weakest operator to the strongest ----

  // A condition, or several with commas, which are a tuple.
  ExpressionPtr parse_tuple(bool with_condition) {
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

  ExpressionPtr parse_condition() {
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

  ExpressionPtr parse_or() {
    ExpressionPtr left = parse_and();
    while (is_name("or")) left = binary(ExpressionKind::Or, std::move(left), &Parser::parse_and);
    return left;
  }

  ExpressionPtr parse_and() {
    ExpressionPtr left = parse_not();
    while (is_name("and")) left = binary(ExpressionKind::And, std::move(left), &Parser::parse_not);
    return left;
  }

  // Takes the operator.
  ExpressionPtr binary(ExpressionKind kind, ExpressionPtr left, ExpressionPtr (Parser::*right)()) {
    auto expression = make(kind);
    expression->text = take().text;
    adopt(*expression, std::move(left));
    adopt(*expression, (this->*right)());
    return expression;
  }

  ExpressionPtr parse_not() {
    if (!is_name("not")) return parse_compare();
    const Depth depth(*this);
    auto expression = make(ExpressionKind::Not);
    take();
    adopt(*expression, parse_not());
    return expression;
  }

  ExpressionPtr parse_compare() {
    auto expression = make(ExpressionKind::Compare);
    adopt(*expression, parse_sum());
    for (;;) {
      if (token().kind == TokenKind::Operator &&
          (token().text == "==" || token().text == "!=" || token().text == "<" || token().text == "<=" ||
           token().text == ">" || token().text == ">=")) {
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

  ExpressionPtr parse_sum() {
    ExpressionPtr left = parse_concatenation();
    while (is_operator("+") || is_operator("-")) {
      left = binary(ExpressionKind::Arithmetic, std::move(left), &Parser::parse_concatenation);
    }
    return left;
  }

  ExpressionPtr parse_concatenation() {
    ExpressionPtr first = parse_product();
    if (!is_operator("~")) return first;
    auto expression = make(ExpressionKind::Concatenate);
    adopt(*expression, std::move(first));
    while (accept_operator("~")) adopt(*expression, parse_product());
    return expression;
  }

  ExpressionPtr parse_product() {
    ExpressionPtr left = parse_power();
    while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
      left = binary(ExpressionKind::Arithmetic, std::move(left), &Parser::parse_power);
    }
    return left;
  }

  ExpressionPtr parse_power() {
    ExpressionPtr left = parse_unary();
    while (is_operator("**")) left = binary(ExpressionKind::Arithmetic, std::move(left), &Parser::parse_unary);
    return left;
  }

  ExpressionPtr parse_unary() { return parse_unary(/*with_filters=*/true); }

  ExpressionPtr parse_unary(bool with_filters) {
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

  ExpressionPtr parse_primary() {
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

  ExpressionPtr parse_name() {
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
    } else {
      expression->kind = ExpressionKind::Name;
    }
    take();
    return expression;
  }

  ExpressionPtr parse_number() {
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

  ExpressionPtr parse_list() {
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

  ExpressionPtr parse_dict() {
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

  ExpressionPtr parse_postfix(ExpressionPtr value) {
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

  ExpressionPtr parse_subscript(ExpressionPtr value) {
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

  // "(a, b, c=1)": appended to the expression's children and named values.
  void parse_arguments(Expression& expression) {
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

  // Filters and tests behind a value. Without a value (null): those of a block.
  ExpressionPtr parse_filters(ExpressionPtr value, bool first_without_bar = false) {
    for (bool first = first_without_bar;; first = false) {
      if (first || is_operator("|")) {
        if (!first) take();
        auto filter = make(ExpressionKind::Filter, expect_identifier("the name of a filter"));
        if (!is_filter(filter->text)) fail("there is no filter '" + filter->text + "'");
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

  ExpressionPtr parse_test(ExpressionPtr value) {
    take();
    const bool negated = accept_name("not");
    auto test = make(ExpressionKind::Test, expect_identifier("the name of a test"));
    if (!is_test(test->text)) fail("there is no test '" + test->text + "'");
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
        // "x is eq y if ..." and "x is a in y": these words end the test.
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

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

Body parse(std::string_view source) { return Parser(tokenize(source)).run(); }

}  // namespace anyaccel::llm::jinja
