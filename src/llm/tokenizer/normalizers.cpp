// Implements the normalizers of tokenizer.json.
#include <optional>

#include "base/text/utf8.h"
#include "llm/config/config_fields.h"
#include "llm/tokenizer/charsmap.h"
#include "llm/tokenizer/components.h"
#include "llm/tokenizer/unicode.h"

namespace anyaccel::llm {
namespace {

constexpr std::string_view supported_normalizers =
    "Sequence, NFC, NFD, NFKC, NFKD, BertNormalizer, Lowercase, Nmt, Precompiled, Prepend, Replace, Strip, "
    "StripAccents";

class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(const JsonRef& value) {
    const JsonRef list = value.at("normalizers");
    if (!list.is_array()) list.fail("a list");
    for (size_t i = 0; i < list.size(); ++i) {
      if (auto step = read_normalizer(list[i])) steps_.push_back(std::move(step));
    }
  }
  std::string apply(std::string text, PatternWork& work) const override {
    const size_t bytes = text.size();
    for (const auto& step : steps_) {
      text = step->apply(std::move(text), work);
      check_growth(bytes, text.size());
    }
    return text;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

class FormNormalizer : public Normalizer {
 public:
  explicit FormNormalizer(NormalForm form) : form_(form) {}
  std::string apply(std::string text, PatternWork&) const override { return normalize(text, form_); }

 private:
  NormalForm form_;
};

class LowercaseNormalizer : public Normalizer {
 public:
  std::string apply(std::string text, PatternWork&) const override { return lowercase(text); }
};

class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(const JsonRef& value) : prefix_(value.at("prepend").string()) {}
  std::string apply(std::string text, PatternWork&) const override { return text.empty() ? text : prefix_ + text; }

 private:
  std::string prefix_;
};

class ReplaceNormalizer : public Normalizer {
 public:
  explicit ReplaceNormalizer(const JsonRef& value)
      : pattern_(read_pattern(value.at("pattern"))), content_(value.at("content").string()) {}
  std::string apply(std::string text, PatternWork& work) const override {
    std::string out;
    out.reserve(text.size());
    for (const TextSpan& span : pattern_.spans(text, work)) {
      out +=
          span.is_match ? std::string_view(content_) : std::string_view(text).substr(span.begin, span.end - span.begin);
    }
    return out;
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

class StripNormalizer : public Normalizer {
 public:
  explicit StripNormalizer(const JsonRef& value)
      : left_(value.at("strip_left").boolean()), right_(value.at("strip_right").boolean()) {}
  std::string apply(std::string text, PatternWork&) const override {
    size_t begin = 0;
    while (left_ && begin < text.size()) {
      const Utf8Step step = utf8_step(std::string_view(text).substr(begin));
      if (!is_white_space(step.code)) break;
      begin += step.length;
    }
    size_t end = text.size();
    while (right_ && end > begin) {
      size_t last = end - 1;
      while (last > begin && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
      if (!is_white_space(utf8_step(std::string_view(text).substr(last)).code)) break;
      end = last;
    }
    return text.substr(begin, end - begin);
  }

 private:
  bool left_;
  bool right_;
};

class StripAccentsNormalizer : public Normalizer {
 public:
  std::string apply(std::string text, PatternWork&) const override {
    std::string out;
    for (std::string_view rest = text; !rest.empty();) {
      const Utf8Step step = utf8_step(rest);
      if (!is_mark(step.code)) out += rest.substr(0, step.length);
      rest.remove_prefix(step.length);
    }
    return out;
  }
};

// Returns a copy of the text with each character replaced: change(c, out) appends the replacement.
template <typename F>
std::string change_characters(std::string_view text, F&& change) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    change(step.code, out);
    text.remove_prefix(step.length);
  }
  return out;
}

// SentencePiece's rules for machine translation: control characters are removed, and other kinds of white space become
// spaces.
class NmtNormalizer : public Normalizer {
 public:
  std::string apply(std::string text, PatternWork&) const override {
    return change_characters(text, [](char32_t c, std::string& out) {
      const bool removed =
          (c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
      const bool space = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                         c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      if (!removed) append_utf8(out, space ? U' ' : c);
    });
  }
};

class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(const JsonRef& value)
      : cleans_(read_flag(value, "clean_text", true)),
        separates_(read_flag(value, "handle_chinese_chars", true)),
        lowers_(read_flag(value, "lowercase", true)),
        strips_(read_flag(value, "strip_accents", lowers_)) {}
  std::string apply(std::string text, PatternWork&) const override {
    if (cleans_) {
      text = change_characters(text, [](char32_t c, std::string& out) {
        const bool kept = c == '\t' || c == '\n' || c == '\r';
        if (c == 0 || c == 0xFFFD || (!kept && is_other(c))) return;
        append_utf8(out, kept || is_white_space(c) ? U' ' : c);
      });
    }
    if (separates_) {
      text = change_characters(text, [](char32_t c, std::string& out) {
        if (is_ideograph(c)) out += ' ';
        append_utf8(out, c);
        if (is_ideograph(c)) out += ' ';
      });
    }
    if (strips_) {
      text = change_characters(normalize(text, NormalForm::NFD), [](char32_t c, std::string& out) {
        if (!is_nonspacing_mark(c)) append_utf8(out, c);
      });
    }
    return lowers_ ? lowercase(text) : text;
  }

 private:
  // Returns whether the character is in a block of ideographs that the reference knows (normalizers/bert.rs); one block
  // begins 256 characters late there.
  static bool is_ideograph(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
  }

  bool cleans_;
  bool separates_;
  bool lowers_;
  bool strips_;
};

std::optional<NormalForm> form_called(std::string_view name) {
  if (name == "NFC") return NormalForm::NFC;
  if (name == "NFD") return NormalForm::NFD;
  if (name == "NFKC") return NormalForm::NFKC;
  if (name == "NFKD") return NormalForm::NFKD;
  return std::nullopt;
}

}  // namespace

std::unique_ptr<Normalizer> read_normalizer(const JsonRef& value) {
  if (value.is_null()) return nullptr;
  const std::string& type = component_type(value);
  if (type == "Sequence") return std::make_unique<SequenceNormalizer>(value);
  if (const auto form = form_called(type)) return std::make_unique<FormNormalizer>(*form);
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "Prepend") return std::make_unique<PrependNormalizer>(value);
  if (type == "Replace") return std::make_unique<ReplaceNormalizer>(value);
  if (type == "Strip") return std::make_unique<StripNormalizer>(value);
  if (type == "StripAccents") return std::make_unique<StripAccentsNormalizer>();
  if (type == "Nmt") return std::make_unique<NmtNormalizer>();
  if (type == "BertNormalizer") return std::make_unique<BertNormalizer>(value);
  if (type == "Precompiled") return read_precompiled(value);
  refuse_component(value, "normalizer", supported_normalizers);
}

}  // namespace anyaccel::llm
