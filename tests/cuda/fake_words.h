// The words of an environment variable by which a test tells a fake library what to do: "count=2 init=803 hang".
#pragma once

#include <cstdlib>
#include <sstream>
#include <string>

// The value after "name=", "" for a bare word, and `otherwise` when the word is not there.
inline std::string fake_word(const char* variable, const std::string& name, const std::string& otherwise) {
  const char* words = std::getenv(variable);
  std::istringstream stream(words ? words : "");
  for (std::string word; stream >> word;) {
    if (word == name) return "";
    if (word.rfind(name + "=", 0) == 0) return word.substr(name.size() + 1);
  }
  return otherwise;
}
inline int fake_number(const char* variable, const std::string& name, int otherwise) {
  const std::string value = fake_word(variable, name, "");
  return value.empty() ? otherwise : std::atoi(value.c_str());
}
inline bool fake_has(const char* variable, const std::string& name) { return fake_word(variable, name, "\n") != "\n"; }
