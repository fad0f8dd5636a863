// ANYACCEL_FALLBACK: what happens to an op that the active accelerator lacks.
#pragma once

namespace anyaccel::ops {

// True when running it on the CPU is forbidden. Throws InvalidArgument when the variable is neither "cpu" (the default)
// nor "error".
bool fallback_is_error();

}  // namespace anyaccel::ops
