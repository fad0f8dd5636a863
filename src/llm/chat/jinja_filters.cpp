// Implements the filters and tests of Jinja that chat templates use, and transformers' tojson.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/text/utf8.h"
#include "llm/chat/jinja_interpreter.h"
#include "llm/chat/python_text.h"

namespace anyaccel::llm::jinja {

namespace {

// The arguments of a call by Python's rules: by place, or by name.
class Parameters {
 public:
  Parameters(std::string_view function, const Arguments& arguments, std::vector<const char*> names)
      : function_(function), arguments_(arguments), names_(std::move(names)) {
    if (arguments.positional.size() > names_.size()) {
      fail("takes at most " + std::to_string(names_.size()) + " arguments, not " +
           std::to_string(arguments.positional.size()));
    }
    for (const auto& [name, value] : arguments.named) {
      const auto found = std::find(names_.begin(), names_.end(), name);
      if (found == names_.end()) fail("has no parameter '" + name + "'");
      if (static_cast<size_t>(found - names_.begin()) < arguments.positional.size()) {
        fail("got the argument '" + name + "' twice");
      }
    }
  }

  const Value* find(size_t index) const {
    if (index < arguments_.positional.size()) return &arguments_.positional[index];
    for (const auto& [name, value] : arguments_.named) {
      if (name == names_[index]) return &value;
    }
    return nullptr;
  }
  bool has(size_t index) const {
    const Value* value = find(index);
    return value != nullptr && !value->is_none();
  }
  const Value& required(size_t index) const {
    const Value* value = find(index);
    if (value == nullptr) fail(std::string("needs the argument '") + names_[index] + "'");
    return *value;
  }
  bool flag(size_t index, bool absent) const {
    const Value* value = find(index);
    return value == nullptr ? absent : truth(*value);
  }
  int64_t whole(size_t index, int64_t absent) const {
    const Value* value = find(index);
    if (value == nullptr) return absent;
    if (const auto* number = std::get_if<int64_t>(&value->data)) return *number;
    if (const auto* number = std::get_if<bool>(&value->data)) return *number ? 1 : 0;
    fail(std::string("needs an int as '") + names_[index] + "', not " + type_name(*value));
  }
  std::string text(size_t index, std::string_view absent) const {
    const Value* value = find(index);
    if (value == nullptr) return std::string(absent);
    if (value->is_string()) return *value->text();
    require_defined(*value);
    fail(std::string("needs a str as '") + names_[index] + "', not " + type_name(*value));
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw TemplateError("'" + std::string(function_) + "' " + message);
  }

 private:
  std::string_view function_;
  const Arguments& arguments_;
  std::vector<const char*> names_;
};

using Names = std::vector<const char*>;

// soft_str(): undefined values are empty texts.
std::string soft_text(const Value& value) { return to_text(value); }

// For sorting and comparing without regard to case.
Value folded(const Value& value, bool case_sensitive) {
  return !case_sensitive && value.is_string() ? Value(lower(*value.text())) : value;
}

// make_attrgetter(): "a.b.0" of a value; parts that are numbers are indices.
Value nested_attribute(Interpreter& interpreter, Value value, const Value& name, const Value* absent = nullptr) {
  const std::string text = to_text(name);
  for (const std::string_view part : split(text, ".", -1, false)) {
    int64_t index = 0;
    const auto result = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = !part.empty() && result.ec == std::errc() && result.ptr == part.data() + part.size();
    value = interpreter.subscript(value, is_index ? Value(index) : Value(part));
    if (value.is_undefined() && absent != nullptr) value = *absent;
  }
  return value;
}

// The arguments behind the first `used` ones.
Arguments rest(const Arguments& arguments, size_t used) {
  Arguments out;
  out.positional.assign(arguments.positional.begin() + static_cast<ptrdiff_t>(used), arguments.positional.end());
  out.named = arguments.named;
  return out;
}

std::string name_argument(std::string_view filter, const Arguments& arguments, size_t index) {
  if (index >= arguments.positional.size() || !arguments.positional[index].is_string()) {
    throw TemplateError("'" + std::string(filter) + "' needs a name in quotes as argument " +
                        std::to_string(index + 1));
  }
  return *arguments.positional[index].text();
}

// select, reject, selectattr, rejectattr
Value choose(Interpreter& interpreter, std::string_view filter, const Value& value, const Arguments& arguments) {
  const bool by_attribute = filter == "selectattr" || filter == "rejectattr";
  const bool wanted = filter == "select" || filter == "selectattr";
  size_t used = by_attribute ? 1 : 0;
  if (by_attribute && arguments.positional.empty())
    throw TemplateError("'" + std::string(filter) + "' needs an attribute");
  std::string test;
  if (arguments.positional.size() > used) test = name_argument(filter, arguments, used++);
  const Arguments of_test = rest(arguments, used);
  List out;
  for (const Value& item : iterate(value)) {
    interpreter.charge();
    const Value subject = by_attribute ? nested_attribute(interpreter, item, arguments.positional[0]) : item;
    const bool holds = test.empty() ? truth(subject) : interpreter.apply_test(test, subject, of_test);
    if (holds == wanted) out.push_back(item);
  }
  return out;
}

Value map(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  List out;
  const auto named = [&](const char* name) -> const Value* {
    for (const auto& [key, argument] : arguments.named) {
      if (key == name) return &argument;
    }
    return nullptr;
  };
  if (arguments.positional.empty()) {
    const Value* attribute = named("attribute");
    if (attribute == nullptr) throw TemplateError("'map' needs a filter, or attribute=");
    if (arguments.named.size() > (named("default") != nullptr ? 2U : 1U))
      throw TemplateError("'map' got an unknown argument");
    for (const Value& item : iterate(value)) {
      interpreter.charge();
      out.push_back(nested_attribute(interpreter, item, *attribute, named("default")));
    }
    return out;
  }
  const std::string filter = name_argument("map", arguments, 0);
  const Arguments of_filter = rest(arguments, 1);
  for (const Value& item : iterate(value)) {
    interpreter.charge();
    out.push_back(interpreter.apply_filter(filter, item, of_filter));
  }
  return out;
}

void stable_sort_values(List& items, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return reverse ? less(keys[b], keys[a]) : less(keys[a], keys[b]); });
  List sorted;
  for (const size_t i : order) sorted.push_back(items[i]);
  items = std::move(sorted);
}

Value sort(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("sort", arguments, Names{"reverse", "case_sensitive", "attribute"});
  List items = iterate(value);
  std::vector<Value> keys;
  for (const Value& item : items) {
    interpreter.charge(256);
    Value key = item;
    if (given.has(2)) {
      const std::string attributes = to_text(given.required(2));
      if (attributes.find(',') != std::string::npos) given.fail("by several attributes is not supported");
      key = nested_attribute(interpreter, item, given.required(2));
    }
    keys.push_back(folded(key, given.flag(1, false)));
  }
  stable_sort_values(items, keys, given.flag(0, false));
  return items;
}

Value dictsort(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("dictsort", arguments, Names{"case_sensitive", "by", "reverse"});
  const std::string by = given.text(1, "key");
  if (by != "key" && by != "value") given.fail("sorts by 'key' or 'value'");
  const Dict* dict = value.dict();
  if (dict == nullptr) {
    require_defined(value);
    given.fail("needs a dict, not " + type_name(value));
  }
  List items;
  std::vector<Value> keys;
  for (const auto& member : dict->members) {
    interpreter.charge(256);
    items.push_back(Value::tuple({member.first, member.second}));
    keys.push_back(folded(by == "key" ? member.first : member.second, given.flag(0, false)));
  }
  stable_sort_values(items, keys, given.flag(2, false));
  return items;
}

Value unique(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("unique", arguments, Names{"case_sensitive", "attribute"});
  List out;
  List seen;
  for (const Value& item : iterate(value)) {
    interpreter.charge(seen.size());
    const Value key =
        folded(given.has(1) ? nested_attribute(interpreter, item, given.required(1)) : item, given.flag(0, false));
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return equal(other, key); })) continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return out;
}

Value group_by(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("groupby", arguments, Names{"attribute", "default", "case_sensitive"});
  List items = iterate(value);
  const Value* absent = given.find(1);
  std::vector<Value> keys;
  for (const Value& item : items) {
    interpreter.charge(256);
    keys.push_back(nested_attribute(interpreter, item, given.required(0), absent));
  }
  if (!given.flag(2, false)) {
    for (Value& key : keys) key = folded(key, false);
  }
  std::vector<Value> sorted_keys = keys;
  List order;
  for (size_t i = 0; i < items.size(); ++i) order.emplace_back(static_cast<int64_t>(i));
  stable_sort_values(order, keys, false);
  List out;
  List group;
  const Value* current = nullptr;
  const auto flush = [&] {
    if (group.empty()) return;
    // The key is that of the first item, in its own case.
    out.push_back(Value::tuple({nested_attribute(interpreter, group[0], given.required(0), absent), Value(group)}));
    group.clear();
  };
  for (const Value& position : order) {
    const auto i = static_cast<size_t>(std::get<int64_t>(position.data));
    if (current != nullptr && !equal(*current, keys[i])) flush();
    current = &keys[i];
    group.push_back(items[i]);
  }
  flush();
  return out;
}

Value smallest(Interpreter& interpreter, std::string_view filter, const Value& value, const Arguments& arguments) {
  const Parameters given(filter, arguments, Names{"case_sensitive", "attribute"});
  const List items = iterate(value);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  std::optional<Value> best;
  Value best_key;
  for (const Value& item : items) {
    interpreter.charge();
    Value key =
        folded(given.has(1) ? nested_attribute(interpreter, item, given.required(1)) : item, given.flag(0, false));
    if (best && !(filter == "min" ? less(key, best_key) : less(best_key, key))) continue;
    best = item;
    best_key = std::move(key);
  }
  return *best;
}

Value join(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("join", arguments, Names{"d", "attribute"});
  const std::string between = given.find(0) != nullptr ? to_text(given.required(0)) : "";
  std::string out;
  bool first = true;
  for (const Value& item : iterate(value)) {
    if (!first) out += between;
    first = false;
    out += to_text(given.has(1) ? nested_attribute(interpreter, item, given.required(1)) : item);
    interpreter.charge(out.size() / 64);
    interpreter.check_size(out.size());
  }
  return out;
}

Value indent(const Value& value, const Arguments& arguments) {
  const Parameters given("indent", arguments, Names{"width", "first", "blank"});
  std::string indentation = "    ";
  if (const Value* width = given.find(0)) {
    const int64_t spaces = width->is_string() ? 0 : given.whole(0, 4);
    if (spaces > 1000) given.fail("of more than 1000 spaces");
    indentation =
        width->is_string() ? *width->text() : std::string(static_cast<size_t>(std::max<int64_t>(0, spaces)), ' ');
  }
  require_defined(value);
  if (!value.is_string()) given.fail("needs a str, not " + type_name(value));
  const std::string text = *value.text() + "\n";  // so that a last empty line counts
  const auto lines = split_lines(text, false);
  const bool blank = given.flag(2, false);
  std::string out = given.flag(1, false) ? indentation : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out += '\n';
      if (blank || !lines[i].empty()) out += indentation;
    }
    out += lines[i];
  }
  return out;
}

Value round_number(const Value& value, const Arguments& arguments) {
  const Parameters given("round", arguments, Names{"precision", "method"});
  const int64_t precision = given.whole(0, 0);
  const std::string method = given.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor") given.fail("needs the method common, ceil or floor");
  require_defined(value);
  if (!value.is_number()) given.fail("needs a number, not " + type_name(value));
  if (precision < -15 || precision > 15) given.fail("needs a precision of -15 to 15");
  const bool whole = !std::holds_alternative<double>(value.data);
  const double number = whole ? static_cast<double>(std::holds_alternative<bool>(value.data)
                                                        ? static_cast<int64_t>(std::get<bool>(value.data))
                                                        : std::get<int64_t>(value.data))
                              : std::get<double>(value.data);
  if (method == "common") {
    if (whole && precision >= 0) return value;
    if (precision < 0) {
      const double unit = std::pow(10.0, static_cast<double>(-precision));
      const double rounded = std::nearbyint(number / unit) * unit;
      return whole ? Value(static_cast<int64_t>(rounded)) : Value(rounded);
    }
    // Python rounds the exact decimal value, as printf does.
    char digits[400];
    std::snprintf(digits, sizeof digits, "%.*f", static_cast<int>(precision), number);
    return std::strtod(digits, nullptr);
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  return (method == "ceil" ? std::ceil(number * unit) : std::floor(number * unit)) / unit;
}

Value to_int(const Value& value, const Arguments& arguments) {
  const Parameters given("int", arguments, Names{"default", "base"});
  const Value absent = given.find(0) != nullptr ? *given.find(0) : Value(0);
  require_defined(value);
  const int64_t base = given.whole(1, 10);
  if (base != 10) given.fail("of another base than 10 is not supported");
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag ? 1 : 0;
  if (std::holds_alternative<int64_t>(value.data)) return value;
  const auto truncated = [&](double real) -> Value {
    if (!(std::abs(real) < 9.2e18)) return absent;
    return static_cast<int64_t>(real);
  };
  if (const auto* real = std::get_if<double>(&value.data)) return truncated(*real);
  const std::string* text = value.text();
  if (text == nullptr) return absent;
  std::string_view digits = strip(*text);
  const bool plus = digits.starts_with('+');
  if (plus) digits.remove_prefix(1);
  int64_t number = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (result.ec == std::errc() && result.ptr == digits.data() + digits.size() && !(plus && digits.starts_with('-'))) {
    return number;
  }
  double real = 0;
  const auto other = std::from_chars(digits.data(), digits.data() + digits.size(), real);
  if (other.ec == std::errc() && other.ptr == digits.data() + digits.size()) return truncated(real);
  return absent;
}

Value to_float(const Value& value, const Arguments& arguments) {
  const Parameters given("float", arguments, Names{"default"});
  const Value absent = given.find(0) != nullptr ? *given.find(0) : Value(0.0);
  require_defined(value);
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag ? 1.0 : 0.0;
  if (const auto* whole = std::get_if<int64_t>(&value.data)) return static_cast<double>(*whole);
  if (std::holds_alternative<double>(value.data)) return value;
  if (!value.is_string()) return absent;
  std::string_view digits = strip(*value.text());
  if (digits.starts_with('+')) digits.remove_prefix(1);
  double real = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), real);
  return result.ec == std::errc() && result.ptr == digits.data() + digits.size() ? Value(real) : absent;
}

// The filter "title": words begin behind white space, hyphens and opening brackets.
std::string title_words(std::string_view text) {
  std::string out;
  std::string word;
  const auto flush = [&] {
    if (word.empty()) return;
    const size_t first = utf8_length(word[0]);
    out += upper(std::string_view(word).substr(0, first)) + lower(std::string_view(word).substr(first));
    word.clear();
  };
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    const char32_t c = step.code;
    if (c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c)) {
      flush();
      out += text.substr(0, step.length);
    } else {
      word += text.substr(0, step.length);
    }
    text.remove_prefix(step.length);
  }
  flush();
  return out;
}

Value truncate(const Value& value, const Arguments& arguments) {
  const Parameters given("truncate", arguments, Names{"length", "killwords", "end", "leeway"});
  const int64_t length = given.whole(0, 255);
  const std::string end = given.text(2, "...");
  const int64_t leeway = given.has(3) ? given.whole(3, 5) : 5;
  const auto end_length = static_cast<int64_t>(code_points(end));
  if (length < end_length) given.fail("needs a length of at least " + std::to_string(end_length));
  if (leeway < 0) given.fail("needs a leeway of at least 0");
  require_defined(value);
  if (!value.is_string()) given.fail("needs a str, not " + type_name(value));
  const std::string& text = *value.text();
  if (static_cast<int64_t>(code_points(text)) <= length + leeway) return value;
  std::string_view part = std::string_view(text).substr(0, byte_offset(text, static_cast<size_t>(length - end_length)));
  if (!given.flag(1, false)) {
    const size_t space = part.rfind(' ');
    if (space != std::string_view::npos) part = part.substr(0, space);
  }
  return std::string(part) + end;
}

std::string percent_encoded(std::string_view text, std::string_view safe) {
  std::string out;
  char buffer[4];
  for (const char c : text) {
    const bool keep = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                      c == '.' || c == '-' || c == '~' || safe.find(c) != std::string_view::npos;
    if (keep) {
      out += c;
    } else {
      std::snprintf(buffer, sizeof buffer, "%%%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += buffer;
    }
  }
  return out;
}

Value sum(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("sum", arguments, Names{"attribute", "start"});
  Value total = given.find(1) != nullptr ? *given.find(1) : Value(0);
  double real = 0;
  bool is_real = std::holds_alternative<double>(total.data);
  int64_t whole = 0;
  const auto add = [&](const Value& term) {
    require_defined(term);
    if (const auto* number = std::get_if<double>(&term.data)) {
      if (!is_real) real = static_cast<double>(whole);
      is_real = true;
      real += *number;
      return;
    }
    if (!term.is_number()) given.fail("needs numbers, not " + type_name(term));
    const int64_t number =
        std::holds_alternative<bool>(term.data) ? int64_t{std::get<bool>(term.data)} : std::get<int64_t>(term.data);
    if (is_real) {
      real += static_cast<double>(number);
    } else if (__builtin_add_overflow(whole, number, &whole)) {
      given.fail("is beyond 64 bits");
    }
  };
  is_real = false;
  add(total);
  for (const Value& item : iterate(value)) {
    interpreter.charge();
    add(given.has(0) ? nested_attribute(interpreter, item, given.required(0)) : item);
  }
  return is_real ? Value(real) : Value(whole);
}

Value batch(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("batch", arguments, Names{"linecount", "fill_with"});
  const int64_t size = given.whole(0, 0);
  if (size < 1 || size > 1'000'000) given.fail("needs a linecount of 1 to 1000000");
  List out;
  List row;
  for (const Value& item : iterate(value)) {
    interpreter.charge();
    if (static_cast<int64_t>(row.size()) == size) {
      out.emplace_back(std::move(row));
      row = List();
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    if (given.has(1)) {
      interpreter.charge(static_cast<size_t>(size) * 16);
      row.resize(static_cast<size_t>(size), given.required(1));
    }
    out.emplace_back(std::move(row));
  }
  return out;
}

int64_t length_of(const Value& value) {
  if (const std::string* text = value.text()) return static_cast<int64_t>(code_points(*text));
  if (const List* items = value.items()) return static_cast<int64_t>(items->size());
  if (const Dict* dict = value.dict()) return static_cast<int64_t>(dict->members.size());
  if (value.is_undefined()) return 0;
  throw TemplateError("a " + type_name(value) + " has no length");
}

Value json_filter(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("tojson", arguments, Names{"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = given.flag(0, false);
  style.sort_keys = given.flag(3, false);
  if (given.has(1)) {
    const int64_t width = given.whole(1, 0);
    if (width < 0 || width > 64) given.fail("needs an indent of 0 to 64");
    style.indent = static_cast<int>(width);
    style.item_separator = ",";
  }
  if (given.has(2)) {
    const List separators = iterate(given.required(2));
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      given.fail("needs two texts as separators");
    }
    style.item_separator = *separators[0].text();
    style.key_separator = *separators[1].text();
  }
  std::string text = to_json(value, style);
  interpreter.check_size(text.size());
  interpreter.charge(text.size());
  return text;
}

constexpr std::array filter_names{
    "abs",     "attr",  "batch",    "capitalize", "center",     "count",     "d",        "default",    "dictsort",
    "first",   "float", "format",   "groupby",    "indent",     "int",       "items",    "join",       "last",
    "length",  "list",  "lower",    "map",        "max",        "min",       "reject",   "rejectattr", "replace",
    "reverse", "round", "safe",     "select",     "selectattr", "sort",      "string",   "sum",        "title",
    "tojson",  "trim",  "truncate", "unique",     "upper",      "urlencode", "wordcount"};

constexpr std::array test_names{"boolean", "callable",    "defined",  "undefined", "divisibleby", "eq",
                                "==",      "equalto",     "even",     "odd",       "false",       "true",
                                "float",   "integer",     "number",   "ge",        ">=",          "gt",
                                ">",       "greaterthan", "in",       "iterable",  "le",          "<=",
                                "lt",      "<",           "lessthan", "lower",     "upper",       "mapping",
                                "ne",      "!=",          "none",     "sameas",    "sequence",    "string",
                                "filter",  "test"};

}  // namespace

bool is_filter(std::string_view name) {
  return std::find(filter_names.begin(), filter_names.end(), name) != filter_names.end();
}
bool is_test(std::string_view name) {
  return std::find(test_names.begin(), test_names.end(), name) != test_names.end();
}

Value Interpreter::apply_filter(std::string_view name, const Value& value, const Arguments& arguments) {
  charge(value.is_string() ? value.text()->size() : 0);
  const auto none = [&] { const Parameters given(name, arguments, Names{}); };
  if (name == "tojson") return json_filter(*this, value, arguments);
  if (name == "default" || name == "d") {
    const Parameters given(name, arguments, Names{"default_value", "boolean"});
    const bool missing = value.is_undefined() || (given.flag(1, false) && !truth(value));
    return !missing ? value : given.find(0) != nullptr ? *given.find(0) : Value("");
  }
  if (name == "trim") {
    const Parameters given(name, arguments, Names{"chars"});
    const std::string text = soft_text(value);
    return given.has(0) ? Value(strip(text, Ends::Both, given.text(0, ""))) : Value(strip(text));
  }
  if (name == "length" || name == "count") return none(), length_of(value);
  if (name == "join") return join(*this, value, arguments);
  if (name == "list") return none(), Value(iterate(value));
  if (name == "string") return none(), Value(soft_text(value));
  if (name == "upper") return none(), Value(upper(soft_text(value)));
  if (name == "lower") return none(), Value(lower(soft_text(value)));
  if (name == "capitalize") return none(), Value(capitalize(soft_text(value)));
  if (name == "title") return none(), Value(title_words(soft_text(value)));
  if (name == "first") {
    none();
    const List items = iterate(value);
    return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
  }
  if (name == "last") {
    none();
    const List items = iterate(value);
    return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
  }
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr") {
    return choose(*this, name, value, arguments);
  }
  if (name == "map") return map(*this, value, arguments);
  if (name == "items") {
    none();
    if (value.is_undefined()) return List();
    if (value.dict() == nullptr) throw TemplateError("'items' needs a dict, not " + type_name(value));
    List out;
    for (const auto& member : value.dict()->members) out.push_back(Value::tuple({member.first, member.second}));
    return out;
  }
  if (name == "dictsort") return dictsort(*this, value, arguments);
  if (name == "sort") return sort(*this, value, arguments);
  if (name == "unique") return unique(*this, value, arguments);
  if (name == "groupby") return group_by(*this, value, arguments);
  if (name == "min" || name == "max") return smallest(*this, name, value, arguments);
  if (name == "sum") return sum(*this, value, arguments);
  if (name == "batch") return batch(*this, value, arguments);
  if (name == "indent") return indent(value, arguments);
  if (name == "truncate") return truncate(value, arguments);
  if (name == "int") return to_int(value, arguments);
  if (name == "float") return to_float(value, arguments);
  if (name == "round") return round_number(value, arguments);
  if (name == "abs") {
    none();
    require_defined(value);
    if (const auto* whole = std::get_if<int64_t>(&value.data)) {
      if (*whole == INT64_MIN) throw TemplateError("a number is beyond 64 bits");
      return std::abs(*whole);
    }
    if (const auto* flag = std::get_if<bool>(&value.data)) return *flag ? 1 : 0;
    if (const auto* real = std::get_if<double>(&value.data)) return std::abs(*real);
    throw TemplateError("'abs' needs a number, not " + type_name(value));
  }
  if (name == "replace") {
    const Parameters given(name, arguments, Names{"old", "new", "count"});
    const std::string from = to_text(given.required(0));
    const std::string to = to_text(given.required(1));
    const std::string text = soft_text(value);
    charge(text.size() + (text.size() + 1) * to.size() / std::max<size_t>(1, from.size()));
    std::string out = replace(text, from, to, given.has(2) ? given.whole(2, -1) : -1);
    check_size(out.size());
    return out;
  }
  if (name == "reverse") {
    none();
    List items = iterate(value);
    std::reverse(items.begin(), items.end());
    if (!value.is_string()) return items;
    std::string out;
    for (const Value& item : items) out += *item.text();
    return out;
  }
  if (name == "attr") {
    const Parameters given(name, arguments, Names{"name"});
    const std::string attribute_name = given.text(0, "");
    if (std::holds_alternative<Namespace>(value.data) || std::holds_alternative<std::shared_ptr<Loop>>(value.data)) {
      return attribute(value, attribute_name);
    }
    require_defined(value);
    const Value bound = method(value, attribute_name);  // a dict's members are no attributes
    if (!bound.is_undefined()) return bound;
    return Value::undefined("'" + type_name(value) + " object' has no attribute '" + attribute_name + "'");
  }
  if (name == "center") {
    const Parameters given(name, arguments, Names{"width"});
    return call(method(Value(soft_text(value)), "center"), {{Value(given.whole(0, 80))}, {}});
  }
  if (name == "wordcount") {
    none();
    // Words are letters, digits and underscores.
    int64_t count = 0;
    bool inside = false;
    for (const Value& character : iterate(Value(soft_text(value)))) {
      const char32_t c = utf8_step(*character.text()).code;
      const bool part = c == '_' || is_alpha(c) || is_digit(c);
      if (part && !inside) ++count;
      inside = part;
    }
    return count;
  }
  if (name == "format") {
    if (!arguments.named.empty() && !arguments.positional.empty()) {
      throw TemplateError("'format' takes arguments by place or by name, not both");
    }
    if (arguments.named.empty()) return format_percent(*this, soft_text(value), Value::tuple(arguments.positional));
    Dict named;
    for (const auto& [key, argument] : arguments.named) named.set(Value(key), argument);
    return format_percent(*this, soft_text(value), Value(std::move(named)));
  }
  if (name == "urlencode") {
    none();
    if (value.is_string()) return percent_encoded(*value.text(), "/");
    if (value.dict() == nullptr) throw TemplateError("'urlencode' needs a str or dict, not " + type_name(value));
    std::string out;
    for (const auto& [key, member] : value.dict()->members) {
      if (!out.empty()) out += '&';
      out += replace(percent_encoded(to_text(key), ""), "%20", "+", -1) + "=" +
             replace(percent_encoded(to_text(member), ""), "%20", "+", -1);
    }
    return out;
  }
  if (name == "safe") {
    throw TemplateError("the filter 'safe' is supported at the end of {{ ... }} only");
  }
  throw TemplateError("there is no filter '" + std::string(name) + "'");
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
    // Python: what has a length and can be indexed; undefined values have both.
    return alone(value.is_string() || value.items() != nullptr || value.dict() != nullptr || value.is_undefined());
  }
  if (name == "iterable") {
    return alone(value.is_string() || value.items() != nullptr || value.dict() != nullptr || value.is_undefined() ||
                 std::holds_alternative<std::shared_ptr<Loop>>(value.data));
  }
  if (name == "boolean") return alone(std::holds_alternative<bool>(value.data));
  if (name == "true") return alone(std::holds_alternative<bool>(value.data) && std::get<bool>(value.data));
  if (name == "false") return alone(std::holds_alternative<bool>(value.data) && !std::get<bool>(value.data));
  if (name == "number") return alone(value.is_number());
  if (name == "integer") return alone(std::holds_alternative<int64_t>(value.data));
  if (name == "float") return alone(std::holds_alternative<double>(value.data));
  if (name == "callable") {
    return alone(std::holds_alternative<std::shared_ptr<const Function>>(value.data) ||
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
    const std::string text = soft_text(value);
    return truth(call(method(Value(text), want_upper ? "isupper" : "islower"), {}));
  };
  if (name == "upper") return alone(cased(true));
  if (name == "lower") return alone(cased(false));
  if (name == "filter") return alone(value.is_string() && is_filter(*value.text()));
  if (name == "test") return alone(value.is_string() && is_test(*value.text()));
  throw TemplateError("there is no test '" + std::string(name) + "'");
}

}  // namespace anyaccel::llm::jinja
