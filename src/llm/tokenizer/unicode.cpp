// Implements Unicode properties and normalization with utf8proc.
#include "llm/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/text/utf8.h"

namespace anyaccel::llm {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

int combining_class(char32_t c) { return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class; }

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Puts long runs of combining marks into canonical order. The library does that too, but in time that grows with the
// square of the run's length.
std::string order_long_runs(std::string_view text) {
  constexpr size_t long_run = 32;
  std::string out;
  out.reserve(text.size());
  std::vector<std::pair<int, char32_t>> run;
  const auto flush = [&] {
    if (run.size() > long_run) {
      std::stable_sort(run.begin(), run.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    for (const auto& mark : run) append_utf8(out, mark.second);
    run.clear();
  };
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    const int order = step.code < 0x300 ? 0 : combining_class(step.code);
    if (order != 0) {
      run.emplace_back(order, step.code);
    } else {
      flush();
      out += text.substr(0, step.length);
    }
    text.remove_prefix(step.length);
  }
  flush();
  return out;
}

}  // namespace

bool is_white_space(char32_t c) noexcept {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) noexcept {
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) noexcept {
  if (c < 0x80) return c > 0x20 && c < 0x7F && !(c >= '0' && c <= '9') && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t c) noexcept {
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
}

std::string normalize(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  int options = UTF8PROC_STABLE;
  options |= form == NormalForm::NFC || form == NormalForm::NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::NFKC || form == NormalForm::NFKD) options |= UTF8PROC_COMPAT;
  const std::string ordered = order_long_runs(text);
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(ordered.data()),
                   static_cast<utf8proc_ssize_t>(ordered.size()), &mapped, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (length < 0) throw std::bad_alloc();  // the only failure that valid UTF-8 leaves
  return std::string(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.code == 0x130) {
      out += "i\xCC\x87";  // the one character whose lower case is two
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(step.code))));
    }
    text.remove_prefix(step.length);
  }
  return out;
}

}  // namespace anyaccel::llm
