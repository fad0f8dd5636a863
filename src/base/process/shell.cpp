// Finds programs in PATH, splits texts into words, and quotes words, as a shell does.
#include "base/process/shell.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "anyaccel/error.h"

namespace anyaccel {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }

bool is_executable_file(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.empty()) return {};
  if (name.find('/') != std::string::npos) return is_executable_file(name) ? name : std::string();
  const char* path = std::getenv("PATH");
  const std::string list = path ? path : "/usr/local/bin:/usr/bin:/bin";
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(':', begin), list.size());
    const std::string folder = list.substr(begin, end - begin);
    std::string file = (folder.empty() ? "." : folder) + "/" + name;
    if (is_executable_file(file)) return file;
    begin = end + 1;
  }
  return {};
}

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

}  // namespace anyaccel
