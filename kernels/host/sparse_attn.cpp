// The kernels of kernels/portable behind ops::SparseAttn, compiled for the host's processor, and one that is for the host only.
#include "portable_language.h"
// After portable_language.h
#include "../portable/block_sparse.cl"
#include "../portable/dense.cl"

// The gradients of a row of blocks, while the caches have it: ds = y * (dy - sum of y * dy) * scale with dy = dout v^T, and
// dq = ds k. A group has a row of blocks. ds has the blocks s.first_block .. s.first_block + s.block_count - 1 of each z, and y,
// the weights, all `blocks` of them.
AA_KERNEL(sparse_rows_backward, 1)
(AA_OUT(float) ds, AA_IN(float) y, AA_VALUE(aa_i64) blocks, AA_IN(float) dout, AA_IN(float) v,
 AA_VALUE(aa_sparse_sdd) dy, AA_OUT(float) dq, AA_IN(float) k, AA_VALUE(aa_sparse_dsd) product, AA_IN(aa_i32) begins,
 AA_IN(aa_i32) entries, AA_VALUE(aa_sparse_rows) s) {
  const aa_i64 list = s.first_list + AA_GROUP_ID(0) % s.list_count;
  const aa_i64 z = AA_GROUP_ID(0) / s.list_count;
  const aa_i64 begin = begins[list];
  const aa_i64 end = begins[list + 1];
  const aa_i64 matrix = z * s.heads + list / s.lists_per_head;
  const aa_i64 row = list % s.lists_per_head;
  const aa_i64 scores = s.block * s.block; /* of a block */
  const aa_i64 z_at = z * s.block_count * scores;
  for (aa_i64 e = begin; e < end; ++e) {
    const aa_i64 out_at = z_at + (entries[2 * e + 1] - s.first_block) * scores;
    const aa_i64 a_at = matrix * dy.a_matrix + row * s.block * dy.a_row;
    const aa_i64 block_panels = dy.panels_per_block * dy.b.panel;
    const aa_i64 b_at = matrix * dy.b.matrix + entries[2 * e] * block_panels;
    if (e + 1 < end) {
      const float* const next = v + matrix * dy.b.matrix + entries[2 * e + 2] * block_panels;
      for (aa_i64 i = 0; i < block_panels; i += AA_WIDE) AA_PREFETCH(next + i);
    }
#define AA_TILE(rows, wides, r, p) aa_sdd_tile(rows, wides, ds, dout, v, dy, out_at, a_at, b_at, r, p)
    AA_EACH_TILE(AA_TILE, 0, s.block, 0, dy.panels_per_block)
#undef AA_TILE
  }
  // Where y has the blocks of ds.
  const float* const weights = y + (z * (blocks - s.block_count) + s.first_block) * scores;
  // Some rows of one block after another, in the order in which the blocks lie in memory.
  constexpr aa_i64 at_once = 16;
  for (aa_i64 first = 0; first < s.block; first += at_once) {
    const aa_i64 rows = s.block - first < at_once ? s.block - first : at_once;
    aa_running sums[at_once];
    float dots[at_once];
    for (aa_i64 r = 0; r < rows; ++r) sums[r] = aa_running_from(0.0f);
    for (aa_i64 e = begin; e < end; ++e) {
      aa_i64 at = z_at + (entries[2 * e + 1] - s.first_block) * scores + first * s.block;
      for (aa_i64 r = 0; r < rows; ++r, at += s.block) {
        aa_i64 j = 0;
        for (; j + AA_PIECE <= s.block; j += AA_PIECE) sums[r] = aa_running_dot(sums[r], weights, ds, at + j, AA_PIECE);
        if (j < s.block) sums[r] = aa_running_dot(sums[r], weights, ds, at + j, s.block - j);
      }
    }
    for (aa_i64 r = 0; r < rows; ++r) dots[r] = aa_total_sum(sums[r]);
    for (aa_i64 e = begin; e < end; ++e) {
      aa_i64 at = z_at + (entries[2 * e + 1] - s.first_block) * scores + first * s.block;
      for (aa_i64 r = 0; r < rows; ++r, at += s.block) {
        using namespace anyaccel::op;
        aa_i64 j = 0;
        for (; j + Vec::width <= s.block; j += Vec::width) {
          store(ds + at + j, load(weights + at + j) * (load(ds + at + j) - Vec(dots[r])) * Vec(s.scale));
        }
        if (j < s.block) aa_gradient_piece(s.block - j, weights, ds, at + j, dots[r], s.scale);
      }
    }
  }
  const aa_i64 dq_at = matrix * product.out_matrix + row * s.block * product.columns;
  const aa_i64 k_at = matrix * product.b.matrix;
  const aa_i64 panels = (product.columns + AA_WIDE - 1) / AA_WIDE;
  aa_dsd_rows(dq, ds, k, begins, entries, product, list, dq_at, z_at, k_at, 0, s.block, 0, panels);
}
AA_REGISTER(sparse_rows_backward, 1)
