// Teams of AA_LANES items, each with a tile of a product in registers (linear_tiles.h, quantized_linear.cl). Include after
// linear_parts.h.
#ifndef ANYACCEL_KERNELS_TEAMS_H_
#define ANYACCEL_KERNELS_TEAMS_H_

#define AA_TEAM_ID (AA_GROUP_ID(0) * (AA_GROUP_SIZE / AA_LANES) + (aa_u32)AA_LOCAL_ID / AA_LANES)
#if AA_GROUP_SIZE > 1
#define AA_TEAM_SCRATCH(name) AA_SCRATCH(name)
#else
#define AA_TEAM_SCRATCH(name) AA_LOCAL float* name = 0
#endif

// Unrolled, what ends a tile keeps it in registers. A CPU core reads it back from the stack in no time, and there it would
// only make the code several times as long.
#if AA_GROUP_SIZE > 1 && AA_SUBGROUP
#define AA_FINISH_UNROLL AA_PRAGMA_UNROLL
#else
#define AA_FINISH_UNROLL
#endif

// Sums over lanes through local memory are a dozen barriers each: too many to repeat them in the code for each element.
#if AA_LANES == 1 || AA_SUBGROUP
#define AA_LANES_UNROLL AA_PRAGMA_UNROLL
#else
#define AA_LANES_UNROLL
#endif

// A sum over K while it runs.
#if AA_LANES == 1
typedef aa_wide aa_running;
#define aa_running_zero aa_wide_all(0.0f)
#define aa_running_step(a, b, sum) aa_wide_fma(a, b, sum)
#define aa_running_sum(sum) aa_wide_sum(sum)
#else
typedef float aa_running;
#define aa_running_zero 0.0f
#define aa_running_step(a, b, sum) aa_wide_dot(a, b, sum)
#define aa_running_sum(sum) (sum)
#endif

// Returns whether this lane stores element i of its team's tile, which is (m, n) of an out of m_end x n_end.
AA_FN int aa_stores(int i, aa_i32 id, aa_i64 m, aa_i64 m_end, aa_i64 n, aa_i64 n_end) {
  return (i & (AA_LANES - 1)) == (id & (AA_LANES - 1)) && m < m_end && n < n_end;
}

// Declares the elements of x and w at which the rows of a tile begin, x_at and w_at, and its sums, `running`: of rows m and
// following of x, `rows` of them (a constant), and rows n and following of w. What lies beyond the last row repeats it.
#define AA_TILE_BEGIN(rows, xs, m, part, n)                                                                       \
  aa_i64 x_at[AA_TILE_M];                                                                                         \
  aa_i64 w_at[AA_TILE_N];                                                                                         \
  aa_running running[AA_TILE_M * AA_TILE_N];                                                                      \
  AA_PRAGMA_UNROLL for (int i = 0; i < rows; ++i) x_at[i] = (m + i < xs.m ? m + i : xs.m - 1) * xs.row;           \
  AA_PRAGMA_UNROLL for (int j = 0; j < AA_TILE_N; ++j) w_at[j] = (n + j < part.n ? n + j : part.n - 1) * part.w_row; \
  AA_PRAGMA_UNROLL for (int i = 0; i < rows * AA_TILE_N; ++i) running[i] = aa_running_zero

// Stores a tile of `rows` (a constant) rows of x, with bias and residual.
AA_FN void aa_finish_tile(const int rows, aa_tile tile, AA_OUT(void) out, AA_IN(void) bias, AA_IN(void) residual,
                          aa_linear_part part, aa_linear_residual res, aa_i64 m, aa_i64 m_end, aa_i64 n, aa_i32 id) {
  AA_FINISH_UNROLL for (int i = 0; i < rows * AA_TILE_N; ++i) {
    const aa_i64 mi = m + i / AA_TILE_N;
    const aa_i64 ni = n + i % AA_TILE_N;
    if (aa_stores(i, id, mi, m_end, ni, part.n)) aa_finish(tile.v[i], out, bias, part, residual, res, mi, ni);
  }
}

#endif  // ANYACCEL_KERNELS_TEAMS_H_
