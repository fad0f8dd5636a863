// Makes a tokenizer for models with random weights: every byte is a token, and the rest of the vocabulary is made of
// invented words, so that any output of such a model decodes to text.
#pragma once

#include <cstdint>
#include <iosfwd>

namespace anyaccel::llm {

constexpr int32_t made_up_bos_id = 0;
constexpr int32_t made_up_eos_id = 1;
// The number of two special tokens and the 256 bytes.
constexpr int64_t made_up_smallest_vocab = 258;

// Writes a tokenizer.json with vocab_size tokens, at least made_up_smallest_vocab and at most 500,000.
void write_made_up_tokenizer(std::ostream& out, int64_t vocab_size);

}  // namespace anyaccel::llm
