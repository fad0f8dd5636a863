// Declares the steps of a tokenizer.json around its model: normalizers, pre-tokenizers, post-processors and the pieces
// of text that they process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json.h"
#include "llm/tokenizer/regex.h"

namespace anyaccel::llm {

// A part of a text that is being tokenized.
struct TextPiece {
  std::string text;
  bool at_start = false;  // it is the beginning of the text
  int32_t token = -1;     // an added token that was found; `text` is then unused
};

class Normalizer {
 public:
  Normalizer() = default;
  virtual ~Normalizer() = default;
  Normalizer(const Normalizer&) = delete;
  Normalizer& operator=(const Normalizer&) = delete;
  virtual std::string apply(std::string text, PatternWork& work) const = 0;
};
// Returns null for null. CheckpointError for an unknown type, naming the supported ones.
std::unique_ptr<Normalizer> read_normalizer(const JsonRef& value);

class PreTokenizer {
 public:
  PreTokenizer() = default;
  virtual ~PreTokenizer() = default;
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;
  // Splits and changes the pieces that are not tokens.
  virtual void apply(std::vector<TextPiece>& pieces, PatternWork& work) const = 0;
};
std::unique_ptr<PreTokenizer> read_pre_tokenizer(const JsonRef& value);

// Adds the model's special tokens around a text.
class PostProcessor {
 public:
  PostProcessor() = default;
  virtual ~PostProcessor() = default;
  PostProcessor(const PostProcessor&) = delete;
  PostProcessor& operator=(const PostProcessor&) = delete;
  virtual void apply(std::vector<int32_t>& ids, bool add_special) const = 0;
};
// `max_id` is the largest id that the template may have.
std::unique_ptr<PostProcessor> read_post_processor(const JsonRef& value, int64_t max_id);

// Puts `before` and `after` around a text when special tokens are requested.
std::unique_ptr<PostProcessor> make_template(std::vector<int32_t> before, std::vector<int32_t> after);

// Reads {"String": ...} or {"Regex": ...}.
TextPattern read_pattern(const JsonRef& value);
// Reads a text of exactly one character.
std::string read_character(const JsonRef& value);
// Returns the "type" of a component.
const std::string& component_type(const JsonRef& value);
// Throws InvalidArgument for a text of more than 1 GiB, whose tokens might not fit 32-bit counts.
void check_text_size(std::string_view text);

// Throws CheckpointError: the <kind> "<type>" is not supported; supported are <supported>.
[[noreturn]] void refuse_component(const JsonRef& value, std::string_view kind, std::string_view supported);

// Throws CheckpointError if a step expanded `from` bytes to an amount of text that only a malicious file causes.
void check_growth(size_t from, size_t to);

// Convert between bytes and GPT-2's printable characters for them (https://github.com/openai/gpt-2, encoder.py): the
// text of a byte, and the byte of a character or -1.
std::string_view byte_text(unsigned char byte) noexcept;
int byte_of_character(char32_t c) noexcept;

}  // namespace anyaccel::llm
