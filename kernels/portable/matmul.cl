// The op "matmul": products of matrices with free strides, one or many. AA_X is the element type of a, AA_W of b.
//
// If an item works alone, it processes AA_MATMUL_ROWS rows of a for strips of AA_WIDE columns of b, with the running
// sums in vectors; where b's columns are its contiguous direction in memory, the sums run along K as vectors instead. A
// group that shares local memory loads tiles of a and b into it, as linear_shared.cl does; without such memory an item
// makes an element.
#include "dialect.h"

#include "arguments.h"
#include "linear_arguments.h"
#include "matmul_arguments.h"
#include "views.h"

typedef AA_STORAGE(AA_X) aa_a_type;
typedef AA_STORAGE(AA_W) aa_b_type;

// Stores element (m, n) of the product at `to`, where that matrix begins.
AA_FN void aa_matmul_store(AA_OUT(void) out, aa_i64 to, aa_matmul p, aa_i64 m, aa_i64 n, float v) {
  const aa_i64 at = to + m * p.out_row + n * p.out_inner;
  if (p.accumulate) v += aa_load(AA_AS_IN(void, out), p.out_dtype, at);
  aa_store(out, p.out_dtype, at, v);
}

AA_FN float aa_matmul_element(AA_IN(aa_a_type) a, AA_IN(aa_b_type) b, aa_matmul p, aa_i64 m, aa_i64 n) {
  float sum = 0.0f;
  for (aa_i64 k = 0; k < p.k; ++k) {
    sum = aa_fma(AA_LOAD(AA_X, a, m * p.a_row + k * p.a_inner), AA_LOAD(AA_W, b, k * p.b_row + n * p.b_inner), sum);
  }
  return sum;
}

#if AA_GROUP_SIZE == 1
// Columns n .. n + AA_WIDE - 1, which are neighbours in b, of rows m .. m + rows - 1.
AA_FN void aa_matmul_strip(AA_OUT(void) out, aa_i64 to, AA_IN(aa_a_type) a, AA_IN(aa_b_type) b, aa_matmul p, aa_i64 m,
                           aa_i64 n) {
  aa_wide running[AA_MATMUL_ROWS];
  aa_i64 at[AA_MATMUL_ROWS];
  AA_PRAGMA_UNROLL for (int i = 0; i < AA_MATMUL_ROWS; ++i) {
    running[i] = aa_wide_all(0.0f);
    at[i] = (m + i < p.m ? m + i : p.m - 1) * p.a_row;
  }
  for (aa_i64 k = 0; k < p.k; ++k) {
    const aa_wide row = AA_LOAD_WIDE(AA_W, b, k * p.b_row + n);
    AA_PRAGMA_UNROLL for (int i = 0; i < AA_MATMUL_ROWS; ++i) {
      running[i] = aa_wide_fma(aa_wide_all(AA_LOAD(AA_X, a, at[i] + k * p.a_inner)), row, running[i]);
    }
  }
  for (int i = 0; i < AA_MATMUL_ROWS && m + i < p.m; ++i) {
    AA_PRAGMA_UNROLL for (int j = 0; j < AA_WIDE; ++j) {
      aa_matmul_store(out, to, p, m + i, n + j, aa_wide_get(running[i], j));
    }
  }
}

// The same element by sums along K, which is contiguous in both.
AA_FN float aa_matmul_dot(AA_IN(aa_a_type) a, AA_IN(aa_b_type) b, aa_matmul p, aa_i64 m, aa_i64 n) {
  aa_wide running = aa_wide_all(0.0f);
  aa_i64 k = 0;
  for (; k + AA_WIDE <= p.k; k += AA_WIDE) {
    running = aa_wide_fma(AA_LOAD_WIDE(AA_X, a, m * p.a_row + k), AA_LOAD_WIDE(AA_W, b, n * p.b_inner + k), running);
  }
  float sum = aa_wide_sum(running);
  for (; k < p.k; ++k) sum = aa_fma(AA_LOAD(AA_X, a, m * p.a_row + k), AA_LOAD(AA_W, b, n * p.b_inner + k), sum);
  return sum;
}

AA_KERNEL(AA_NAME_XW(matmul), AA_GROUP_SIZE)
(AA_OUT(void) out, AA_VALUE(aa_rows) out_batch, AA_IN(aa_a_type) a, AA_VALUE(aa_rows) a_batch, AA_IN(aa_b_type) b,
 AA_VALUE(aa_rows) b_batch, AA_VALUE(aa_matmul) p) {
  const aa_i64 first = AA_GROUP_ID(0) * (AA_WIDE * AA_MATMUL_STRIPS);
  const aa_i64 last = first + AA_WIDE * AA_MATMUL_STRIPS < p.n ? first + AA_WIDE * AA_MATMUL_STRIPS : p.n;
  for (aa_i64 batch = AA_GROUP_ID(2); batch < p.batches; batch += AA_GROUP_COUNT(2)) {
    const aa_i64 to = aa_row_offset(out_batch, batch);
    AA_IN(aa_a_type) left = a + aa_row_offset(a_batch, batch);
    AA_IN(aa_b_type) right = b + aa_row_offset(b_batch, batch);
    for (aa_i64 n = first; n < last; n += AA_WIDE) {
      for (aa_i64 m = AA_GROUP_ID(1) * AA_MATMUL_ROWS; m < p.m; m += AA_GROUP_COUNT(1) * AA_MATMUL_ROWS) {
        if (p.b_inner == 1 && n + AA_WIDE <= p.n) {
          aa_matmul_strip(out, to, left, right, p, m, n);
          continue;
        }
        const int contiguous = p.a_inner == 1 && p.b_row == 1;
        for (aa_i64 i = m; i < m + AA_MATMUL_ROWS && i < p.m; ++i) {
          for (aa_i64 j = n; j < n + AA_WIDE && j < p.n; ++j) {
            const float v = contiguous ? aa_matmul_dot(left, right, p, i, j) : aa_matmul_element(left, right, p, i, j);
            aa_matmul_store(out, to, p, i, j, v);
          }
        }
      }
    }
  }
}
AA_REGISTER(AA_NAME_XW(matmul), AA_GROUP_SIZE)

#elif AA_LOCAL_BYTES >= AA_SHARED_BYTES(AA_GROUP_SIZE)
#define AA_COLUMNS AA_SHARED_COLUMNS(AA_GROUP_SIZE)
#define AA_M AA_SHARED_M(AA_GROUP_SIZE)
#define AA_N AA_SHARED_N(AA_GROUP_SIZE)

// Neighbouring items load neighbouring elements of memory, whichever direction that is.
AA_KERNEL(AA_NAME_XW(matmul), AA_GROUP_SIZE)
(AA_OUT(void) out, AA_VALUE(aa_rows) out_batch, AA_IN(aa_a_type) a, AA_VALUE(aa_rows) a_batch, AA_IN(aa_b_type) b,
 AA_VALUE(aa_rows) b_batch, AA_VALUE(aa_matmul) p) {
  AA_LOCAL_ARRAY(float, tiles, AA_SHARED_K*(AA_M + AA_N));
  AA_LOCAL float* at = tiles;
  AA_LOCAL float* bt = tiles + AA_SHARED_K * AA_M;
  const aa_i32 id = AA_LOCAL_ID;
  const aa_i32 row = (aa_u32)id / AA_COLUMNS;
  const aa_i32 column = (aa_u32)id % AA_COLUMNS;
  const aa_i64 n0 = AA_GROUP_ID(0) * AA_N;
  const aa_i64 m0 = AA_GROUP_ID(1) * AA_M;
  for (aa_i64 batch = AA_GROUP_ID(2); batch < p.batches; batch += AA_GROUP_COUNT(2)) {
    const aa_i64 to = aa_row_offset(out_batch, batch);
    AA_IN(aa_a_type) left = a + aa_row_offset(a_batch, batch);
    AA_IN(aa_b_type) right = b + aa_row_offset(b_batch, batch);
    float sums[AA_TILE_M * AA_TILE_N];
    AA_PRAGMA_UNROLL for (int i = 0; i < AA_TILE_M * AA_TILE_N; ++i) sums[i] = 0.0f;
    for (aa_i64 k0 = 0; k0 < p.k; k0 += AA_SHARED_K) {
      for (aa_u32 i = id; i < AA_SHARED_K * AA_M; i += AA_GROUP_SIZE) {
        const aa_u32 mi = p.a_inner == 1 ? i / AA_SHARED_K : i % AA_M;
        const aa_u32 ki = p.a_inner == 1 ? i % AA_SHARED_K : i / AA_M;
        at[ki * AA_M + mi] =
            m0 + mi < p.m && k0 + ki < p.k ? AA_LOAD(AA_X, left, (m0 + mi) * p.a_row + (k0 + ki) * p.a_inner) : 0.0f;
      }
      for (aa_u32 i = id; i < AA_SHARED_K * AA_N; i += AA_GROUP_SIZE) {
        const aa_u32 ni = p.b_row == 1 ? i / AA_SHARED_K : i % AA_N;
        const aa_u32 ki = p.b_row == 1 ? i % AA_SHARED_K : i / AA_N;
        bt[ki * AA_N + ni] =
            n0 + ni < p.n && k0 + ki < p.k ? AA_LOAD(AA_W, right, (k0 + ki) * p.b_row + (n0 + ni) * p.b_inner) : 0.0f;
      }
      AA_BARRIER();
      for (int k = 0; k < AA_SHARED_K; ++k) {
        float x[AA_TILE_M];
        float y[AA_TILE_N];
        AA_PRAGMA_UNROLL for (int i = 0; i < AA_TILE_M; ++i) x[i] = at[k * AA_M + row + i * (AA_M / AA_TILE_M)];
        AA_PRAGMA_UNROLL for (int j = 0; j < AA_TILE_N; ++j) y[j] = bt[k * AA_N + column + j * AA_COLUMNS];
        AA_PRAGMA_UNROLL for (int i = 0; i < AA_TILE_M * AA_TILE_N; ++i) sums[i] += x[i / AA_TILE_N] * y[i % AA_TILE_N];
      }
      AA_BARRIER();
    }
    AA_PRAGMA_UNROLL for (int i = 0; i < AA_TILE_M * AA_TILE_N; ++i) {
      const aa_i64 m = m0 + row + i / AA_TILE_N * (AA_M / AA_TILE_M);
      const aa_i64 n = n0 + column + i % AA_TILE_N * AA_COLUMNS;
      if (m < p.m && n < p.n) aa_matmul_store(out, to, p, m, n, sums[i]);
    }
  }
}
AA_REGISTER(AA_NAME_XW(matmul), AA_GROUP_SIZE)

#else
// An item makes an element.
AA_KERNEL(AA_NAME_XW(matmul), AA_GROUP_SIZE)
(AA_OUT(void) out, AA_VALUE(aa_rows) out_batch, AA_IN(aa_a_type) a, AA_VALUE(aa_rows) a_batch, AA_IN(aa_b_type) b,
 AA_VALUE(aa_rows) b_batch, AA_VALUE(aa_matmul) p) {
  const aa_i64 n = AA_GROUP_ID(0) * AA_GROUP_SIZE + AA_LOCAL_ID;
  if (n < p.n) {
    for (aa_i64 batch = AA_GROUP_ID(2); batch < p.batches; batch += AA_GROUP_COUNT(2)) {
      AA_IN(aa_a_type) left = a + aa_row_offset(a_batch, batch);
      AA_IN(aa_b_type) right = b + aa_row_offset(b_batch, batch);
      for (aa_i64 m = AA_GROUP_ID(1); m < p.m; m += AA_GROUP_COUNT(1)) {
        aa_matmul_store(out, aa_row_offset(out_batch, batch), p, m, n, aa_matmul_element(left, right, p, m, n));
      }
    }
  }
}
AA_REGISTER(AA_NAME_XW(matmul), AA_GROUP_SIZE)
#endif
