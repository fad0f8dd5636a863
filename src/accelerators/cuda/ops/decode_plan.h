// Plans a product of few rows for kernels/cuda/decode_products.h: the kernel, the number of blocks, the share of each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace anyaccel::cuda {

using aa_i32 = int32_t;
using aa_i64 = int64_t;
#include "kernels/cuda/decode_arguments.h"

// The kernels of each file, in order of preference: the rows of x that they are made for, and the loads of weights that
// a thread has in flight.
struct DecodeKernel {
  int rows, loads;
};
inline constexpr std::array<DecodeKernel, 5> decode_kernels = {{{1, 12}, {1, 4}, {2, 4}, {4, 4}, {AA_DECODE_ROWS, 4}}};
// The part of a kernel's name and options that identifies it: decode_linear_112_bf16, -DAA_SHAPE=112.
constexpr int decode_shape(size_t kernel) { return decode_kernels[kernel].rows * 100 + decode_kernels[kernel].loads; }
// Rows of weights in a unit of decode_linear.cu and decode_multi.cu with m rows of x; the other files have 2.
constexpr int decode_linear_unit(int64_t m) { return m <= 1 ? 1 : 2; }

struct DecodePlan {
  size_t kernel;  // in decode_kernels
  aa_decode_x x;  // the members that depend on m and k only are filled in
  int64_t blocks;
  int64_t shared_bytes;
};

// The kernel for m rows of x and weights of `w_size` bytes, whose blocks need no more than `shared_limit` bytes of shared
// memory; none: too many rows, or too long ones.
std::optional<size_t> decode_kernel_for(int64_t m, int64_t k, int w_size, int unit, int64_t shared_limit);
// `kernel` by decode_kernel_for; m, k and units at least 1.
DecodePlan decode_plan(size_t kernel, int64_t m, int64_t k, int w_size, int64_t units, int unit, int multiprocessors);

}  // namespace anyaccel::cuda
