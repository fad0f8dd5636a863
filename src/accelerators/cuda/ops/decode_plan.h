// How a product of few rows is cut for kernels/cuda/decode_products.h: which kernel, how many blocks, what each of them takes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace anyaccel::cuda {

using aa_i32 = int32_t;
using aa_i64 = int64_t;
#include "kernels/cuda/decode_arguments.h"

// Rows of x that there are kernels for.
inline constexpr std::array<int, 4> decode_kernel_rows = {1, 2, 4, AA_DECODE_ROWS};
// Rows of weights in a unit of decode_linear.cu and decode_multi.cu with m rows of x; the other files have 2.
constexpr int decode_linear_unit(int64_t m) { return m <= 1 ? 1 : 2; }

struct DecodePlan {
  size_t kernel;  // in decode_kernel_rows
  aa_decode_x x;  // what does not depend on tensors but by m and k is filled
  int64_t blocks;
  int64_t shared_bytes;
};

// Shared memory of a block; m at most AA_DECODE_ROWS, weights of `w_size` bytes.
int64_t decode_shared_bytes(int64_t m, int64_t k, int w_size, int unit);
// m, k and units at least 1.
DecodePlan decode_plan(int64_t m, int64_t k, int w_size, int64_t units, int unit, int multiprocessors);

}  // namespace anyaccel::cuda
