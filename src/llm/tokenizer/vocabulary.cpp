// The vocabulary of a tokenizer.json.
#include "llm/tokenizer/vocabulary.h"

#include <algorithm>

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

// Only once the texts no longer move in memory.
void Vocabulary::index() {
  ids_.reserve(tokens_.size());
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (used_[id]) ids_.emplace(tokens_[id], static_cast<int32_t>(id));
  }
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* Vocabulary::token(int32_t id) const noexcept {
  const auto index = static_cast<size_t>(id);
  return id >= 0 && index < tokens_.size() && used_[index] ? &tokens_[index] : nullptr;
}

}  // namespace anyaccel::llm
