// Declares the part of check_tensors() that works on files and does not depend on models.
#pragma once

#include <string>
#include <unordered_map>

#include "anyaccel/llm/check_tensors.h"
#include "anyaccel/llm/safetensors.h"

namespace anyaccel::llm {

struct TensorUse {
  DType dtype = DType::None;  // in which the model holds it
  bool may_be_zero = false;   // biases
};

// `uses` is keyed by the names in the files; the model does not use a tensor that is not in it. Only floating-point
// tensors are scanned.
TensorCheck scan_checkpoint(const Checkpoint& checkpoint, const std::unordered_map<std::string, TensorUse>& uses);

}  // namespace anyaccel::llm
