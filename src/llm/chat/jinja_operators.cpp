// Implements the arithmetic operators, slices and subscripts of values, as Python defines them.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text/utf8.h"
#include "llm/chat/jinja_interpreter.h"
#include "llm/chat/python_text.h"

namespace anyaccel::llm::jinja {

namespace {

int64_t whole_number(const Value& value, std::string_view what) {
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag ? 1 : 0;
  if (const auto* whole = std::get_if<int64_t>(&value.data)) return *whole;
  require_defined(value);
  throw TemplateError(std::string(what) + " must be an int, not " + type_name(value));
}

bool is_whole(const Value& value) { return value.is_number() && !std::holds_alternative<double>(value.data); }

double real_number(const Value& value) {
  if (const auto* real = std::get_if<double>(&value.data)) return *real;
  return static_cast<double>(whole_number(value, "a number"));
}

template <typename Operation>
int64_t checked(Operation operation, int64_t a, int64_t b) {
  int64_t result = 0;
  if (operation(a, b, &result)) throw TemplateError("a number is beyond 64 bits");
  return result;
}

bool add(int64_t a, int64_t b, int64_t* result) { return __builtin_add_overflow(a, b, result); }
bool subtract(int64_t a, int64_t b, int64_t* result) { return __builtin_sub_overflow(a, b, result); }
bool multiply(int64_t a, int64_t b, int64_t* result) { return __builtin_mul_overflow(a, b, result); }

Value whole_arithmetic(std::string_view op, int64_t a, int64_t b) {
  if (op == "+") return checked(add, a, b);
  if (op == "-") return checked(subtract, a, b);
  if (op == "*") return checked(multiply, a, b);
  if (op == "**") {
    if (b < 0) {
      if (a == 0) throw TemplateError("division by zero");
      return std::pow(static_cast<double>(a), static_cast<double>(b));
    }
    int64_t result = 1;
    if (a == 0 || a == 1) return b == 0 ? int64_t{1} : a;
    if (a == -1) return b % 2 == 0 ? int64_t{1} : int64_t{-1};
    for (int64_t i = 0; i < b; ++i) result = checked(multiply, result, a);
    return result;
  }
  if (b == 0) throw TemplateError("division by zero");
  if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (a == INT64_MIN && b == -1) {
    if (op == "//") throw TemplateError("a number is beyond 64 bits");
    return int64_t{0};
  }
  // Python rounds towards minus infinity.
  int64_t quotient = a / b;
  int64_t rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    --quotient;
    rest += b;
  }
  return op == "//" ? quotient : rest;
}

Value real_arithmetic(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") {
    if (a == 0 && b < 0) throw TemplateError("division by zero");
    if (a < 0 && b != std::floor(b)) throw TemplateError("a power of a negative number is not real");
    const double result = std::pow(a, b);
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) throw TemplateError("a number is out of range");
    return result;
  }
  if (b == 0) throw TemplateError("division by zero");
  if (op == "/") return a / b;
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      quotient -= 1.0;
    }
  } else {
    rest = std::copysign(0.0, b);
  }
  if (op == "%") return rest;
  if (quotient == 0) return std::copysign(0.0, a / b);
  double floor = std::floor(quotient);
  if (quotient - floor > 0.5) floor += 1.0;
  return floor;
}

// Returns the text as it is joined with one that the filter "safe" made: escaped for HTML, unless "safe" made it too.
std::string escaped(const Value& value) {
  if (value.is_safe) return *value.text();
  std::string out;
  for (const char c : *value.text()) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

// Returns the indices that a Python slice selects from a sequence of `size` elements.
std::vector<size_t> slice_indices(int64_t size, const Value& begin, const Value& end, const Value& step_value) {
  const int64_t step = step_value.is_none() ? 1 : whole_number(step_value, "the step of a slice");
  if (step == 0) throw TemplateError("the step of a slice is zero");
  const auto bound = [&](const Value& value, int64_t absent) {
    if (value.is_none()) return absent;
    int64_t index = whole_number(value, "the bound of a slice");
    if (index < 0) index = std::max(index + size, step < 0 ? int64_t{-1} : int64_t{0});
    return std::min(index, step < 0 ? size - 1 : size);
  };
  const int64_t first = bound(begin, step < 0 ? size - 1 : 0);
  const int64_t last = bound(end, step < 0 ? -1 : size);
  std::vector<size_t> indices;
  for (int64_t i = first; step > 0 ? i < last : i > last;) {
    indices.push_back(static_cast<size_t>(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return indices;
}

}  // namespace

Value Interpreter::arithmetic(std::string_view op, const Value& a, const Value& b) {
  require_defined(a);
  if (op == "%" && a.is_safe) throw TemplateError("'%' of a text that the filter 'safe' made is not supported");
  if (op == "%" && a.is_string()) return format_percent(*this, *a.text(), b);
  require_defined(b);
  if (is_whole(a) && is_whole(b)) return whole_arithmetic(op, whole_number(a, "a number"), whole_number(b, "a number"));
  if (a.is_number() && b.is_number()) return real_arithmetic(op, real_number(a), real_number(b));
  if (op == "+" && a.is_string() && b.is_string()) {
    check_size(a.text()->size() + b.text()->size());
    charge(a.text()->size() + b.text()->size());
    if (!a.is_safe && !b.is_safe) return *a.text() + *b.text();
    std::string joined = escaped(a) + escaped(b);
    check_size(joined.size());
    return Value::safe(std::move(joined));
  }
  if (op == "+" && a.items() != nullptr && b.items() != nullptr && a.data.index() == b.data.index()) {
    List joined = *a.items();
    check_size(joined.size() + b.items()->size());
    charge((joined.size() + b.items()->size()) * bytes_per_step);
    joined.insert(joined.end(), b.items()->begin(), b.items()->end());
    return a.list() != nullptr ? Value(std::move(joined)) : Value::tuple(std::move(joined));
  }
  if (op == "*" && (is_whole(a) || is_whole(b))) {
    const Value& sequence = is_whole(a) ? b : a;
    const auto count = static_cast<size_t>(std::max<int64_t>(0, whole_number(is_whole(a) ? a : b, "a number")));
    const size_t size = sequence.is_string()          ? sequence.text()->size()
                        : sequence.items() != nullptr ? sequence.items()->size()
                                                      : 0;
    if (sequence.is_string() || sequence.items() != nullptr) {
      if (size > 0 && count > 0) check_size(count > max_output / size ? max_output + 1 : size * count);
      charge(size * count * (sequence.is_string() ? 1 : bytes_per_step));
      if (sequence.is_string()) {
        std::string text;
        for (size_t i = 0; i < count && size > 0; ++i) text += *sequence.text();
        return sequence.is_safe ? Value::safe(std::move(text)) : Value(std::move(text));
      }
      List items;
      for (size_t i = 0; i < count && size > 0; ++i) {
        items.insert(items.end(), sequence.items()->begin(), sequence.items()->end());
      }
      return sequence.list() != nullptr ? Value(std::move(items)) : Value::tuple(std::move(items));
    }
  }
  throw TemplateError("'" + std::string(op) + "' is not supported between " + type_name(a) + " and " + type_name(b));
}

Value Interpreter::slice(const Value& value, const Value& begin, const Value& end, const Value& step) {
  require_defined(value);
  if (const std::string* text = value.text()) {
    charge(text->size());
    // The index counts characters; the text is indexed directly if all of them are single bytes.
    const size_t count = code_points(*text);
    std::string out;
    const auto part = [&] { return value.is_safe ? Value::safe(std::move(out)) : Value(std::move(out)); };
    if (count == text->size()) {
      for (const size_t i : slice_indices(static_cast<int64_t>(count), begin, end, step)) out += (*text)[i];
      return part();
    }
    const List characters = iterate(value);
    for (const size_t i : slice_indices(static_cast<int64_t>(count), begin, end, step)) out += *characters[i].text();
    return part();
  }
  const Iterable* iterable = value.iterable();
  const bool is_range = iterable != nullptr && iterable->kind == Iterable::Kind::Range;
  const List* items = is_range ? &iterable->items : value.items();
  if (items == nullptr) throw TemplateError("a " + type_name(value) + " cannot be sliced");
  charge(items->size() * bytes_per_step);
  List out;
  for (const size_t i : slice_indices(static_cast<int64_t>(items->size()), begin, end, step))
    out.push_back((*items)[i]);
  if (is_range) return Value::range(std::move(out));
  return value.list() != nullptr ? Value(std::move(out)) : Value::tuple(std::move(out));
}

Value Interpreter::subscript(const Value& value, const Value& index) {
  require_defined(value);
  if (const Dict* dict = value.dict()) {
    charge(dict->members.size());
    if (const Value* found = dict->find(index)) return *found;
    if (index.is_string()) {
      const Value bound = method(value, *index.text());
      if (!bound.is_undefined()) return bound;
    }
    return Value::undefined("'dict object' has no attribute " + to_repr(index));
  }
  const bool by_number = is_whole(index);
  const Iterable* iterable = value.iterable();
  const List* items = iterable != nullptr && iterable->kind == Iterable::Kind::Range ? &iterable->items : value.items();
  if (by_number && (value.is_string() || items != nullptr)) {
    const auto size = static_cast<int64_t>(value.is_string() ? code_points(*value.text()) : items->size());
    int64_t at = whole_number(index, "an index");
    if (at < 0) at += size;
    if (at < 0 || at >= size) return Value::undefined(type_name(value) + " object has no element " + to_repr(index));
    if (items != nullptr) return (*items)[static_cast<size_t>(at)];
    charge(value.text()->size());
    const size_t begin = byte_offset(*value.text(), static_cast<size_t>(at));
    std::string character = value.text()->substr(begin, utf8_length((*value.text())[begin]));
    return value.is_safe ? Value::safe(std::move(character)) : Value(std::move(character));
  }
  if (index.is_string()) return attribute(value, *index.text());
  return Value::undefined(type_name(value) + " object has no element " + to_repr(index));
}

}  // namespace anyaccel::llm::jinja
