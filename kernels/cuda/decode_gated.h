// Shared by decode_gated.cu and decode_tiles_gated.cu: a unit is a row of w_gate and the same row of w_up. See
// decode_products.h.
#ifndef ANYACCEL_KERNELS_DECODE_GATED_H_
#define ANYACCEL_KERNELS_DECODE_GATED_H_

#include "decode_units.h"
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
AA_FN void aa_unit_fetch(const aa_gated_work& work, aa_i32 unit, aa_i32, aa_u32 (&raw)[4]) {
  const aa_i32 gate_dtype = aa_opaque(work.gate_part.bias_dtype);
  const aa_i32 up_dtype = aa_opaque(work.up_part.bias_dtype);
  if (gate_dtype) raw[0] = aa_load_raw(work.gate_bias, gate_dtype, unit * work.gate_part.bias_inner);
  if (up_dtype) raw[1] = aa_load_raw(work.up_bias, up_dtype, unit * work.up_part.bias_inner);
}
AA_FN void aa_unit_end(const aa_gated_work& work, aa_i32 unit, aa_i32 token, const float (&sums)[2],
                       const aa_u32 (&raw)[4], const aa_decode_token&) {
  const aa_i32 gate_dtype = aa_opaque(work.gate_part.bias_dtype);
  const aa_i32 up_dtype = aa_opaque(work.up_part.bias_dtype);
  float gate = sums[0], up = sums[1];
  if (gate_dtype) gate += aa_raw_value(raw[0], gate_dtype);
  if (up_dtype) up += aa_raw_value(raw[1], up_dtype);
  aa_store_value(work.out, aa_opaque(work.gate_part.out_dtype),
                 token * work.gate_part.out_row + unit * work.gate_part.out_inner,
                 aa_activate(gate, aa_opaque(work.kind)) * up);
}

#endif  // ANYACCEL_KERNELS_DECODE_GATED_H_
