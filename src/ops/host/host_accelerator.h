// Provides the accelerator that represents the host's own processor, whichever accelerator is active: ops that an
// accelerator lacks fall back to it, and host ops run on its threads.
#pragma once

#include <string>

#include "anyaccel/abi/op_library.h"
#include "anyaccel/accelerator.h"

namespace anyaccel::ops {

// Created on the first call, and kept until the process ends. Thread-safe. Does not open the accelerator.
Accelerator& host_accelerator();

// Returns the instruction set for which host ops are compiled: "avx512", "avx2" or "baseline" (abi/host_code.h).
std::string host_target();

// Returns the table of functions that a loaded library of host ops receives. Valid until the process ends.
const aa_op_services* op_services();

}  // namespace anyaccel::ops
