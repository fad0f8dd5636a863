// Describes a model of a Hugging Face directory by the keys of a GGUF file: the inverse of config/gguf_config.h and
// tokenizer/gguf_tokenizer.h.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "anyaccel/llm/model_config.h"
#include "anyaccel/llm/tokenizer.h"
#include "llm/checkpoint/gguf_file_writer.h"

namespace anyaccel::llm {

// Adds the keys of the architecture, and returns the configuration that a reader of the file derives from them and from its
// tensors: those of decoder_tensors() for the result. If its rope_interleaved is set and that of `config` is not, the file has
// the rows of each head of queries and keys as pairs. CheckpointError, naming the setting and `source`, for a model that such
// a file cannot describe.
ModelConfig add_model_keys(const ModelConfig& config, const std::string& source, GgufKeys& keys);

// CheckpointError, as above, unless `described` computes what `config` does. The order of rows and the form in which files
// have the weights may differ.
void check_describes(const ModelConfig& config, const ModelConfig& described, const std::string& architecture,
                     const std::string& source);

// The factors in rope_freqs.weight or, for longrope, in rope_factors_short.weight and rope_factors_long.weight. Other
// types of rope have none.
struct RopeTensor {
  std::string name;
  std::vector<float> factors;
};
std::vector<RopeTensor> rope_tensors(const ModelConfig& config);

// Adds the keys of the tokenizer, with exactly config.vocab_size tokens, and the chat template if there is one.
// CheckpointError for a tokenizer that such keys cannot describe, and if the tokenizer that they describe gives
// different ids for a few thousand words of many scripts than the directory's own. If only the directory's normalizes a text
// to Unicode's form NFC, which no key says, that becomes one of `notes`.
void add_tokenizer_keys(const std::filesystem::path& directory, const Tokenizer& tokenizer, const ModelConfig& config,
                        GgufKeys& keys, std::vector<std::string>& notes);

}  // namespace anyaccel::llm
