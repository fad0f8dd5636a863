// Finds the tokens that a text begins with.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace anyaccel::llm {

// Holds the tokens sorted by their bytes, so that those that share a prefix are one range, which each further byte
// narrows. Building it takes one sort, and it needs no nodes. The texts must outlive it.
class PrefixIndex {
 public:
  PrefixIndex() = default;
  // Takes texts with their ids. An empty text is never found; of equal texts, the one with the largest id is.
  explicit PrefixIndex(std::vector<std::pair<std::string_view, int32_t>> tokens) : tokens_(std::move(tokens)) {
    std::sort(tokens_.begin(), tokens_.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    tokens_.erase(
        std::unique(tokens_.begin(), tokens_.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
        tokens_.end());
    size_t at = 0;
    while (at < tokens_.size() && tokens_[at].first.empty()) ++at;
    for (size_t byte = 0; byte < first_.size(); ++byte) {
      const size_t begin = at;
      while (at < tokens_.size() && static_cast<unsigned char>(tokens_[at].first[0]) == byte) ++at;
      first_[byte] = {begin, at};
    }
  }

  // Calls found(length, id) for each token that `text` begins with, the shortest first.
  template <typename F>
  void for_each(std::string_view text, F&& found) const {
    if (text.empty()) return;
    auto [begin, end] = first_[static_cast<unsigned char>(text[0])];
    for (size_t length = 1; begin < end; ++length) {
      if (tokens_[begin].first.size() == length) found(length, tokens_[begin++].second);
      if (length == text.size()) return;
      const auto byte = static_cast<unsigned char>(text[length]);
      const auto first = tokens_.begin();
      const auto low = std::partition_point(
          first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(end),
          [&](const auto& token) { return static_cast<unsigned char>(token.first[length]) < byte; });
      const auto high = std::partition_point(low, first + static_cast<std::ptrdiff_t>(end), [&](const auto& token) {
        return static_cast<unsigned char>(token.first[length]) == byte;
      });
      begin = static_cast<size_t>(low - first);
      end = static_cast<size_t>(high - first);
    }
  }

  struct Found {
    size_t length = 0;  // 0: none
    int32_t id = -1;
  };
  // Returns the longest of the tokens that `text` begins with.
  Found longest(std::string_view text) const {
    Found best;
    for_each(text, [&](size_t length, int32_t id) { best = {length, id}; });
    return best;
  }

 private:
  std::vector<std::pair<std::string_view, int32_t>> tokens_;
  std::array<std::pair<size_t, size_t>, 256> first_{};  // the range of each first byte
};

}  // namespace anyaccel::llm
