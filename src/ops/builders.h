// The op builders of this folder.
#pragma once

#include <memory>

#include "anyaccel/op_builder.h"

namespace anyaccel::ops {

// "InferenceBuilder": loads ops::Inference. Every accelerator has it, because each op falls back to the CPU.
std::unique_ptr<OpBuilder> make_inference_builder(Accelerator& accelerator);

}  // namespace anyaccel::ops
