// Finds the known name that is closest to a mistyped one.
#include "base/text/nearest_name.h"

#include <algorithm>
#include <vector>

namespace anyaccel {
namespace {

std::string plain(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  std::string text(word);
  for (char& c : text) {
    if (c == '_') c = '-';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// Returns the number of letters to add, remove, replace, or swap with their neighbour.
size_t edits(std::string_view from, std::string_view to) {
  std::vector<size_t> above_last(to.size() + 1);
  std::vector<size_t> above(to.size() + 1);
  std::vector<size_t> row(to.size() + 1);
  for (size_t j = 0; j <= to.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= from.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (from[i - 1] != to[j - 1])});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1]) {
        row[j] = std::min(row[j], above_last[j - 2] + 1);
      }
    }
    above_last.swap(above);
    above.swap(row);
  }
  return above[to.size()];
}

}  // namespace

std::string nearest_name(std::string_view word, std::span<const std::string> known) {
  constexpr size_t longest = 100;  // longer words are not mistyped names
  const std::string asked = plain(word.substr(0, longest));
  std::string nearest;
  // At most a third of the letters may be wrong, because among short words all are close.
  size_t least = asked.size() < 3 ? 1 : asked.size() / 3 + 1;
  for (const std::string& name : known) {
    const std::string text = plain(name);
    const bool begins = asked.size() > 1 && text.size() > asked.size() && text.starts_with(asked);
    const size_t distance = begins ? 1 : edits(asked, text);
    if (distance < least || (distance == 0 && nearest.empty())) {
      least = distance;
      nearest = name;
    }
  }
  return nearest;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> known) {
  const std::string name = nearest_name(word, known);
  return name.empty() ? "" : "; did you mean '" + name + "'?";
}

}  // namespace anyaccel
