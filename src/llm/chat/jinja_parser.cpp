// Parses the statements of chat templates: blocks between {% and %}, outputs and the text around them.
#include <algorithm>
#include <array>

#include "llm/chat/jinja_expression_parser.h"

namespace anyaccel::llm::jinja {

namespace {

class Parser : ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Body run() {
    Body body = parse_body({});
    if (token().kind != TokenKind::End) fail("unexpected " + describe(token()));
    check_names(body, false);
    return body;
  }

 private:
  // Parses up to a block that begins with one of `ends`, whose name is then the current token.
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
        statement->expressions.push_back(parse_tuple(/*with_condition=*/true));
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

  // Fails for a filter or test that does not exist. As in Jinja, those inside of an if are errors only if they are
  // reached, so that templates can be written for several programs; a loop or macro inside of it is strict again.
  static void check_names(const Body& body, bool in_if) {
    for (const auto& statement : body) check_names(*statement, in_if);
  }

  static void check_names(const Statement& statement, bool in_if) {
    const bool is_if = statement.kind == StatementKind::If;
    const bool is_for = statement.kind == StatementKind::For;
    for (size_t i = 0; i < statement.expressions.size(); ++i) {
      if (!statement.expressions[i]) continue;
      check_names(*statement.expressions[i], is_if || (in_if && !(is_for && i == 1)));
    }
    for (const Parameter& parameter : statement.parameters) {
      if (parameter.value) check_names(*parameter.value, in_if && statement.kind == StatementKind::With);
    }
    if (statement.filters) check_names(*statement.filters, false);
    for (const Body& body : statement.bodies) check_names(body, is_if);
  }

  static void check_names(const Expression& expression, bool in_if) {
    in_if |= expression.kind == ExpressionKind::Conditional;
    if (!in_if) {
      const bool is_filter_name = expression.kind != ExpressionKind::Filter || is_filter(expression.text);
      const bool is_test_name = expression.kind != ExpressionKind::Test || is_test(expression.text);
      if (!is_filter_name || !is_test_name) {
        throw TemplateError("line " + std::to_string(expression.line) + ": there is no " +
                            (is_filter_name ? "test" : "filter") + " '" + expression.text + "'");
      }
    }
    for (const ExpressionPtr& child : expression.children) {
      if (child) check_names(*child, in_if);
    }
    for (const auto& named : expression.named) check_names(*named.second, in_if);
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

  // Parses one more body, up to `end`, and consumes the block of `end`.
  void parse_bodies(Statement& statement, std::string_view end) {
    statement.bodies.push_back(parse_body({end}));
    take();
    expect_block_end();
  }

  std::unique_ptr<const Statement> parse_if() {
    auto statement = make_statement(StatementKind::If);
    take();
    for (;;) {
      statement->expressions.push_back(parse_tuple(/*with_condition=*/false));
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
    statement->expressions.push_back(parse_tuple(/*with_condition=*/false));
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
      statement->expressions.push_back(parse_tuple(/*with_condition=*/true));
      expect_block_end();
      return statement;
    }
    statement->kind = StatementKind::SetBlock;
    if (!statement->target.several.empty()) fail("expected '=', found " + describe(token()));
    if (is_operator("|")) statement->filters = parse_filters(nullptr);
    expect_block_end();
    parse_bodies(*statement, "endset");
    return statement;
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
    if (statement->expressions[0]->kind != ExpressionKind::Call) fail("expected a call after 'call'");
    expect_block_end();
    parse_macro_body(*statement, "endcall");
    return statement;
  }

  std::unique_ptr<const Statement> parse_filter_block() {
    auto statement = make_statement(StatementKind::FilterBlock);
    take();
    statement->filters = parse_filters(nullptr, /*first_without_bar=*/true);
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
      statement->parameters.push_back(std::move(parameter));
    }
    expect_block_end();
    parse_bodies(*statement, "endwith");
    return statement;
  }

  int loops_ = 0;  // number of for blocks around the current position
};

}  // namespace

Body parse(std::string_view source) { return Parser(tokenize(source)).run(); }

}  // namespace anyaccel::llm::jinja
