// Implements added tokens, by the rules of Hugging Face tokenizers' AddedVocabulary.
#include "llm/tokenizer/added_tokens.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/utf8.h"
#include "llm/config/config_fields.h"
#include "llm/tokenizer/unicode.h"

namespace anyaccel::llm {
namespace {

// Returns whether the text is one word character (\w of Unicode regular expressions).
bool is_word(std::string_view character) {
  static const TextPattern pattern = TextPattern::regex(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}])");
  PatternWork work(character.size());
  const std::vector<TextSpan> spans = pattern.spans(character, work);
  return !spans.empty() && spans[0].is_match;
}

size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool ends_with_word(std::string_view text) { return !text.empty() && is_word(text.substr(last_character(text))); }

bool starts_with_word(std::string_view text) { return !text.empty() && is_word(text.substr(0, utf8_length(text[0]))); }

size_t white_space_at_start(std::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size()) {
    const Utf8Step step = utf8_step(text.substr(bytes));
    if (!is_white_space(step.code)) break;
    bytes += step.length;
  }
  return bytes;
}

// Returns the position where trailing white space begins.
size_t white_space_at_end(std::string_view text) {
  while (!text.empty()) {
    const size_t last = last_character(text);
    if (!is_white_space(utf8_step(text.substr(last)).code)) break;
    text = text.substr(0, last);
  }
  return text.size();
}

}  // namespace

AddedToken read_added_token(const JsonRef& value) {
  AddedToken token;
  token.content = value.at("content").string();
  token.single_word = read_flag(value, "single_word", false);
  token.lstrip = read_flag(value, "lstrip", false);
  token.rstrip = read_flag(value, "rstrip", false);
  token.special = read_flag(value, "special", false);
  token.normalized = read_flag(value, "normalized", !token.special);
  return token;
}

void AddedTokenList::add_json(const JsonRef& list) {
  if (!list.is_array()) list.fail("a list");
  const int64_t limit = id_limit(static_cast<size_t>(vocabulary_.size()) + list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonRef entry = list[i];
    AddedToken token = read_added_token(entry);
    token.id = static_cast<int32_t>(entry.at("id").integer(0, limit - 1));
    if (token.content.empty()) continue;
    const auto in_vocabulary = vocabulary_.find(token.content);
    const std::string* other = vocabulary_.token(token.id);
    if (in_vocabulary && *in_vocabulary != token.id) {
      entry.at("id").fail(std::to_string(*in_vocabulary) + ", which is the id of " + quote_text(token.content) +
                          " in the vocabulary");
    }
    if ((other != nullptr && *other != token.content) || by_id_.contains(token.id)) {
      entry.at("id").error("the id " + std::to_string(token.id) + " belongs to another token already");
    }
    if (by_content_.contains(token.content)) {
      entry.at("content").error("the added token " + quote_text(token.content) + " occurs twice");
    }
    put(std::move(token));
  }
}

void AddedTokenList::put(AddedToken token) {
  by_id_.emplace(token.id, tokens_.size());
  by_content_.emplace(token.content, tokens_.size());
  next_id_ = std::max(next_id_, token.id + 1);
  tokens_.push_back(std::move(token));
}

void AddedTokenList::add(const AddedToken& token) {
  if (token.content.empty()) return;
  if (const auto found = by_content_.find(token.content); found != by_content_.end()) {
    AddedToken& old = tokens_[found->second];
    const int32_t id = old.id;
    const bool special = old.special || token.special;
    old = token;
    old.id = id;
    old.special = special;
    return;
  }
  AddedToken added = token;
  const auto id = vocabulary_.find(token.content);
  added.id = id ? *id : std::max(next_id_, static_cast<int32_t>(vocabulary_.size()));
  put(std::move(added));
}

const AddedToken* AddedTokenList::find(const std::string& content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

std::optional<int32_t> AddedTokenList::id_of(const std::string& content) const {
  if (const AddedToken* token = find(content)) return token->id;
  return vocabulary_.find(content);
}

std::optional<std::string> AddedTokenList::text_of(int32_t id) const {
  if (const auto found = by_id_.find(id); found != by_id_.end()) return tokens_[found->second].content;
  if (const std::string* token = vocabulary_.token(id)) return *token;
  return std::nullopt;
}

AddedTokens::AddedTokens(const AddedTokenList& list, const Normalizer* normalizer, bool split_special)
    : normalizer_(normalizer), split_special_(split_special) {
  for (const AddedToken& entry : list.tokens()) {
    Token token{entry, {}};
    PatternWork work(token.content.size());
    token.normalized_content =
        token.normalized && normalizer != nullptr ? normalizer->apply(token.content, work) : token.content;
    if (token.special) special_.insert(token.content);
    by_id_.emplace(token.id, tokens_.size());
    by_content_.emplace(token.content, tokens_.size());
    size_ = std::max(size_, int64_t{token.id} + 1);
    tokens_.push_back(std::move(token));
  }
  // A token that is empty after normalization is never found.
  std::vector<std::pair<std::string_view, int32_t>> as_written;
  std::vector<std::pair<std::string_view, int32_t>> normalized;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const Token& token = tokens_[i];
    (token.normalized ? normalized : as_written).emplace_back(token.normalized_content, static_cast<int32_t>(i));
  }
  as_written_ = PrefixIndex(std::move(as_written));
  normalized_ = PrefixIndex(std::move(normalized));
}

// Finds the longest token at the leftmost position, then continues after it. Parts without a token have token -1.
std::vector<AddedTokens::Match> AddedTokens::matches(std::string_view text, const PrefixIndex& index) const {
  std::vector<Match> parts;
  size_t covered = 0;
  for (size_t at = 0; at < text.size();) {
    const auto [length, found] = index.longest(text.substr(at));
    if (length == 0) {
      ++at;
      continue;
    }
    const Token& token = tokens_[static_cast<size_t>(found)];
    size_t begin = at;
    size_t end = at + length;
    at = end;
    if (split_special_ && special_.contains(token.content)) continue;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (token.lstrip) begin = std::max(white_space_at_end(text.substr(0, begin)), covered);
    if (token.rstrip) end += white_space_at_start(text.substr(end));
    if (begin >= end) continue;  // white space that the previous token included
    if (covered < begin) parts.push_back({covered, begin, -1});
    parts.push_back({begin, end, token.id});
    covered = end;  // a token inside white space that the previous one included: the rest is text again
  }
  if (covered != text.size()) parts.push_back({covered, text.size(), -1});
  return parts;
}

std::vector<TextPiece> AddedTokens::split(std::string_view text, PatternWork& work) const {
  std::vector<TextPiece> pieces;
  for (const Match& part : matches(text, as_written_)) {
    if (part.token >= 0) {
      pieces.push_back({{}, false, part.token});
      continue;
    }
    std::string between(text.substr(part.begin, part.end - part.begin));
    if (normalizer_ != nullptr) between = normalizer_->apply(std::move(between), work);
    for (const Match& inner : matches(between, normalized_)) {
      if (inner.token >= 0) {
        pieces.push_back({{}, false, inner.token});
      } else {
        pieces.push_back(
            {between.substr(inner.begin, inner.end - inner.begin), part.begin == 0 && inner.begin == 0, -1});
      }
    }
  }
  return pieces;
}

const std::string* AddedTokens::content(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second].content;
}

const std::string* AddedTokens::decoded(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second].normalized_content;
}

std::optional<int32_t> AddedTokens::find(const std::string& content) const {
  const auto found = by_content_.find(content);
  if (found == by_content_.end()) return std::nullopt;
  return tokens_[found->second].id;
}

}  // namespace anyaccel::llm
