// Files that hold the keys and values of a prompt, so that a later run of the same model need not compute them again.
//
// The file: the line "anyaccel prompt cache 1", 8 bytes with the size of the header (little-endian), the header (JSON:
// "model", "tokens", "hash"), and the keys and values as Session::cache_contents() returns them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace anyaccel::llm {

struct PromptCache {
  std::vector<int32_t> tokens;
  std::string contents;  // their keys and values
};

// Returns a text that differs between models, dtypes and so on: `settings`, and a hash of the JSON files and of samples
// of the weights in a model's directory, or of a .gguf file; likewise of an adapter's directory, if that is not empty.
// Samples are 64 blocks of 4 KiB of each file, so that large files need not be read. CheckpointError for files that
// cannot be read.
std::string model_identity(const std::string& directory, const std::string& adapter, std::string_view settings);

// These throw CheckpointError, with what to do, for a file that is no prompt cache, is damaged, belongs to another model
// (`identity`), has other keys and values than `token_bytes` for each token, or cannot be read or written. An existing
// file is replaced as a whole, or stays as it is.
PromptCache parse_prompt_cache(std::string_view bytes, const std::string& source, std::string_view identity,
                               uint64_t token_bytes);
// Returns nothing if there is no file.
std::optional<PromptCache> read_prompt_cache(const std::string& path, std::string_view identity, uint64_t token_bytes);
void write_prompt_cache(const std::string& path, const PromptCache& cache, std::string_view identity);

}  // namespace anyaccel::llm
