// Implements jinja_sequence_filters.h.
#include "llm/chat/jinja_sequence_filters.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "llm/chat/jinja_parameters.h"
#include "llm/chat/python_text.h"

namespace anyaccel::llm::jinja::sequence_filters {

namespace {

// Returns the value in lower case unless `case_sensitive`, for sorting and comparing.
Value folded(const Value& value, bool case_sensitive) {
  return !case_sensitive && value.is_string() ? Value(lower(*value.text())) : value;
}

// Jinja's make_attrgetter(): looks up "a.b.0" in a value; parts that are numbers are indices.
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

// Returns the arguments after the first `used` ones.
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

void stable_sort_values(List& items, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return reverse ? less(keys[b], keys[a]) : less(keys[a], keys[b]); });
  List sorted;
  for (const size_t i : order) sorted.push_back(items[i]);
  items = std::move(sorted);
}

}  // namespace

// Implements select, reject, selectattr and rejectattr.
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
  if (!truth(value)) return Value::iterator({});  // none and 0 too, which nothing else iterates over
  for (const Value& item : iterate_lazily(value)) {
    interpreter.charge();
    const Value subject = by_attribute ? nested_attribute(interpreter, item, arguments.positional[0]) : item;
    const bool holds = test.empty() ? truth(subject) : interpreter.apply_test(test, subject, of_test);
    if (holds == wanted) out.push_back(item);
  }
  return Value::iterator(std::move(out));
}

Value map(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  List out;
  if (!truth(value)) return Value::iterator({});
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
    for (const Value& item : iterate_lazily(value)) {
      interpreter.charge();
      out.push_back(nested_attribute(interpreter, item, *attribute, named("default")));
    }
    return Value::iterator(std::move(out));
  }
  const std::string filter = name_argument("map", arguments, 0);
  const Arguments of_filter = rest(arguments, 1);
  for (const Value& item : iterate_lazily(value)) {
    interpreter.charge();
    out.push_back(interpreter.apply_filter(filter, item, of_filter));
  }
  return Value::iterator(std::move(out));
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
  for (const Value& item : iterate_lazily(value)) {
    interpreter.charge(seen.size());
    const Value key =
        folded(given.has(1) ? nested_attribute(interpreter, item, given.required(1)) : item, given.flag(0, false));
    require_hashable(key);
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return equal(other, key); })) continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return Value::iterator(std::move(out));
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
    // The key is that of the first item, with its case unchanged.
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
  for (const Value& item : iterate_lazily(value)) {
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
  return Value::iterator(std::move(out));
}

}  // namespace anyaccel::llm::jinja::sequence_filters
