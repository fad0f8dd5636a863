// Writes the tokenizer.json of models with random weights.
#include "llm/tokenizer/byte_tokenizer.h"

#include <ostream>
#include <string>
#include <string_view>

namespace anyaccel::llm {

namespace {

constexpr std::string_view special_template =
    R"("single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true)";

// Returns GPT-2's letter for a byte, in UTF-8: the byte itself if it is printable, else one of the characters from
// U+0100 on.
std::string byte_letter(int byte) {
  static const auto printable = [](int b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
  };
  int code_point = byte;
  if (!printable(byte)) {
    code_point = 256;
    for (int b = 0; b < byte; ++b) code_point += printable(b) ? 0 : 1;
  }
  if (code_point < 0x80) {
    const char letter = static_cast<char>(code_point);
    return letter == '"' || letter == '\\' ? std::string("\\") + letter : std::string(1, letter);
  }
  return {static_cast<char>(0xc0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 0x3f))};
}

// Returns a space and a word of two or three syllables; each number has its own word.
std::string word(int64_t number) {
  constexpr std::string_view consonants = "bdfghjklmnprstvz";
  constexpr std::string_view vowels = "aeiou";
  constexpr int64_t syllables = static_cast<int64_t>(consonants.size() * vowels.size());
  const bool short_word = number < syllables * syllables;
  if (!short_word) number -= syllables * syllables;
  std::string text = byte_letter(' ');
  for (int i = 0; i < (short_word ? 2 : 3); ++i) {
    const auto syllable = static_cast<size_t>(number % syllables);
    text += consonants[syllable % consonants.size()];
    text += vowels[syllable / consonants.size()];
    number /= syllables;
  }
  return text;
}

}  // namespace

void write_made_up_tokenizer(std::ostream& out, int64_t vocab_size) {
  out << "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [\n"
      << "    {\"id\": " << made_up_bos_id << ", \"content\": \"<|begin_of_text|>\", " << special_template << "},\n"
      << "    {\"id\": " << made_up_eos_id << ", \"content\": \"<|end_of_text|>\", " << special_template << "}\n  ],\n"
      << R"(  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "post_processor": {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {
      "<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [0], "tokens": ["<|begin_of_text|>"]}
    }
  },
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
  "model": {
    "type": "BPE",
    "dropout": null,
    "unk_token": null,
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,
    "fuse_unk": false,
    "byte_fallback": false,
    "ignore_merges": false,
    "vocab": {
      "<|begin_of_text|>": 0,
      "<|end_of_text|>": 1)";
  for (int64_t id = 2; id < vocab_size; ++id) {
    const std::string text =
        id < made_up_smallest_vocab ? byte_letter(static_cast<int>(id - 2)) : word(id - made_up_smallest_vocab);
    out << ",\n      \"" << text << "\": " << id;
  }
  out << "\n    },\n    \"merges\": []\n  }\n}\n";
}

}  // namespace anyaccel::llm
