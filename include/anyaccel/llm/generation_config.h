// Reads generation_config.json of a Hugging Face model directory: the settings for choosing tokens. docs/generation.md
// lists how each field is handled.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/llm/beam_settings.h"
#include "anyaccel/llm/token_rules.h"

namespace anyaccel::llm {

// The defaults are those of transformers. Without a file all values are the defaults.
struct GenerationConfig {
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;
  bool do_sample = false;
  float temperature = 1.0f;  // 0: greedy
  int32_t top_k = 50;        // 0: all
  float top_p = 1.0f;
  float min_p = 0.0f;      // 0: all
  float typical_p = 1.0f;  // 1: all
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;   // not a field of transformers; OpenAI's definition
  float frequency_penalty = 0.0f;  // the same
  std::optional<int64_t> max_new_tokens;
  std::optional<int64_t> max_length;  // of prompt and answer together; used if max_new_tokens is not set
  std::vector<std::string> stop_strings;
  // Settings for GenerateOptions::beams, which default_options() leaves empty. The number of beams stays 1: the file's
  // num_beams has no effect.
  BeamSettings beams;
  TokenRules rules;  // its eos_token_ids, max_new_tokens and max_length are not set

  // One line for each field of the file that would change the text but is ignored, with the reason, and for each end
  // token that the model's vocabulary does not have.
  std::vector<std::string> warnings;
};

// Reads `dir`/generation_config.json. Special tokens that it does not define are taken from config.json. Both files may
// be absent. Throws CheckpointError that names the file, the field, what was expected and what was found.
GenerationConfig load_generation_config(const std::filesystem::path& dir);
// The same, from text; errors and warnings use `source_name` as the file's name.
GenerationConfig parse_generation_config(std::string_view json_text, std::string_view source_name);

}  // namespace anyaccel::llm
