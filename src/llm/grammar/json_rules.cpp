// Builds the rules of JSON values, lists and objects, with limited white space between their parts.
#include "llm/grammar/json_rules.h"

#include <algorithm>
#include <utility>

#include "anyaccel/error.h"
#include "base/text/utf8.h"
#include "llm/grammar/json_text_rules.h"

namespace anyaccel::llm {

Expression json_quoted(Expression inside) {
  return Expression::sequence({Expression::text("\""), std::move(inside), Expression::text("\"")});
}

Expression json_other_keys(const std::vector<std::string>& names) {
  const std::vector<CharacterRange> plain = {{0x20, '!'}, {'#', '['}, {']', last_character}};
  std::map<char32_t, std::vector<std::string>> next;
  std::vector<CharacterRange> excluded = other_characters(plain);
  bool taken = false;
  for (const std::string& name : names) {
    if (name.empty()) {
      taken = true;
      continue;
    }
    const Utf8Step step = utf8_step(name);
    next[step.code].push_back(name.substr(step.length));
    excluded.push_back({step.code, step.code});
  }
  std::vector<Expression> ways;
  if (!taken) ways.push_back(Expression::text(""));
  ways.push_back(Expression::sequence(
      {Expression::characters(other_characters(excluded)), Expression::repeat(Expression::characters(plain), 0, -1)}));
  for (const auto& [code, rest] : next) {
    if (code < 0x20 || code == '"' || code == '\\') continue;
    std::string text;
    append_utf8(text, code);
    ways.push_back(Expression::sequence({Expression::text(text), json_other_keys(rest)}));
  }
  return Expression::choice(std::move(ways));
}

uint32_t JsonRules::add(std::string name, Expression body) {
  constexpr size_t most = 50'000;
  if (rules_.rules.size() == most) {
    throw InvalidArgument(rules_.source + ": the schema needs more than " + std::to_string(most) + " rules");
  }
  rules_.rules.push_back({std::move(name), std::move(body)});
  return static_cast<uint32_t>(rules_.rules.size() - 1);
}

GrammarRules JsonRules::finish(uint32_t root) {
  rules_.root = root;
  return std::move(rules_);
}

// Returns a rule that is made when it is first used.
template <class Make>
Expression JsonRules::common(const char* name, const Make& make) {
  if (const auto at = common_.find(name); at != common_.end()) return Expression::reference(at->second);
  const uint32_t rule = common_[name] = add(name);
  Expression body = make();
  define(rule, std::move(body));
  return Expression::reference(rule);
}

// White space is limited, because a model may write it without end.
Expression JsonRules::space() {
  return common("white space", [] {
    return Expression::choice(
        {Expression::text(""), Expression::text(" "),
         Expression::sequence(
             {Expression::text("\n"), Expression::repeat(Expression::characters({{' ', ' '}, {'\t', '\t'}}), 0, 20)})});
  });
}

Expression JsonRules::character() { return common("character", any_json_character); }

Expression JsonRules::any_string() {
  return common("string", [&] { return json_quoted(Expression::repeat(character(), 0, -1)); });
}

Expression JsonRules::any_value() {
  return common("value", [&] {
    std::vector<Expression> ways;
    for (const std::string_view type : json_type_names) {
      if (type != "integer") ways.push_back(any_of_type(type));
    }
    return Expression::choice(std::move(ways));
  });
}

Expression JsonRules::any_of_type(std::string_view type) {
  if (type == "null") return Expression::text("null");
  if (type == "boolean") return Expression::choice({Expression::text("true"), Expression::text("false")});
  if (type == "integer") return common("integer", [] { return json_integer({}); });
  if (type == "number") return common("number", [] { return json_number({}); });
  if (type == "string") return any_string();
  if (type == "array") return common("array", [&] { return list({}, any_value(), 0, -1); });
  return common("object", [&] { return members({}, JsonPair{any_string(), any_value()}); });
}

Expression JsonRules::list(std::vector<Expression> first, const std::optional<Expression>& rest, int64_t least,
                           int64_t most) {
  const Expression comma = Expression::sequence({Expression::text(","), space()});
  const auto given = static_cast<int64_t>(first.size());
  if (most >= 0 && most < given) first.resize(static_cast<size_t>(most));
  const auto element = [&](Expression value) { return Expression::sequence({std::move(value), space()}); };
  // From the back: what follows element i, if the list ends there or goes on.
  Expression tail;
  const auto count = static_cast<int64_t>(first.size());
  if (rest && (most < 0 || most > count)) {
    const int64_t fewest = std::max<int64_t>(0, least - count);
    const int64_t more = most < 0 ? -1 : most - count;
    const Expression following = Expression::sequence({comma, element(*rest)});
    if (count > 0) {
      tail = Expression::repeat(following, fewest, more);
    } else {
      tail = Expression::sequence(
          {element(*rest), Expression::repeat(following, std::max<int64_t>(0, fewest - 1), more < 0 ? -1 : more - 1)});
      if (fewest == 0) tail = Expression::repeat(std::move(tail), 0, 1);
    }
  }
  for (int64_t i = count; i-- > 0;) {
    std::vector<Expression> parts;
    if (i > 0) parts.push_back(comma);
    parts.push_back(element(std::move(first[static_cast<size_t>(i)])));
    parts.push_back(std::move(tail));
    tail = Expression::sequence(std::move(parts));
    if (i >= least) tail = Expression::repeat(std::move(tail), 0, 1);
    // Rules keep expressions flat.
    tail = Expression::reference(add("elements", std::move(tail)));
  }
  return Expression::sequence({Expression::text("["), space(), std::move(tail), Expression::text("]")});
}

Expression JsonRules::members(const std::vector<JsonProperty>& properties, const std::optional<JsonPair>& others) {
  const Expression comma = Expression::sequence({Expression::text(","), space()});
  const auto pair = [&](const JsonPair& p) {
    return Expression::sequence({p.key, Expression::text(":"), space(), p.value, space()});
  };
  Expression first, more;  // what may follow if there is no property yet, and if there is one
  if (others) {
    more = Expression::reference(
        add("more members", Expression::repeat(Expression::sequence({comma, pair(*others)}), 0, -1)));
    first =
        Expression::reference(add("members", Expression::repeat(Expression::sequence({pair(*others), more}), 0, 1)));
  }
  for (size_t i = properties.size(); i-- > 0;) {
    const Expression one = Expression::reference(add("member", pair(properties[i].pair)));
    Expression with = Expression::sequence({one, more});
    Expression behind = Expression::sequence({comma, one});
    if (!properties[i].required) {
      with = Expression::choice({std::move(with), first});
      behind = Expression::repeat(std::move(behind), 0, 1);
    }
    first = Expression::reference(add("members", std::move(with)));
    more = Expression::reference(add("more members", Expression::sequence({std::move(behind), more})));
  }
  return Expression::sequence({Expression::text("{"), space(), first, Expression::text("}")});
}

}  // namespace anyaccel::llm
