// Implements the non-mutating methods of Python's str, list, tuple and dict, and the functions that every template has.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string_view>

#include "base/text/utf8.h"
#include "llm/chat/jinja_interpreter.h"
#include "llm/chat/python_text.h"

namespace anyaccel::llm::jinja {

namespace {

using Call = std::function<Value(Interpreter&, const Arguments&)>;

Value function(std::string name, Call call) {
  return Value(std::make_shared<const Function>(Function{std::move(name), std::move(call)}));
}

// Throws TemplateError unless there are `least` to `most` arguments, none of them named.
void check_count(const Arguments& arguments, std::string_view name, size_t least, size_t most) {
  if (!arguments.named.empty()) {
    throw TemplateError("'" + std::string(name) + "()' takes no argument by name here, and got '" +
                        arguments.named[0].first + "'");
  }
  const size_t count = arguments.positional.size();
  if (count >= least && count <= most) return;
  throw TemplateError("'" + std::string(name) + "()' takes " + std::to_string(least) +
                      (most > least ? " to " + std::to_string(most) : std::string()) + " arguments, not " +
                      std::to_string(count));
}

const std::string& text_argument(const Arguments& arguments, size_t index, std::string_view name) {
  const Value& value = arguments.positional[index];
  require_defined(value);
  if (const std::string* text = value.text()) return *text;
  throw TemplateError("'" + std::string(name) + "()' needs a str, not " + type_name(value));
}

int64_t whole_argument(const Arguments& arguments, size_t index, std::string_view name) {
  const Value& value = arguments.positional[index];
  require_defined(value);
  if (const auto* whole = std::get_if<int64_t>(&value.data)) return *whole;
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag ? 1 : 0;
  throw TemplateError("'" + std::string(name) + "()' needs an int, not " + type_name(value));
}

List to_list(const std::vector<std::string_view>& parts) { return List(parts.begin(), parts.end()); }

// startswith and endswith take one text or a tuple of them.
bool has_end(const std::string& text, const Value& value, std::string_view name) {
  const auto matches = [&](const Value& end) {
    require_defined(end);
    if (!end.is_string()) throw TemplateError("'" + std::string(name) + "()' needs a str, not " + type_name(end));
    return name == "startswith" ? text.starts_with(*end.text()) : text.ends_with(*end.text());
  };
  if (value.items() != nullptr && value.list() == nullptr) {
    return std::any_of(value.items()->begin(), value.items()->end(), matches);
  }
  return matches(value);
}

// Returns the part of the text between two character indices, as in text.find(x, begin, end), and the index at which it
// begins.
std::pair<std::string_view, int64_t> between(const std::string& text, const Arguments& arguments,
                                             std::string_view name) {
  const auto size = static_cast<int64_t>(code_points(text));
  const auto bound = [&](size_t index, int64_t absent) {
    if (arguments.positional.size() <= index || arguments.positional[index].is_none()) return absent;
    const int64_t at = whole_argument(arguments, index, name);
    return std::clamp(at < 0 ? at + size : at, int64_t{0}, size + 1);
  };
  const int64_t begin = bound(1, 0);
  const int64_t end = std::min(bound(2, size), size);
  if (begin > end) return {std::string_view(), -1};
  const size_t first = byte_offset(text, static_cast<size_t>(begin));
  return {std::string_view(text).substr(first, byte_offset(text, static_cast<size_t>(end)) - first), begin};
}

int64_t find_in(const std::string& text, const Arguments& arguments, std::string_view name) {
  check_count(arguments, name, 1, 3);
  const auto [part, begin] = between(text, arguments, name);
  if (begin < 0) return -1;
  const std::string& wanted = text_argument(arguments, 0, name);
  const size_t at = name == "rfind" || name == "rindex" ? part.rfind(wanted) : part.find(wanted);
  return at == std::string_view::npos ? -1 : begin + static_cast<int64_t>(code_points(part.substr(0, at)));
}

int64_t count_in(const std::string& text, const Arguments& arguments) {
  check_count(arguments, "count", 1, 3);
  auto [part, begin] = between(text, arguments, "count");
  if (begin < 0) return 0;
  const std::string& wanted = text_argument(arguments, 0, "count");
  if (wanted.empty()) return static_cast<int64_t>(code_points(part)) + 1;
  int64_t count = 0;
  for (size_t at = part.find(wanted); at != std::string_view::npos; at = part.find(wanted, at + wanted.size())) ++count;
  return count;
}

std::string padded(Interpreter& interpreter, const std::string& text, const Arguments& arguments,
                   std::string_view name) {
  check_count(arguments, name, 1, name == "zfill" ? 1 : 2);
  const int64_t width = whole_argument(arguments, 0, name);
  std::string fill = name == "zfill" ? "0" : " ";
  if (arguments.positional.size() > 1) fill = text_argument(arguments, 1, name);
  if (code_points(fill) != 1) throw TemplateError("'" + std::string(name) + "()' fills with one character");
  const int64_t missing = width - static_cast<int64_t>(code_points(text));
  if (missing <= 0) return text;
  interpreter.check_size(static_cast<size_t>(missing) * fill.size());
  interpreter.charge(static_cast<size_t>(missing));
  const auto filling = [&](int64_t count) {
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += fill;
    return out;
  };
  if (name == "ljust") return text + filling(missing);
  if (name == "rjust") return filling(missing) + text;
  if (name == "zfill") {
    const bool has_sign = text.starts_with('-') || text.starts_with('+');
    return text.substr(0, has_sign ? 1 : 0) + filling(missing) + text.substr(has_sign ? 1 : 0);
  }
  const int64_t left = missing / 2 + (missing & width & 1);  // as CPython's pad()
  return filling(left) + text + filling(missing - left);
}

// isalpha() and the like: there is at least one character, and all of them match.
template <typename Matches>
bool all_characters(std::string_view text, Matches matches) {
  bool any = false;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (!matches(step.code)) return false;
    any = true;
    text.remove_prefix(step.length);
  }
  return any;
}

// isupper() and islower(): at least one character has this case, and none has the other.
bool has_case(const std::string& text, bool want_upper) {
  bool any = false;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t length = utf8_step(rest).length;
    const std::string character(rest.substr(0, length));
    const bool is_upper = lower(character) != character;
    const bool is_lower = !is_upper && character != "\xC3\x9F" && upper(character) != character;
    if (want_upper ? is_lower : is_upper) return false;
    any = any || (want_upper ? is_upper : is_lower);
    rest.remove_prefix(length);
  }
  return any;
}

std::string swap_case(const std::string& text) {
  std::string out;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t length = utf8_step(rest).length;
    const std::string_view character = rest.substr(0, length);
    const std::string low = lower(character);
    out += low != character ? low : upper(character);
    rest.remove_prefix(length);
  }
  return out;
}

std::string join_list(Interpreter& interpreter, const std::string& separator, const Value& value) {
  std::string out;
  bool first = true;
  for (const Value& item : iterate(value)) {
    require_defined(item);
    if (!item.is_string()) throw TemplateError("'join()' needs texts, not " + type_name(item));
    if (!first) out += separator;
    first = false;
    out += *item.text();
    interpreter.check_size(out.size());
    interpreter.charge(item.text()->size() + separator.size());
  }
  return out;
}

Value text_method(const std::string& text, const std::string& name, Interpreter& interpreter,
                  const Arguments& arguments) {
  interpreter.charge(text.size());
  const auto none = [&] { check_count(arguments, name, 0, 0); };
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    check_count(arguments, name, 0, 1);
    const Ends ends = name == "strip" ? Ends::Both : name == "lstrip" ? Ends::Left : Ends::Right;
    if (arguments.positional.empty() || arguments.positional[0].is_none()) return strip(text, ends);
    return strip(text, ends, text_argument(arguments, 0, name));
  }
  if (name == "split" || name == "rsplit") {
    Arguments places = arguments;
    for (const auto& [key, value] : arguments.named) {  // sep and maxsplit are also given by name
      const size_t index = key == "sep" ? 0 : key == "maxsplit" ? 1 : 2;
      if (index == 2 || places.positional.size() > index)
        throw TemplateError("'" + name + "()' got the argument '" + key + "'");
      while (places.positional.size() < index) places.positional.emplace_back(None{});
      places.positional.push_back(value);
    }
    places.named.clear();
    check_count(places, name, 0, 2);
    const int64_t limit = places.positional.size() > 1 ? whole_argument(places, 1, name) : -1;
    const bool from_right = name == "rsplit";
    interpreter.charge(text.size() * 8);
    if (places.positional.empty() || places.positional[0].is_none())
      return to_list(split_words(text, limit, from_right));
    const std::string& separator = text_argument(places, 0, name);
    if (separator.empty()) throw TemplateError("'" + name + "()': the separator is empty");
    return to_list(split(text, separator, limit, from_right));
  }
  if (name == "splitlines") {
    check_count(arguments, name, 0, 1);
    interpreter.charge(text.size() * 8);
    return to_list(split_lines(text, !arguments.positional.empty() && truth(arguments.positional[0])));
  }
  if (name == "startswith" || name == "endswith") {
    check_count(arguments, name, 1, 1);
    return has_end(text, arguments.positional[0], name);
  }
  if (name == "replace") {
    check_count(arguments, name, 2, 3);
    const std::string& from = text_argument(arguments, 0, name);
    const std::string& to = text_argument(arguments, 1, name);
    interpreter.charge((text.size() + 1) * to.size() / std::max<size_t>(1, from.size()));
    std::string out =
        replace(text, from, to, arguments.positional.size() > 2 ? whole_argument(arguments, 2, name) : -1);
    interpreter.check_size(out.size());
    return out;
  }
  if (name == "upper") return none(), Value(upper(text));
  if (name == "lower" || name == "casefold") {
    none();
    if (name == "casefold" && code_points(text) != text.size()) {
      throw TemplateError("'casefold()' is supported for ASCII text only");
    }
    return lower(text);
  }
  if (name == "title") return none(), Value(title(text));
  if (name == "capitalize") return none(), Value(capitalize(text));
  if (name == "swapcase") return none(), Value(swap_case(text));
  if (name == "find" || name == "rfind") return find_in(text, arguments, name);
  if (name == "index" || name == "rindex") {
    const int64_t found = find_in(text, arguments, name);
    if (found < 0) throw TemplateError("'" + name + "()': the text is not there");
    return found;
  }
  if (name == "count") return count_in(text, arguments);
  if (name == "join") {
    check_count(arguments, name, 1, 1);
    return join_list(interpreter, text, arguments.positional[0]);
  }
  if (name == "removeprefix" || name == "removesuffix") {
    check_count(arguments, name, 1, 1);
    const std::string& end = text_argument(arguments, 0, name);
    if (name == "removeprefix") return text.starts_with(end) ? text.substr(end.size()) : text;
    return text.ends_with(end) ? text.substr(0, text.size() - end.size()) : text;
  }
  if (name == "partition" || name == "rpartition") {
    check_count(arguments, name, 1, 1);
    const std::string& separator = text_argument(arguments, 0, name);
    if (separator.empty()) throw TemplateError("'" + name + "()': the separator is empty");
    const bool from_right = name == "rpartition";
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string::npos) {
      return from_right ? Value::tuple({Value(""), Value(""), Value(text)})
                        : Value::tuple({Value(text), Value(""), Value("")});
    }
    return Value::tuple({Value(text.substr(0, at)), Value(separator), Value(text.substr(at + separator.size()))});
  }
  if (name == "center" || name == "ljust" || name == "rjust" || name == "zfill") {
    return padded(interpreter, text, arguments, name);
  }
  if (name == "isdigit" || name == "isdecimal" || name == "isnumeric")
    return none(), Value(all_characters(text, is_digit));
  if (name == "isalpha") return none(), Value(all_characters(text, is_alpha));
  if (name == "isalnum") {
    return none(), Value(all_characters(text, [](char32_t c) { return is_alpha(c) || is_digit(c); }));
  }
  if (name == "isspace") return none(), Value(all_characters(text, is_space));
  if (name == "isupper") return none(), Value(has_case(text, true));
  if (name == "islower") return none(), Value(has_case(text, false));
  return format_braces(interpreter, text, arguments);  // "format"
}

// A method of a text that the filter "safe" made. Its parts are such texts too; methods that join it with other texts
// would escape these.
Value safe_text_method(const Value& value, const std::string& name, Interpreter& interpreter,
                       const Arguments& arguments) {
  Value result = text_method(*value.text(), name, interpreter, arguments);
  if (!result.is_string() && result.items() == nullptr) return result;
  const auto among = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (among({"strip", "lstrip", "rstrip", "upper", "lower", "casefold", "title", "capitalize", "swapcase",
             "removeprefix", "removesuffix"})) {
    return Value::safe(*result.text());
  }
  if (among({"split", "rsplit", "splitlines"})) {
    List parts;
    for (const Value& part : *result.items()) parts.push_back(Value::safe(*part.text()));
    return parts;
  }
  throw TemplateError("'" + name + "()' of a text that the filter 'safe' made is not supported");
}

bool is_text_method(std::string_view name) {
  for (const char* known :
       {"strip",      "lstrip",  "rstrip",  "split",    "rsplit",  "splitlines",   "startswith",   "endswith",
        "replace",    "upper",   "lower",   "casefold", "title",   "capitalize",   "swapcase",     "find",
        "rfind",      "index",   "rindex",  "count",    "join",    "removeprefix", "removesuffix", "partition",
        "rpartition", "center",  "ljust",   "rjust",    "zfill",   "isdigit",      "isdecimal",    "isnumeric",
        "isalpha",    "isalnum", "isspace", "isupper",  "islower", "format"}) {
    if (name == known) return true;
  }
  return false;
}

// Returns whether Python has a method that is not supported here: a silent "undefined" would hide the problem.
bool is_other_method(std::string_view type, std::string_view name) {
  const auto among = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (type == "str") {
    return among({"encode", "expandtabs", "format_map", "isascii", "isidentifier", "isprintable", "istitle",
                  "maketrans", "translate"});
  }
  if (type == "list") return among({"append", "clear", "copy", "extend", "insert", "pop", "remove", "reverse", "sort"});
  if (type == "dict") return among({"clear", "copy", "fromkeys", "pop", "popitem", "setdefault", "update"});
  return false;
}

Value dict_method(const Value& self, const std::string& name, Interpreter& interpreter, const Arguments& arguments) {
  const Dict& dict = *self.dict();
  interpreter.charge(dict.members.size() * 16);
  if (name == "get") {
    check_count(arguments, name, 1, 2);
    require_hashable(arguments.positional[0]);
    if (const Value* found = dict.find(arguments.positional[0])) return *found;
    return arguments.positional.size() > 1 ? arguments.positional[1] : Value(None{});
  }
  check_count(arguments, name, 0, 0);
  List out;
  for (const auto& [key, value] : dict.members) {
    out.push_back(name == "keys" ? key : name == "values" ? value : Value::tuple({key, value}));
  }
  return Value::dict_view(std::move(out), name == "keys"     ? "dict_keys"
                                          : name == "values" ? "dict_values"
                                                             : "dict_items");
}

Value sequence_method(const Value& self, const std::string& name, Interpreter& interpreter,
                      const Arguments& arguments) {
  check_count(arguments, name, 1, 1);
  const List& items = *self.items();
  interpreter.charge(items.size() * 16);
  int64_t count = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!equal(items[i], arguments.positional[0])) continue;
    if (name == "index") return static_cast<int64_t>(i);
    ++count;
  }
  if (name == "index") throw TemplateError("'index()': the value is not in the list");
  return count;
}

Value range(Interpreter& interpreter, const Arguments& arguments) {
  check_count(arguments, "range", 1, 3);
  const size_t count = arguments.positional.size();
  const int64_t begin = count > 1 ? whole_argument(arguments, 0, "range") : 0;
  const int64_t end = whole_argument(arguments, count > 1 ? 1 : 0, "range");
  const int64_t step = count > 2 ? whole_argument(arguments, 2, "range") : 1;
  if (step == 0) throw TemplateError("'range()': the step is zero");
  List out;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (out.size() >= 100'000) throw TemplateError("'range()' of more than 100000 numbers");
    interpreter.charge();
    out.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::range(std::move(out));
}

Dict dict_of(const Arguments& arguments, std::string_view name) {
  if (arguments.positional.size() > 1)
    throw TemplateError("'" + std::string(name) + "()' takes one argument without a name");
  Dict dict;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.dict() != nullptr) {
      dict = *source.dict();
    } else {
      for (const Value& pair : iterate(source)) {
        const List parts = iterate(pair);
        if (parts.size() != 2) throw TemplateError("'" + std::string(name) + "()' needs pairs");
        dict.set(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [key, value] : arguments.named) dict.set(Value(key), value);
  return dict;
}

Value joiner(Interpreter&, const Arguments& arguments) {
  std::string separator = ", ";
  if (!arguments.named.empty() && arguments.named[0].first == "sep") {
    separator = to_text(arguments.named[0].second);
  } else {
    check_count(arguments, "joiner", 0, 1);
    if (!arguments.positional.empty()) separator = to_text(arguments.positional[0]);
  }
  return function("joiner", [used = std::make_shared<bool>(false), separator](Interpreter&, const Arguments& values) {
    check_count(values, "joiner", 0, 0);
    return Value(std::exchange(*used, true) ? separator : std::string());
  });
}

}  // namespace

void check_member_name(std::string_view name) {
  if (name.starts_with('_')) {
    throw TemplateError("a namespace has no members that begin with an underscore, such as '" + std::string(name) +
                        "'");
  }
}

Value method(const Value& value, const std::string& name) {
  const std::string type = type_name(value);
  if (is_other_method(type, name)) {
    if (value.dict() != nullptr && value.dict()->member(name) != nullptr) {
      throw TemplateError("'." + name + "' of a dict is a method, which is not supported; ['" + name +
                          "'] is the member");
    }
    throw TemplateError("the method '" + name + "()' of a " + type + " is not supported" +
                        (type == "str" ? "" : ": templates cannot change values"));
  }
  if (value.is_string() && is_text_method(name)) {
    return function(name, [value, name](Interpreter& interpreter, const Arguments& arguments) {
      return value.is_safe ? safe_text_method(value, name, interpreter, arguments)
                           : text_method(*value.text(), name, interpreter, arguments);
    });
  }
  if (value.dict() != nullptr && (name == "get" || name == "items" || name == "keys" || name == "values")) {
    return function(name, [value, name](Interpreter& interpreter, const Arguments& arguments) {
      return dict_method(value, name, interpreter, arguments);
    });
  }
  if (value.items() != nullptr && (name == "index" || name == "count")) {
    return function(name, [value, name](Interpreter& interpreter, const Arguments& arguments) {
      return sequence_method(value, name, interpreter, arguments);
    });
  }
  if (const auto* loop = std::get_if<std::shared_ptr<Loop>>(&value.data)) {
    if (name == "cycle") {
      return function(name, [loop = *loop](Interpreter&, const Arguments& arguments) {
        if (arguments.positional.empty()) throw TemplateError("'loop.cycle()' needs values");
        return arguments.positional[loop->index % arguments.positional.size()];
      });
    }
    if (name == "changed") {
      return function(name, [loop = *loop](Interpreter&, const Arguments& arguments) {
        Value now = Value::tuple(arguments.positional);
        const bool changed = !equal(now, loop->last_changed);
        loop->last_changed = std::move(now);
        return Value(changed);
      });
    }
  }
  return Value::undefined("no such method");
}

void add_globals(Scope& globals) {
  auto& variables = globals.variables;
  variables["range"] = function("range", range);
  variables["dict"] =
      function("dict", [](Interpreter&, const Arguments& arguments) { return Value(dict_of(arguments, "dict")); });
  variables["namespace"] = function("namespace", [](Interpreter&, const Arguments& arguments) {
    Dict members = dict_of(arguments, "namespace");
    for (const auto& member : members.members) {
      if (member.first.is_string()) check_member_name(*member.first.text());
    }
    return Value(Namespace{std::make_shared<Dict>(std::move(members))});
  });
  variables["joiner"] = function("joiner", joiner);
  variables["raise_exception"] = function("raise_exception", [](Interpreter&, const Arguments& arguments) -> Value {
    check_count(arguments, "raise_exception", 1, 1);
    throw RejectedByTemplate(to_text(arguments.positional[0]));
  });
}

}  // namespace anyaccel::llm::jinja
