// Strided copies between arrays in host memory, with conversion between any two dtypes.
#pragma once

#include <cstdint>

#include "anyaccel/abi/base.h"

namespace anyaccel {

// The op "copy" of abi/ops.h on the host, on the calling thread. Shapes equal; the arrays do not overlap. Blocks.
void host_copy(const aa_tensor& out, const aa_tensor& in);

// Writes `value`, converted, to the one element at `out`.
void host_store(void* out, int32_t dtype, double value);

}  // namespace anyaccel
