// Writes JSON values as text, and reads documents with the checks that untrusted files need: errors name the file and
// the field, and repeated keys and deep nesting are errors. Keeps the JSON library (slow to compile) out of all other files:
// tools/check_layering allows its header in json.cpp alone.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace anyaccel {

struct JsonValue;
struct JsonMember;
using JsonArray = std::vector<JsonValue>;
using JsonMembers = std::vector<JsonMember>;  // in the order of the file, keys are unique

// Selects how json_text() treats bytes that are not UTF-8.
enum class BadUtf8 {
  Refuse,   // InvalidArgument
  Replace,  // by U+FFFD
};

// A JSON value. It can be created from its contents; a list of pairs creates an object: JsonValue v = {{"name", "x"},
// {"sizes", sizes}}.
struct JsonValue {
  // Null, bool, whole numbers (uint64 only above the range of int64), other numbers, text.
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, JsonArray, JsonMembers> data;

  JsonValue() = default;
  // Templates, so that nothing becomes a bool or a number by a conversion.
  template <std::same_as<bool> T>
  JsonValue(T value);
  template <std::integral T>
  requires(!std::same_as<T, bool>) JsonValue(T value);
  template <std::floating_point T>
  JsonValue(T value);
  JsonValue(const char* text);
  JsonValue(std::string_view text);
  JsonValue(std::string text);
  JsonValue(JsonArray elements);
  JsonValue(JsonMembers members);
  JsonValue(std::initializer_list<JsonMember> members);  // whose keys are unique
  template <typename T>
  JsonValue(const std::vector<T>& values);

  // Returns the member called `key`; adds it (as null) if it does not exist. This must be an object, or null, which
  // becomes one.
  JsonValue& operator[](std::string_view key);
  // Adds an element. This must be an array, or null, which becomes one.
  void push_back(JsonValue element);

  // Returns the member called `key`; a null pointer if this is not an object or has no such member.
  const JsonValue* find(std::string_view key) const;
  // Returns an array's elements; nothing for any other value.
  std::span<const JsonValue> elements() const;
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

// These are defined here because JsonMember must be complete.
template <std::same_as<bool> T>
JsonValue::JsonValue(T value) : data(value) {}
template <std::integral T>
requires(!std::same_as<T, bool>) JsonValue::JsonValue(T value) {
  if (std::in_range<int64_t>(value)) {
    data = static_cast<int64_t>(value);
  } else {
    data = static_cast<uint64_t>(value);
  }
}
template <std::floating_point T>
JsonValue::JsonValue(T value) : data(static_cast<double>(value)) {}
template <typename T>
JsonValue::JsonValue(const std::vector<T>& values) : data(JsonArray(values.begin(), values.end())) {}

// Formats the value on one line without spaces, or on several lines with `indent` spaces per level (0 or more). Members
// keep their order; numbers that are not finite become null.
std::string json_text(const JsonValue& value, int indent = -1, BadUtf8 bad_utf8 = BadUtf8::Refuse);

class JsonDocument;

// A value of a document; cheap to copy. The document must outlive it. Every function throws CheckpointError for a value
// of the wrong type, with the source, the field's path, what was expected and what was found.
class JsonRef {
 public:
  JsonRef(const JsonDocument& document, const JsonValue& value) : document_(&document), value_(&value) {}

  bool is_null() const { return std::holds_alternative<std::monostate>(value_->data); }
  bool is_bool() const { return std::holds_alternative<bool>(value_->data); }
  bool is_string() const { return std::holds_alternative<std::string>(value_->data); }
  bool is_array() const { return std::holds_alternative<JsonArray>(value_->data); }
  bool is_object() const { return std::holds_alternative<JsonMembers>(value_->data); }
  bool is_number() const;

  bool boolean() const;
  // Returns a whole number within [low, high]; 2.0 counts as one.
  int64_t integer(int64_t low, int64_t high) const;
  // Returns a number within [low, high].
  double number(double low, double high) const;
  const std::string& string() const;

  // Elements of an array; members of an object (an array's or object's size otherwise).
  size_t size() const;
  JsonRef operator[](size_t index) const;
  const std::string& key(size_t index) const;
  JsonRef member(size_t index) const;

  // Returns the member called `key`; nothing if it is missing or null. Throws if this is not an object.
  std::optional<JsonRef> find(std::string_view key) const;
  // Returns whether the member exists, even if it is null.
  bool has(std::string_view key) const;
  // Returns the member called `key`; throws if it is missing.
  JsonRef at(std::string_view key) const;

  // Throws CheckpointError: <source>: field "a.b[3]": expected <expected>, found <this value>.
  [[noreturn]] void fail(std::string_view expected) const;
  // The same with another text after the field's path.
  [[noreturn]] void error(std::string_view message) const;
  // "a.b[3]"; empty for the document itself.
  std::string path() const;
  // Returns the value that this refers to; valid as long as the document.
  const JsonValue& value() const { return *value_; }

 private:
  const JsonDocument* document_;
  const JsonValue* value_;
};

class JsonDocument {
 public:
  // `source` names the text in errors: a path. Throws CheckpointError for text that is not JSON (RFC 8259, UTF-8), a
  // key that occurs twice in an object, or more than max_depth levels of nesting.
  static JsonDocument parse(std::string_view text, std::string_view source);
  // Reads a file of at most `max_bytes`.
  static JsonDocument load(const std::filesystem::path& path, size_t max_bytes);

  static constexpr size_t max_depth = 64;

  JsonRef root() const { return JsonRef(*this, *root_); }
  const std::string& source() const { return source_; }

 private:
  JsonDocument() = default;

  std::unique_ptr<JsonValue> root_;
  std::string source_;
};

// Returns a short form of an untrusted text for an error message: quoted, control characters escaped, truncated to 60
// bytes.
std::string quote_text(std::string_view text);

// Returns the whole file. CheckpointError if it is missing, cannot be read, or is larger than `max_bytes`.
std::string read_whole_file(const std::filesystem::path& path, size_t max_bytes);

}  // namespace anyaccel
