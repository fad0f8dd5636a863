// Integers of 8 and 4 bits with a scale, or a scale and an offset, for each group of elements.
// include/anyaccel/ops/quantizer.h defines the results; kernels/host/quantizer.cpp gives the same bits.
//
// Quantizing takes three kernels: quant_ranges (of quant_ranges.cl), quant_scales, and quant_store, or quant_fake for numbers rounded in place.
#include "dialect.h"
#include "integer_groups.h"

// params: [groups, 1] or [groups, 2], in the order of the output.
AA_KERNEL(quant_scales, AA_ITEMS)
(AA_IN(float) ranges, AA_VALUE(aa_quant_groups) groups, AA_VALUE(aa_quant_order) order, AA_VALUE(aa_quant_options) o,
 AA_OUT(float) params) {
  const aa_i64 group = AA_ITEM_ID;
  if (group >= groups.groups) return;
  const aa_quant_range r = aa_quant_range_of(ranges, group, groups.parts);
  const group_params p = params_of(r, o.bits, o.asymmetric);
  store_params(params, place_of(order, group), o.asymmetric, p);
}
AA_REGISTER(quant_scales, AA_ITEMS)

// The integer, as a float, that x becomes.
AA_FN float to_integer(float x, group_scale s, aa_i32 stochastic, float unit) {
  const float exact = aa_mul_ftz(aa_sub_ftz(x, s.offset), s.inverse);
  float integer = aa_rint(exact);
  if (stochastic) {
    if (exact < integer) integer -= 1.0f;
    if (unit < aa_sub_ftz(exact, integer)) integer += 1.0f;
  }
  integer = integer > s.low ? integer : s.low;
  return integer < s.high ? integer : s.high;
}
AA_FN float from_integer(float integer, group_scale s) { return aa_add_ftz(aa_mul_ftz(integer, s.scale), s.offset); }

// Values, and error = beta * error + (1 - beta) * (exact - what the values stand for).
AA_KERNEL(quant_store, AA_ITEMS)
(AA_IN(void) x, AA_OUT(void) error, AA_IN(float) params, AA_VALUE(aa_quant_groups) groups,
 AA_VALUE(aa_quant_order) order, AA_VALUE(aa_quant_options) o, AA_OUT(aa_u8) values) {
  if (AA_ITEM_ID >= groups.groups * groups.parts) return;
  const aa_quant_part p = aa_quant_part_of(groups, AA_ITEM_ID);
  const aa_i64 place = place_of(order, p.group);
  const group_scale s = load_scale(params, place, o.bits, o.asymmetric);
  const aa_i32 finite = !aa_isnan(s.scale);
  // The number in the output of the tensor's element 0, had it been in this group.
  const aa_i64 shift = (place - p.group) * groups.group_size;
  aa_u32 words[4];
  aa_i32 upper = 0;
  for (aa_i64 i = p.begin; i < p.end; ++i) {
    aa_i32 integer = 0;
    if (finite) {
      float exact = aa_flush(aa_load(x, o.dtype, i));
      const float old = o.error_dtype != 0 ? aa_flush(aa_load(error, o.error_dtype, i)) : 0.0f;
      if (o.error_dtype != 0) exact = aa_add_ftz(exact, old);
      const float unit = o.stochastic ? aa_quant_draw(o, i, i == p.begin, words) : 0.0f;
      const float rounded = to_integer(exact, s, o.stochastic, unit);
      integer = (aa_i32)rounded;
      if (o.error_dtype != 0) {
        const float missing = aa_sub_ftz(exact, from_integer(rounded, s));
        aa_store(error, o.error_dtype, i,
                 aa_add_ftz(aa_mul_ftz(o.error_beta, old), aa_mul_ftz(1.0f - o.error_beta, missing)));
      }
    }
    if (o.bits == 8) {
      values[shift + i] = (aa_u8)integer;
    } else if (((shift + i) & 1) == 0) {
      upper = integer;
    } else {
      values[(shift + i) >> 1] = (aa_u8)((upper << 4) | (integer & 0xf));
    }
  }
}
AA_REGISTER(quant_store, AA_ITEMS)

// x becomes what its quantized form stands for.
AA_KERNEL(quant_fake, AA_ITEMS)
(AA_OUT(void) x, AA_IN(float) params, AA_VALUE(aa_quant_groups) groups, AA_VALUE(aa_quant_options) o) {
  if (AA_ITEM_ID >= groups.groups * groups.parts) return;
  const aa_quant_part p = aa_quant_part_of(groups, AA_ITEM_ID);
  const group_scale s = load_scale(params, p.group, o.bits, o.asymmetric);
  const aa_i32 finite = !aa_isnan(s.scale);
  aa_u32 words[4];
  for (aa_i64 i = p.begin; i < p.end; ++i) {
    float result = AA_QUIET_NAN;
    if (finite) {
      const float unit = o.stochastic ? aa_quant_draw(o, i, i == p.begin, words) : 0.0f;
      result = from_integer(to_integer(aa_flush(aa_load(x, o.dtype, i)), s, o.stochastic, unit), s);
    }
    aa_store(x, o.dtype, i, result);
  }
}
AA_REGISTER(quant_fake, AA_ITEMS)

// Value number i, signed.
AA_FN aa_i32 load_value(AA_IN(aa_u8) values, aa_i32 bits, aa_i64 i) {
  if (bits == 8) return (aa_i32)(aa_i8)values[i];
  const aa_u32 byte = values[i >> 1];
  const aa_i32 code = (aa_i32)((i & 1) != 0 ? byte & 0xfu : byte >> 4);
  return code < 8 ? code : code - 16;
}

AA_KERNEL(quant_load, AA_ITEMS)
(AA_IN(aa_u8) values, AA_IN(float) params, AA_VALUE(aa_quant_groups) groups, AA_VALUE(aa_quant_options) o,
 AA_OUT(void) out) {
  if (AA_ITEM_ID >= groups.groups * groups.parts) return;
  const aa_quant_part p = aa_quant_part_of(groups, AA_ITEM_ID);
  group_scale s = load_scale(params, p.group, o.bits, o.asymmetric);
  s.scale = aa_flush(s.scale);
  s.offset = aa_flush(s.offset);
  for (aa_i64 i = p.begin; i < p.end; ++i) {
    aa_store(out, o.dtype, i, from_integer((float)load_value(values, o.bits, i), s));
  }
}
AA_REGISTER(quant_load, AA_ITEMS)

// sum[i]: the sum of what values i, count + i, ... stand for, in that order.
AA_KERNEL(quant_sum, AA_ITEMS)
(AA_IN(aa_u8) values, AA_IN(float) params, AA_VALUE(aa_quant_chunks) c, AA_VALUE(aa_quant_options) o,
 AA_OUT(float) sum) {
  const aa_i64 begin = AA_ITEM_ID * c.part, end = begin + c.part < c.count ? begin + c.part : c.count;
  const aa_i64 chunk_groups = c.count / c.group_size;
  for (aa_i64 i = begin; i < end; ++i) {
    const aa_i64 group = i / c.group_size;
    float total = 0.0f;
    for (aa_i64 chunk = 0; chunk < c.chunks; ++chunk) {
      group_scale s = load_scale(params, chunk * chunk_groups + group, o.bits, o.asymmetric);
      s.scale = aa_flush(s.scale);
      s.offset = aa_flush(s.offset);
      total = aa_add_ftz(total, from_integer((float)load_value(values, o.bits, chunk * c.count + i), s));
    }
    sum[i] = total;
  }
}
AA_REGISTER(quant_sum, AA_ITEMS)

// out = values / scale + minimum, of unsigned values, as F16.
AA_KERNEL(quant_to_half, AA_ITEMS)
(AA_IN(aa_u8) values, AA_IN(float) scale, AA_IN(float) minimum, AA_VALUE(aa_quant_groups) groups,
 AA_VALUE(aa_quant_options) o, AA_OUT(aa_u16) out) {
  if (AA_ITEM_ID >= groups.groups * groups.parts) return;
  const aa_quant_part p = aa_quant_part_of(groups, AA_ITEM_ID);
  const float divisor = aa_flush(scale[p.group]), least = aa_flush(minimum[p.group]);
  for (aa_i64 i = p.begin; i < p.end; ++i) {
    const aa_u32 byte = values[o.bits == 8 ? i : i >> 1];
    const aa_u32 code = o.bits == 8 ? byte : (i & 1) != 0 ? byte & 0xfu : byte >> 4;
    aa_store_f16(out, i, aa_add_ftz(aa_div_ftz((float)code, divisor), least));
  }
}
AA_REGISTER(quant_to_half, AA_ITEMS)
