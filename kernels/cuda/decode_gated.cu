// "gated_linear" and "norm_gated_linear" of anyaccel/abi/ops.h for a few rows of x: a unit is a row of w_gate and the same row of
// w_up. See decode_products.h, and decode_linear.cu about AA_ROWS.
#include "decode_products.h"
#include "../portable/activations.h"

struct aa_gated_work {
  AA_OUT(void) out;
  AA_IN(void) gate;
  AA_IN(void) up;
  AA_IN(void) gate_bias;
  AA_IN(void) up_bias;
  aa_decode_part gate_part;
  aa_decode_part up_part;
  aa_i32 kind;
};

AA_FN void aa_unit_rows(const aa_gated_work& work, aa_i32 unit, AA_IN(aa_u8) (&row)[2]) {
  row[0] = AA_AS_IN(aa_u8, work.gate) + unit * work.gate_part.w_row;
  row[1] = AA_AS_IN(aa_u8, work.up) + unit * work.up_part.w_row;
}

AA_FN aa_decode_token aa_unit_token(const aa_gated_work&, aa_i32) { return {}; }

// The biases.
AA_FN aa_quad aa_unit_inputs(const aa_gated_work& work, aa_i32 unit, aa_i32) {
  const aa_i32 gate_dtype = aa_opaque(work.gate_part.bias_dtype);
  const aa_i32 up_dtype = aa_opaque(work.up_part.bias_dtype);
  aa_quad inputs = {{0, 0, 0, 0}};
  if (gate_dtype) inputs.v[0] = aa_load_value(work.gate_bias, gate_dtype, unit * work.gate_part.bias_inner);
  if (up_dtype) inputs.v[1] = aa_load_value(work.up_bias, up_dtype, unit * work.up_part.bias_inner);
  return inputs;
}
AA_FN void aa_unit_end(const aa_gated_work& work, aa_i32 unit, aa_i32 token, const float (&sums)[2],
                       const aa_quad& inputs, const aa_decode_token&) {
  aa_store_value(work.out, aa_opaque(work.gate_part.out_dtype),
                 token * work.gate_part.out_row + unit * work.gate_part.out_inner,
                 aa_activate(sums[0] + inputs.v[0], aa_opaque(work.kind)) * (sums[1] + inputs.v[1]));
}

#define AA_DECODE_GATED(name, rows, blocks) \
  AA_TUNED_KERNEL(name, AA_DECODE_THREADS, blocks) \
  (AA_IN(void) x, AA_IN(void) norm, aa_decode_x xs, AA_OUT(void) out, AA_IN(void) gate, AA_IN(void) up, \
   AA_IN(void) gate_bias, AA_IN(void) up_bias, aa_decode_part gate_part, aa_decode_part up_part, aa_i32 kind, \
   aa_i32 reserved) { \
    AA_DYNAMIC_LOCAL(local); \
    const aa_gated_work work = {out, gate, up, gate_bias, up_bias, gate_part, up_part, kind}; \
    aa_decode<rows, 2>(work, x, norm, xs, local); \
  }

#if !defined(AA_ROWS) || AA_ROWS == 1
AA_DECODE_GATED(AA_NAME_W(decode_gated_1), 1, 2)
AA_REGISTER_TUNED(AA_NAME_W(decode_gated_1), AA_DECODE_THREADS)
#endif
#if !defined(AA_ROWS) || AA_ROWS == 2
AA_DECODE_GATED(AA_NAME_W(decode_gated_2), 2, 1)
AA_REGISTER_TUNED(AA_NAME_W(decode_gated_2), AA_DECODE_THREADS)
#endif
#if !defined(AA_ROWS) || AA_ROWS == 4
AA_DECODE_GATED(AA_NAME_W(decode_gated_4), 4, 1)
AA_REGISTER_TUNED(AA_NAME_W(decode_gated_4), AA_DECODE_THREADS)
#endif
#if !defined(AA_ROWS) || AA_ROWS == 8
AA_DECODE_GATED(AA_NAME_W(decode_gated_8), 8, 1)
AA_REGISTER_TUNED(AA_NAME_W(decode_gated_8), AA_DECODE_THREADS)
#endif
