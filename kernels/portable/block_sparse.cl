// Products and softmax of matrices of which only some square blocks exist (anyaccel/ops/sparse_attn.h). A layout's blocks are
// numbered by head, row and column; `places` has each block's head, row and column, and a list is the blocks of a row (or, for
// a transposed operand, of a column) of one head: begins[list] .. begins[list + 1] of `entries`, pairs of the other coordinate
// and the block's number.
#include "dialect.h"
#include "dense_arguments.h"
#include "block_sparse_arguments.h"
#include "products.h"
#include "pieces.h"

// Rows r .. r + rows - 1 of a block of a times b, panel p (and the next one).
AA_FN void aa_sdd_tile(const int rows, const int wides, AA_OUT(float) out, AA_IN(float) a, AA_IN(float) b, aa_sparse_sdd s,
                       aa_i64 out_at, aa_i64 a_at, aa_i64 b_at, aa_i64 r, aa_i64 p) {
  aa_wide sums[AA_TILE_ROWS * AA_TILE_WIDES];
  AA_PRAGMA_UNROLL for (int i = 0; i < rows * wides; ++i) sums[i] = aa_wide_all(0.0f);
  aa_tile_add(rows, wides, sums, a, a_at + r * s.a_row, s.a_row, s.a_inner, b, b_at + p * s.b.panel, s.b.panel, s.b.row,
              s.inner);
  AA_PRAGMA_UNROLL for (int i = 0; i < rows; ++i) {
    AA_PRAGMA_UNROLL for (int w = 0; w < wides; ++w) {
      const aa_i64 column = (p + w) * AA_WIDE;
      aa_tile_store(out, out_at + (r + i) * s.block + column, sums[i * wides + w], s.block - column);
    }
  }
}

AA_KERNEL(sparse_sdd, AA_ITEMS)
(AA_OUT(float) out, AA_IN(float) a, AA_IN(float) b, AA_IN(aa_i32) places, AA_VALUE(aa_sparse_sdd) s) {
  const aa_i64 item = AA_ITEM_ID;
  if (item < s.batch * s.count * s.split) {
    const aa_i64 share = item % s.split;
    const aa_i64 n = item / s.split % s.count;
    const aa_i64 z = item / s.split / s.count;
    const aa_i64 head = places[3 * (s.first + n)];
    const aa_i64 row = places[3 * (s.first + n) + 1];
    const aa_i64 column = places[3 * (s.first + n) + 2];
    const aa_i64 matrix = z * s.heads + head;
    const aa_i64 a_at = matrix * s.a_matrix + row * s.block * s.a_row;
    const aa_i64 b_at = matrix * s.b.matrix + column * s.panels_per_block * s.b.panel;
    const aa_i64 out_at = (z * s.count + n) * s.block * s.block;
    const aa_i64 alone = s.split == 1;
    const aa_i64 r_begin = alone ? 0 : share / s.panels_per_block * AA_ITEM_ROWS;
    const aa_i64 r_limit = alone ? s.block : r_begin + AA_ITEM_ROWS;
    const aa_i64 r_end = r_limit < s.block ? r_limit : s.block;
    const aa_i64 p_begin = alone ? 0 : share % s.panels_per_block;
    const aa_i64 p_end = alone ? s.panels_per_block : p_begin + 1;
#define AA_TILE(rows, wides, r, p) aa_sdd_tile(rows, wides, out, a, b, s, out_at, a_at, b_at, r, p)
    AA_EACH_TILE(AA_TILE, r_begin, r_end, p_begin, p_end)
#undef AA_TILE
  }
}
AA_REGISTER(sparse_sdd, AA_ITEMS)

// Rows r .. r + rows - 1 of a list's row of blocks times b, panel p (and the next one): the entries first .. end - 1 of the list.
// With `add`, for whole panels only, they are added to what out has.
AA_FN void aa_dsd_tile(const int rows, const int wides, AA_OUT(float) out, AA_IN(float) a, AA_IN(float) b,
                       AA_IN(aa_i32) entries, aa_sparse_dsd s, aa_i64 first, aa_i64 end, aa_i64 add, aa_i64 out_at,
                       aa_i64 a_at, aa_i64 b_at, aa_i64 r, aa_i64 p) {
  aa_wide sums[AA_TILE_ROWS * AA_TILE_WIDES];
  AA_PRAGMA_UNROLL for (int i = 0; i < rows; ++i) {
    AA_PRAGMA_UNROLL for (int w = 0; w < wides; ++w) {
      sums[i * wides + w] =
          add ? AA_LOAD_WIDE(f32, out, out_at + (r + i) * s.columns + (p + w) * AA_WIDE) : aa_wide_all(0.0f);
    }
  }
  for (aa_i64 e = first; e < end; ++e) {
    const aa_i64 b_row = (aa_i64)entries[2 * e] * s.block;
    const aa_i64 n = entries[2 * e + 1] - s.first_block;
    aa_tile_add(rows, wides, sums, a, a_at + n * s.block * s.block + r * s.a_row, s.a_row, s.a_inner, b,
                b_at + p * s.b.panel + b_row * s.b.row, s.b.panel, s.b.row, s.block);
  }
  AA_PRAGMA_UNROLL for (int i = 0; i < rows; ++i) {
    AA_PRAGMA_UNROLL for (int w = 0; w < wides; ++w) {
      const aa_i64 column = (p + w) * AA_WIDE;
      aa_tile_store(out, out_at + (r + i) * s.columns + column, sums[i * wides + w], s.columns - column);
    }
  }
}

// Rows r_begin .. r_end - 1 of a list's row of blocks times the panels p_begin .. p_end - 1 of b. Where items do whole rows,
// AA_PREFETCH(pointer) may begin to load a cache line.
AA_FN void aa_dsd_rows(AA_OUT(float) out, AA_IN(float) a, AA_IN(float) b, AA_IN(aa_i32) begins, AA_IN(aa_i32) entries,
                       aa_sparse_dsd s, aa_i64 list, aa_i64 out_at, aa_i64 a_at, aa_i64 b_at, aa_i64 r_begin,
                       aa_i64 r_end, aa_i64 p_begin, aa_i64 p_end) {
  const aa_i64 begin = begins[list];
  const aa_i64 end = begins[list + 1];
  aa_i64 at_once = end - begin;
  aa_i64 first = begin;
  do {
#ifdef AA_PREFETCH
    // All tiles take a block while the nearest cache has it, and the next block is on its way.
    if (s.columns % AA_WIDE == 0 && first < end) {
      at_once = 1;
      if (first + 1 < end) {
        AA_IN(float) next_a = a + a_at + (entries[2 * first + 3] - s.first_block) * s.block * s.block;
        AA_IN(float) next_b = b + b_at + (aa_i64)entries[2 * first + 2] * s.block * s.b.row;
        for (aa_i64 i = 0; i < s.block; ++i) {
          AA_PREFETCH(next_a + i * s.block);
          for (aa_i64 p = p_begin; p < p_end; ++p) AA_PREFETCH(next_b + i * s.b.row + p * s.b.panel);
        }
      }
    }
#endif
#define AA_TILE(rows, wides, r, p) \
  aa_dsd_tile(rows, wides, out, a, b, entries, s, first, first + at_once, first != begin, out_at, a_at, b_at, r, p)
    AA_EACH_TILE(AA_TILE, r_begin, r_end, p_begin, p_end)
#undef AA_TILE
    first += at_once;
  } while (first < end);
}

AA_KERNEL(sparse_dsd, AA_ITEMS)
(AA_OUT(float) out, AA_IN(float) a, AA_IN(float) b, AA_IN(aa_i32) begins, AA_IN(aa_i32) entries,
 AA_VALUE(aa_sparse_dsd) s) {
  const aa_i64 parts = (s.block + AA_ITEM_ROWS - 1) / AA_ITEM_ROWS;
  const aa_i64 item = AA_ITEM_ID;
  if (item < s.batch * s.list_count * parts * s.split) {
    const aa_i64 share = item % s.split;
    const aa_i64 part = item / s.split % parts;
    const aa_i64 list = s.first_list + item / s.split / parts % s.list_count;
    const aa_i64 z = item / s.split / parts / s.list_count;
    const aa_i64 matrix = z * s.heads + list / s.lists_per_head;
    const aa_i64 out_at = matrix * s.out_matrix + list % s.lists_per_head * s.block * s.columns;
    const aa_i64 a_at = z * s.block_count * s.block * s.block;
    const aa_i64 b_at = matrix * s.b.matrix;
    const aa_i64 panels = (s.columns + AA_WIDE - 1) / AA_WIDE;
    const aa_i64 r_begin = part * AA_ITEM_ROWS;
    const aa_i64 r_end = r_begin + AA_ITEM_ROWS < s.block ? r_begin + AA_ITEM_ROWS : s.block;
    const aa_i64 p_begin = s.split == 1 ? 0 : share;
    const aa_i64 p_end = s.split == 1 ? panels : share + 1;
    aa_dsd_rows(out, a, b, begins, entries, s, list, out_at, a_at, b_at, r_begin, r_end, p_begin, p_end);
  }
}
AA_REGISTER(sparse_dsd, AA_ITEMS)

// ---- softmax: a group has a row, and its items have pieces of AA_PIECE neighbours of a block ----

// Runs `call`(at, column, n) for the pieces of this item: where a piece begins in x, its column in the dense matrix, and its
// length, which is a constant for a whole piece.
#if AA_GROUP_SIZE == 1
#define AA_EACH_PIECE(call)                                                                                      \
  for (aa_i64 e = begin; e < end; ++e) {                                                                         \
    const aa_i64 block_at = row_at + (entries[2 * e + 1] - s.first_block) * s.block * s.block;                   \
    const aa_i64 block_column = entries[2 * e] * s.block;                                                        \
    aa_i64 inside = 0;                                                                                           \
    for (; inside + AA_PIECE <= s.block; inside += AA_PIECE) call(block_at + inside, block_column + inside, AA_PIECE); \
    if (inside < s.block) call(block_at + inside, block_column + inside, s.block - inside);                      \
  }
#else
#define AA_EACH_PIECE(call)                                                                                      \
  for (aa_i64 u = id; u < (end - begin) * s.block; u += AA_GROUP_SIZE) {                                         \
    const aa_i64 e = begin + u / s.block;                                                                        \
    const aa_i64 inside = u % s.block;                                                                           \
    call(row_at + (entries[2 * e + 1] - s.first_block) * s.block * s.block + inside, entries[2 * e] * s.block + inside, 1); \
  }
#endif

// The row of a group: its list, and where it begins in the first block of x.
#define AA_SPARSE_ROW                                                \
  const aa_i32 id = AA_LOCAL_ID;                                     \
  const aa_i64 group = AA_GROUP_ID(0);                               \
  const aa_i64 r = group % s.block;                                  \
  const aa_i64 list = s.first_list + group / s.block % s.list_count; \
  const aa_i64 z = group / s.block / s.list_count;                   \
  const aa_i64 begin = begins[list];                                 \
  const aa_i64 end = begins[list + 1];                               \
  const aa_i64 row_at = (z * s.block_count * s.block + r) * s.block;

// Applies the value of a mask to a score.
AA_FN float aa_masked(float score, float value, aa_i32 mode) {
  return mode == AA_MASK_ADD ? score + value : value == 0.0f ? AA_NEGATIVE_INFINITY : score;
}
// Scales and masks a piece of `n` scores.
AA_FN void aa_mask_piece(const aa_i64 n, AA_OUT(float) x, AA_IN(void) rpe, AA_IN(void) key_mask, AA_IN(void) mask,
                         aa_sparse_rows s, aa_i64 at, aa_i64 rpe_at, aa_i64 key_at, aa_i64 mask_at) {
  if (s.scale != 1.0f) {
    for (aa_i64 j = 0; j < n; ++j) x[at + j] *= s.scale;
  }
  if (s.has_rpe) {
    for (aa_i64 j = 0; j < n; ++j) x[at + j] += aa_load(rpe, s.dtype, rpe_at + j);
  }
  if (s.key_mask_mode != AA_MASK_NONE) {
    for (aa_i64 j = 0; j < n; ++j) {
      x[at + j] = aa_masked(x[at + j], aa_load(key_mask, s.dtype, key_at + j), s.key_mask_mode);
    }
  }
  if (s.mask_mode != AA_MASK_NONE) {
    for (aa_i64 j = 0; j < n; ++j) x[at + j] = aa_masked(x[at + j], aa_load(mask, s.dtype, mask_at + j), s.mask_mode);
  }
}
// x = softmax(x * scale + rpe + masks) by rows, in place. A row that sees nothing becomes zeros.
AA_KERNEL(sparse_softmax, AA_GROUP_SIZE)
(AA_OUT(float) x, AA_IN(void) rpe, AA_IN(void) key_mask, AA_IN(void) mask, AA_IN(aa_i32) begins, AA_IN(aa_i32) entries,
 AA_VALUE(aa_sparse_rows) s) {
  AA_SCRATCH(scratch);
  AA_SPARSE_ROW
  if (s.scale != 1.0f || s.has_rpe || s.key_mask_mode != AA_MASK_NONE || s.mask_mode != AA_MASK_NONE) {
    const aa_i64 row = list % s.lists_per_head * s.block + r;
    const aa_i64 rpe_row = ((z * s.heads + list / s.lists_per_head) * s.rows + row) * s.columns;
#define AA_PIECE_WORK(at, column, n) \
  aa_mask_piece(n, x, rpe, key_mask, mask, s, at, rpe_row + (column), z * s.columns + (column), row * s.columns + (column))
    AA_EACH_PIECE(AA_PIECE_WORK)
#undef AA_PIECE_WORK
  }
  aa_maxima maxima = aa_no_maxima();
#define AA_PIECE_WORK(at, column, n) maxima = aa_more_maxima(maxima, x, at, n)
  AA_EACH_PIECE(AA_PIECE_WORK)
#undef AA_PIECE_WORK
  float largest = aa_group_max(aa_largest(maxima), scratch, id);
  // Nothing is seen: weights of e^-infinity.
  if (largest == AA_NEGATIVE_INFINITY) largest = 0.0f;

  aa_running sums = aa_running_from(0.0f);
#define AA_PIECE_WORK(at, column, n)  \
  {                                   \
    aa_exp_piece(n, x, at, largest);  \
    sums = aa_running_add(sums, x, at, n); \
  }
  AA_EACH_PIECE(AA_PIECE_WORK)
#undef AA_PIECE_WORK
  const float total = aa_group_sum(aa_total_sum(sums), scratch, id);
  const float factor = total == 0.0f ? 0.0f : 1.0f / total;
#define AA_PIECE_WORK(at, column, n) aa_scale_piece(n, x, at, factor)
  AA_EACH_PIECE(AA_PIECE_WORK)
#undef AA_PIECE_WORK
}
AA_REGISTER(sparse_softmax, AA_GROUP_SIZE)

// dy = y * (dy - sum of y * dy over the row) * scale, in place.
AA_KERNEL(sparse_softmax_backward, AA_GROUP_SIZE)
(AA_OUT(float) dy, AA_IN(float) y, AA_IN(aa_i32) begins, AA_IN(aa_i32) entries, AA_VALUE(aa_sparse_rows) s) {
  AA_SCRATCH(scratch);
  AA_SPARSE_ROW
  aa_running sums = aa_running_from(0.0f);
#define AA_PIECE_WORK(at, column, n) sums = aa_running_dot(sums, y, dy, at, n)
  AA_EACH_PIECE(AA_PIECE_WORK)
#undef AA_PIECE_WORK
  const float dot = aa_group_sum(aa_total_sum(sums), scratch, id);
#define AA_PIECE_WORK(at, column, n) aa_gradient_piece(n, y, dy, at, dot, s.scale)
  AA_EACH_PIECE(AA_PIECE_WORK)
#undef AA_PIECE_WORK
}
AA_REGISTER(sparse_softmax_backward, AA_GROUP_SIZE)
