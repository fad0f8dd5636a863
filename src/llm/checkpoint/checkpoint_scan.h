// The part of check_tensors() that works on files, independent of models.
#pragma once

#include <string>
#include <unordered_map>

#include "anyaccel/llm/check_tensors.h"
#include "anyaccel/llm/safetensors.h"

namespace anyaccel::llm {

struct TensorUse {
  DType dtype = DType::None;  // that the model holds it in
  bool may_be_zero = false;   // biases
};

// `uses`: keyed by the names in the files; a tensor that is not in it is not used by the model. Floating-point tensors
// only.
TensorCheck scan_checkpoint(const Checkpoint& checkpoint, const std::unordered_map<std::string, TensorUse>& uses);

}  // namespace anyaccel::llm
