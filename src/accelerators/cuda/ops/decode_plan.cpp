// Implements decode_plan.h: divides a product of few rows for kernels/cuda/decode_products.h.
#include "accelerators/cuda/ops/decode_plan.h"

#include <algorithm>

namespace anyaccel::cuda {
namespace {

// Starting a block does not pay for fewer bytes of weights than this.
constexpr int64_t least_block_bytes = 16384;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t groups_of(int64_t k, int w_size) { return ceil_div(k * w_size, 512); }

// Properties of a kernel; decode_products.h explains them.
int64_t shared_bytes_of(const DecodeKernel& kernel, int64_t k, int w_size, int unit) {
  const int64_t quads = 4 / w_size;
  const int64_t floats = int64_t{AA_DECODE_WARPS} * kernel.rows * (1 + 2 * unit);  // squares, parts of units twice
  return AA_DECODE_RING_BYTES(kernel.loads) + groups_of(k, w_size) * kernel.rows * quads * 512 + floats * 4;
}

}  // namespace

std::optional<size_t> decode_kernel_for(int64_t m, int64_t k, int w_size, int unit, int64_t shared_limit) {
  for (size_t i = 0; i < decode_kernels.size(); ++i) {
    const DecodeKernel& kernel = decode_kernels[i];
    if (kernel.rows >= m && shared_bytes_of(kernel, k, w_size, unit) <= shared_limit) return i;
  }
  return std::nullopt;
}

DecodePlan decode_plan(size_t kernel, int64_t m, int64_t k, int w_size, int64_t units, int unit, int multiprocessors) {
  DecodePlan plan{};
  plan.kernel = kernel;
  plan.x.m = static_cast<int32_t>(m);
  plan.x.rows = decode_kernels[kernel].rows;
  plan.x.k = static_cast<int32_t>(k);
  plan.x.inverse_k = 1.0f / static_cast<float>(k);
  plan.x.groups = static_cast<int32_t>(groups_of(k, w_size));

  const int64_t worth = ceil_div(units * unit * k * w_size, least_block_bytes);
  plan.blocks = std::min({int64_t{multiprocessors}, units, worth});
  plan.x.units_each = static_cast<int32_t>(units / plan.blocks);
  plan.x.units_more = static_cast<int32_t>(units % plan.blocks);
  plan.shared_bytes = shared_bytes_of(decode_kernels[kernel], k, w_size, unit);
  return plan;
}

}  // namespace anyaccel::cuda
