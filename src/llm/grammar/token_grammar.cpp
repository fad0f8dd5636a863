// Builds the trie of a vocabulary and walks it with a grammar's positions.
#include "llm/grammar/token_grammar.h"

#include <algorithm>
#include <numeric>

#include "anyaccel/error.h"
#include "base/text/json.h"
#include "base/text/utf8.h"

namespace anyaccel::llm {

namespace {

constexpr size_t most_positions = 16'000;  // about 20 MB; forgetting them takes a few milliseconds
constexpr size_t most_known_bytes = size_t{64} << 20;

// Returns whether a token of this text is plain (VocabularyTexts::most_characters).
bool is_plain(const std::string& text) {
  int characters = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || byte == '"' || byte == '\\' || byte == 0x7F) return false;
    if ((byte & 0xC0) != 0x80) ++characters;
  }
  return !text.empty() && characters <= VocabularyTexts::most_characters && is_valid_utf8(text);
}

std::vector<std::string> bytes_of_tokens(const Tokenizer& tokenizer, int64_t vocabulary, bool at_start) {
  std::vector<std::string> bytes(static_cast<size_t>(vocabulary));
  const int64_t count = std::min(vocabulary, tokenizer.vocab_size());
  for (int64_t id = 0; id < count; ++id) {
    bytes[static_cast<size_t>(id)] = tokenizer.token_bytes(static_cast<int32_t>(id), at_start);
  }
  return bytes;
}

template <class Has>
std::vector<int32_t> ids_of(const std::vector<std::string>& bytes, const Has& has) {
  std::vector<int32_t> ids;
  for (size_t id = 0; id < bytes.size(); ++id) {
    if (has(bytes[id])) ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

template <class Has>
std::vector<uint64_t> bits_of(const std::vector<std::string>& bytes, const Has& has) {
  std::vector<uint64_t> bits((bytes.size() + 63) / 64);
  for (size_t id = 0; id < bytes.size(); ++id) {
    if (has(bytes[id])) bits[id / 64] |= uint64_t{1} << (id % 64);
  }
  return bits;
}

}  // namespace

TokenTrie::TokenTrie(const std::vector<std::string>& bytes, std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {
  const auto of = [&](int32_t id) -> const std::string& { return bytes[static_cast<size_t>(id)]; };
  std::erase_if(tokens_, [&](int32_t id) { return of(id).empty(); });
  for (const int32_t id : tokens_) deepest_ = std::max(deepest_, of(id).size());
  std::sort(tokens_.begin(), tokens_.end(), [&](int32_t a, int32_t b) {
    const int order = of(a).compare(of(b));
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<uint32_t> path;  // the nodes of the token before
  std::string_view before;
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view text = of(tokens_[i]);
    const auto shared =
        static_cast<size_t>(std::mismatch(text.begin(), text.end(), before.begin(), before.end()).first - text.begin());
    const auto close = [&](size_t depth) {
      for (; path.size() > depth; path.pop_back()) nodes_[path.back()].behind = static_cast<uint32_t>(nodes_.size());
    };
    close(shared);
    for (size_t depth = shared; depth < text.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({static_cast<uint8_t>(text[depth]), static_cast<uint32_t>(depth + 1), 0, i, i});
    }
    nodes_[path.back()].last_token = i + 1;
    before = text;
  }
  for (const uint32_t node : path) nodes_[node].behind = static_cast<uint32_t>(nodes_.size());
}

VocabularyTexts::VocabularyTexts(const Tokenizer& tokenizer, int64_t vocabulary, bool at_start)
    : bytes_(bytes_of_tokens(tokenizer, vocabulary, at_start)),
      plain_(bits_of(bytes_, is_plain)),
      all_(bytes_, ids_of(bytes_, [](const std::string&) { return true; })),
      not_plain_(bytes_, ids_of(bytes_, [](const std::string& text) { return !is_plain(text); })) {}

TokenGrammar::TokenGrammar(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const VocabularyTries> tries)
    : grammar_(std::move(grammar)), tries_(std::move(tries)), machine_(grammar_->states()) {}

TokenGrammar::Reading TokenGrammar::start() const {
  const std::lock_guard lock(lock_);
  Reading reading;
  reading.position = machine_.start();
  reading.epoch = epoch_;
  return reading;
}

void TokenGrammar::renew(Reading& reading) const {
  if (machine_.size() > most_positions) {
    const bool is_current = reading.epoch == epoch_;
    const std::vector<GrammarMachine::Position> kept =
        machine_.forget(is_current ? std::vector{reading.position} : std::vector<GrammarMachine::Position>());
    known_.clear();
    ++epoch_;
    if (is_current) {
      reading.position = kept.front();
      reading.epoch = epoch_;
    }
  }
  if (reading.epoch == epoch_) return;
  reading.epoch = epoch_;
  reading.position = machine_.start();
  for (const char c : reading.text) reading.position = machine_.next(reading.position, static_cast<uint8_t>(c));
}

void TokenGrammar::read(Reading& reading, int32_t token) const {
  const std::lock_guard lock(lock_);
  renew(reading);
  const std::string& bytes = (reading.at_start ? tries_->first : tries_->later).bytes(token);
  GrammarMachine::Position at = reading.position;
  for (const char c : bytes) {
    at = machine_.next(at, static_cast<uint8_t>(c));
    if (at == GrammarMachine::dead) break;
  }
  if (bytes.empty() || at == GrammarMachine::dead) {
    throw InvalidArgument(source() + ": the token " + std::to_string(token) + " (" + quote_text(bytes) +
                          ") does not continue a text of the grammar");
  }
  reading.position = at;
  reading.text += bytes;
  reading.at_start = false;
}

bool TokenGrammar::is_complete(Reading& reading) const {
  const std::lock_guard lock(lock_);
  renew(reading);
  return machine_.may_end(reading.position) && !machine_.may_continue(reading.position);
}

std::shared_ptr<const TokenGrammar::Allowed> TokenGrammar::allowed(Reading& reading) const {
  const std::lock_guard lock(lock_);
  renew(reading);
  std::shared_ptr<const Allowed>& known = known_[uint64_t{reading.position} * 2 + (reading.at_start ? 1 : 0)];
  if (known) return known;
  known = walk(reading);
  const std::shared_ptr<const Allowed> result = known;
  if (known_.size() * result->bits.size() * sizeof(uint64_t) > most_known_bytes) known_.clear();
  return result;
}

std::shared_ptr<const TokenGrammar::Allowed> TokenGrammar::walk(const Reading& reading) const {
  auto result = std::make_shared<Allowed>();
  result->number = ++walks_;
  result->may_end = machine_.may_end(reading.position);
  const VocabularyTexts& vocabulary = reading.at_start ? tries_->first : tries_->later;
  GrammarMachine::Position plain = reading.position;
  for (int i = 0; i < VocabularyTexts::most_characters && plain != GrammarMachine::dead; ++i) {
    plain = machine_.next_character(plain);
  }
  const bool takes_plain = plain != GrammarMachine::dead;
  const TokenTrie& trie = takes_plain ? vocabulary.not_plain() : vocabulary.all();
  if (takes_plain) {
    result->bits = vocabulary.plain();
  } else {
    result->bits.resize(static_cast<size_t>(tries_->vocabulary + 63) / 64);
  }
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  const std::span<const int32_t> tokens = trie.tokens();
  std::vector<GrammarMachine::Position> path(trie.deepest() + 1, reading.position);  // by depth
  for (size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    ++nodes_visited_;
    const GrammarMachine::Position at = machine_.next(path[node.depth - 1], node.byte);
    if (at == GrammarMachine::dead) {
      i = node.behind;
      continue;
    }
    path[node.depth] = at;
    for (uint32_t t = node.first_token; t < node.last_token; ++t) {
      const auto id = static_cast<size_t>(tokens[t]);
      result->bits[id / 64] |= uint64_t{1} << (id % 64);
    }
    ++i;
  }
  return result;
}

uint64_t TokenGrammar::visits() const {
  const std::lock_guard lock(lock_);
  return nodes_visited_ + machine_.visits();
}

}  // namespace anyaccel::llm
