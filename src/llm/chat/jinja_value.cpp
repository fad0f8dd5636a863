// Prints, compares and iterates over template values as Python does.
#include "llm/chat/jinja_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/text/utf8.h"
#include "llm/chat/python_text.h"

namespace anyaccel::llm::jinja {

namespace {

// The deepest nesting that is compared or printed; that of JSON documents is limited already, that of lists made in
// loops is not.
constexpr int deepest_value = 100;

void check_depth(int depth) {
  if (depth > deepest_value)
    throw TemplateError("a value is nested more than " + std::to_string(deepest_value) + " deep");
}

struct Number {
  bool integer = true;
  int64_t whole = 0;
  double real = 0;
};

Number number_of(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value.data)) return {true, *flag ? 1 : 0, *flag ? 1.0 : 0.0};
  if (const auto* whole = std::get_if<int64_t>(&value.data)) return {true, *whole, static_cast<double>(*whole)};
  return {false, 0, std::get<double>(value.data)};
}

bool equal_at(const Value& a, const Value& b, int depth) {
  check_depth(depth);
  if (a.is_number() && b.is_number()) {
    const Number x = number_of(a);
    const Number y = number_of(b);
    return x.integer && y.integer ? x.whole == y.whole : x.real == y.real;
  }
  if (a.data.index() != b.data.index()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (const std::string* text = a.text()) return *text == *b.text();
  if (const List* items = a.items()) {
    const List* others = b.items();
    return items == others || std::equal(items->begin(), items->end(), others->begin(), others->end(),
                                         [&](const Value& x, const Value& y) { return equal_at(x, y, depth + 1); });
  }
  if (const Iterable* iterable = a.iterable()) {
    const Iterable* other = b.iterable();
    if (iterable == other) return true;
    if (iterable->kind == Iterable::Kind::DictView && other->kind == Iterable::Kind::DictView) {
      throw TemplateError(std::string("'==' of a ") + iterable->type + " is not supported; expected lists");
    }
    if (iterable->kind != Iterable::Kind::Range || other->kind != Iterable::Kind::Range) return false;
    return std::equal(iterable->items.begin(), iterable->items.end(), other->items.begin(), other->items.end(),
                      [&](const Value& x, const Value& y) { return equal_at(x, y, depth + 1); });
  }
  if (const Dict* dict = a.dict()) {
    const Dict* other = b.dict();
    if (dict == other) return true;
    if (dict->members.size() != other->members.size()) return false;
    return std::all_of(dict->members.begin(), dict->members.end(), [&](const auto& member) {
      const Value* found = other->find(member.first);
      return found != nullptr && equal_at(member.second, *found, depth + 1);
    });
  }
  if (const auto* space = std::get_if<Namespace>(&a.data)) {
    return space->members == std::get<Namespace>(b.data).members;
  }
  if (const auto* function = std::get_if<std::shared_ptr<const Function>>(&a.data)) {
    return *function == std::get<std::shared_ptr<const Function>>(b.data);
  }
  return std::get<std::shared_ptr<Loop>>(a.data) == std::get<std::shared_ptr<Loop>>(b.data);
}

bool less_at(const Value& a, const Value& b, std::string_view what, int depth) {
  check_depth(depth);
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) {
    const Number x = number_of(a);
    const Number y = number_of(b);
    return x.integer && y.integer ? x.whole < y.whole : x.real < y.real;
  }
  // UTF-8 bytes sort in the order of the code points.
  if (a.is_string() && b.is_string()) return *a.text() < *b.text();
  const List* items = a.items();
  const List* others = b.items();
  if (items != nullptr && others != nullptr && a.data.index() == b.data.index()) {
    for (size_t i = 0; i < items->size() && i < others->size(); ++i) {
      if (equal_at((*items)[i], (*others)[i], depth + 1)) continue;
      return less_at((*items)[i], (*others)[i], what, depth + 1);
    }
    return items->size() < others->size();
  }
  throw TemplateError("'" + std::string(what) + "' is not supported between " + type_name(a) + " and " + type_name(b));
}

// repr() of a string.
std::string repr_of_text(std::string_view text) {
  const char mark = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, mark);
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    const char32_t c = step.code;
    char buffer[24];
    if (c == static_cast<unsigned char>(mark) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += text.substr(0, step.length);
    } else {
      std::snprintf(buffer, sizeof buffer,
                    c < 0x100     ? "\\x%02x"
                    : c < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                    static_cast<unsigned>(c));
      out += buffer;
    }
    text.remove_prefix(step.length);
  }
  return out + mark;
}

std::string text_at(const Value& value, bool repr, int depth) {
  check_depth(depth);
  if (const std::string* text = value.text()) {
    if (!repr) return *text;
    return value.is_safe ? "Markup(" + repr_of_text(*text) + ")" : repr_of_text(*text);
  }
  if (value.is_undefined()) return repr ? "Undefined" : "";
  if (value.is_none()) return "None";
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag ? "True" : "False";
  if (const auto* whole = std::get_if<int64_t>(&value.data)) return std::to_string(*whole);
  if (const auto* real = std::get_if<double>(&value.data)) return float_repr(*real);
  if (const List* items = value.items()) {
    const bool is_tuple = value.list() == nullptr;
    std::string out(1, is_tuple ? '(' : '[');
    for (size_t i = 0; i < items->size(); ++i) {
      if (i > 0) out += ", ";
      out += text_at((*items)[i], true, depth + 1);
    }
    if (is_tuple && items->size() == 1) out += ',';
    return out + (is_tuple ? ')' : ']');
  }
  if (const Dict* dict = value.dict()) {
    std::string out = "{";
    for (const auto& [key, member] : dict->members) {
      if (out.size() > 1) out += ", ";
      out += text_at(key, true, depth + 1) + ": " + text_at(member, true, depth + 1);
    }
    return out + "}";
  }
  throw TemplateError("a " + type_name(value) + " is printed; expected text, a number, a list or a dict");
}

void append_json_string(std::string& out, std::string_view text, bool ascii) {
  out += '"';
  char buffer[16];
  const auto escape = [&](unsigned unit) {
    std::snprintf(buffer, sizeof buffer, "\\u%04x", unit);
    out += buffer;
  };
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    const char32_t c = step.code;
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\b') {
      out += "\\b";
    } else if (c == '\f') {
      out += "\\f";
    } else if (c < 0x20 || (ascii && c >= 0x7F && c < 0x10000)) {
      if (c == 0x7F) {
        out += '\x7F';
      } else {
        escape(static_cast<unsigned>(c));
      }
    } else if (ascii && c >= 0x10000) {
      escape(static_cast<unsigned>(0xD800 + ((c - 0x10000) >> 10)));
      escape(static_cast<unsigned>(0xDC00 + ((c - 0x10000) & 0x3FF)));
    } else {
      out += text.substr(0, step.length);
    }
    text.remove_prefix(step.length);
  }
  out += '"';
}

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return float_repr(value);
}

// Returns the text of a key in JSON; Python also accepts numbers, bools and None.
std::string json_key(const Value& key) {
  if (const std::string* text = key.text()) return *text;
  if (key.is_none()) return "null";
  if (const auto* flag = std::get_if<bool>(&key.data)) return *flag ? "true" : "false";
  if (const auto* real = std::get_if<double>(&key.data)) return json_number(*real);
  if (std::holds_alternative<int64_t>(key.data)) return to_text(key);
  throw TemplateError("tojson: keys are text or numbers, not " + type_name(key));
}

void append_json(std::string& out, const Value& value, const JsonStyle& style, int depth) {
  check_depth(depth);
  const auto line_break = [&](int level) {
    if (style.indent < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(level) * static_cast<size_t>(style.indent), ' ');
  };
  require_defined(value);
  if (const std::string* text = value.text()) {
    append_json_string(out, *text, style.ascii);
  } else if (value.is_none()) {
    out += "null";
  } else if (const auto* flag = std::get_if<bool>(&value.data)) {
    out += *flag ? "true" : "false";
  } else if (const auto* real = std::get_if<double>(&value.data)) {
    out += json_number(*real);
  } else if (std::holds_alternative<int64_t>(value.data)) {
    out += to_text(value);
  } else if (const List* items = value.items()) {
    if (items->empty()) {
      out += "[]";
      return;
    }
    out += '[';
    for (size_t i = 0; i < items->size(); ++i) {
      if (i > 0) out += style.item_separator;
      line_break(depth + 1);
      append_json(out, (*items)[i], style, depth + 1);
    }
    line_break(depth);
    out += ']';
  } else if (const Dict* dict = value.dict()) {
    if (dict->members.empty()) {
      out += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> members;
    for (const auto& member : dict->members) members.push_back(&member);
    if (style.sort_keys) {
      std::stable_sort(members.begin(), members.end(),
                       [](const auto* a, const auto* b) { return less(a->first, b->first); });
    }
    out += '{';
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0) out += style.item_separator;
      line_break(depth + 1);
      append_json_string(out, json_key(members[i]->first), style.ascii);
      out += style.key_separator;
      append_json(out, members[i]->second, style, depth + 1);
    }
    line_break(depth);
    out += '}';
  } else {
    throw TemplateError("tojson: a " + type_name(value) + " cannot be written as JSON");
  }
}

}  // namespace

void Value::release() {
  constexpr int deepest = 50;
  struct Waiting {
    int depth = 0;
    std::vector<decltype(data)> values;
  };
  static thread_local Waiting waiting;
  if (waiting.depth >= deepest) {
    waiting.values.push_back(std::move(data));
    return;
  }
  ++waiting.depth;
  data = None{};
  while (waiting.depth == 1 && !waiting.values.empty()) {
    decltype(data) last = std::move(waiting.values.back());
    waiting.values.pop_back();
    last = None{};
  }
  --waiting.depth;
}

Value::Value(Dict members) : data(std::make_shared<const Dict>(std::move(members))) {}

Value Value::undefined(std::string message) {
  Value value;
  value.data = Undefined{std::make_shared<const std::string>(std::move(message))};
  return value;
}

Value Value::from_json(const JsonValue& json) {
  struct Convert {
    Value operator()(std::monostate) const { return None{}; }
    Value operator()(bool flag) const { return flag; }
    Value operator()(int64_t whole) const { return whole; }
    Value operator()(uint64_t whole) const {
      throw TemplateError("the number " + std::to_string(whole) +
                          " is above 2^63 - 1, which templates cannot hold here");
    }
    Value operator()(double real) const { return real; }
    Value operator()(const std::string& text) const { return text; }
    Value operator()(const JsonArray& elements) const {
      List items;
      items.reserve(elements.size());
      for (const JsonValue& element : elements) items.push_back(from_json(element));
      return items;
    }
    Value operator()(const JsonMembers& members) const {
      Dict dict;
      for (const JsonMember& member : members) dict.members.emplace_back(member.key, from_json(member.value));
      return dict;
    }
  };
  return std::visit(Convert{}, json.data);
}

Value Value::safe(std::string text) {
  Value value(std::move(text));
  value.is_safe = true;
  return value;
}

Value Value::iterator(List items, const char* type) {
  Value value;
  value.data = std::make_shared<Iterable>(Iterable{Iterable::Kind::Iterator, type, std::move(items)});
  return value;
}

Value Value::dict_view(List items, const char* type) {
  Value value;
  value.data = std::make_shared<Iterable>(Iterable{Iterable::Kind::DictView, type, std::move(items)});
  return value;
}

Value Value::range(List numbers) {
  Value value;
  value.data = std::make_shared<Iterable>(Iterable{Iterable::Kind::Range, "range", std::move(numbers)});
  return value;
}

bool Value::is_number() const {
  return std::holds_alternative<bool>(data) || std::holds_alternative<int64_t>(data) ||
         std::holds_alternative<double>(data);
}

const std::string* Value::text() const {
  const auto* found = std::get_if<std::shared_ptr<const std::string>>(&data);
  return found == nullptr ? nullptr : found->get();
}

const List* Value::list() const {
  const auto* found = std::get_if<std::shared_ptr<const List>>(&data);
  return found == nullptr ? nullptr : found->get();
}

const List* Value::items() const {
  const auto* found = std::get_if<Tuple>(&data);
  return found == nullptr ? list() : found->items.get();
}

const Dict* Value::dict() const {
  const auto* found = std::get_if<std::shared_ptr<const Dict>>(&data);
  return found == nullptr ? nullptr : found->get();
}

Iterable* Value::iterable() const {
  const auto* found = std::get_if<std::shared_ptr<Iterable>>(&data);
  return found == nullptr ? nullptr : found->get();
}

const Value* Dict::find(const Value& key) const {
  for (const auto& member : members) {
    if (equal(member.first, key)) return &member.second;
  }
  return nullptr;
}

const Value* Dict::member(std::string_view key) const {
  for (const auto& member : members) {
    const std::string* text = member.first.text();
    if (text != nullptr && *text == key) return &member.second;
  }
  return nullptr;
}

void Dict::set(Value key, Value value) {
  require_hashable(key);
  for (auto& member : members) {
    if (!equal(member.first, key)) continue;
    member.second = std::move(value);
    return;
  }
  members.emplace_back(std::move(key), std::move(value));
}

std::string type_name(const Value& value) {
  struct Name {
    std::string operator()(const Undefined&) const { return "Undefined"; }
    std::string operator()(const None&) const { return "NoneType"; }
    std::string operator()(bool) const { return "bool"; }
    std::string operator()(int64_t) const { return "int"; }
    std::string operator()(double) const { return "float"; }
    std::string operator()(const std::shared_ptr<const std::string>&) const { return "str"; }
    std::string operator()(const std::shared_ptr<const List>&) const { return "list"; }
    std::string operator()(const Tuple&) const { return "tuple"; }
    std::string operator()(const std::shared_ptr<const Dict>&) const { return "dict"; }
    std::string operator()(const Namespace&) const { return "Namespace"; }
    std::string operator()(const std::shared_ptr<const Function>&) const { return "function"; }
    std::string operator()(const std::shared_ptr<Loop>&) const { return "LoopContext"; }
    std::string operator()(const std::shared_ptr<Iterable>& iterable) const { return iterable->type; }
  };
  return std::visit(Name{}, value.data);
}

void require_defined(const Value& value) {
  const auto* missing = std::get_if<Undefined>(&value.data);
  if (missing != nullptr) throw TemplateError(missing->message ? *missing->message : "a value is undefined");
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag;
  if (const auto* whole = std::get_if<int64_t>(&value.data)) return *whole != 0;
  if (const auto* real = std::get_if<double>(&value.data)) return *real != 0;
  if (const std::string* text = value.text()) return !text->empty();
  if (const List* items = value.items()) return !items->empty();
  if (const Dict* dict = value.dict()) return !dict->members.empty();
  if (const Iterable* iterable = value.iterable()) {
    return iterable->kind == Iterable::Kind::Iterator || !iterable->items.empty();
  }
  return true;
}

bool equal(const Value& a, const Value& b) { return equal_at(a, b, 0); }
bool less(const Value& a, const Value& b, std::string_view what) { return less_at(a, b, what, 0); }

namespace {

void require_hashable_at(const Value& key, int depth) {
  check_depth(depth);
  const List* parts = key.items();
  if (key.list() != nullptr || key.dict() != nullptr) throw TemplateError("a " + type_name(key) + " cannot be a key");
  if (parts == nullptr) return;
  for (const Value& part : *parts) require_hashable_at(part, depth + 1);
}

}  // namespace

void require_hashable(const Value& key) { require_hashable_at(key, 0); }

namespace {

void require_not_lent(const Iterable& iterable) {
  if (!iterable.is_lent) return;
  throw TemplateError(
      std::string("a ") + iterable.type +
      " is used that a loop or a filter has begun to take items of; expected a list (the filter 'list')");
}

}  // namespace

bool contains(const Value& container, const Value& item) {
  if (const std::string* text = container.text()) {
    require_defined(item);
    const std::string* part = item.text();
    if (part == nullptr) throw TemplateError("'in' a str needs a str on its left, not " + type_name(item));
    return text->find(*part) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    require_hashable(item);
    return dict->find(item) != nullptr;
  }
  if (const List* items = container.items()) {
    return std::any_of(items->begin(), items->end(), [&](const Value& value) { return equal(value, item); });
  }
  if (Iterable* iterable = container.iterable()) {
    List& of = iterable->items;
    require_not_lent(*iterable);
    const auto at = std::find_if(of.begin(), of.end(), [&](const Value& value) { return equal(value, item); });
    const bool found = at != of.end();
    if (iterable->kind == Iterable::Kind::Iterator) of.erase(of.begin(), found ? at + 1 : at);  // Python takes them
    return found;
  }
  if (container.is_undefined()) return false;
  throw TemplateError("'in' needs a str, list or dict on its right, not " + type_name(container));
}

std::string to_text(const Value& value) { return text_at(value, false, 0); }
std::string to_repr(const Value& value) { return text_at(value, true, 0); }

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char digits[48];
  const auto result = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific);
  std::string text(digits, result.ptr);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) {  // as repr() does: 1e-05, 1e+16, 1.5e+300
    std::snprintf(digits, sizeof digits, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return text.substr(0, e) + digits;
  }
  char fixed[64];
  const auto end = std::to_chars(fixed, fixed + sizeof fixed, value, std::chars_format::fixed);
  std::string plain(fixed, end.ptr);
  if (plain.find('.') == std::string::npos) plain += ".0";
  return plain;
}

List iterate(const Value& value) {
  if (const List* items = value.items()) return *items;
  List out;
  if (const Dict* dict = value.dict()) {
    for (const auto& member : dict->members) out.push_back(member.first);
    return out;
  }
  if (const std::string* text = value.text()) {
    for (std::string_view rest = *text; !rest.empty();) {
      const size_t length = utf8_step(rest).length;
      out.emplace_back(rest.substr(0, length));
      rest.remove_prefix(length);
    }
    return out;
  }
  if (value.is_undefined()) return out;
  if (Iterable* iterable = value.iterable()) {
    require_not_lent(*iterable);
    return iterable->kind == Iterable::Kind::Iterator ? std::exchange(iterable->items, {}) : iterable->items;
  }
  throw TemplateError("a " + type_name(value) + " is not iterable");
}

List iterate_lazily(const Value& value) {
  List items = iterate(value);
  if (Iterable* iterable = value.iterable()) iterable->is_lent = iterable->kind == Iterable::Kind::Iterator;
  return items;
}

std::string to_json(const Value& value, const JsonStyle& style) {
  std::string out;
  append_json(out, value, style, 0);
  return out;
}

}  // namespace anyaccel::llm::jinja
