// Implements SentencePiece's BPE, which merges the two neighbours that form the piece with the best score, and its
// unigram model. It follows the rules of Google's library (bpe_model.cc, unigram_model.cc, normalizer.cc,
// sentencepiece_processor.cc).
#include <algorithm>
#include <limits>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "anyaccel/error.h"
#include "anyaccel/llm/tokenizer.h"
#include "base/text/json.h"
#include "base/text/utf8.h"
#include "llm/tokenizer/charsmap.h"
#include "llm/tokenizer/parts.h"
#include "llm/tokenizer/prefix_index.h"
#include "llm/tokenizer/sentencepiece_model.h"
#include "llm/tokenizer/stream.h"
#include "llm/tokenizer/unigram.h"

namespace anyaccel::llm {
namespace {

constexpr std::string_view space_symbol = "\xE2\x96\x81";  // U+2581, stands for a space

// Converts "<0x41>" to 0x41; returns -1 for other texts.
int byte_of_piece(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const size_t high = digits.find(text[3]);
  const size_t low = digits.find(text[4]);
  return high == std::string_view::npos || low == std::string_view::npos ? -1 : static_cast<int>(high * 16 + low);
}

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(SentencePieceModel model, std::string_view source, const TextEnds& ends = {})
      : model_(std::move(model)), add_bos_(ends.add_bos), add_eos_(ends.add_eos) {
    const std::string name(source);
    check_kind(name);
    Texts special;
    Texts user_defined;
    for (size_t id = 0; id < model_.pieces.size(); ++id) {
      add_piece(static_cast<int32_t>(id), name, special, user_defined);
    }
    special_ = PrefixIndex(std::move(special));
    user_defined_ = PrefixIndex(std::move(user_defined));
    if (!model_.charsmap.empty()) characters_.emplace(model_.charsmap, name);
    if (is_unigram()) prepare_unigram(name);
    if (unknown_id_ < 0) throw CheckpointError(name + ": has no unknown piece; expected one");
    const bool bytes_missing = std::find(byte_ids_.begin(), byte_ids_.end(), -1) != byte_ids_.end();
    if (model_.byte_fallback && bytes_missing) {
      throw CheckpointError(name + ": byte_fallback needs 256 byte pieces, and some are missing");
    }
    bos_id_ = control_id(model_.bos_piece);
    eos_id_ = control_id(model_.eos_piece);
    if (ends.bos) bos_id_ = ends.bos;
    if (ends.eos) eos_id_ = ends.eos;
  }

  std::vector<int32_t> encode(std::string_view text, bool add_special) const override {
    check_text_size(text);
    std::vector<int32_t> ids;
    if (add_special && add_bos_ && bos_id_) ids.push_back(*bos_id_);
    encode_text(is_valid_utf8(text) ? std::string(text) : repair_utf8(text), ids);
    if (add_special && add_eos_ && eos_id_) ids.push_back(*eos_id_);
    return ids;
  }

  int64_t vocab_size() const noexcept override { return static_cast<int64_t>(model_.pieces.size()); }
  std::optional<std::string> id_to_token(int32_t id) const override {
    if (!is_id(id)) return std::nullopt;
    return piece(id).text;
  }
  std::optional<int32_t> token_to_id(std::string_view token) const override {
    for (const auto* map : {&reserved_, &pieces_}) {
      if (const auto found = map->find(token); found != map->end()) return found->second;
    }
    return std::nullopt;
  }
  std::string token_bytes(int32_t id, bool at_start) const override {
    if (!is_id(id)) return {};
    const SentencePiece& token = piece(id);
    if (token.type == PieceType::Byte) return std::string(1, static_cast<char>(byte_of_piece(token.text)));
    return surface(token, at_start && strips_first_space());
  }

 private:
  using IdMap = std::unordered_map<std::string_view, int32_t>;  // keys point into model_.pieces
  using Texts = std::vector<std::pair<std::string_view, int32_t>>;
  struct Symbol {
    std::string_view text;
    int32_t previous = -1;
    int32_t next = -1;
    bool frozen = false;  // a user-defined piece, which never merges
  };
  struct Pair {
    float score;
    int32_t left;
    int32_t right;
    size_t bytes;
    bool operator<(const Pair& other) const { return score != other.score ? score < other.score : left > other.left; }
  };
  using Splits = std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>>;
  class Stream;

  // Encoding prepends a space to a text, or removes those at its beginning, so decoding removes the first one.
  bool strips_first_space() const { return model_.add_dummy_prefix || model_.remove_extra_whitespaces; }
  static bool has_text(const SentencePiece& piece) {
    return piece.type != PieceType::Control && piece.type != PieceType::Unknown;
  }
  // Returns the text of a piece that is no byte.
  std::string surface(const SentencePiece& piece, bool without_first_space) const {
    if (piece.type == PieceType::Control) return {};
    if (piece.type == PieceType::Unknown) return model_.unk_surface;
    std::string_view text = piece.text;
    if (without_first_space && text.starts_with(space_symbol)) text.remove_prefix(space_symbol.size());
    std::string out;
    for (size_t found; (found = text.find(space_symbol)) != std::string_view::npos;) {
      out += text.substr(0, found);
      out += ' ';
      text.remove_prefix(found + space_symbol.size());
    }
    return out += text;
  }
  bool is_id(int32_t id) const { return id >= 0 && id < vocab_size(); }
  const SentencePiece& piece(int32_t id) const { return model_.pieces[static_cast<size_t>(id)]; }
  int32_t id_of(std::string_view text) const { return token_to_id(text).value_or(unknown_id_); }

  bool is_unigram() const { return model_.model_type == 1; }

  void check_kind(const std::string& source) const {
    constexpr std::string_view kinds[] = {"?", "Unigram", "BPE", "word", "character"};
    const auto refuse = [&](const std::string& what, const std::string& expected) {
      throw CheckpointError(source + ": has " + what + ", which is not supported; supported is " + expected);
    };
    if (model_.model_type != 1 && model_.model_type != 2) {
      const bool known = model_.model_type == 3 || model_.model_type == 4;
      throw CheckpointError(
          source + ": this is a " +
          (known ? std::string(kinds[model_.model_type]) : "SentencePiece type " + std::to_string(model_.model_type)) +
          " tokenizer, which is not supported; supported are BPE (byte pair encoding) and Unigram");
    }
    if (model_.has_denormalizer) refuse("a denormalizer", "a model without one");
    if (!model_.escape_whitespaces) refuse("escape_whitespaces off", "escape_whitespaces on");
  }

  void prepare_unigram(const std::string& source) {
    float least = std::numeric_limits<float>::max();
    most_score_ =
        std::numeric_limits<float>::min();  // as in Google's library, which starts with the least positive number
    Texts index;
    for (const auto& [text, id] : pieces_) {
      const SentencePiece& entry = piece(id);
      if (text.size() > longest_unigram_token) {
        throw CheckpointError(source + ": the piece " + quote_text(entry.text) + " has " + std::to_string(text.size()) +
                              " bytes; expected at most " + std::to_string(longest_unigram_token));
      }
      if (entry.type != PieceType::Unused) index.emplace_back(text, id);
      if (entry.type != PieceType::Normal) continue;
      least = std::min(least, entry.score);
      most_score_ = std::max(most_score_, entry.score);
    }
    unknown_score_ = least - static_cast<float>(unknown_penalty);
    unigram_ = PrefixIndex(std::move(index));
  }

  void add_piece(int32_t id, const std::string& source, Texts& special, Texts& user_defined) {
    const SentencePiece& entry = piece(id);
    const bool plain =
        entry.type == PieceType::Normal || entry.type == PieceType::UserDefined || entry.type == PieceType::Unused;
    const auto refuse = [&](const std::string& why) {
      throw CheckpointError(source + ": the piece " + quote_text(entry.text) + " (id " + std::to_string(id) + ") " +
                            why);
    };
    if (!(plain ? pieces_ : reserved_).emplace(entry.text, id).second) refuse("occurs twice");
    if (model_.finds_special && (entry.type == PieceType::UserDefined || entry.type == PieceType::Control ||
                                 entry.type == PieceType::Unknown)) {
      special.emplace_back(entry.text, id);
    } else if (entry.type == PieceType::UserDefined) {
      user_defined.emplace_back(entry.text, id);
    }
    if (entry.type == PieceType::Unknown) {
      if (unknown_id_ >= 0) refuse("is a second unknown piece; expected one");
      unknown_id_ = id;
    }
    if (entry.type == PieceType::Byte) {
      const int byte = byte_of_piece(entry.text);
      if (byte < 0) refuse("is a byte piece; expected a text like \"<0x41>\"");
      byte_ids_[static_cast<size_t>(byte)] = id;
    }
  }

  std::optional<int32_t> control_id(const std::string& text) const {
    const auto found = reserved_.find(text);
    if (found == reserved_.end() || piece(found->second).type != PieceType::Control) return std::nullopt;
    return found->second;
  }

  // `text` is valid UTF-8. Finds special pieces first if the model searches for them.
  void encode_text(const std::string& text, std::vector<int32_t>& ids) const {
    if (!model_.finds_special) return encode_normalized(normalize(text), ids);
    const std::string_view whole = text;
    size_t begin = 0;  // of the text that is not tokenized yet
    for (size_t at = 0; at < whole.size();) {
      const auto [length, id] = special_.longest(whole.substr(at));
      if (length == 0) {
        at += utf8_length(whole[at]);
        continue;
      }
      encode_normalized(normalize(whole.substr(begin, at - begin)), ids);
      ids.push_back(id);
      begin = at += length;
    }
    encode_normalized(normalize(whole.substr(begin)), ids);
  }

  // Returns the size of the symbol that the text begins with: a user-defined piece or one character.
  size_t symbol_bytes(std::string_view text, bool& user_defined) const {
    const size_t length = user_defined_.longest(text).length;
    user_defined = length > 0;
    return user_defined ? length : utf8_length(text[0]);
  }

  // Returns the beginning of the text as the normalizer writes it, and the number of bytes that this replaces.
  std::pair<std::string_view, size_t> normalized_symbol(std::string_view text) const {
    bool user_defined = false;
    const size_t bytes = symbol_bytes(text, user_defined);
    if (characters_ && !user_defined) {
      if (const auto match = characters_->longest(text)) return {match->replacement, match->length};
    }
    return {text.substr(0, bytes), bytes};
  }

  std::string normalize(std::string_view text) const {
    const bool trims = model_.remove_extra_whitespaces;
    const size_t all_bytes = text.size();
    while (trims && !text.empty()) {
      const auto [symbol, bytes] = normalized_symbol(text);
      if (symbol != " ") break;
      text.remove_prefix(bytes);
    }
    std::string out;
    if (text.empty()) return out;
    out.reserve(text.size() + text.size() / 4);
    const bool suffix = model_.whitespace_as_suffix;
    if (model_.add_dummy_prefix && !suffix) out += space_symbol;
    bool after_space = trims;
    while (!text.empty()) {
      auto [symbol, bytes] = normalized_symbol(text);
      text.remove_prefix(bytes);
      check_growth(all_bytes, out.size());
      while (after_space && symbol.starts_with(' ')) symbol.remove_prefix(1);
      for (const char c : symbol) {
        if (c == ' ') {
          out += space_symbol;
        } else {
          out += c;
        }
      }
      if (!symbol.empty()) after_space = trims && symbol.ends_with(' ');
    }
    while (trims && out.ends_with(space_symbol)) out.resize(out.size() - space_symbol.size());
    if (model_.add_dummy_prefix && suffix) out += space_symbol;
    return out;
  }

  // Appends the id of a piece of text. Adjacent unknown characters are one token.
  void add_id(int32_t id, std::string_view text, bool& after_unknown, std::vector<int32_t>& ids) const {
    const bool unknown = id == unknown_id_;
    if (unknown && model_.byte_fallback) {
      for (const char c : text) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    } else if (!unknown || !after_unknown) {
      ids.push_back(id);
    }
    after_unknown = unknown;
  }

  void encode_normalized(const std::string& text, std::vector<int32_t>& ids) const {
    bool after_unknown = false;
    if (is_unigram()) {
      const auto score = [this](int32_t id, size_t length) {
        const SentencePiece& entry = piece(id);
        // This score is larger than that of any other way to split these bytes.
        if (entry.type == PieceType::UserDefined) return static_cast<float>(length) * most_score_ - 0.1F;
        return entry.score;
      };
      for (const TokenSpan& span : best_split<float>(text, unigram_, unknown_score_, score)) {
        add_id(span.id < 0 ? unknown_id_ : span.id, std::string_view(text).substr(span.begin, span.end - span.begin),
               after_unknown, ids);
      }
      return;
    }
    Splits splits;
    for (const Symbol& symbol : merged_symbols(text, splits)) {
      if (symbol.text.empty()) continue;
      // A piece that is marked unused is split into the pieces it was merged from.
      std::vector<std::string_view> parts = {symbol.text};
      while (!parts.empty()) {
        const std::string_view part = parts.back();
        parts.pop_back();
        const int32_t id = id_of(part);
        const auto split = piece(id).type == PieceType::Unused ? splits.find(part) : splits.end();
        if (split != splits.end()) {
          parts.push_back(split->second.second);
          parts.push_back(split->second.first);
          continue;
        }
        add_id(id, part, after_unknown, ids);
      }
    }
  }

  std::vector<Symbol> merged_symbols(std::string_view text, Splits& splits) const {
    std::vector<Symbol> symbols;
    symbols.reserve(text.size());
    while (!text.empty()) {
      Symbol symbol;
      symbol.text = text.substr(0, symbol_bytes(text, symbol.frozen));
      text.remove_prefix(symbol.text.size());
      symbol.previous = static_cast<int32_t>(symbols.size()) - 1;
      symbol.next = text.empty() ? -1 : static_cast<int32_t>(symbols.size()) + 1;
      symbols.push_back(symbol);
    }
    const auto at = [&symbols](int32_t index) -> Symbol& { return symbols[static_cast<size_t>(index)]; };
    std::priority_queue<Pair> queue;
    const auto offer = [&](int32_t left, int32_t right) {
      if (left < 0 || right < 0 || at(left).frozen || at(right).frozen) return;
      // Neighbours are adjacent in the text.
      const std::string_view both(at(left).text.data(), at(left).text.size() + at(right).text.size());
      const auto found = pieces_.find(both);
      if (found == pieces_.end()) return;
      const SentencePiece& merged = piece(found->second);
      queue.push({merged.score, left, right, both.size()});
      if (merged.type == PieceType::Unused) splits[both] = {at(left).text, at(right).text};
    };
    for (size_t i = 1; i < symbols.size(); ++i) offer(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
    while (!queue.empty()) {
      const Pair best = queue.top();
      queue.pop();
      Symbol& left = at(best.left);
      Symbol& right = at(best.right);
      // The symbols may have changed since the pair was found.
      if (left.text.empty() || right.text.empty() || left.text.size() + right.text.size() != best.bytes) continue;
      left.text = std::string_view(left.text.data(), best.bytes);
      right.text = {};
      left.next = right.next;
      if (left.next >= 0) at(left.next).previous = best.left;
      offer(left.previous, best.left);
      offer(best.left, left.next);
    }
    return symbols;
  }

  std::unique_ptr<TokenTextStream> text_stream(bool skip_special, bool streaming) const override;
  void set_added_ends(std::optional<bool> add_bos, std::optional<bool> add_eos) override {
    add_bos_ = add_bos.value_or(add_bos_);
    add_eos_ = add_eos.value_or(add_eos_);
  }

  SentencePieceModel model_;
  IdMap pieces_;         // normal, user-defined, unused
  IdMap reserved_;       // the other pieces, which merging never finds
  PrefixIndex special_;  // the pieces that are searched for if model_.finds_special
  PrefixIndex user_defined_;
  std::optional<CharacterMap> characters_;
  PrefixIndex unigram_;
  float unknown_score_ = 0;
  float most_score_ = 0;
  int32_t unknown_id_ = -1;
  std::vector<int32_t> byte_ids_ = std::vector<int32_t>(256, -1);
  bool add_bos_;
  bool add_eos_;
};

class SentencePieceTokenizer::Stream : public TokenTextStream {
 public:
  explicit Stream(const SentencePieceTokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void push(int32_t id, std::string& out) override {
    if (!tokenizer_.is_id(id)) return;
    const SentencePiece& piece = tokenizer_.piece(id);
    if (piece.type == PieceType::Byte) {
      bytes_ += static_cast<char>(byte_of_piece(piece.text));
      leave_bytes(false, out);
      return;
    }
    leave_bytes(true, out);
    if (space_seen_ || text_seen_) at_start_ = false;
    space_seen_ = false;
    const SentencePieceModel& model = tokenizer_.model_;
    const bool stripped = at_start_ && tokenizer_.strips_first_space();
    if (stripped && tokenizer_.has_text(piece) && piece.text.starts_with(space_symbol)) {
      space_seen_ = !model.remove_extra_whitespaces;
    }
    std::string text = tokenizer_.surface(piece, stripped);
    text_seen_ = text_seen_ || !text.empty();
    out += text;
  }
  void finish(std::string& out) override { leave_bytes(true, out); }

 private:
  // Complete characters are returned at once; every byte that does not belong to one becomes U+FFFD.
  void leave_bytes(bool all, std::string& out) {
    size_t taken = 0;
    while (taken < bytes_.size()) {
      const Utf8Step step = utf8_step(std::string_view(bytes_).substr(taken));
      if (step.incomplete && !all) break;
      out += step.valid ? std::string_view(bytes_).substr(taken, step.length) : replacement_character;
      taken += step.valid ? step.length : 1;
      text_seen_ = true;
    }
    bytes_.erase(0, taken);
  }

  const SentencePieceTokenizer& tokenizer_;
  std::string bytes_;  // of byte tokens, not yet a character
  bool at_start_ = true;
  bool space_seen_ = false;
  bool text_seen_ = false;
};

std::unique_ptr<TokenTextStream> SentencePieceTokenizer::text_stream(bool, bool) const {
  return std::make_unique<Stream>(*this);
}

}  // namespace

void check_sentencepiece_model(const SentencePieceModel& model, const std::string& source) {
  SentencePieceTokenizer(model, source);
}

std::unique_ptr<BpeModel> make_bpe(const SentencePieceModel& model, const std::string& source, BpeOptions options) {
  constexpr size_t most_bytes = size_t{1} << 30;  // limit on the bytes of the parts that are looked up
  std::vector<std::string> tokens;
  size_t bytes = 0;
  for (const SentencePiece& piece : model.pieces) {
    bytes += piece.text.size() * piece.text.size();
    if (bytes > most_bytes) {
      throw CheckpointError(source + ": the piece " + quote_text(piece.text) + " has " +
                            std::to_string(piece.text.size()) + " bytes, which makes finding its parts too slow");
    }
    tokens.push_back(piece.text);
  }
  Vocabulary vocabulary(std::move(tokens));
  std::vector<BpeModel::IdMerge> merges;
  for (int32_t id = 0; id < static_cast<int32_t>(model.pieces.size()); ++id) {
    const std::string_view text = model.pieces[static_cast<size_t>(id)].text;
    for (size_t cut = utf8_length(text[0]); cut < text.size(); cut += utf8_length(text[cut])) {
      const auto left = vocabulary.find(text.substr(0, cut));
      if (!left) continue;
      if (const auto right = vocabulary.find(text.substr(cut))) merges.push_back({*left, *right, id});
    }
  }
  return std::make_unique<BpeModel>(std::move(vocabulary), merges, std::move(options));
}

std::unique_ptr<Tokenizer> make_sentencepiece(SentencePieceModel model, const std::string& source,
                                              const TextEnds& ends) {
  return std::make_unique<SentencePieceTokenizer>(std::move(model), source, ends);
}

std::unique_ptr<Tokenizer> Tokenizer::parse_sentencepiece(std::string_view bytes, std::string_view source) {
  return std::make_unique<SentencePieceTokenizer>(parse_sentencepiece_model(bytes, source), source);
}

}  // namespace anyaccel::llm
