// Shared by decode_linear.cu, decode_multi.cu and decode_tiles_linear.cu: products with the rows of one or several weights, told
// apart by kParts. See decode_products.h.
#ifndef ANYACCEL_KERNELS_DECODE_LINEAR_H_
#define ANYACCEL_KERNELS_DECODE_LINEAR_H_

#include "decode_units.h"

// kUnit: rows of weights in a unit.
template <int kUnit, int kParts>
struct aa_linear_work {
  AA_IN(void) w[kParts];
  AA_OUT(void) out[kParts];
  AA_IN(void) bias[kParts];
  aa_decode_part part[kParts];
  AA_IN(void) residual;  // of part 0
  aa_decode_residual res;
};

// Of the unit's own part: its rows from n on.
struct aa_linear_place {
  AA_IN(void) w;
  AA_OUT(void) out;
  AA_IN(void) bias;
  aa_decode_part part;
  aa_i32 n;
  bool residual;
};

template <int kUnit, int kParts>
AA_FN aa_linear_place aa_place_in(const aa_linear_work<kUnit, kParts>& work, int part, aa_i32 unit) {
  return {work.w[part], work.out[part], work.bias[part], work.part[part], unit * kUnit, work.res.dtype != 0};
}
template <int kUnit>
AA_FN aa_linear_place aa_place_of(const aa_linear_work<kUnit, 1>& work, aa_i32 unit) {
  return aa_place_in(work, 0, unit);
}
// (Written out: an index known when running only would put the work into slow memory.)
template <int kUnit>
AA_FN aa_linear_place aa_place_of(const aa_linear_work<kUnit, 4>& work, aa_i32 unit) {
  if (unit < work.part[0].units) return aa_place_in(work, 0, unit);
  unit -= work.part[0].units;
  if (unit < work.part[1].units) return aa_place_in(work, 1, unit);
  unit -= work.part[1].units;
  if (unit < work.part[2].units) return aa_place_in(work, 2, unit);
  unit -= work.part[2].units;
  return aa_place_in(work, 3, unit);
}

// Rows beyond the last are the last again.
template <int kUnit, int kParts>
AA_FN void aa_unit_rows(const aa_linear_work<kUnit, kParts>& work, aa_i32 unit, AA_IN(aa_u8) (&row)[kUnit]) {
  const aa_linear_place at = aa_place_of(work, unit);
  AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) {
    const aa_i32 n = at.n + r < at.part.n ? at.n + r : at.part.n - 1;
    row[r] = AA_AS_IN(aa_u8, at.w) + n * at.part.w_row;
  }
}

template <int kUnit, int kParts>
AA_FN aa_decode_token aa_unit_token(const aa_linear_work<kUnit, kParts>&, aa_i32) { return {}; }

// Biases of the unit's rows (two at most), then their residuals.
template <int kUnit, int kParts>
AA_FN void aa_unit_fetch(const aa_linear_work<kUnit, kParts>& work, aa_i32 unit, aa_i32 token, aa_u32 (&raw)[4]) {
  const aa_linear_place at = aa_place_of(work, unit);
  const aa_i32 bias_dtype = aa_opaque(at.part.bias_dtype);
  const aa_i32 residual_dtype = aa_opaque(at.residual ? work.res.dtype : 0);
  AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) {
    if (at.n + r >= at.part.n) continue;
    if (bias_dtype) raw[r] = aa_load_raw(at.bias, bias_dtype, (at.n + r) * at.part.bias_inner);
    if (residual_dtype) {
      raw[2 + r] = aa_load_raw(work.residual, residual_dtype, token * work.res.row + (at.n + r) * work.res.inner);
    }
  }
}
template <int kUnit, int kParts>
AA_FN void aa_unit_end(const aa_linear_work<kUnit, kParts>& work, aa_i32 unit, aa_i32 token, const float (&sums)[kUnit],
                       const aa_u32 (&raw)[4], const aa_decode_token&) {
  const aa_linear_place at = aa_place_of(work, unit);
  const aa_i32 out_dtype = aa_opaque(at.part.out_dtype);
  const aa_i32 bias_dtype = aa_opaque(at.part.bias_dtype);
  const aa_i32 residual_dtype = aa_opaque(at.residual ? work.res.dtype : 0);
  AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) {
    if (at.n + r >= at.part.n) continue;
    float sum = sums[r];
    if (bias_dtype) sum += aa_raw_value(raw[r], bias_dtype);
    if (residual_dtype) sum += aa_raw_value(raw[2 + r], residual_dtype);
    aa_store_value(at.out, out_dtype, token * at.part.out_row + (at.n + r) * at.part.out_inner, sum);
  }
}

#endif  // ANYACCEL_KERNELS_DECODE_LINEAR_H_
