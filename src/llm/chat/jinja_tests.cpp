// Implements the tests of Jinja ("x is defined") that chat templates use.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "llm/chat/jinja_interpreter.h"
#include "llm/chat/jinja_parameters.h"

namespace anyaccel::llm::jinja {

namespace {

constexpr std::array test_names{"boolean", "callable",    "defined",  "undefined", "divisibleby", "eq",
                                "==",      "equalto",     "even",     "odd",       "false",       "true",
                                "float",   "integer",     "number",   "ge",        ">=",          "gt",
                                ">",       "greaterthan", "in",       "iterable",  "le",          "<=",
                                "lt",      "<",           "lessthan", "lower",     "upper",       "mapping",
                                "ne",      "!=",          "none",     "sameas",    "sequence",    "string",
                                "filter",  "test"};

}  // namespace

bool is_test(std::string_view name) {
  return std::find(test_names.begin(), test_names.end(), name) != test_names.end();
}

bool Interpreter::apply_test(std::string_view name, const Value& value, const Arguments& arguments) {
  charge();
  const auto alone = [&](bool result) {
    const Parameters given(name, arguments, Names{});
    return result;
  };
  const auto other = [&]() -> const Value& {
    const Parameters given(name, arguments, Names{"other"});
    return given.required(0);
  };
  const auto whole = [&](const Value& number) -> int64_t {
    require_defined(number);
    if (const auto* flag = std::get_if<bool>(&number.data)) return *flag ? 1 : 0;
    if (const auto* found = std::get_if<int64_t>(&number.data)) return *found;
    throw TemplateError("the test '" + std::string(name) + "' needs an int, not " + type_name(number));
  };
  if (name == "defined") return alone(!value.is_undefined());
  if (name == "undefined") return alone(value.is_undefined());
  if (name == "none") return alone(value.is_none());
  if (name == "string") return alone(value.is_string());
  if (name == "mapping") return alone(value.dict() != nullptr);
  if (name == "sequence") {
    // A sequence in Python has a length and can be indexed; undefined values have both.
    const Iterable* iterable = value.iterable();
    return alone(value.is_string() || value.items() != nullptr || value.dict() != nullptr || value.is_undefined() ||
                 (iterable != nullptr && iterable->kind == Iterable::Kind::Range));
  }
  if (name == "iterable") {
    return alone(value.is_string() || value.items() != nullptr || value.dict() != nullptr || value.is_undefined() ||
                 value.iterable() != nullptr || std::holds_alternative<std::shared_ptr<Loop>>(value.data));
  }
  if (name == "boolean") return alone(std::holds_alternative<bool>(value.data));
  if (name == "true") return alone(std::holds_alternative<bool>(value.data) && std::get<bool>(value.data));
  if (name == "false") return alone(std::holds_alternative<bool>(value.data) && !std::get<bool>(value.data));
  if (name == "number") return alone(value.is_number());
  if (name == "integer") return alone(std::holds_alternative<int64_t>(value.data));
  if (name == "float") return alone(std::holds_alternative<double>(value.data));
  if (name == "callable") {
    // Jinja's undefined values have the method that makes an object callable; calling one is an error.
    return alone(value.is_undefined() || std::holds_alternative<std::shared_ptr<const Function>>(value.data) ||
                 std::holds_alternative<std::shared_ptr<Loop>>(value.data));
  }
  if (name == "odd") return alone(whole(value) % 2 != 0);
  if (name == "even") return alone(whole(value) % 2 == 0);
  if (name == "divisibleby") {
    const int64_t divisor = whole(other());
    if (divisor == 0) throw TemplateError("division by zero");
    return divisor == -1 || whole(value) % divisor == 0;
  }
  if (name == "eq" || name == "==" || name == "equalto") return equal(value, other());
  if (name == "ne" || name == "!=") return !equal(value, other());
  if (name == "lt" || name == "<" || name == "lessthan") return less(value, other());
  if (name == "gt" || name == ">" || name == "greaterthan") return less(other(), value, ">");
  if (name == "le" || name == "<=") return less(value, other(), "<=") || equal(value, other());
  if (name == "ge" || name == ">=") return less(other(), value, ">=") || equal(value, other());
  if (name == "in") return contains(other(), value);
  if (name == "sameas") {
    const Value& same = other();
    const bool simple = value.is_none() || std::holds_alternative<bool>(value.data);
    if (!simple && !same.is_none() && !std::holds_alternative<bool>(same.data)) {
      throw TemplateError("the test 'sameas' is supported for none, true and false only");
    }
    return value.data.index() == same.data.index() && equal(value, same);
  }
  const auto cased = [&](bool want_upper) {
    const std::string text = to_text(value);
    return truth(call(method(Value(text), want_upper ? "isupper" : "islower"), {}));
  };
  if (name == "upper") return alone(cased(true));
  if (name == "lower") return alone(cased(false));
  if (name == "filter") return alone(value.is_string() && is_filter(*value.text()));
  if (name == "test") return alone(value.is_string() && is_test(*value.text()));
  throw TemplateError("there is no test '" + std::string(name) + "'");
}

}  // namespace anyaccel::llm::jinja
