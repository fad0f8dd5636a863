// Ops of training that work element by element: dropout and its gradient, the gradients of activations and of gated ones,
// scaled_add, multiply.
#include "dialect.h"

#include "activations.h"
#include "arguments.h"
#include "philox.h"
#include "views.h"

// The derivative of aa_activate; `kind` is an aa_activation.
AA_FN float aa_slope(float x, aa_i32 kind) {
  if (kind == AA_RELU) return aa_isnan(x) ? x : x > 0.0f ? 1.0f : 0.0f;
  if (kind == AA_SILU) {
    const float bounded = aa_isnan(x) ? x : aa_fmin(aa_fmax(x, -88.0f), 88.0f);
    const float s = 1.0f / (1.0f + aa_exp(-bounded));
    return s * aa_fma(bounded, 1.0f - s, 1.0f);
  }
  if (kind == AA_GELU) {
    // The normal distribution's function, from the erfc of aa_gelu, and x times its density.
    const float bounded = aa_isnan(x) ? x : aa_fmin(aa_fmax(x, -20.0f), 20.0f);
    const float magnitude = aa_fabs(bounded);
    // gelu(-|x|) = -|x| * tail; near 0 the tail is 1/2 - |x| / sqrt(2 pi).
    const float tail = magnitude < 1e-3f ? 0.5f - magnitude * 0.39894228f : aa_gelu(-magnitude) / -magnitude;
    const float density = aa_exp(magnitude * magnitude * -0.5f) * 0.39894228f;
    return aa_fma(bounded, density, bounded < 0.0f ? tail : 1.0f - tail);
  }
  if (kind == AA_GELU_TANH) {
    // x sigmoid(2u) is differentiated.
    const float bounded = aa_isnan(x) ? x : aa_fmin(aa_fmax(x, -20.0f), 20.0f);
    const float u = aa_fma(bounded * bounded * bounded, 0.044715f, bounded);
    const float s = 1.0f / (1.0f + aa_exp(u * -1.59576912f));
    const float inner = aa_fma(bounded * bounded, 0.21406859f, 1.59576912f);
    return aa_fma(bounded * inner, s * (1.0f - s), s);
  }
  if (kind == AA_SIGMOID) {
    const float s = 1.0f / (1.0f + aa_exp(-x));
    return s * (1.0f - s);
  }
  const float t = aa_tanh(x);
  return 1.0f - t * t;
}

AA_KERNEL(activation_backward, AA_ITEMS)
(AA_OUT(void) dx, AA_VALUE(aa_view) dx_view, AA_IN(void) x, AA_VALUE(aa_view) x_view, AA_IN(void) dy,
 AA_VALUE(aa_view) dy_view, AA_VALUE(aa_i64) count, AA_VALUE(aa_i32) kind) {
  const aa_i64 i = AA_ITEM_ID;
  if (i < count) {
    const float v = aa_load(x, x_view.dtype, aa_view_offset(x_view, i));
    const float g = aa_load(dy, dy_view.dtype, aa_view_offset(dy_view, i));
    aa_store(dx, dx_view.dtype, aa_view_offset(dx_view, i), g * aa_slope(v, kind));
  }
}
AA_REGISTER(activation_backward, AA_ITEMS)

// An item makes the four elements of one counter. A word is kept from `lowest` on, both of 24 bits.
AA_KERNEL(dropout, AA_ITEMS)
(AA_OUT(void) out, AA_VALUE(aa_view) out_view, AA_OUT(aa_u8) mask, AA_VALUE(aa_view) mask_view, AA_IN(void) x,
 AA_VALUE(aa_view) x_view, AA_VALUE(aa_i64) count, AA_VALUE(aa_i64) seed, AA_VALUE(aa_i64) offset,
 AA_VALUE(aa_i32) lowest, AA_VALUE(float) scale) {
  const aa_i64 counter = AA_ITEM_ID;
  if (4 * counter < count) {
    aa_u32 words[4];
    aa_philox((aa_u64)seed, (aa_u64)offset + (aa_u64)counter, words);
    for (aa_i32 j = 0; j < 4 && 4 * counter + j < count; ++j) {
      const aa_i64 i = 4 * counter + j;
      const int kept = (aa_i32)(words[j] >> 8) >= lowest;
      const float v = aa_load(x, x_view.dtype, aa_view_offset(x_view, i));
      mask[aa_view_offset(mask_view, i)] = (aa_u8)(kept ? 1 : 0);
      aa_store(out, out_view.dtype, aa_view_offset(out_view, i), kept ? v * scale : 0.0f);
    }
  }
}
AA_REGISTER(dropout, AA_ITEMS)

AA_KERNEL(apply_mask, AA_ITEMS)
(AA_OUT(void) out, AA_VALUE(aa_view) out_view, AA_IN(void) x, AA_VALUE(aa_view) x_view, AA_IN(aa_u8) mask,
 AA_VALUE(aa_view) mask_view, AA_VALUE(aa_i64) count, AA_VALUE(float) scale) {
  const aa_i64 i = AA_ITEM_ID;
  if (i < count) {
    const float v = aa_load(x, x_view.dtype, aa_view_offset(x_view, i));
    const int kept = mask[aa_view_offset(mask_view, i)] != 0;
    aa_store(out, out_view.dtype, aa_view_offset(out_view, i), kept ? v * scale : 0.0f);
  }
}
AA_REGISTER(apply_mask, AA_ITEMS)

// b may be absent (dtype 0).
AA_KERNEL(scaled_add, AA_ITEMS)
(AA_OUT(void) out, AA_VALUE(aa_view) out_view, AA_IN(void) a, AA_VALUE(aa_view) a_view, AA_IN(void) b,
 AA_VALUE(aa_view) b_view, AA_VALUE(aa_i64) count, AA_VALUE(float) alpha, AA_VALUE(float) beta) {
  const aa_i64 i = AA_ITEM_ID;
  if (i < count) {
    float v = alpha * aa_load(a, a_view.dtype, aa_view_offset(a_view, i));
    if (b_view.dtype) v = aa_fma(beta, aa_load(b, b_view.dtype, aa_view_offset(b_view, i)), v);
    aa_store(out, out_view.dtype, aa_view_offset(out_view, i), v);
  }
}
AA_REGISTER(scaled_add, AA_ITEMS)

AA_KERNEL(multiply, AA_ITEMS)
(AA_OUT(void) out, AA_VALUE(aa_view) out_view, AA_IN(void) a, AA_VALUE(aa_view) a_view, AA_IN(void) b,
 AA_VALUE(aa_view) b_view, AA_VALUE(aa_i64) count) {
  const aa_i64 i = AA_ITEM_ID;
  if (i < count) {
    const float v =
        aa_load(a, a_view.dtype, aa_view_offset(a_view, i)) * aa_load(b, b_view.dtype, aa_view_offset(b_view, i));
    aa_store(out, out_view.dtype, aa_view_offset(out_view, i), v);
  }
}
AA_REGISTER(multiply, AA_ITEMS)

// out may be absent (dtype 0). An item reads its elements before it writes, since outputs may be inputs.
AA_KERNEL(gated_activation_backward, AA_ITEMS)
(AA_OUT(void) dgate, AA_VALUE(aa_view) dgate_view, AA_OUT(void) dup, AA_VALUE(aa_view) dup_view, AA_OUT(void) out,
 AA_VALUE(aa_view) out_view, AA_IN(void) gate, AA_VALUE(aa_view) gate_view, AA_IN(void) up, AA_VALUE(aa_view) up_view,
 AA_IN(void) dy, AA_VALUE(aa_view) dy_view, AA_VALUE(aa_i64) count, AA_VALUE(aa_i32) kind) {
  const aa_i64 i = AA_ITEM_ID;
  if (i < count) {
    const float g = aa_load(gate, gate_view.dtype, aa_view_offset(gate_view, i));
    const float u = aa_load(up, up_view.dtype, aa_view_offset(up_view, i));
    const float d = aa_load(dy, dy_view.dtype, aa_view_offset(dy_view, i));
    const float value = aa_activate(g, kind);
    aa_store(dgate, dgate_view.dtype, aa_view_offset(dgate_view, i), d * u * aa_slope(g, kind));
    aa_store(dup, dup_view.dtype, aa_view_offset(dup_view, i), d * value);
    if (out_view.dtype) aa_store(out, out_view.dtype, aa_view_offset(out_view, i), value * u);
  }
}
AA_REGISTER(gated_activation_backward, AA_ITEMS)
