// Reads ANYACCEL_FALLBACK, which decides what happens to an op that the active accelerator lacks.
#pragma once

namespace anyaccel::ops {

// Returns true if running such an op on the CPU is forbidden. Throws InvalidArgument if the variable is neither "cpu"
// (the default) nor "error".
bool fallback_is_error();

}  // namespace anyaccel::ops
