// Patterns of tokenizer files: literal texts and regular expressions, compiled once, found in UTF-8 text.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace anyaccel::llm {

// A part of a text: all parts together cover it.
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
  bool is_match = false;
};

class TextPattern {
 public:
  // InvalidArgument for an empty text.
  static TextPattern literal(std::string text);
  // A regular expression in the dialect that Hugging Face tokenizers read (Oniguruma's, Ruby flavour). InvalidArgument
  // with the reason for one that is malformed, too long, or uses something that cannot be translated.
  static TextPattern regex(std::string_view pattern);

  // The matches from left to right and what lies between them. `text` is valid UTF-8. Any number of threads may do this
  // at once. CheckpointError when the pattern needs too many steps.
  std::vector<TextSpan> spans(std::string_view text) const;

 private:
  struct Compiled;
  TextPattern() = default;
  std::optional<std::pair<size_t, size_t>> find(std::string_view text, size_t from) const;

  std::string literal_;
  std::shared_ptr<const Compiled> compiled_;
};

// The pattern as PCRE2 reads it; for TextPattern and its tests. InvalidArgument as above.
std::string translate_regex(std::string_view pattern);

}  // namespace anyaccel::llm
