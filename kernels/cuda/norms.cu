// "rms_norm" and "layer_norm" of anyaccel/abi/ops.h. Element types are chosen when running: what counts is memory.
// Rows begin at multiples of 16 bytes, their elements are neighbours, and their size is a multiple of 8.
#include "dialect.h"
#include "warp.h"

#include "row_arguments.h"
#include "vectors.h"

// The sum over a block of `warps` warps; scratch holds 32 floats.
AA_FN float block_sum(float v, float* scratch, aa_i32 warp, aa_i32 lane, aa_i32 warps) {
  v = aa_warp_sum(v);
  if (warps == 1) return v;
  if (lane == 0) scratch[warp] = v;
  AA_BARRIER();
  v = aa_warp_sum(lane < warps ? scratch[lane] : 0.0f);
  AA_BARRIER();
  return v;
}

// A block a row, which stays in its registers: `threads` in the block, `chunks` vectors of each. weight, bias and residual may
// be absent (dtype 0).
AA_FN void norm_row(AA_OUT(void) out, aa_norm_rows a, AA_IN(void) x, AA_IN(void) weight, AA_IN(void) bias,
                    AA_OUT(void) residual, float* scratch) {
  const aa_i64 row = AA_GROUP_ID(0);
  const aa_i32 id = AA_LOCAL_ID;
  const aa_i32 warps = a.threads / 32;
  const float per_element = 1.0f / (float)a.size;
  float v[AA_NORM_CHUNKS][AA_VECTOR];
  AA_PRAGMA_UNROLL for (aa_i32 c = 0; c < AA_NORM_CHUNKS; ++c) {
    const aa_i64 i = (aa_i64)(c * a.threads + id) * AA_VECTOR;
    AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < AA_VECTOR; ++j) v[c][j] = 0.0f;
    if (i < a.size) {
      aa_load8(v[c], x, a.x_dtype, row * a.x_row + i);
      if (a.residual_dtype) {
        float r[AA_VECTOR];
        aa_load8(r, residual, a.residual_dtype, row * a.residual_row + i);
        AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < AA_VECTOR; ++j) v[c][j] += r[j];
        aa_round8(v[c], a.residual_dtype);
        aa_store8(residual, a.residual_dtype, row * a.residual_row + i, v[c]);
      }
    }
  }
  // Apart from the loads, so that all of them are on their way at once.
  float sum = 0.0f;
  AA_PRAGMA_UNROLL for (aa_i32 c = 0; c < AA_NORM_CHUNKS; ++c) {
    AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < AA_VECTOR; ++j) sum += a.centred ? v[c][j] : v[c][j] * v[c][j];
  }
  sum = block_sum(sum, scratch, AA_WARP, AA_LANE, warps);
  float mean = 0.0f;
  if (a.centred) {
    mean = sum * per_element;
    sum = 0.0f;
    AA_PRAGMA_UNROLL for (aa_i32 c = 0; c < AA_NORM_CHUNKS; ++c) {
      if ((aa_i64)(c * a.threads + id) * AA_VECTOR < a.size) {
        AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < AA_VECTOR; ++j) sum += (v[c][j] - mean) * (v[c][j] - mean);
      }
    }
    sum = block_sum(sum, scratch, AA_WARP, AA_LANE, warps);
  }
  const float factor = 1.0f / aa_sqrt(sum * per_element + a.eps);
  AA_PRAGMA_UNROLL for (aa_i32 c = 0; c < AA_NORM_CHUNKS; ++c) {
    const aa_i64 i = (aa_i64)(c * a.threads + id) * AA_VECTOR;
    if (i < a.size) {
      AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < AA_VECTOR; ++j) v[c][j] = (v[c][j] - mean) * factor;
      float w[AA_VECTOR];
      if (a.weight_dtype) {
        aa_load8(w, weight, a.weight_dtype, i);
        AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < AA_VECTOR; ++j) v[c][j] *= w[j];
      }
      if (a.bias_dtype) {
        aa_load8(w, bias, a.bias_dtype, i);
        AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < AA_VECTOR; ++j) v[c][j] += w[j];
      }
      aa_store8(out, a.out_dtype, row * a.out_row + i, v[c]);
    }
  }
}

AA_TUNED_KERNEL(norm_rows_tuned, AA_NORM_THREADS, 1)
(AA_OUT(void) out, AA_IN(void) x, AA_IN(void) weight, AA_IN(void) bias, AA_OUT(void) residual, aa_norm_rows a) {
  AA_LOCAL_ARRAY(float, scratch, 32);
  aa_grid_launch_next();
  aa_grid_wait();
  norm_row(out, a, x, weight, bias, residual, scratch);
}
AA_REGISTER_TUNED(norm_rows_tuned, AA_NORM_THREADS)
