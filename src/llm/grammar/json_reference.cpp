// Follows JSON pointers, and undoes their escapes.
#include "llm/grammar/json_reference.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace anyaccel::llm {

namespace {

// Undoes the escapes of JSON pointers in URIs: %2F, ~1, ~0.
std::string pointer_part(std::string_view text) {
  std::string out;
  const auto hex = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      out += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  std::string undone;
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] == '~' && i + 1 < out.size() && (out[i + 1] == '0' || out[i + 1] == '1')) {
      undone += out[++i] == '0' ? '~' : '/';
    } else {
      undone += out[i];
    }
  }
  return undone;
}

}  // namespace

JsonRef json_referenced(const JsonRef& root, const JsonRef& reference) {
  const std::string& text = reference.string();
  if (!text.starts_with('#') || (text.size() > 1 && text[1] != '/')) {
    reference.fail("a reference within this file, such as #/$defs/name");
  }
  JsonRef at = root;
  for (size_t begin = 1; begin < text.size();) {
    const size_t end = std::min(text.find('/', begin + 1), text.size());
    const std::string name = pointer_part(std::string_view(text).substr(begin + 1, end - begin - 1));
    if (at.is_array()) {
      size_t index = 0;
      for (const char c : name)
        index = c >= '0' && c <= '9' && index < 1'000'000 ? index * 10 + static_cast<size_t>(c - '0') : 1'000'000;
      if (name.empty() || index >= at.size()) reference.error("there is nothing at " + quote_text(text));
      at = at[index];
    } else {
      if (!at.is_object() || !at.has(name)) reference.error("there is nothing at " + quote_text(text));
      at = at.at(name);
    }
    begin = end;
  }
  return at;
}

}  // namespace anyaccel::llm
