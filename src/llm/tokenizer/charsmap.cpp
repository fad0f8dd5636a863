// Implements the table of character replacements, and the normalizer that uses it by the rules of Hugging Face
// tokenizers. The format is that of the Darts-clone library (https://github.com/s-yata/darts-clone, darts.h).
#include "llm/tokenizer/charsmap.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "anyaccel/error.h"
#include "base/text/base64.h"
#include "base/text/utf8.h"

namespace anyaccel::llm {
namespace {

constexpr size_t most_replacement_bytes = 4096;

// These functions return the fields of a unit of the double array.
bool has_leaf(uint32_t unit) { return ((unit >> 8) & 1) != 0; }
uint32_t label(uint32_t unit) { return unit & (0x80000000u | 0xFFu); }
size_t offset(uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & (1u << 9)) >> 6); }

class PrecompiledNormalizer : public Normalizer {
 public:
  explicit PrecompiledNormalizer(CharacterMap map) : map_(std::move(map)) {}

  // A grapheme cluster of less than 6 bytes is replaced as a whole by the replacement of the shortest entry that it
  // begins with, if there is one; otherwise each of its characters is replaced separately.
  std::string apply(std::string text, PatternWork&) const override {
    std::string out;
    out.reserve(text.size());
    for (std::string_view rest = text; !rest.empty();) {
      const std::string_view cluster = rest.substr(0, cluster_bytes(rest));
      rest.remove_prefix(cluster.size());
      if (cluster.size() < 6) {
        if (const auto match = map_.shortest(cluster)) {
          out += match->replacement;
          check_growth(text.size(), out.size());
          continue;
        }
      }
      for (size_t at = 0; at < cluster.size();) {
        const std::string_view character = cluster.substr(at, utf8_length(cluster[at]));
        const auto match = map_.shortest(character);
        out += match ? match->replacement : character;
        at += character.size();
      }
      check_growth(text.size(), out.size());
    }
    return out;
  }

 private:
  static size_t cluster_bytes(std::string_view text) {
    Utf8Step step = utf8_step(text);
    size_t bytes = step.length;
    utf8proc_int32_t state = 0;
    while (bytes < text.size()) {
      const Utf8Step next = utf8_step(text.substr(bytes));
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(step.code),
                                           static_cast<utf8proc_int32_t>(next.code), &state)) {
        break;
      }
      bytes += next.length;
      step = next;
    }
    return bytes;
  }

  CharacterMap map_;
};

}  // namespace

CharacterMap::CharacterMap(std::string_view bytes, const std::string& source) : source_(source) {
  uint32_t size = 0;
  if (bytes.size() >= sizeof(size)) std::memcpy(&size, bytes.data(), sizeof(size));
  if (bytes.size() < sizeof(size) || size > bytes.size() - sizeof(size) || size % sizeof(uint32_t) != 0 || size == 0) {
    throw CheckpointError(source + ": the table of characters has " + std::to_string(bytes.size()) +
                          " bytes and a trie of " + std::to_string(size) +
                          "; expected 4 bytes, the trie in units of 4 bytes, and texts");
  }
  units_.resize(size / sizeof(uint32_t));
  std::memcpy(units_.data(), bytes.data() + sizeof(size), size);
  texts_ = bytes.substr(sizeof(size) + size);
  if (!texts_.empty() && texts_.back() != '\0') {
    throw CheckpointError(source + ": the last text of the table of characters has no end");
  }
}

uint32_t CharacterMap::unit(size_t index) const {
  if (index < units_.size()) return units_[index];
  throw CheckpointError(source_ + ": the table of characters refers to its unit " + std::to_string(index) +
                        ", and it has " + std::to_string(units_.size()));
}

std::string_view CharacterMap::replacement(uint32_t begin) const {
  if (begin >= texts_.size()) {
    throw CheckpointError(source_ + ": the table of characters refers to byte " + std::to_string(begin) +
                          " of its texts, which have " + std::to_string(texts_.size()));
  }
  const std::string_view text(texts_.data() + begin);
  if (text.size() > most_replacement_bytes || !is_valid_utf8(text)) {
    throw CheckpointError(source_ + ": the replacement at byte " + std::to_string(begin) +
                          " of the table of characters is not UTF-8 of at most " +
                          std::to_string(most_replacement_bytes) + " bytes");
  }
  return text;
}

std::optional<CharacterMap::Match> CharacterMap::find(std::string_view text, bool stop_at_first) const {
  std::optional<Match> found;
  size_t node = offset(unit(0));
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) break;
    node ^= byte;
    const uint32_t here = unit(node);
    if (label(here) != byte) break;
    node ^= offset(here);
    if (!has_leaf(here)) continue;
    found = {i + 1, replacement(unit(node) & 0x7FFFFFFFu)};
    if (stop_at_first) break;
  }
  return found;
}

std::optional<CharacterMap::Match> CharacterMap::longest(std::string_view text) const { return find(text, false); }
std::optional<CharacterMap::Match> CharacterMap::shortest(std::string_view text) const { return find(text, true); }

std::unique_ptr<Normalizer> read_precompiled(const JsonRef& value) {
  const JsonRef table = value.at("precompiled_charsmap");
  const auto bytes = decode_base64(table.string());
  if (!bytes) table.fail("base64");
  if (bytes->empty()) return nullptr;
  return std::make_unique<PrecompiledNormalizer>(CharacterMap(*bytes, "tokenizer: " + table.path()));
}

}  // namespace anyaccel::llm
