// Tells whether the ranks of a group loaded the same model: on several hosts, one path may hold different files.
#pragma once

#include <string>

#include "anyaccel/llm/model.h"
#include "anyaccel/llm/safetensors.h"

namespace anyaccel::llm {

// Hashes what decides a model's text: the small files of its directory (configuration, tokenizer), the headers of its
// weights, a few bytes in the middle of tensors (at most 4,096 of them, so that a large model on a slow disk does not
// start much later), and the adapters. Blocks. CheckpointError for a file that cannot be read.
std::string model_identity(const std::string& directory, const Checkpoint& checkpoint, const LoadOptions& options);

// A collective call of the model's group. InvalidArgument, on every rank, that names two ranks with different identities.
void check_same_model(const Model& model);

}  // namespace anyaccel::llm
