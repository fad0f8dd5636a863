// A JSON document read with every check that files from outside need: errors name the file and the field, repeated keys
// and deep nesting are refused. Keeps the JSON library (slow to compile) out of all other files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace anyaccel {

struct JsonValue;
struct JsonMember;
using JsonArray = std::vector<JsonValue>;
using JsonMembers = std::vector<JsonMember>;  // in the order of the file, keys are unique

struct JsonValue {
  // Null, bool, whole numbers (uint64 only above the range of int64), other numbers, text.
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, JsonArray, JsonMembers> data;
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

class JsonDocument;

// A value of a document; cheap to copy. The document must outlive it. Every function that finds another type than it
// wants throws CheckpointError with the source, the field's path, what was expected and what was found.
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
  // A whole number within [low, high]; 2.0 counts as one.
  int64_t integer(int64_t low, int64_t high) const;
  // A number within [low, high].
  double number(double low, double high) const;
  const std::string& string() const;

  // Elements of an array; members of an object (an array's or object's size otherwise).
  size_t size() const;
  JsonRef operator[](size_t index) const;
  const std::string& key(size_t index) const;
  JsonRef member(size_t index) const;

  // The member called `key`; nothing when it is not there or null. Throws when this is no object.
  std::optional<JsonRef> find(std::string_view key) const;
  // Tells an absent member from one that is null.
  bool has(std::string_view key) const;
  // The member called `key`; throws when it is not there.
  JsonRef at(std::string_view key) const;

  // Throws CheckpointError: <source>: field "a.b[3]": expected <expected>, found <this value>.
  [[noreturn]] void fail(std::string_view expected) const;
  // The same with other words after the field's path.
  [[noreturn]] void error(std::string_view message) const;
  // "a.b[3]"; empty for the document itself.
  std::string path() const;

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

// A short form of a text from outside for an error message: quoted, control characters escaped, cut after 60 bytes.
std::string quote_text(std::string_view text);

// The whole file. CheckpointError when it is missing, cannot be read, or is larger than `max_bytes`.
std::string read_whole_file(const std::filesystem::path& path, size_t max_bytes);

}  // namespace anyaccel
