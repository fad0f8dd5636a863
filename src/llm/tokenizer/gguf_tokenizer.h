// Builds the tokenizer that the keys of a GGUF file describe.
#pragma once

#include <filesystem>
#include <memory>

#include "anyaccel/llm/tokenizer.h"

namespace anyaccel::llm {

class GgufMetadata;  // llm/checkpoint/gguf.h

// Like Tokenizer::load, but for the keys of a GGUF file; errors name the key.
std::unique_ptr<Tokenizer> make_gguf_tokenizer(const GgufMetadata& metadata);
std::unique_ptr<Tokenizer> load_gguf_tokenizer(const std::filesystem::path& path);

}  // namespace anyaccel::llm
