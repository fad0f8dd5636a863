// The work around the products of the vendor's library (src/accelerators/cuda/ops/library_products.cpp): act(gate) * up
// of two products in fp32 or, of prompts, in bf16, and biases as fp32. All are bound by memory.
#include "dialect.h"

#include "activations.h"
#include "gated_arguments.h"
#include "warp.h"

AA_FN float aa_gated_float(aa_u32 bits) {
  union {
    aa_u32 u;
    float f;
  } v;
  v.u = bits;
  return v.f;
}
AA_FN aa_u32 aa_gated_bits(float value) {
  union {
    float f;
    aa_u32 u;
  } v;
  v.f = value;
  return v.u;
}
AA_FN void aa_gated_spread(float* to, aa_u32x4 v) {
  to[0] = aa_gated_float(v.x);
  to[1] = aa_gated_float(v.y);
  to[2] = aa_gated_float(v.z);
  to[3] = aa_gated_float(v.w);
}

AA_FN float aa_gated_value(float gate, float up, AA_IN(void) gate_bias, AA_IN(void) up_bias, aa_gated g, aa_i64 column) {
  if (g.gate_bias_dtype) gate += aa_load(gate_bias, g.gate_bias_dtype, column * g.gate_bias_inner);
  if (g.up_bias_dtype) up += aa_load(up_bias, g.up_bias_dtype, column * g.up_bias_inner);
  return aa_activate(gate, g.kind) * up;
}

// out [rows, columns] = act(gate + gate_bias) * (up + up_bias), rounded once. gate may be out, which is fp32 then. A block does
// 2048 columns of every grid(1)-th row.
AA_TUNED_KERNEL(gated_combine, AA_GATED_THREADS, 4)
(AA_OUT(void) out, AA_IN(float) gate, AA_IN(float) up, AA_IN(void) gate_bias, AA_IN(void) up_bias, aa_gated g) {
  const aa_i64 first = (AA_GROUP_ID(0) * (aa_i64)AA_GATED_THREADS + AA_LOCAL_ID) * AA_GATED_WIDTH;
  aa_grid_wait();
  if (first >= g.columns) return;
  const aa_i64 rest = g.columns - first;
  const aa_i32 count = rest < AA_GATED_WIDTH ? (aa_i32)rest : AA_GATED_WIDTH;
  for (aa_i64 row = AA_GROUP_ID(1); row < g.rows; row += AA_GROUP_COUNT(1)) {
    const aa_i64 gate_at = row * g.gate_row + first;
    const aa_i64 up_at = row * g.up_row + first;
    const aa_i64 out_at = row * g.out_row + first * g.out_inner;
    if (g.wide == 0 || count < AA_GATED_WIDTH) {
      AA_PRAGMA_NO_UNROLL
      for (aa_i32 i = 0; i < count; ++i) {
        aa_store(out, g.out_dtype, out_at + i * g.out_inner,
                 aa_gated_value(gate[gate_at + i], up[up_at + i], gate_bias, up_bias, g, first + i));
      }
      continue;
    }
    const aa_u32x4 gate0 = aa_load16(gate, gate_at * 4);
    const aa_u32x4 gate1 = aa_load16(gate, gate_at * 4 + 16);
    const aa_u32x4 up0 = aa_load16(up, up_at * 4);
    const aa_u32x4 up1 = aa_load16(up, up_at * 4 + 16);
    // Not unrolled: eight activations at once would spill registers.
    aa_u32x4 packed = gate0;
    AA_PRAGMA_NO_UNROLL
    for (aa_i32 half = 0; half < 2; ++half) {
      float a[4], b[4];
      aa_gated_spread(a, half ? gate1 : gate0);
      aa_gated_spread(b, half ? up1 : up0);
      AA_PRAGMA_UNROLL
      for (aa_i32 i = 0; i < 4; ++i) a[i] = aa_gated_value(a[i], b[i], gate_bias, up_bias, g, first + 4 * half + i);
      if (g.out_dtype == AA_F32) {
        aa_u32x4 v;
        v.x = aa_gated_bits(a[0]);
        v.y = aa_gated_bits(a[1]);
        v.z = aa_gated_bits(a[2]);
        v.w = aa_gated_bits(a[3]);
        aa_store16(out, out_at * 4 + 16 * half, v);
      } else {
        const bool bf16 = g.out_dtype == AA_BF16;
        packed.x = packed.z;
        packed.y = packed.w;
        packed.z = bf16 ? aa_pack_bf16(a[0], a[1]) : aa_pack_f16(a[0], a[1]);
        packed.w = bf16 ? aa_pack_bf16(a[2], a[3]) : aa_pack_f16(a[2], a[3]);
      }
    }
    if (g.out_dtype != AA_F32) aa_store16(out, out_at * 2, packed);
  }
}
AA_REGISTER_TUNED(gated_combine, AA_GATED_THREADS)

// act(gate) * up of two words of two bf16 each. kSilu: `kind` is not read.
template <bool kSilu>
AA_FN aa_u32 aa_gated_word(aa_u32 gate, aa_u32 up, aa_i32 kind) {
  float y[2];
  AA_PRAGMA_UNROLL for (aa_i32 i = 0; i < 2; ++i) {
    const float a = aa_gated_float(i ? gate & 0xffff0000u : gate << 16);
    const float b = aa_gated_float(i ? up & 0xffff0000u : up << 16);
    if (kSilu) {
      // x / (1 + e^-x) by two approximate instructions, a few units of fp32: the result has 8 bits. -infinity becomes 0.
      const float bounded = a < -104.0f ? -104.0f : a;
      y[i] = bounded * aa_reciprocal(1.0f + aa_exp2(bounded * -1.44269504f)) * b;
    } else {
      y[i] = aa_activate(a, kind) * b;
    }
  }
  return aa_pack_bf16(y[0], y[1]);
}

// The same in bf16, without biases: everything begins at multiples of 16 bytes, and columns are a multiple of AA_GATED_WIDTH. A block
// does 2048 columns of AA_GATED_ROWS neighbouring rows, all of whose loads are on their way at once.
AA_TUNED_KERNEL(gated_combine_bf16, AA_GATED_THREADS, 6)
(AA_OUT(void) out, AA_IN(void) gate, AA_IN(void) up, aa_gated g) {
  const aa_i64 first = (AA_GROUP_ID(0) * (aa_i64)AA_GATED_THREADS + AA_LOCAL_ID) * AA_GATED_WIDTH;
  aa_grid_wait();
  if (first >= g.columns) return;
  for (aa_i64 row = AA_GROUP_ID(1) * (aa_i64)AA_GATED_ROWS; row < g.rows; row += AA_GROUP_COUNT(1) * (aa_i64)AA_GATED_ROWS) {
    aa_u32x4 a[AA_GATED_ROWS], b[AA_GATED_ROWS];
    AA_PRAGMA_UNROLL for (aa_i32 n = 0; n < AA_GATED_ROWS; ++n) {
      // The last row again where there are no more: it is not stored.
      const aa_i64 at = row + n < g.rows ? row + n : g.rows - 1;
      a[n] = aa_load16(gate, (at * g.gate_row + first) * 2);
      b[n] = aa_load16(up, (at * g.up_row + first) * 2);
    }
    AA_PRAGMA_UNROLL for (aa_i32 n = 0; n < AA_GATED_ROWS; ++n) {
      if (row + n >= g.rows) continue;
      aa_u32x4 v = a[n];
      if (g.kind == AA_SILU) {
        v.x = aa_gated_word<true>(a[n].x, b[n].x, AA_SILU);
        v.y = aa_gated_word<true>(a[n].y, b[n].y, AA_SILU);
        v.z = aa_gated_word<true>(a[n].z, b[n].z, AA_SILU);
        v.w = aa_gated_word<true>(a[n].w, b[n].w, AA_SILU);
      } else {
        aa_u32x4 w = b[n];
        // Not unrolled: each of the kinds would be there four times.
        AA_PRAGMA_NO_UNROLL for (aa_i32 i = 0; i < 4; ++i) {
          const aa_u32 next = aa_gated_word<false>(v.x, w.x, g.kind);
          v.x = v.y;
          v.y = v.z;
          v.z = v.w;
          v.w = next;
          w.x = w.y;
          w.y = w.z;
          w.z = w.w;
        }
      }
      aa_store16(out, (row + n) * g.out_row * 2 + first * 2, v);
    }
  }
}
AA_REGISTER_TUNED(gated_combine_bf16, AA_GATED_THREADS)

// out [count] = x [count] as fp32: a bias for the library, which wants it in the dtype of its result.
AA_TUNED_KERNEL(gated_widen, AA_GATED_THREADS, 4)
(AA_OUT(float) out, AA_IN(void) x, aa_i64 inner, aa_i64 count, aa_i32 dtype) {
  aa_grid_wait();
  const aa_i64 i = AA_GROUP_ID(0) * (aa_i64)AA_GATED_THREADS + AA_LOCAL_ID;
  if (i < count) out[i] = aa_load(x, dtype, i * inner);
}
AA_REGISTER_TUNED(gated_widen, AA_GATED_THREADS)
