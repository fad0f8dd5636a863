// Implements linear_plan.h.
#include "ops/portable/linear_plan.h"

#include <algorithm>

namespace anyaccel::ops::portable {
namespace {

// The size of a block of rows of x, which stays in the second-level cache of a CPU core while rows of w stream through.
// With a prompt, a GPU's group should take less, so that there are enough groups.
constexpr int64_t block_bytes = 1 << 20;
constexpr int64_t largest_block = AA_LARGEST_BLOCK;
// The number of tiles of w that share such a block.
constexpr int64_t block_tiles = 4;
// With fewer rows of x, most of a shared tile would be empty.
constexpr int64_t shared_rows = 9;

}  // namespace

LinearPlan plan_linear(const aa_kernel_tuning& tuning, const aa_tensor& x, bool by_row) {
  const int64_t m = x.shape[0];
  const int64_t k = x.shape[1];
  LinearPlan plan{};
  plan.x = {m, k, x.strides[0], x.strides[1], std::min(m, largest_block), 1};
  plan.shape.block[0] = static_cast<uint32_t>(tuning.group_size);
  if (!by_row && tuning.group_size > 1 && m >= shared_rows &&
      tuning.local_memory >= AA_SHARED_BYTES(tuning.group_size)) {
    plan.form = shared;
    plan.width = AA_SHARED_N(tuning.group_size);
    plan.shape.grid[1] = groups_for(m, AA_SHARED_M(tuning.group_size));
    return plan;
  }
  plan.form = m == 1 && !by_row ? rows1 : rows4;
  if (m > AA_TILE_M * 2) {
    const int64_t fitting = block_bytes / (std::max<int64_t>(k, 1) * static_cast<int64_t>(sizeof(float)));
    plan.x.block = std::clamp(fitting / AA_TILE_M * AA_TILE_M, int64_t{AA_TILE_M} * 2, largest_block);
    if (tuning.group_size == 1) plan.x.tiles = block_tiles;
  }
  plan.width = plan.x.tiles * AA_TILE_N * (tuning.group_size / tuning.lanes);
  plan.shape.grid[1] = groups_for(m, plan.x.block);
  return plan;
}

aa_linear_part part_of(const aa_tensor& x, const aa_tensor& out, const aa_tensor& w, const aa_tensor& bias) {
  aa_linear_part part{};
  part.n = w.shape[0];
  part.w_row = w.strides[0];
  part.w_inner = w.strides[1];
  part.contiguous = x.strides[1] == 1 && w.strides[1] == 1;
  part.out_row = out.strides[0];
  part.out_inner = out.strides[1];
  part.out_dtype = out.dtype;
  part.bias_dtype = bias.dtype;
  if (bias.dtype != AA_DTYPE_NONE) part.bias_inner = bias.strides[0];
  return part;
}

aa_linear_residual residual_of(const aa_tensor& residual) {
  aa_linear_residual of{};
  of.dtype = residual.dtype;
  if (residual.dtype != AA_DTYPE_NONE) {
    of.row = residual.strides[0];
    of.inner = residual.strides[1];
  }
  return of;
}

}  // namespace anyaccel::ops::portable
