// Tells whether the ranks of a group loaded the same model: on several hosts, one path may hold different files.
#pragma once

#include <string>

#include "anyaccel/llm/model.h"
#include "anyaccel/llm/safetensors.h"

namespace anyaccel::llm {

// Returns hashes of what decides a model's text, one after another: of its configuration, of the tokenizer and the chat
// template, of the weights (the headers of their files and a few bytes in the middle of up to 512 tensors, so that a large
// model on a spinning disk does not start much later), of the adapters, and of the options that the weights are loaded with.
// Files that nothing reads do not count. Blocks. CheckpointError for a file that cannot be read. dtype: the model's.
std::string hash_loaded_model(const std::string& directory, const Checkpoint& checkpoint, DType dtype,
                              const LoadOptions& options);

// A collective call of the model's group. InvalidArgument, on every rank, that names two ranks whose hashes differ, and
// which of them do.
void check_same_model(const Model& model);

}  // namespace anyaccel::llm
