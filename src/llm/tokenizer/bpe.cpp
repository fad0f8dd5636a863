// Implements byte pair encoding with the rules of Hugging Face tokenizers' BPE model, word by word.
#include "llm/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "anyaccel/error.h"
#include "base/text/utf8.h"
#include "llm/config/config_fields.h"

namespace anyaccel::llm {
namespace {

constexpr size_t most_cached_words = 1 << 16;
constexpr size_t longest_cached_word = 128;
constexpr uint64_t no_key = ~uint64_t{0};

uint64_t pair_key(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

std::string optional_text(const JsonRef& value, std::string_view key) {
  const auto found = value.find(key);
  return found ? found->string() : std::string();
}

// Returns the two parts of a merge: "a b" or ["a", "b"].
std::pair<std::string_view, std::string_view> merge_parts(const JsonRef& merge) {
  if (merge.is_array()) {
    if (merge.size() != 2) merge.fail("two tokens");
    return {merge[0].string(), merge[1].string()};
  }
  if (!merge.is_string()) merge.fail("two tokens, as a list or as a text with a space between them");
  const std::string_view text = merge.string();
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
    merge.fail("two tokens with a space between them");
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

BpeOptions read_options(const JsonRef& value) {
  BpeOptions options;
  options.unknown = optional_text(value, "unk_token");
  options.prefix = optional_text(value, "continuing_subword_prefix");
  options.suffix = optional_text(value, "end_of_word_suffix");
  options.fuse_unknown = read_flag(value, "fuse_unk", false);
  options.ignore_merges = read_flag(value, "ignore_merges", false);
  options.byte_fallback = read_flag(value, "byte_fallback", false);
  return options;
}

}  // namespace

void BpeModel::MergeTable::reserve(size_t count) {
  const size_t places = std::bit_ceil(2 * count + 2);
  keys_.assign(places, no_key);
  merges_.resize(places);
  mask_ = places - 1;
}

size_t BpeModel::MergeTable::place(uint64_t key) const {
  size_t at = static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 20) & mask_;
  while (keys_[at] != key && keys_[at] != no_key) at = (at + 1) & mask_;
  return at;
}

void BpeModel::MergeTable::put(int32_t left, int32_t right, Merge merge) {
  const size_t at = place(pair_key(left, right));
  keys_[at] = pair_key(left, right);
  merges_[at] = merge;  // of two merges of the same parts the later one is used
}

const BpeModel::Merge* BpeModel::MergeTable::find(int32_t left, int32_t right) const {
  const size_t at = place(pair_key(left, right));
  return keys_[at] == no_key ? nullptr : &merges_[at];
}

BpeModel::BpeModel(const JsonRef& value, size_t count, const std::optional<BpeOptions>& options) {
  vocabulary_ = Vocabulary(value.at("vocab"), count);
  options_ = options ? *options : read_options(value);
  prepare();
  read_merges(value.at("merges"));
}

BpeModel::BpeModel(Vocabulary vocabulary, const std::vector<IdMerge>& merges, BpeOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  prepare();
  merges_.reserve(merges.size());
  uint32_t rank = 0;
  for (const IdMerge& merge : merges) {
    const uint32_t priority = options_.rank_is_token ? static_cast<uint32_t>(merge.whole) : rank++;
    merges_.put(merge.left, merge.right, {priority, merge.whole});
  }
}

// Precomputes data from the vocabulary and the options.
void BpeModel::prepare() {
  if (!options_.unknown.empty()) unknown_id_ = vocabulary_.find(options_.unknown);
  if (options_.byte_fallback) byte_ids_ = byte_tokens(vocabulary_);
}

void BpeModel::read_merges(const JsonRef& merges) {
  if (!merges.is_array()) merges.fail("a list of merges");
  merges_.reserve(merges.size());
  uint32_t rank = 0;
  std::string whole;
  for (size_t i = 0; i < merges.size(); ++i) {
    const JsonRef merge = merges[i];
    if (merge.is_string() && merge.string().starts_with("#version")) continue;
    const auto [left, right] = merge_parts(merge);
    const auto id_of = [&](std::string_view token) {
      const auto id = vocabulary_.find(token);
      if (!id) merge.error("the merge has the part " + quote_text(token) + ", which is not a token of the vocabulary");
      return *id;
    };
    const int32_t left_id = id_of(left);
    const int32_t right_id = id_of(right);
    if (right.size() < options_.prefix.size()) merge.error("the second part is shorter than continuing_subword_prefix");
    whole = left;
    whole += right.substr(options_.prefix.size());
    merges_.put(left_id, right_id, {rank++, id_of(whole)});
  }
}

bool BpeModel::add_bytes(std::string_view character, std::vector<int32_t>& ids) const {
  if (byte_ids_.empty()) return false;
  const auto id_of = [this](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (std::any_of(character.begin(), character.end(), [&](char c) { return id_of(c) < 0; })) return false;
  for (const char c : character) ids.push_back(id_of(c));
  return true;
}

void BpeModel::add_unknown(std::vector<int32_t>& ids) const {
  if (!unknown_id_) {
    throw CheckpointError("tokenizer: the text has characters without a token, and the unknown token " +
                          quote_text(options_.unknown) + " is not in the vocabulary either");
  }
  ids.push_back(*unknown_id_);
}

// Returns one symbol for each character. An unknown character's token is added only when the next known character is
// reached, so the bytes of byte fallback may precede it; the reference does the same.
std::vector<int32_t> BpeModel::first_symbols(std::string_view piece) const {
  std::vector<int32_t> ids;
  ids.reserve(piece.size());
  bool unknown = false;
  std::string decorated;
  for (size_t at = 0; at < piece.size();) {
    std::string_view character = piece.substr(at, utf8_length(piece[at]));
    const bool first = at == 0;
    at += character.size();
    const bool last = at >= piece.size();
    if ((!first && !options_.prefix.empty()) || (last && !options_.suffix.empty())) {
      decorated = (first ? "" : options_.prefix) + std::string(character) + (last ? options_.suffix : "");
      character = decorated;
    }
    if (const auto id = vocabulary_.find(character)) {
      if (unknown) add_unknown(ids);
      unknown = false;
      ids.push_back(*id);
    } else if (!add_bytes(character, ids) && !options_.unknown.empty()) {
      if (unknown && !options_.fuse_unknown) add_unknown(ids);
      unknown = true;
    }
  }
  if (unknown) add_unknown(ids);
  return ids;
}

// Always applies the merge with the lowest rank, and of several the leftmost.
std::vector<int32_t> BpeModel::merge_all(const std::vector<int32_t>& ids) const {
  struct Candidate {
    uint32_t rank;
    int32_t position;
    int32_t id;
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  const auto count = static_cast<int32_t>(ids.size());
  std::vector<Symbol> symbols(ids.size());
  std::vector<Candidate> first;
  for (int32_t i = 0; i < count; ++i) {
    const auto index = static_cast<size_t>(i);
    symbols[index] = {ids[index], i - 1, i + 1 < count ? i + 1 : -1, false};
    if (i + 1 == count) break;
    if (const Merge* merge = merges_.find(ids[index], ids[index + 1])) first.push_back({merge->rank, i, merge->id});
  }
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(first));
  const auto offer = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const Merge* merge = merges_.find(symbols[static_cast<size_t>(left)].id, symbols[static_cast<size_t>(right)].id);
    if (merge != nullptr) queue.push({merge->rank, left, merge->id});
  };
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[static_cast<size_t>(best.position)];
    if (left.gone || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    // The symbols may have changed since the candidate was found.
    const Merge* merge = merges_.find(left.id, right.id);
    if (merge == nullptr || merge->id != best.id) continue;
    left.id = best.id;
    right.gone = true;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.position;
    offer(left.previous, best.position);
    offer(best.position, left.next);
  }
  std::vector<int32_t> out;
  for (const Symbol& symbol : symbols) {
    if (!symbol.gone) out.push_back(symbol.id);
  }
  return out;
}

void BpeModel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.empty()) return;
  if (options_.ignore_merges) {
    if (const auto id = vocabulary_.find(piece)) {
      ids.push_back(*id);
      return;
    }
  }
  const bool cached = piece.size() <= longest_cached_word;
  const std::string key = cached ? std::string(piece) : std::string();
  if (cached) {
    const std::scoped_lock lock(cache_lock_);
    if (const auto found = cache_.find(key); found != cache_.end()) {
      ids.insert(ids.end(), found->second.begin(), found->second.end());
      return;
    }
  }
  const std::vector<int32_t> tokens = merge_all(first_symbols(piece));
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  if (!cached) return;
  const std::scoped_lock lock(cache_lock_);
  if (cache_.size() >= most_cached_words) cache_.clear();
  cache_.emplace(key, tokens);
}

}  // namespace anyaccel::llm
