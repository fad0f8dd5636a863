// Makes the random texts for which scripts stored hashes of a reference's token ids; tools/random_texts.py has the same
// generator. The file of reference data lists the ranges of characters.
#pragma once

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "anyaccel/llm/tokenizer.h"
#include "base/text/utf8.h"

namespace anyaccel::llm::testing {

// The same numbers as in the script.
class TextRandom {
 public:
  size_t below(size_t bound) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % bound;
  }

 private:
  uint64_t state_ = 20261125;
};

inline std::vector<std::string> random_texts(const nlohmann::json& data) {
  TextRandom random;
  std::vector<std::string> texts(data.at("texts").get<size_t>());
  for (std::string& text : texts) {
    for (size_t left = random.below(24) + 1; left > 0; --left) {
      if (random.below(3) == 0) {
        text += data.at("words")[random.below(data.at("words").size())].get<std::string>();
        continue;
      }
      const auto& range = data.at("ranges")[random.below(data.at("ranges").size())];
      const auto first = range[0].get<uint32_t>();
      const uint32_t count = range[1].get<uint32_t>() - first + 1;
      for (size_t more = random.below(4) + 1; more > 0; --more) {
        append_utf8(text, static_cast<char32_t>(first + random.below(count)));
      }
    }
  }
  return texts;
}

// Returns a hash of the ids so far after each group of texts.
inline std::vector<std::string> id_hashes(const Tokenizer& tokenizer, const std::vector<std::string>& texts,
                                          size_t group, bool add_special) {
  std::vector<std::string> found;
  uint64_t value = 0xCBF29CE484222325u;
  const auto add = [&](uint32_t number) {
    for (int byte = 0; byte < 4; ++byte) value = (value ^ (number >> (8 * byte) & 255u)) * 0x100000001B3u;
  };
  for (size_t i = 0; i < texts.size(); ++i) {
    for (const int32_t id : tokenizer.encode(texts[i], add_special)) add(static_cast<uint32_t>(id));
    add(~0u);
    if ((i + 1) % group != 0) continue;
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
    found.emplace_back(text);
  }
  return found;
}

}  // namespace anyaccel::llm::testing
