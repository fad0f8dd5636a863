// Tells whether the ranks of a group loaded the same model: on several hosts, one path may hold different files.
#pragma once

#include <string>

#include "anyaccel/llm/model.h"
#include "anyaccel/llm/safetensors.h"

namespace anyaccel::llm {

// Hashes what decides a model's text: the small files of its directory (configuration, tokenizer), the headers of its
// weights, a few bytes in the middle of tensors (at most 4,096 of them, so that a large model on a slow disk does not
// start much later), the adapters, and what the weights are converted to. Blocks. CheckpointError for a file that cannot be read.
// dtype: the model's.
std::string model_identity(const std::string& directory, const Checkpoint& checkpoint, DType dtype,
                           const LoadOptions& options);

// A collective call of the model's group. InvalidArgument, on every rank, that names two ranks with different identities.
void check_same_model(const Model& model);

}  // namespace anyaccel::llm
