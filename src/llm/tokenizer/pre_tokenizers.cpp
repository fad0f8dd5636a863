// Implements the pre-tokenizers of tokenizer.json, which split a text into pieces that are tokenized independently.
#include <functional>

#include "base/text/utf8.h"
#include "llm/config/config_fields.h"
#include "llm/tokenizer/components.h"
#include "llm/tokenizer/unicode.h"

namespace anyaccel::llm {
namespace {

constexpr std::string_view supported_pre_tokenizers =
    "Sequence, BertPreTokenizer, ByteLevel, CharDelimiterSplit, Split, Metaspace, Whitespace, WhitespaceSplit, Digits, "
    "Punctuation";

enum class Behavior { Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous };

Behavior read_behavior(const JsonRef& value) {
  const std::string& name = value.string();
  if (name == "Isolated") return Behavior::Isolated;
  if (name == "Removed") return Behavior::Removed;
  if (name == "MergedWithPrevious") return Behavior::MergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::MergedWithNext;
  if (name == "Contiguous") return Behavior::Contiguous;
  value.fail("\"Isolated\", \"Removed\", \"MergedWithPrevious\", \"MergedWithNext\" or \"Contiguous\"");
}

// Joins the spans that the behaviour does not separate.
std::vector<TextSpan> join_spans(const std::vector<TextSpan>& spans, Behavior behavior) {
  if (behavior == Behavior::Isolated || behavior == Behavior::Removed) return spans;
  std::vector<TextSpan> joined;
  bool previous_match = false;
  if (behavior == Behavior::MergedWithNext) {
    for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
      if (span->is_match && !previous_match && !joined.empty()) {
        joined.back().begin = span->begin;
      } else {
        joined.push_back(*span);
      }
      previous_match = span->is_match;
    }
    return {joined.rbegin(), joined.rend()};
  }
  for (const TextSpan& span : spans) {
    const bool joins =
        behavior == Behavior::Contiguous ? span.is_match == previous_match : span.is_match && !previous_match;
    if (joins && !joined.empty()) {
      joined.back().end = span.end;
    } else {
      joined.push_back(span);
    }
    previous_match = span.is_match;
  }
  return joined;
}

void split(const TextPiece& piece, const std::vector<TextSpan>& spans, Behavior behavior, std::vector<TextPiece>& out) {
  for (const TextSpan& span : join_spans(spans, behavior)) {
    if (span.begin == span.end || (behavior == Behavior::Removed && span.is_match)) continue;
    out.push_back({piece.text.substr(span.begin, span.end - span.begin), piece.at_start && span.begin == 0, -1});
  }
}

// Returns the spans of a text in which the matches are single characters.
std::vector<TextSpan> character_spans(std::string_view text, bool (*is_match)(char32_t)) {
  std::vector<TextSpan> spans;
  size_t previous = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (is_match(step.code)) {
      if (previous != at) spans.push_back({previous, at, false});
      spans.push_back({at, at + step.length, true});
      previous = at + step.length;
    }
    at += step.length;
  }
  if (previous != text.size()) spans.push_back({previous, text.size(), false});
  return spans;
}

// Calls `step` for each piece that is not a token; `step` appends the resulting pieces.
template <typename F>
void replace_pieces(std::vector<TextPiece>& pieces, F&& step) {
  std::vector<TextPiece> out;
  out.reserve(pieces.size());
  for (TextPiece& piece : pieces) {
    if (piece.token >= 0) {
      out.push_back(std::move(piece));
    } else {
      step(piece, out);
    }
  }
  pieces = std::move(out);
}

size_t total_bytes(const std::vector<TextPiece>& pieces) {
  size_t bytes = 0;
  for (const TextPiece& piece : pieces) bytes += piece.text.size();
  return bytes;
}

class SequencePreTokenizer : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(const JsonRef& value) {
    const JsonRef list = value.at("pretokenizers");
    if (!list.is_array()) list.fail("a list");
    for (size_t i = 0; i < list.size(); ++i) steps_.push_back(read_pre_tokenizer(list[i]));
  }
  void apply(std::vector<TextPiece>& pieces, PatternWork& work) const override {
    const size_t bytes = total_bytes(pieces);
    for (const auto& step : steps_) {
      step->apply(pieces, work);
      check_growth(bytes, total_bytes(pieces));
    }
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

// Splits a text into words at white space, and separates each punctuation character.
class BertPreTokenizer : public PreTokenizer {
 public:
  void apply(std::vector<TextPiece>& pieces, PatternWork&) const override {
    replace_pieces(pieces, [](const TextPiece& piece, std::vector<TextPiece>& out) {
      std::vector<TextPiece> words;
      split(piece, character_spans(piece.text, &is_white_space), Behavior::Removed, words);
      for (const TextPiece& word : words) {
        split(word, character_spans(word.text, &is_punctuation), Behavior::Isolated, out);
      }
    });
  }
};

class SplitPreTokenizer : public PreTokenizer {
 public:
  SplitPreTokenizer(TextPattern pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(std::vector<TextPiece>& pieces, PatternWork& work) const override {
    replace_pieces(pieces, [&](const TextPiece& piece, std::vector<TextPiece>& out) {
      std::vector<TextSpan> spans = pattern_.spans(piece.text, work);
      for (TextSpan& span : spans) span.is_match = span.is_match != invert_;
      split(piece, spans, behavior_, out);
    });
  }

 private:
  TextPattern pattern_;
  Behavior behavior_;
  bool invert_;
};

class CharacterPreTokenizer : public PreTokenizer {
 public:
  CharacterPreTokenizer(bool (*is_match)(char32_t), Behavior behavior) : is_match_(is_match), behavior_(behavior) {}
  void apply(std::vector<TextPiece>& pieces, PatternWork&) const override {
    replace_pieces(pieces, [this](const TextPiece& piece, std::vector<TextPiece>& out) {
      split(piece, character_spans(piece.text, is_match_), behavior_, out);
    });
  }

 private:
  bool (*is_match_)(char32_t);
  Behavior behavior_;
};

class ByteLevelPreTokenizer : public PreTokenizer {
 public:
  explicit ByteLevelPreTokenizer(const JsonRef& value) : prefix_space_(value.at("add_prefix_space").boolean()) {
    if (!read_flag(value, "use_regex", true)) return;
    pattern_ = TextPattern::regex(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
  }
  void apply(std::vector<TextPiece>& pieces, PatternWork& work) const override {
    replace_pieces(pieces, [&](TextPiece& piece, std::vector<TextPiece>& out) {
      if (prefix_space_ && !piece.text.starts_with(' ')) piece.text.insert(0, 1, ' ');
      if (!pattern_) {
        out.push_back(to_bytes(piece));
        return;
      }
      std::vector<TextPiece> parts;
      split(piece, pattern_->spans(piece.text, work), Behavior::Isolated, parts);
      for (const TextPiece& part : parts) out.push_back(to_bytes(part));
    });
  }

 private:
  static TextPiece to_bytes(const TextPiece& piece) {
    TextPiece result{{}, piece.at_start, -1};
    result.text.reserve(piece.text.size() + piece.text.size() / 4);
    for (const char c : piece.text) result.text += byte_text(static_cast<unsigned char>(c));
    return result;
  }

  bool prefix_space_;
  std::optional<TextPattern> pattern_;
};

class MetaspacePreTokenizer : public PreTokenizer {
 public:
  explicit MetaspacePreTokenizer(const JsonRef& value)
      : replacement_(read_character(value.at("replacement"))),
        pattern_(TextPattern::literal(replacement_)),
        split_(read_flag(value, "split", true)) {
    const auto scheme = value.find("prepend_scheme");
    const std::string name = scheme ? scheme->string() : "always";
    if (name != "always" && name != "first" && name != "never") scheme->fail("\"always\", \"first\" or \"never\"");
    always_ = name == "always";
    first_ = name == "first";
    // add_prefix_space: false is the older form of "never".
    if (!read_flag(value, "add_prefix_space", true)) {
      if (scheme && name != "never") value.error("add_prefix_space is false, which contradicts prepend_scheme");
      always_ = first_ = false;
    }
  }
  void apply(std::vector<TextPiece>& pieces, PatternWork& work) const override {
    replace_pieces(pieces, [&](const TextPiece& piece, std::vector<TextPiece>& out) {
      TextPiece changed{{}, piece.at_start, -1};
      changed.text.reserve(piece.text.size() + replacement_.size());
      for (const char c : piece.text) {
        if (c == ' ') {
          changed.text += replacement_;
        } else {
          changed.text += c;
        }
      }
      const bool prepends = always_ || (first_ && piece.at_start);
      if (prepends && !changed.text.starts_with(replacement_)) changed.text.insert(0, replacement_);
      if (split_) {
        split(changed, pattern_.spans(changed.text, work), Behavior::MergedWithNext, out);
      } else {
        out.push_back(std::move(changed));
      }
    });
  }

 private:
  std::string replacement_;
  TextPattern pattern_;
  bool split_;
  bool always_ = false;
  bool first_ = false;
};

// The word characters of Unicode regular expressions, including the joiners.
#define ANYACCEL_PRE_TOKENIZERS_WORD R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D})"

}  // namespace

std::unique_ptr<PreTokenizer> read_pre_tokenizer(const JsonRef& value) {
  if (value.is_null()) return nullptr;
  const std::string& type = component_type(value);
  if (type == "Sequence") return std::make_unique<SequencePreTokenizer>(value);
  if (type == "ByteLevel") return std::make_unique<ByteLevelPreTokenizer>(value);
  if (type == "BertPreTokenizer") return std::make_unique<BertPreTokenizer>();
  if (type == "CharDelimiterSplit") {
    return std::make_unique<SplitPreTokenizer>(TextPattern::literal(read_character(value.at("delimiter"))),
                                               Behavior::Removed, false);
  }
  if (type == "Metaspace") return std::make_unique<MetaspacePreTokenizer>(value);
  if (type == "Split") {
    return std::make_unique<SplitPreTokenizer>(read_pattern(value.at("pattern")), read_behavior(value.at("behavior")),
                                               value.at("invert").boolean());
  }
  if (type == "Whitespace") {
    return std::make_unique<SplitPreTokenizer>(
        TextPattern::regex("[" ANYACCEL_PRE_TOKENIZERS_WORD "]+|[^" ANYACCEL_PRE_TOKENIZERS_WORD "\\p{White_Space}]+"),
        Behavior::Removed, true);
  }
  if (type == "WhitespaceSplit") return std::make_unique<CharacterPreTokenizer>(&is_white_space, Behavior::Removed);
  if (type == "Digits") {
    const bool individual = value.at("individual_digits").boolean();
    return std::make_unique<CharacterPreTokenizer>(&is_numeric, individual ? Behavior::Isolated : Behavior::Contiguous);
  }
  if (type == "Punctuation") {
    const auto behavior = value.find("behavior");
    return std::make_unique<CharacterPreTokenizer>(&is_punctuation,
                                                   behavior ? read_behavior(*behavior) : Behavior::Isolated);
  }
  refuse_component(value, "pre-tokenizer", supported_pre_tokenizers);
}

}  // namespace anyaccel::llm
