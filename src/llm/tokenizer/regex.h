// Searches UTF-8 text for the patterns of tokenizer files: literal texts and regular expressions, compiled once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace anyaccel::llm {

// A part of a text; all parts together cover the text.
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
  bool is_match = false;
};

// Limits the work of all patterns together on one text. A step is about one character that a pattern examines; the
// limit grows with the text, and patterns of real tokenizers need only a small part of it.
class PatternWork {
 public:
  explicit PatternWork(size_t text_bytes) { allow(text_bytes); }
  // Raises the limit for `bytes` more of text.
  void allow(size_t bytes) noexcept {
    text_bytes_ += bytes;
    limit_ += uint64_t{steps_per_byte} * bytes;
  }
  bool spend(uint64_t steps) noexcept {
    spent_ += steps;
    return spent_ <= limit_;
  }
  uint64_t spent() const noexcept { return spent_; }
  uint64_t limit() const noexcept { return limit_; }
  size_t text_bytes() const noexcept { return text_bytes_; }

  static constexpr uint64_t least_steps = 1 << 18;
  static constexpr uint64_t steps_per_byte = 256;

 private:
  size_t text_bytes_ = 0;
  uint64_t limit_ = least_steps;
  uint64_t spent_ = 0;
};

class TextPattern {
 public:
  // InvalidArgument for an empty text.
  static TextPattern literal(std::string text);
  // Compiles a regular expression in the dialect that Hugging Face tokenizers read (Oniguruma's, Ruby flavour).
  // InvalidArgument, with the reason, for one that is malformed, too long, or uses something that cannot be translated.
  static TextPattern regex(std::string_view pattern);

  // Returns the matches from left to right and the text between them. `text` is valid UTF-8. Any number of threads may
  // do this at once, each with a `work` of its own. CheckpointError, with the pattern and the position it reached, when
  // `work` reaches its limit.
  std::vector<TextSpan> spans(std::string_view text, PatternWork& work) const;

 private:
  struct Compiled;
  TextPattern() = default;
  std::optional<std::pair<size_t, size_t>> find(std::string_view text, size_t from, PatternWork& work) const;

  std::string literal_;
  std::shared_ptr<const Compiled> compiled_;
};

// Translates the pattern to PCRE2's syntax; for TextPattern and its tests. InvalidArgument as above.
std::string translate_regex(std::string_view pattern);

}  // namespace anyaccel::llm
