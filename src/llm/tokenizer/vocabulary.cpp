// Implements vocabulary.h: finds the ids of tokens in a hash table.
#include "llm/tokenizer/vocabulary.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

namespace anyaccel::llm {

int64_t id_limit(size_t count) noexcept {
  return static_cast<int64_t>(std::min<size_t>(2 * count + 65536, size_t{1} << 28));
}

Vocabulary::Vocabulary(const JsonRef& tokens, size_t count) {
  if (!tokens.is_object()) tokens.fail("an object that maps tokens to ids");
  const int64_t limit = id_limit(count);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<size_t>(tokens.member(i).integer(0, limit - 1));
    if (id >= tokens_.size()) {
      tokens_.resize(id + 1);
      used_.resize(id + 1);
    }
    if (used_[id]) {
      tokens.member(i).error("the id " + std::to_string(id) + " is also the id of " + quote_text(tokens_[id]));
    }
    used_[id] = true;
    tokens_[id] = tokens.key(i);
  }
  index();
}

Vocabulary::Vocabulary(std::vector<std::string> tokens) : tokens_(std::move(tokens)), used_(tokens_.size(), true) {
  index();
}

// The upper half of the hash chooses the slot; the lower half is compared before the texts are.
size_t Vocabulary::place(std::string_view token, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t at = static_cast<size_t>(hash >> 32) & mask;
  for (; slots_[at].id >= 0; at = (at + 1) & mask) {
    if (slots_[at].hash == static_cast<uint32_t>(hash) && tokens_[static_cast<size_t>(slots_[at].id)] == token) break;
  }
  return at;
}

// Builds the hash table; called once all texts are there.
void Vocabulary::index() {
  slots_.assign(std::bit_ceil(2 * tokens_.size() + 2), {});
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (!used_[id]) continue;
    const uint64_t hash = std::hash<std::string_view>()(tokens_[id]);
    Slot& slot = slots_[place(tokens_[id], hash)];
    if (slot.id >= 0) is_unique_ = false;
    slot = {static_cast<uint32_t>(hash), static_cast<int32_t>(id)};
  }
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  const int32_t id = slots_[place(token, std::hash<std::string_view>()(token))].id;
  return id < 0 ? std::nullopt : std::optional(id);
}

void Vocabulary::find_all(std::span<const std::string_view> tokens, std::span<int32_t> ids) const {
  constexpr size_t at_once = 32;
  const size_t mask = slots_.size() - 1;
  std::array<uint64_t, at_once> hashes{};
  for (size_t begin = 0; begin < tokens.size(); begin += at_once) {
    const size_t count = std::min(at_once, tokens.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = std::hash<std::string_view>()(tokens[begin + i]);
      __builtin_prefetch(&slots_[static_cast<size_t>(hashes[i] >> 32) & mask]);
    }
    for (size_t i = 0; i < count; ++i) {
      const int32_t id = slots_[static_cast<size_t>(hashes[i] >> 32) & mask].id;
      if (id >= 0) __builtin_prefetch(&tokens_[static_cast<size_t>(id)]);
    }
    for (size_t i = 0; i < count; ++i) ids[begin + i] = slots_[place(tokens[begin + i], hashes[i])].id;
  }
}

std::vector<int32_t> byte_tokens(const Vocabulary& vocabulary) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::vector<int32_t> ids;
  for (size_t byte = 0; byte < 256; ++byte) {
    const std::string name = {'<', '0', 'x', digits[byte / 16], digits[byte % 16], '>'};
    ids.push_back(vocabulary.find(name).value_or(-1));
  }
  return ids;
}

const std::string* Vocabulary::token(int32_t id) const noexcept {
  const auto index = static_cast<size_t>(id);
  return id >= 0 && index < tokens_.size() && used_[index] ? &tokens_[index] : nullptr;
}

}  // namespace anyaccel::llm
