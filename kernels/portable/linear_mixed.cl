// Products with weights of two element types. See linear_parts.h.
#include "linear_parts.h"

// gated_linear where w_up is of another type than w_gate; one item an element of out.
AA_KERNEL(AA_NAME_XW(gated_linear_mixed), AA_GROUP_SIZE)
(AA_OUT(void) out, AA_IN(aa_x_type) x, AA_IN(aa_w_type) w_gate, AA_IN(void) w_up, AA_IN(void) bias_gate,
 AA_IN(void) bias_up, AA_VALUE(aa_linear_x) xs, AA_VALUE(aa_linear_part) gate, AA_VALUE(aa_linear_part) up,
 AA_VALUE(aa_i32) kind, AA_VALUE(aa_i32) up_dtype) {
  const aa_i64 m = AA_GROUP_ID(1);
  const aa_i64 n = AA_GROUP_ID(0) * AA_GROUP_SIZE + AA_LOCAL_ID;
  if (n >= gate.n) return;
  float gate_sum = 0.0f;
  float up_sum = 0.0f;
  for (aa_i64 k = 0; k < xs.k; ++k) {
    const float a = AA_LOAD(AA_X, x, m * xs.row + k * xs.inner);
    gate_sum += a * AA_LOAD(AA_W, w_gate, n * gate.w_row + k * gate.w_inner);
    up_sum += a * aa_load(w_up, up_dtype, n * up.w_row + k * up.w_inner);
  }
  aa_finish_gated(gate_sum, up_sum, out, bias_gate, gate, bias_up, up, kind, m, n);
}
AA_REGISTER(AA_NAME_XW(gated_linear_mixed), AA_GROUP_SIZE)
