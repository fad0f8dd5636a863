// See shell_words.h.
#include "launcher/shell_words.h"

#include "anyaccel/error.h"

namespace anyaccel::launcher {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }

}  // namespace

std::vector<std::string> split_words(std::string_view text, std::string_view what) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;  // "" is a word too
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == '\'') {
      if (c == '\'') {
        quote = 0;
      } else {
        word += c;
      }
      continue;
    }
    if (c == '\\') {
      if (i + 1 == text.size()) {
        throw InvalidArgument(std::string(what) + " is '" + std::string(text) +
                              "': nothing follows its last backslash");
      }
      const char next = text[++i];
      if (quote == '"' && std::string_view("$`\"\\\n").find(next) == std::string_view::npos) word += c;
      if (next != '\n') word += next;
      in_word = true;
    } else if (quote == '"') {
      if (c == '"') {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (is_blank(c)) {
      if (in_word) words.push_back(word);
      word.clear();
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote) {
    throw InvalidArgument(std::string(what) + " is '" + std::string(text) + "': its quotation does not end");
  }
  if (in_word) words.push_back(word);
  return words;
}

std::string quote_word(std::string_view text) {
  constexpr std::string_view plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789@%+=:,./-_";
  if (!text.empty() && text.find_first_not_of(plain) == std::string_view::npos) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string quote_words(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + quote_word(word);
  return line;
}

}  // namespace anyaccel::launcher
