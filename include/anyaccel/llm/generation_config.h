// What generation_config.json of a Hugging Face model directory says about choosing tokens. docs/generation.md lists what
// becomes of each of its fields.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/llm/token_rules.h"

namespace anyaccel::llm {

// Defaults are transformers'. An absent file means no value was set.
struct GenerationConfig {
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;
  bool do_sample = false;
  float temperature = 1.0f;  // 0: greedy
  int32_t top_k = 50;        // 0: all
  float top_p = 1.0f;
  float min_p = 0.0f;  // 0: all
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;   // not a field of transformers; OpenAI's definition
  float frequency_penalty = 0.0f;  // the same
  std::optional<int64_t> max_new_tokens;
  std::optional<int64_t> max_length;  // of prompt and answer; counts where max_new_tokens is not set
  std::vector<std::string> stop_strings;
  TokenRules rules;  // without eos_token_ids, max_new_tokens and max_length of its own

  // A line for each field of the file that would change the text and is ignored: what the field is and why.
  std::vector<std::string> warnings;
};

// Reads `dir`/generation_config.json. What it does not say about special tokens comes from config.json. Both files may
// be absent. Throws CheckpointError that names the file, the field, what was expected and what was found.
GenerationConfig load_generation_config(const std::filesystem::path& dir);
// The same for text; `source_name` stands for the file in errors and warnings.
GenerationConfig parse_generation_config(std::string_view json_text, std::string_view source_name);

}  // namespace anyaccel::llm
