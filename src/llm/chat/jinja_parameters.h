// Matches the arguments of one call to the parameters of a filter or test by Python's rules.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llm/chat/jinja_value.h"

namespace anyaccel::llm::jinja {

using Names = std::vector<const char*>;

// Arguments are given by position or by name; functions take the index of a parameter. Throws TemplateError for
// arguments that do not match.
class Parameters {
 public:
  Parameters(std::string_view function, const Arguments& arguments, Names names)
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
  Names names_;
};

}  // namespace anyaccel::llm::jinja
