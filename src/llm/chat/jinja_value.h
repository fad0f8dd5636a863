// Defines the values of chat templates, which behave as in Python: a template's output depends on how Python prints,
// compares and orders values, and on which of them count as true.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/text/json.h"

namespace anyaccel::llm::jinja {

// An error of a template; the message has no position yet (Interpreter adds the line).
class TemplateError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Thrown by raise_exception() in a template: the template rejects the conversation.
class RejectedByTemplate : public TemplateError {
 public:
  using TemplateError::TemplateError;
};

class Interpreter;
struct Value;
using List = std::vector<Value>;
struct Dict;
struct Function;
struct Iterable;
struct Loop;

// A missing value; any use of it except printing, testing and iterating is an error with this message.
struct Undefined {
  std::shared_ptr<const std::string> message;
};
struct None {};
struct Tuple {
  std::shared_ptr<const List> items;
};
// The mutable object of namespace().
struct Namespace {
  std::shared_ptr<Dict> members;
};

// Lists and dicts cannot be changed by a template (Jinja's immutable sandbox), so values may share them.
struct Value {
  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>, std::shared_ptr<const List>,
               Tuple, std::shared_ptr<const Dict>, Namespace, std::shared_ptr<const Function>, std::shared_ptr<Loop>,
               std::shared_ptr<Iterable>>
      data;
  // A text that the filter "safe" made, Python's Markup. Joined by + with another text it escapes that one for HTML.
  bool is_safe = false;

  Value() : data(Undefined{}) {}
  ~Value() {
    if (data.index() > 5) release();  // types that hold other values
  }
  Value(const Value&) = default;
  Value(Value&&) noexcept = default;
  Value& operator=(const Value&) = default;
  Value& operator=(Value&&) noexcept = default;
  Value(None) : data(None{}) {}
  template <std::same_as<bool> T>
  Value(T value) : data(value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Value(T value) : data(static_cast<int64_t>(value)) {}
  Value(double value) : data(value) {}
  Value(std::string text) : data(std::make_shared<const std::string>(std::move(text))) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(List items) : data(std::make_shared<const List>(std::move(items))) {}
  Value(Dict members);
  Value(Tuple tuple) : data(std::move(tuple)) {}
  Value(Namespace members) : data(std::move(members)) {}
  Value(std::shared_ptr<const Function> function) : data(std::move(function)) {}
  Value(std::shared_ptr<Loop> loop) : data(std::move(loop)) {}

  static Value undefined(std::string message);
  static Value safe(std::string text);
  static Value tuple(List items) { return Value(Tuple{std::make_shared<const List>(std::move(items))}); }
  static Value iterator(List items, const char* type = "generator");
  static Value dict_view(List items, const char* type);
  static Value range(List numbers);
  static Value from_json(const JsonValue& json);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data); }
  bool is_none() const { return std::holds_alternative<None>(data); }
  bool is_string() const { return text() != nullptr; }
  // bool, int and float, as in Python.
  bool is_number() const;
  // These return null for other types.
  const std::string* text() const;
  const List* list() const;   // of a list
  const List* items() const;  // of a list or a tuple
  const Dict* dict() const;   // of a dict
  Iterable* iterable() const;

 private:
  // Destroys the data with constant stack use: a template can nest values as deeply as its limit on steps allows.
  void release();
};

// Keys in the order in which they were added.
struct Dict {
  std::vector<std::pair<Value, Value>> members;

  const Value* find(const Value& key) const;
  const Value* member(std::string_view key) const;
  void set(Value key, Value value);
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Macros, methods and functions.
struct Function {
  std::string name;
  std::function<Value(Interpreter&, const Arguments&)> call;
};

// What can be iterated over and is no list, though it would be easy to take it for one.
struct Iterable {
  enum class Kind {
    Iterator,  // what filters such as select, map and reverse make: its items come once, and it is always true
    DictView,  // keys(), values() and items() of a dict
    Range,
  };
  Kind kind;
  const char* type;  // Python's name
  List items;        // of an iterator: those that have not been taken
  // Of an iterator: a loop or filter takes its items one by one, so that it is not known here which ones are left.
  bool is_lent = false;
};

// The variable `loop` of a for statement.
struct Loop {
  std::shared_ptr<const List> items;
  size_t index = 0;
  int64_t depth = 1;
  Value last_changed;  // the last arguments of loop.changed(), a tuple; undefined at first
  std::function<Value(Interpreter&, const Value&)> recurse;  // loop(items) of a recursive for; empty otherwise
};

// Returns Python's name of the type, for error messages: "str", "NoneType".
std::string type_name(const Value& value);
// Throws TemplateError with the value's own message if it is undefined.
void require_defined(const Value& value);
// Throws TemplateError for a value that cannot be the key of a dict: a list, a dict, or a tuple that contains one.
void require_hashable(const Value& key);
bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
// Returns a < b; throws TemplateError for types that Python does not order. `what` is the operator in the error
// message.
bool less(const Value& a, const Value& b, std::string_view what = "<");
// Returns `item in container`.
bool contains(const Value& container, const Value& item);
// Returns str(value), the text that {{ value }} prints.
std::string to_text(const Value& value);
// repr(value).
std::string to_repr(const Value& value);
// Returns repr() of a float: the shortest digits that round-trip.
std::string float_repr(double value);
// Returns the elements of a list or tuple, the keys of a dict, the characters of a string, or nothing for an undefined
// value; takes those of an iterator. Throws TemplateError for other types.
List iterate(const Value& value);
// The same for a caller that in Jinja takes the elements one by one, later: then an iterator cannot be used elsewhere.
List iterate_lazily(const Value& value);

struct JsonStyle {
  int indent = -1;  // < 0: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ascii = false;
};
// Converts the value like Python's json.dumps().
std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace anyaccel::llm::jinja
