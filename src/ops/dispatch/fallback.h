// What happens to an op that the active accelerator lacks: ANYACCEL_FALLBACK decides, and a graph cannot record it.
#pragma once

#include <string>

#include "anyaccel/accelerator.h"

namespace anyaccel::ops {

// Returns true if running such an op on the CPU is forbidden. Throws InvalidArgument if the variable is neither "cpu"
// (the default) nor "error".
bool fallback_is_error();

// Throws InvalidArgument, which names the op, if the current stream of the device captures a graph: what runs on the host
// cannot be recorded.
void check_not_capturing(Accelerator& accelerator, int device, const std::string& op_name);

}  // namespace anyaccel::ops
