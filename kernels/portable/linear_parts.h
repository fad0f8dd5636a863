// Shared by the matrix products: the end of a sum, and the numbering of the parts of "linear_multi". Include first.
//
// "linear", "linear_multi" and "gated_linear" of anyaccel/abi/ops.h have two forms, each in files of its own, so that only
// what is used is compiled. In the first (linear_tiles.h), a team of AA_LANES items multiplies a tile of up to 4 rows of x with
// 4 rows of w along K, AA_WIDE elements a step: linear_rows1.cl for one row of x (decoding), where the time is that of reading
// w, and linear_rows4.cl. With one lane the running sums are vectors, so that a tile of 4 x 4 fills the registers of a CPU
// core. In the second (linear_shared.cl), a group loads tiles of x and w into local memory, for products of many rows on
// devices that have such memory. linear_mixed.cl is for weights of two element types.
//
// Strides are free; where K is contiguous in both x and w it is read AA_WIDE elements at once.
#ifndef ANYACCEL_KERNELS_LINEAR_PARTS_H_
#define ANYACCEL_KERNELS_LINEAR_PARTS_H_

#include "dialect.h"
#include "arguments.h"
#include "linear_arguments.h"
#include "activations.h"

#ifdef AA_W  // quantized_linear.cl has types of its own
typedef AA_STORAGE(AA_X) aa_x_type;
typedef AA_STORAGE(AA_W) aa_w_type;
#endif

typedef struct aa_tile {
  float v[AA_TILE_M * AA_TILE_N];
} aa_tile;

AA_FN float aa_with_bias(float v, AA_IN(void) bias, aa_linear_part part, aa_i64 n) {
  return part.bias_dtype ? v + aa_load(bias, part.bias_dtype, n * part.bias_inner) : v;
}

AA_FN void aa_finish(float v, AA_OUT(void) out, AA_IN(void) bias, aa_linear_part part, AA_IN(void) residual,
                     aa_linear_residual res, aa_i64 m, aa_i64 n) {
  v = aa_with_bias(v, bias, part, n);
  if (res.dtype) v += aa_load(residual, res.dtype, m * res.row + n * res.inner);
  aa_store(out, part.out_dtype, m * part.out_row + n * part.out_inner, v);
}

AA_FN void aa_finish_gated(float gate, float up, AA_OUT(void) out, AA_IN(void) gate_bias, aa_linear_part gate_part,
                           AA_IN(void) up_bias, aa_linear_part up_part, aa_i32 kind, aa_i64 m, aa_i64 n) {
  gate = aa_with_bias(gate, gate_bias, gate_part, n);
  up = aa_with_bias(up, up_bias, up_part, n);
  aa_store(out, gate_part.out_dtype, m * gate_part.out_row + n * gate_part.out_inner, aa_activate(gate, kind) * up);
}

// linear_multi: units of `width` rows of w are numbered through all parts. The part of a unit, and the unit's number within
// it; what lies beyond the last part counts to the last.
AA_FN aa_i64 aa_units(aa_linear_part part, aa_i64 width) { return (part.n + width - 1) / width; }
AA_FN aa_i32 aa_part_of(aa_i64 unit, aa_i64 width, aa_linear_part p0, aa_linear_part p1, aa_linear_part p2,
                        aa_linear_part p3) {
  unit -= aa_units(p0, width);
  if (unit < 0 || p1.n == 0) return 0;
  unit -= aa_units(p1, width);
  if (unit < 0 || p2.n == 0) return 1;
  unit -= aa_units(p2, width);
  return unit < 0 || p3.n == 0 ? 2 : 3;
}
AA_FN aa_i64 aa_unit_in_part(aa_i64 unit, aa_i32 number, aa_i64 width, aa_linear_part p0, aa_linear_part p1,
                             aa_linear_part p2) {
  if (number > 0) unit -= aa_units(p0, width);
  if (number > 1) unit -= aa_units(p1, width);
  if (number > 2) unit -= aa_units(p2, width);
  return unit;
}
#define AA_PICK(number, a, b, c, d) ((number) == 0 ? (a) : (number) == 1 ? (b) : (number) == 2 ? (c) : (d))

#endif  // ANYACCEL_KERNELS_LINEAR_PARTS_H_
