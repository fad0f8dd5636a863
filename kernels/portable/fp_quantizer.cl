// Small floating-point numbers with a scale for each group of elements. include/anyaccel/ops/fp_quantizer.h defines the
// results and the layout; kernels/host/fp_quantizer.cpp gives the same bits.
//
// Quantizing takes three kernels: quant_ranges (of quant_ranges.cl), fp_scales, fp_store.
#include "dialect.h"
#include "fp_numbers.h"

// Bytes of a group's codes; its scale follows, which lies anywhere.
AA_FN aa_i64 code_bytes_of(aa_quant_groups groups, aa_i32 bits) { return groups.group_size * bits / 8; }
AA_FN float load_scale(AA_IN(aa_u8) rows, aa_i64 group, aa_i64 code_bytes) {
  const aa_i64 at = group * (code_bytes + 4) + code_bytes;
  return aa_float((aa_u32)rows[at] | (aa_u32)rows[at + 1] << 8 | (aa_u32)rows[at + 2] << 16 | (aa_u32)rows[at + 3] << 24);
}
AA_FN void store_scale(AA_OUT(aa_u8) rows, aa_i64 group, aa_i64 code_bytes, float scale) {
  const aa_i64 at = group * (code_bytes + 4) + code_bytes;
  for (aa_i32 k = 0; k < 4; ++k) rows[at + k] = (aa_u8)(aa_bits(scale) >> (8 * k));
}

AA_KERNEL(fp_scales, AA_ITEMS)
(AA_IN(float) ranges, AA_VALUE(aa_quant_groups) groups, AA_VALUE(aa_fp_numbers) f, AA_OUT(aa_u8) rows) {
  const aa_i64 group = AA_ITEM_ID;
  if (group >= groups.groups) return;
  const aa_quant_range r = aa_quant_range_of(ranges, group, groups.parts);
  const float scale = fp_scale_of(r.high > r.negated ? r.high : r.negated, f);
  store_scale(rows, group, code_bytes_of(groups, f.bits), scale);
}
AA_REGISTER(fp_scales, AA_ITEMS)

// The code of a number. The exponent field `e` is that of the number, or that of the smallest normal; in units of the last
// mantissa bit under that exponent the number is `steps`, which is rounded to an integer. A carry goes into the exponent by
// itself.
AA_FN aa_u32 encode(float x, aa_fp_numbers f, aa_i32 stochastic, float unit) {
  const aa_u32 bits = aa_bits(x), magnitude = bits & 0x7fffffffu;
  aa_i32 e = (aa_i32)(magnitude >> 23) - (127 - f.bias);
  e = e > 1 ? e : 1;
  const float power = aa_float((aa_u32)(127 + f.bias + f.mantissa_bits - e) << 23);
  const float steps = aa_mul_ftz(aa_float(magnitude), power);
  aa_i32 rounded;
  if (stochastic) {
    rounded = (aa_i32)steps;
    rounded += unit < aa_sub_ftz(steps, (float)rounded) ? 1 : 0;
  } else {
    rounded = (aa_i32)aa_rint(steps);
  }
  aa_i32 code = ((e - 1) << f.mantissa_bits) + rounded;
  code = code < f.max_code ? code : f.max_code;
  return (aa_u32)code | ((bits >> (32 - f.bits)) & (1u << (f.bits - 1)));
}

AA_FN float decode(aa_u32 code, aa_fp_numbers f) {
  const aa_u32 magnitude = code & ((1u << (f.bits - 1)) - 1u), mantissa_mask = (1u << f.mantissa_bits) - 1u;
  const aa_u32 sign = (code << (32 - f.bits)) & 0x80000000u;
  if ((aa_i32)magnitude >= f.first_special) {
    return aa_float(sign | ((magnitude & mantissa_mask) != 0 ? 0x7fc00000u : 0x7f800000u));
  }
  if (magnitude > mantissa_mask) {
    return aa_float(sign | ((magnitude << (23 - f.mantissa_bits)) + ((aa_u32)(127 - f.bias) << 23)));
  }
  const float smallest = aa_float((aa_u32)(128 - f.bias - f.mantissa_bits) << 23);
  return aa_float(sign | aa_bits((float)(aa_i32)magnitude * smallest));
}

// A part's codes are whole bytes.
AA_KERNEL(fp_store, AA_ITEMS)
(AA_IN(void) x, AA_VALUE(aa_quant_groups) groups, AA_VALUE(aa_fp_numbers) f, AA_VALUE(aa_quant_options) o,
 AA_OUT(aa_u8) rows) {
  if (AA_ITEM_ID >= groups.groups * groups.parts) return;
  const aa_quant_part p = aa_quant_part_of(groups, AA_ITEM_ID);
  const aa_i64 code_bytes = code_bytes_of(groups, f.bits);
  const float scale = load_scale(rows, p.group, code_bytes);
  const float inverse = aa_div_ftz(1.0f, scale);
  const aa_i32 finite = !aa_isnan(scale);
  aa_i64 byte = p.group * (code_bytes + 4) + (p.begin - p.group * groups.group_size) * f.bits / 8;
  aa_u32 held = 0, words[4];
  aa_i32 held_bits = 0;
  for (aa_i64 i = p.begin; i < p.end; ++i) {
    if (finite) {
      const float unit = o.stochastic ? aa_quant_draw(o, i, i == p.begin, words) : 0.0f;
      held |= encode(aa_mul_ftz(aa_flush(aa_load(x, o.dtype, i)), inverse), f, o.stochastic, unit) << held_bits;
    }
    for (held_bits += f.bits; held_bits >= 8; held_bits -= 8) {
      rows[byte++] = (aa_u8)held;
      held >>= 8;
    }
  }
}
AA_REGISTER(fp_store, AA_ITEMS)

// `chosen`: for every `groups_per_row` groups of out the row of `rows` that they come from. With 0 groups a row,
// out is all of them: whether `chosen` is null is not asked, because some runtimes give a kernel a buffer for a null pointer.
AA_KERNEL(fp_load, AA_ITEMS)
(AA_IN(aa_u8) rows, AA_IN(aa_i64) chosen, AA_VALUE(aa_i64) groups_per_row, AA_VALUE(aa_quant_groups) groups,
 AA_VALUE(aa_fp_numbers) f, AA_VALUE(aa_i64) dtype, AA_OUT(void) out) {
  if (AA_ITEM_ID >= groups.groups * groups.parts) return;
  const aa_quant_part p = aa_quant_part_of(groups, AA_ITEM_ID);
  aa_i64 source = p.group;
  if (groups_per_row > 0) {
    const aa_i64 row = p.group / groups_per_row;
    source = chosen[row] * groups_per_row + (p.group - row * groups_per_row);
  }
  const aa_i64 code_bytes = code_bytes_of(groups, f.bits);
  const float scale = aa_flush(load_scale(rows, source, code_bytes));
  aa_i64 byte = source * (code_bytes + 4) + (p.begin - p.group * groups.group_size) * f.bits / 8;
  aa_u32 held = 0;
  aa_i32 held_bits = 0;
  for (aa_i64 i = p.begin; i < p.end; ++i) {
    for (; held_bits < f.bits; held_bits += 8) held |= (aa_u32)rows[byte++] << held_bits;
    const aa_u32 code = held & ((1u << f.bits) - 1u);
    held >>= f.bits;
    held_bits -= f.bits;
    aa_store(out, (aa_i32)dtype, i, aa_mul_ftz(decode(code, f), scale));
  }
}
AA_REGISTER(fp_load, AA_ITEMS)
