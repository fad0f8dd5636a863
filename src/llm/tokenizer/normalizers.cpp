// Implements the normalizers of tokenizer.json.
#include <optional>

#include "base/text/utf8.h"
#include "llm/tokenizer/components.h"
#include "llm/tokenizer/unicode.h"

namespace anyaccel::llm {
namespace {

constexpr std::string_view supported_normalizers =
    "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, StripAccents";

class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(const JsonRef& value) {
    const JsonRef list = value.at("normalizers");
    if (!list.is_array()) list.fail("a list");
    for (size_t i = 0; i < list.size(); ++i) steps_.push_back(read_normalizer(list[i]));
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
  refuse_component(value, "normalizer", supported_normalizers);
}

}  // namespace anyaccel::llm
