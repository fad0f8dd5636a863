// Builds the trie of a vocabulary and walks it with a grammar's positions.
#include "llm/grammar/token_grammar.h"

#include <algorithm>
#include <numeric>

#include "anyaccel/error.h"
#include "base/text/json.h"

namespace anyaccel::llm {

namespace {

constexpr size_t most_positions = 60'000;  // about 70 MB
constexpr size_t most_known_bytes = size_t{64} << 20;

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer, int64_t vocabulary, bool at_start) {
  const int64_t count = std::min(vocabulary, tokenizer.vocab_size());
  for (int64_t id = 0; id < count; ++id) {
    bytes_.push_back(tokenizer.token_bytes(static_cast<int32_t>(id), at_start));
    if (!bytes_.back().empty()) tokens_.push_back(static_cast<int32_t>(id));
    deepest_ = std::max(deepest_, bytes_.back().size());
  }
  bytes_.resize(static_cast<size_t>(vocabulary));
  std::sort(tokens_.begin(), tokens_.end(), [&](int32_t a, int32_t b) {
    const int order = bytes(a).compare(bytes(b));
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<uint32_t> path;  // the nodes of the token before
  std::string_view before;
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view text = bytes(tokens_[i]);
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
    machine_.forget({});
    known_.clear();
    ++epoch_;
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
  result->bits.resize(static_cast<size_t>(tries_->vocabulary + 63) / 64);
  const TokenTrie& trie = reading.at_start ? tries_->first : tries_->later;
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  const std::span<const int32_t> tokens = trie.tokens();
  std::vector<GrammarMachine::Position> path(trie.deepest() + 1, reading.position);  // by depth
  for (size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
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

}  // namespace anyaccel::llm
