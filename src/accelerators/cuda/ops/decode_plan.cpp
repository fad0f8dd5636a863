// See decode_plan.h.
#include "accelerators/cuda/ops/decode_plan.h"

#include <algorithm>

namespace anyaccel::cuda {
namespace {

// A block is not worth its start for less than this many bytes of weights.
constexpr int64_t least_block_bytes = 16384;
// What a warp asks for while the kernel before ends: 128 KiB a multiprocessor, which is what a memory of 4 TB/s brings in 4
// microseconds; over all multiprocessors a third of the second-level cache of an H100.
constexpr int64_t prefetch_bytes = 8192;
constexpr int most_split_bits = 4;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

size_t kernel_for(int64_t m) {
  size_t kernel = 0;
  while (decode_kernel_rows[kernel] < m) ++kernel;
  return kernel;
}
int64_t steps_of(int rows, int64_t k, int w_size, int unit) {
  return ceil_div(k, int64_t{32} * AA_DECODE_STEP(rows, unit) * (16 / w_size));
}

}  // namespace

int64_t decode_shared_bytes(int64_t m, int64_t k, int w_size, int unit) {
  const int rows = decode_kernel_rows[kernel_for(m)];
  const int64_t groups = steps_of(rows, k, w_size, unit) * AA_DECODE_STEP(rows, unit);
  const int64_t quads = 4 / w_size;
  const int64_t floats = int64_t{AA_DECODE_WARPS} * rows * 4;
  return groups * rows * quads * 512 + floats * (4 + 4 + 1 + 2 * unit);  // tokens, inputs, squares, partial sums twice
}

DecodePlan decode_plan(int64_t m, int64_t k, int w_size, int64_t units, int unit, int multiprocessors) {
  DecodePlan plan{};
  plan.kernel = kernel_for(m);
  plan.x.m = static_cast<int32_t>(m);
  plan.x.rows = decode_kernel_rows[plan.kernel];
  plan.x.k = static_cast<int32_t>(k);
  plan.x.inverse_k = 1.0f / static_cast<float>(k);
  plan.x.steps = static_cast<int32_t>(steps_of(plan.x.rows, k, w_size, unit));

  const int64_t row_bytes = k * w_size;
  const int64_t worth = ceil_div(units * unit * row_bytes, least_block_bytes);
  plan.blocks = std::min({int64_t{multiprocessors}, units, worth});
  const int64_t most = ceil_div(units, plan.blocks);  // units of a block
  int& bits = plan.x.split_bits;
  while (bits < most_split_bits && most << (bits + 1) <= AA_DECODE_WARPS && plan.x.steps >> (bits + 1) > 0) ++bits;
  plan.x.units_each = static_cast<int32_t>(units / plan.blocks);
  plan.x.units_more = static_cast<int32_t>(units % plan.blocks);

  const int64_t share = std::max<int64_t>(row_bytes >> bits, 1);
  plan.x.prefetch_bytes = static_cast<int32_t>(std::min(prefetch_bytes / unit, share));
  plan.x.prefetch_units = static_cast<int32_t>(std::max<int64_t>(prefetch_bytes / unit / share, 1));
  plan.shared_bytes = decode_shared_bytes(m, k, w_size, unit);
  return plan;
}

}  // namespace anyaccel::cuda
