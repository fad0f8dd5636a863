// Reads and writes JSON. Reading builds our own tree from the events of the JSON library's parser; the parser does not
// recurse and the tree's depth is limited, so nesting cannot exhaust the stack. For writing, the library formats texts
// and numbers.
#include "base/text/json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "anyaccel/error.h"
#include "base/files/open_file.h"

namespace anyaccel {
namespace {

// Receives the parser's events. A handler that returns false ends the parse; `problem` then has the reason.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TreeBuilder(JsonValue& root) : root_(root) {}

  bool null() override { return add(std::monostate()); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(static_cast<int64_t>(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return add(static_cast<int64_t>(value));
    return add(static_cast<uint64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(JsonMembers()); }
  bool start_array(size_t) override { return open(JsonArray()); }
  bool key(string_t& value) override {
    std::get<JsonMembers>(stack_.back()->data).emplace_back().key = std::move(value);
    return true;
  }
  bool end_array() override {
    stack_.pop_back();
    return true;
  }
  bool end_object() override {
    const auto& members = std::get<JsonMembers>(stack_.back()->data);
    stack_.pop_back();
    return unique_keys(members);
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    // The library's text has a prefix "[json.exception...] ".
    std::string_view text = error.what();
    if (const size_t end = text.find("] "); end != std::string_view::npos) text.remove_prefix(end + 2);
    problem = "is not valid JSON at byte " + std::to_string(position) + ": " + std::string(text);
    return false;
  }

  std::string problem;

 private:
  // Returns the place of the next value: the root, the end of the open array, or the value of the newest key.
  JsonValue* place() {
    if (stack_.empty()) return &root_;
    if (auto* array = std::get_if<JsonArray>(&stack_.back()->data)) return &array->emplace_back();
    return &std::get<JsonMembers>(stack_.back()->data).back().value;
  }
  template <typename T>
  bool add(T value) {
    place()->data = std::move(value);
    return true;
  }
  template <typename T>
  bool open(T value) {
    if (stack_.size() >= JsonDocument::max_depth) {
      problem = "is nested more than " + std::to_string(JsonDocument::max_depth) + " levels deep";
      return false;
    }
    JsonValue* target = place();
    target->data = std::move(value);
    stack_.push_back(target);
    return true;
  }
  bool unique_keys(const JsonMembers& members) {
    keys_.clear();
    for (const auto& [key, value] : members) keys_.push_back(key);
    std::sort(keys_.begin(), keys_.end());
    const auto twice = std::adjacent_find(keys_.begin(), keys_.end());
    if (twice == keys_.end()) return true;
    problem = "has the key " + quote_text(*twice) + " twice in one object";
    return false;
  }

  JsonValue& root_;
  std::vector<JsonValue*> stack_;  // open arrays and objects; only the last one of each grows
  std::vector<std::string_view> keys_;
};

// Finds `wanted` below `value` and appends its path. Only for error messages.
bool find_path(const JsonValue& value, const JsonValue* wanted, std::string& path) {
  if (&value == wanted) return true;
  const size_t length = path.size();
  if (const auto* members = std::get_if<JsonMembers>(&value.data)) {
    for (const auto& [key, child] : *members) {
      const std::string name = quote_text(key);
      path += (path.empty() ? "" : ".") + name.substr(1, name.size() - 2);
      if (find_path(child, wanted, path)) return true;
      path.resize(length);
    }
  } else if (const auto* array = std::get_if<JsonArray>(&value.data)) {
    for (size_t i = 0; i < array->size(); ++i) {
      path += "[" + std::to_string(i) + "]";
      if (find_path((*array)[i], wanted, path)) return true;
      path.resize(length);
    }
  }
  return false;
}

// Appends a value that is `depth` levels deep.
class Writer {
 public:
  Writer(std::string& out, int indent, BadUtf8 bad_utf8)
      : out_(out),
        indent_(indent),
        bad_utf8_(bad_utf8 == BadUtf8::Replace ? nlohmann::json::error_handler_t::replace
                                               : nlohmann::json::error_handler_t::strict) {}

  void write(const JsonValue& value, size_t depth) {
    if (const auto* array = std::get_if<JsonArray>(&value.data)) {
      list(*array, '[', ']', depth, [&](const JsonValue& element) { write(element, depth + 1); });
    } else if (const auto* members = std::get_if<JsonMembers>(&value.data)) {
      list(*members, '{', '}', depth, [&](const JsonMember& member) {
        scalar(member.key);
        out_ += indent_ < 0 ? ":" : ": ";
        write(member.value, depth + 1);
      });
    } else if (const auto* text = std::get_if<std::string>(&value.data)) {
      scalar(*text);
    } else if (const auto* whole = std::get_if<int64_t>(&value.data)) {
      scalar(*whole);
    } else if (const auto* large = std::get_if<uint64_t>(&value.data)) {
      scalar(*large);
    } else if (const auto* real = std::get_if<double>(&value.data)) {
      scalar(*real);
    } else if (const auto* truth = std::get_if<bool>(&value.data)) {
      scalar(*truth);
    } else {
      scalar(nullptr);
    }
  }

 private:
  void scalar(const nlohmann::json& value) { out_ += value.dump(-1, ' ', false, bad_utf8_); }
  void new_line(size_t depth) {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(depth * static_cast<size_t>(indent_), ' ');
  }
  template <typename List, typename Write>
  void list(const List& list, char open, char close, size_t depth, const Write& write_one) {
    out_ += open;
    bool first = true;
    for (const auto& one : list) {
      if (!first) out_ += ',';
      first = false;
      new_line(depth + 1);
      write_one(one);
    }
    if (!first) new_line(depth);
    out_ += close;
  }

  std::string& out_;
  int indent_;
  nlohmann::json::error_handler_t bad_utf8_;
};

std::string number_text(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.15g", value);
  return text;
}

std::string describe(const JsonValue& value) {
  struct Describer {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(bool b) const { return b ? "true" : "false"; }
    std::string operator()(int64_t i) const { return std::to_string(i); }
    std::string operator()(uint64_t i) const { return std::to_string(i); }
    std::string operator()(double d) const { return number_text(d); }
    std::string operator()(const std::string& s) const { return "the text " + quote_text(s); }
    std::string operator()(const JsonArray& a) const { return "a list of " + std::to_string(a.size()); }
    std::string operator()(const JsonMembers& m) const { return "an object of " + std::to_string(m.size()); }
  };
  return std::visit(Describer(), value.data);
}

}  // namespace

JsonValue::JsonValue(const char* text) : data(std::string(text)) {}
JsonValue::JsonValue(std::string_view text) : data(std::string(text)) {}
JsonValue::JsonValue(std::string text) : data(std::move(text)) {}
JsonValue::JsonValue(JsonArray elements) : data(std::move(elements)) {}
JsonValue::JsonValue(JsonMembers members) : data(std::move(members)) {}
JsonValue::JsonValue(std::initializer_list<JsonMember> members) : data(JsonMembers(members)) {}

JsonValue& JsonValue::operator[](std::string_view key) {
  if (std::holds_alternative<std::monostate>(data)) data = JsonMembers();
  auto& members = std::get<JsonMembers>(data);
  for (auto& [name, value] : members) {
    if (name == key) return value;
  }
  members.push_back({std::string(key), JsonValue()});
  return members.back().value;
}

void JsonValue::push_back(JsonValue element) {
  if (std::holds_alternative<std::monostate>(data)) data = JsonArray();
  std::get<JsonArray>(data).push_back(std::move(element));
}

const JsonValue* JsonValue::find(std::string_view key) const {
  if (const auto* members = std::get_if<JsonMembers>(&data)) {
    for (const auto& [name, value] : *members) {
      if (name == key) return &value;
    }
  }
  return nullptr;
}

std::span<const JsonValue> JsonValue::elements() const {
  if (const auto* array = std::get_if<JsonArray>(&data)) return *array;
  return {};
}

std::string json_text(const JsonValue& value, int indent, BadUtf8 bad_utf8) {
  std::string out;
  try {
    Writer(out, indent, bad_utf8).write(value, 0);
  } catch (const nlohmann::json::type_error& error) {
    throw InvalidArgument(std::string("a text to be written as JSON is not UTF-8: ") + error.what());
  }
  return out;
}

std::string quote_text(std::string_view text) {
  constexpr size_t longest = 60;
  size_t end = std::min(text.size(), longest);
  // Moves the end back so that it is not in the middle of a UTF-8 character.
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  std::string out = "\"";
  for (const char c : text.substr(0, end)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", byte);
      out += escaped;
    } else {
      out += c;
    }
  }
  out += end < text.size() ? "...\"" : "\"";
  return out;
}

std::string read_whole_file(const std::filesystem::path& path, size_t max_bytes) {
  const OpenFile file(path);
  if (file.bytes() > max_bytes) {
    throw CheckpointError(path.string() + ": has " + std::to_string(file.bytes()) + " bytes; expected at most " +
                          std::to_string(max_bytes));
  }
  std::string text(static_cast<size_t>(file.bytes()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  file.check_unchanged();
  return text;
}

JsonDocument JsonDocument::parse(std::string_view text, std::string_view source) {
  JsonDocument document;
  document.source_ = source;
  document.root_ = std::make_unique<JsonValue>();
  TreeBuilder builder(*document.root_);
  bool complete = false;
  try {
    complete = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const nlohmann::json::exception& error) {
    builder.problem = std::string("is not valid JSON: ") + error.what();
  }
  if (!complete) throw CheckpointError(document.source_ + ": " + builder.problem);
  return document;
}

JsonDocument JsonDocument::load(const std::filesystem::path& path, size_t max_bytes) {
  return parse(read_whole_file(path, max_bytes), path.string());
}

bool JsonRef::is_number() const {
  return std::holds_alternative<int64_t>(value_->data) || std::holds_alternative<uint64_t>(value_->data) ||
         std::holds_alternative<double>(value_->data);
}

bool JsonRef::boolean() const {
  if (const bool* value = std::get_if<bool>(&value_->data)) return *value;
  fail("true or false");
}

int64_t JsonRef::integer(int64_t low, int64_t high) const {
  std::optional<int64_t> value;
  if (const auto* whole = std::get_if<int64_t>(&value_->data)) value = *whole;
  if (const auto* real = std::get_if<double>(&value_->data)) {
    if (std::abs(*real) < 0x1p53 && std::trunc(*real) == *real) value = static_cast<int64_t>(*real);
  }
  if (!value || *value < low || *value > high) {
    fail("a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return *value;
}

double JsonRef::number(double low, double high) const {
  double value = std::numeric_limits<double>::quiet_NaN();
  if (const auto* whole = std::get_if<int64_t>(&value_->data)) value = static_cast<double>(*whole);
  if (const auto* large = std::get_if<uint64_t>(&value_->data)) value = static_cast<double>(*large);
  if (const auto* real = std::get_if<double>(&value_->data)) value = *real;
  if (!(value >= low && value <= high)) {
    fail("a number from " + number_text(low) + " to " + number_text(high));
  }
  return value;
}

const std::string& JsonRef::string() const {
  if (const auto* text = std::get_if<std::string>(&value_->data)) return *text;
  fail("a text");
}

size_t JsonRef::size() const {
  if (const auto* array = std::get_if<JsonArray>(&value_->data)) return array->size();
  if (const auto* members = std::get_if<JsonMembers>(&value_->data)) return members->size();
  fail("a list or an object");
}

JsonRef JsonRef::operator[](size_t index) const {
  const auto* array = std::get_if<JsonArray>(&value_->data);
  if (array == nullptr) fail("a list");
  if (index >= array->size()) fail("a list of at least " + std::to_string(index + 1));
  return JsonRef(*document_, (*array)[index]);
}

const std::string& JsonRef::key(size_t index) const {
  const auto* members = std::get_if<JsonMembers>(&value_->data);
  if (members == nullptr) fail("an object");
  return members->at(index).key;
}

JsonRef JsonRef::member(size_t index) const {
  const auto* members = std::get_if<JsonMembers>(&value_->data);
  if (members == nullptr) fail("an object");
  return JsonRef(*document_, members->at(index).value);
}

std::optional<JsonRef> JsonRef::find(std::string_view key) const {
  const auto* members = std::get_if<JsonMembers>(&value_->data);
  if (members == nullptr) fail("an object");
  for (const auto& [name, value] : *members) {
    if (name != key) continue;
    if (std::holds_alternative<std::monostate>(value.data)) return std::nullopt;
    return JsonRef(*document_, value);
  }
  return std::nullopt;
}

bool JsonRef::has(std::string_view key) const {
  const auto* members = std::get_if<JsonMembers>(&value_->data);
  if (members == nullptr) fail("an object");
  return std::any_of(members->begin(), members->end(), [key](const JsonMember& member) { return member.key == key; });
}

JsonRef JsonRef::at(std::string_view key) const {
  const auto* members = std::get_if<JsonMembers>(&value_->data);
  if (members == nullptr) fail("an object");
  for (const auto& [name, value] : *members) {
    if (name == key) return JsonRef(*document_, value);
  }
  const std::string here = path();
  throw CheckpointError(document_->source() + ": field \"" + here + (here.empty() ? "" : ".") + std::string(key) +
                        "\" is missing");
}

std::string JsonRef::path() const {
  std::string path;
  find_path(*document_->root().value_, value_, path);
  return path;
}

void JsonRef::fail(std::string_view expected) const {
  error("expected " + std::string(expected) + ", found " + describe(*value_));
}

void JsonRef::error(std::string_view message) const {
  const std::string here = path();
  throw CheckpointError(document_->source() + ": " + (here.empty() ? "" : "field \"" + here + "\": ") +
                        std::string(message));
}

}  // namespace anyaccel
