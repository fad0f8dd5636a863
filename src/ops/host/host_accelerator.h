// The accelerator that stands for the host's own processor, whichever accelerator is active: ops that an accelerator
// lacks fall back to it, and host ops run on its threads.
#pragma once

#include <string>

#include "anyaccel/abi/op_library.h"
#include "anyaccel/accelerator.h"

namespace anyaccel::ops {

// Made on the first call, kept until the process ends. Thread-safe. Opens nothing by itself.
Accelerator& host_accelerator();

// The instruction set that host ops are compiled for: "avx512", "avx2", "baseline" (abi/host_code.h).
std::string host_target();

// The table of functions that a loaded library of host ops receives. Valid until the process ends.
const aa_op_services* op_services();

}  // namespace anyaccel::ops
