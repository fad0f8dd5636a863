// Derives a model's configuration from the keys and tensors of a GGUF file.
#pragma once

#include <filesystem>

#include "anyaccel/llm/model_config.h"

namespace anyaccel::llm {

// Like load_model_config(), but for a GGUF file; errors name the key or tensor.
ModelConfig load_gguf_config(const std::filesystem::path& path);

}  // namespace anyaccel::llm
