// Implements Python's string functions with the Unicode properties of utf8proc.
#include "llm/chat/python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdio>

#include "base/text/utf8.h"
#include "llm/chat/jinja_value.h"
#include "llm/tokenizer/unicode.h"

namespace anyaccel::llm::jinja {

namespace {

utf8proc_category_t kind(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_cased(char32_t c) {
  const utf8proc_category_t category = kind(c);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

// Returns whether the character can stand between letters without ending a word, for the rule of the final sigma.
bool is_case_ignorable(char32_t c) {
  const utf8proc_category_t category = kind(c);
  return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019 || category == UTF8PROC_CATEGORY_MN ||
         category == UTF8PROC_CATEGORY_ME || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_LM ||
         category == UTF8PROC_CATEGORY_SK;
}

// Returns whether the character's upper or title case is a sequence in Unicode's SpecialCasing.txt.
bool has_long_case(char32_t c) {
  return c == 0x149 || c == 0x1F0 || c == 0x390 || c == 0x3B0 || c == 0x587 || (c >= 0x1E96 && c <= 0x1E9A) ||
         (c >= 0x1F50 && c <= 0x1F56 && c % 2 == 0) || (c >= 0x1F80 && c <= 0x1FFC && c != 0x1FBE) ||
         (c >= 0xFB00 && c <= 0xFB17);
}

void append_upper(std::string& out, char32_t c, bool title_case) {
  if (c == 0xDF) {
    out += title_case ? "Ss" : "SS";
    return;
  }
  const auto code = static_cast<utf8proc_int32_t>(c);
  if (has_long_case(c) && is_cased(c) && kind(c) != UTF8PROC_CATEGORY_LU) {
    char name[16];
    std::snprintf(name, sizeof name, "U+%04X", static_cast<unsigned>(c));
    throw TemplateError(std::string("the upper case of ") + name + " is not known here");
  }
  append_utf8(out, static_cast<char32_t>(title_case ? utf8proc_totitle(code) : utf8proc_toupper(code)));
}

// `before` is the text up to the character, `after` the text that follows it.
void append_lower(std::string& out, char32_t c, std::string_view before, std::string_view after) {
  if (c == 0x130) {
    out += "i\xCC\x87";
    return;
  }
  if (c != 0x3A3) {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    return;
  }
  // A sigma at the end of a word has its own lower-case form.
  bool follows_letter = false;
  for (std::string_view rest = before; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    if (!is_case_ignorable(step.code)) follows_letter = is_cased(step.code);
    rest.remove_prefix(step.length);
  }
  bool precedes_letter = false;
  for (std::string_view rest = after; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    if (!is_case_ignorable(step.code)) {
      precedes_letter = is_cased(step.code);
      break;
    }
    rest.remove_prefix(step.length);
  }
  append_utf8(out, follows_letter && !precedes_letter ? 0x3C2 : 0x3C3);
}

// Calls visit(step, begin) for each character.
template <typename Visit>
void each_character(std::string_view text, Visit visit) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    visit(step, at);
    at += step.length;
  }
}

// Returns the last character of a text, which must not be empty.
std::string_view last_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return text.substr(begin);
}

template <typename Matches>
std::string_view strip_if(std::string_view text, Ends ends, Matches matches) {
  while (ends != Ends::Right && !text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (!matches(text.substr(0, step.length), step.code)) break;
    text.remove_prefix(step.length);
  }
  while (ends != Ends::Left && !text.empty()) {
    const std::string_view last = last_character(text);
    if (!matches(last, utf8_step(last).code)) break;
    text.remove_suffix(last.size());
  }
  return text;
}

bool is_line_end(char32_t c) {
  return c == '\n' || c == '\r' || c == 0xB || c == 0xC || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

bool is_space(char32_t c) noexcept { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

bool is_printable(char32_t c) noexcept {
  if (c == ' ') return true;
  switch (kind(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_alpha(char32_t c) noexcept {
  const utf8proc_category_t category = kind(c);
  return is_cased(c) || category == UTF8PROC_CATEGORY_LM || category == UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) noexcept { return kind(c) == UTF8PROC_CATEGORY_ND; }

size_t code_points(std::string_view text) noexcept {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

size_t byte_offset(std::string_view text, size_t index) noexcept {
  for (size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;
    if (index == 0) return at;
    --index;
  }
  return text.size();
}

std::string_view strip(std::string_view text, Ends ends) {
  return strip_if(text, ends, [](std::string_view, char32_t c) { return is_space(c); });
}

std::string_view strip(std::string_view text, Ends ends, std::string_view characters) {
  return strip_if(text, ends, [&](std::string_view character, char32_t) {
    return characters.find(character) != std::string_view::npos;
  });
}

std::string upper(std::string_view text) {
  std::string out;
  each_character(text, [&](const Utf8Step& step, size_t) { append_upper(out, step.code, false); });
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  each_character(text, [&](const Utf8Step& step, size_t at) {
    append_lower(out, step.code, text.substr(0, at), text.substr(at + step.length));
  });
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool in_word = false;
  each_character(text, [&](const Utf8Step& step, size_t at) {
    if (in_word) {
      append_lower(out, step.code, text.substr(0, at), text.substr(at + step.length));
    } else {
      append_upper(out, step.code, true);
    }
    in_word = is_cased(step.code);
  });
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  each_character(text, [&](const Utf8Step& step, size_t at) {
    if (at == 0) {
      append_upper(out, step.code, true);
    } else {
      append_lower(out, step.code, text.substr(0, at), text.substr(at + step.length));
    }
  });
  return out;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator, int64_t limit, bool from_right) {
  std::vector<std::string_view> parts;
  if (!from_right) {
    while (limit != 0) {
      const size_t at = text.find(separator);
      if (at == std::string_view::npos) break;
      parts.push_back(text.substr(0, at));
      text.remove_prefix(at + separator.size());
      --limit;
    }
    parts.push_back(text);
    return parts;
  }
  while (limit != 0) {
    const size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
    --limit;
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_words(std::string_view text, int64_t limit, bool from_right) {
  std::vector<std::string_view> parts;
  const Ends side = from_right ? Ends::Right : Ends::Left;
  for (;;) {
    text = strip(text, side);
    if (text.empty()) break;
    if (limit == 0) {  // the rest, without white space at its outer end
      parts.push_back(strip(text, from_right ? Ends::Right : Ends::Left));
      break;
    }
    size_t length = 0;
    if (from_right) {
      std::string_view rest = text;
      while (!rest.empty()) {
        const std::string_view last = last_character(rest);
        if (is_space(utf8_step(last).code)) break;
        rest.remove_suffix(last.size());
      }
      length = text.size() - rest.size();
      parts.push_back(text.substr(rest.size()));
      text = rest;
    } else {
      while (length < text.size()) {
        const Utf8Step step = utf8_step(text.substr(length));
        if (is_space(step.code)) break;
        length += step.length;
      }
      parts.push_back(text.substr(0, length));
      text.remove_prefix(length);
    }
    --limit;
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (!is_line_end(step.code)) {
      at += step.length;
      continue;
    }
    size_t end = at + step.length;
    if (step.code == '\r' && end < text.size() && text[end] == '\n') ++end;
    lines.push_back(text.substr(begin, (keep_ends ? end : at) - begin));
    at = begin = end;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t limit) {
  std::string out;
  if (from.empty()) {
    each_character(text, [&](const Utf8Step& step, size_t at) {
      if (limit != 0) {
        out += to;
        --limit;
      }
      out += text.substr(at, step.length);
    });
    if (limit != 0) out += to;
    return out;
  }
  while (limit != 0) {
    const size_t at = text.find(from);
    if (at == std::string_view::npos) break;
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
    --limit;
  }
  return out += text;
}

}  // namespace anyaccel::llm::jinja
