// Implements the filters of Jinja that chat templates use, and transformers' tojson. Those that work on sequences are
// in jinja_sequence_filters.cpp.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/text/utf8.h"
#include "llm/chat/jinja_interpreter.h"
#include "llm/chat/jinja_parameters.h"
#include "llm/chat/jinja_sequence_filters.h"
#include "llm/chat/python_text.h"

namespace anyaccel::llm::jinja {

namespace {

// Jinja's soft_str(): undefined values become empty strings.
std::string soft_text(const Value& value) { return to_text(value); }

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

// The filter "title": words begin after white space, hyphens and opening brackets.
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

int64_t length_of(const Value& value) {
  if (const std::string* text = value.text()) return static_cast<int64_t>(code_points(*text));
  if (const List* items = value.items()) return static_cast<int64_t>(items->size());
  if (const Dict* dict = value.dict()) return static_cast<int64_t>(dict->members.size());
  const Iterable* iterable = value.iterable();
  if (iterable != nullptr && iterable->kind != Iterable::Kind::Iterator) {
    return static_cast<int64_t>(iterable->items.size());
  }
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

}  // namespace

bool is_filter(std::string_view name) {
  return std::find(filter_names.begin(), filter_names.end(), name) != filter_names.end();
}
Value Interpreter::apply_filter(std::string_view name, const Value& value, const Arguments& arguments) {
  charge(value.is_string() ? value.text()->size() : 0);
  const auto none = [&] { const Parameters given(name, arguments, Names{}); };
  // These keep what the filter "safe" made.
  const auto kept = [&](std::string text) {
    return value.is_safe ? Value::safe(std::move(text)) : Value(std::move(text));
  };
  const auto refuse_safe = [&] {
    if (!value.is_safe) return;
    throw TemplateError("'" + std::string(name) + "' of a text that the filter 'safe' made is not supported");
  };
  if (name == "safe") return none(), Value::safe(to_text(value));
  if (name == "tojson") return json_filter(*this, value, arguments);
  if (name == "default" || name == "d") {
    const Parameters given(name, arguments, Names{"default_value", "boolean"});
    const bool missing = value.is_undefined() || (given.flag(1, false) && !truth(value));
    return !missing ? value : given.find(0) != nullptr ? *given.find(0) : Value("");
  }
  if (name == "trim") {
    const Parameters given(name, arguments, Names{"chars"});
    const std::string text = soft_text(value);
    return kept(std::string(given.has(0) ? strip(text, Ends::Both, given.text(0, "")) : strip(text)));
  }
  if (name == "length" || name == "count") return none(), length_of(value);
  if (name == "join") return sequence_filters::join(*this, value, arguments);
  if (name == "list") return none(), Value(iterate(value));
  if (name == "string") return none(), kept(soft_text(value));
  if (name == "upper") return none(), kept(upper(soft_text(value)));
  if (name == "lower") return none(), kept(lower(soft_text(value)));
  if (name == "capitalize") return none(), kept(capitalize(soft_text(value)));
  if (name == "title") return none(), Value(title_words(soft_text(value)));
  if (name == "first") {
    none();
    List items = iterate(value);
    if (items.empty()) return Value::undefined("No first item, sequence was empty.");
    Value found = items.front();
    Iterable* iterable = value.iterable();
    if (iterable != nullptr && iterable->kind == Iterable::Kind::Iterator) {
      iterable->items.assign(std::next(items.begin()), items.end());
    }
    return found;
  }
  if (name == "last") {
    none();
    const Iterable* iterable = value.iterable();
    if (iterable != nullptr && iterable->kind == Iterable::Kind::Iterator) {
      throw TemplateError("a " + type_name(value) + " has no last item that is known; expected a list");
    }
    const List items = iterate(value);
    return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
  }
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr") {
    return sequence_filters::choose(*this, name, value, arguments);
  }
  if (name == "map") return sequence_filters::map(*this, value, arguments);
  if (name == "items") {
    none();
    if (value.is_undefined()) return Value::iterator({});
    if (value.dict() == nullptr) throw TemplateError("'items' needs a dict, not " + type_name(value));
    List out;
    for (const auto& member : value.dict()->members) out.push_back(Value::tuple({member.first, member.second}));
    return Value::iterator(std::move(out));
  }
  if (name == "dictsort") return sequence_filters::dictsort(*this, value, arguments);
  if (name == "sort") return sequence_filters::sort(*this, value, arguments);
  if (name == "unique") return sequence_filters::unique(*this, value, arguments);
  if (name == "groupby") return sequence_filters::group_by(*this, value, arguments);
  if (name == "min" || name == "max") return sequence_filters::smallest(*this, name, value, arguments);
  if (name == "sum") return sequence_filters::sum(*this, value, arguments);
  if (name == "batch") return sequence_filters::batch(*this, value, arguments);
  if (name == "indent") return refuse_safe(), indent(value, arguments);
  if (name == "truncate") return refuse_safe(), truncate(value, arguments);
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
    // Python goes backwards through all but iterators, which become lists first.
    const Iterable* iterable = value.iterable();
    if (iterable != nullptr && iterable->kind == Iterable::Kind::Iterator) return items;
    if (!value.is_string()) return Value::iterator(std::move(items), "reversed");
    std::string out;
    for (const Value& item : items) out += *item.text();
    return kept(std::move(out));
  }
  if (name == "attr") {
    const Parameters given(name, arguments, Names{"name"});
    const std::string attribute_name = given.text(0, "");
    if (std::holds_alternative<Namespace>(value.data) || std::holds_alternative<std::shared_ptr<Loop>>(value.data)) {
      return attribute(value, attribute_name);
    }
    require_defined(value);
    const Value bound = method(value, attribute_name);  // a dict's members are not attributes
    if (!bound.is_undefined()) return bound;
    return Value::undefined("'" + type_name(value) + " object' has no attribute '" + attribute_name + "'");
  }
  if (name == "center") {
    const Parameters given(name, arguments, Names{"width"});
    return kept(*call(method(Value(soft_text(value)), "center"), {{Value(given.whole(0, 80))}, {}}).text());
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
    refuse_safe();
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
  throw TemplateError("there is no filter '" + std::string(name) + "'");
}

}  // namespace anyaccel::llm::jinja
