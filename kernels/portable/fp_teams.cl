// Small floating-point numbers with a scale for each group, like fp_quantizer.cl and with the same bits, where a team of items
// holds a group in registers: elements are read once, and neighbouring items access neighbouring addresses. The host takes
// these kernels for groups of a multiple of four elements that are aligned and not too large, on devices with
// sub-groups (src/ops/portable/quantizers.cpp).
//
// Each kernel has a form for each number of bits, chosen when it runs: a four takes a word, three quarters of one (6 bits), one
// and a half (12) or half (4), and codes of 6 and 12 bits are put together to words in local memory.
#include "dialect.h"
#include "fp_numbers.h"
#include "quant_teams.h"

#define AA_FOURS 4  // known to src/ops/portable/quantizers.cpp

#if AA_SUBGROUP
// The code of a number of a group; `stochastic` is a constant. Added to a large enough power of two, it is rounded to the format's last mantissa bit. A carry goes
// into the exponent by itself.
AA_FN aa_u32 code_of(const int stochastic, float x, aa_fp_numbers f, float unit) {
  const aa_u32 bits = aa_bits(x);
  // The power of two at or below the number, or that of the smallest normal one.
  const aa_u32 smallest = (aa_u32)(128 - f.bias) << 23;
  const aa_u32 power = larger(bits & 0x7f800000u, smallest);
  const aa_u32 shift = (aa_u32)(23 - f.mantissa_bits);
  aa_u32 rounded;
  if (stochastic) {
    const float steps = aa_mul_ftz(aa_fabs(x), aa_float((aa_u32)(254 + f.mantissa_bits) * 0x800000u - power));
    const aa_i32 whole = (aa_i32)steps;
    rounded = (aa_u32)(whole + (unit < aa_sub_ftz(steps, (float)whole) ? 1 : 0));
  } else {
    const aa_u32 large = power + (shift << 23);
    rounded = aa_bits(aa_add_rn(aa_fabs(x), aa_float(large))) - large;
  }
  aa_u32 code = ((power - smallest) >> shift) + rounded;
  // To nearest, no number exceeds the limit: the largest of a group is the limit but for the last bits of a float.
  if (stochastic) code = code < (aa_u32)f.max_code ? code : (aa_u32)f.max_code;
  return code | ((bits >> (32 - f.bits)) & (1u << (f.bits - 1)));
}

// The number of a code, which has nothing above its `f.bits` bits.
AA_FN float number_of(aa_u32 code, aa_fp_numbers f) {
  const aa_u32 sign = 1u << (f.bits - 1), magnitude = code & (sign - 1u), mantissa_mask = (1u << f.mantissa_bits) - 1u;
  const aa_u32 smallest = (aa_u32)(128 - f.bias) << 23, shifted = magnitude << (23 - f.mantissa_bits);
  aa_u32 bits = shifted + (smallest - 0x800000u);
  if (magnitude <= mantissa_mask) bits = aa_bits(aa_add_rn(aa_float(shifted + smallest), -aa_float(smallest)));
  if ((aa_i32)magnitude >= f.first_special) bits = (magnitude & mantissa_mask) != 0 ? 0x7fc00000u : 0x7f800000u;
  return aa_float(bits | ((code & sign) << (32 - f.bits)));
}

// Word `w` of codes of 6 bits, of which `pieces` has four to a word.
AA_FN aa_u32 word_of_6(AA_LOCAL const aa_u32* pieces, aa_i32 w) {
  const aa_i32 from = 4 * w / 3, shift = 8 * (4 * w - 3 * from);
  return pieces[from] >> shift | pieces[from + 1] << (24 - shift);
}
// The same of 12 bits, with the upper 16 of a four's 48 bits in `upper`.
AA_FN aa_u32 word_of_12(AA_LOCAL const aa_u32* pieces, AA_LOCAL const aa_u32* upper, aa_i32 w) {
  const aa_i32 pair = w / 3, part = w - 3 * pair;
  if (part == 0) return pieces[2 * pair];
  const aa_u32 next = pieces[2 * pair + 1];
  return part == 1 ? upper[2 * pair] | next << 16 : next >> 16 | upper[2 * pair + 1] << 16;
}

// Codes a group of a team: its fours, of which `finite` says whether they have codes other than 0. `bits`, those of the format,
// `stochastic` and `tiny` (see tiny_matters) are constants.
AA_FN void store_codes(const aa_i32 bits, const int stochastic, const int tiny, AA_PRIVATE const AA_RAW_FOUR(AA_X)* held,
                       aa_quant_teams t, aa_fp_numbers f, aa_quant_options o, aa_i64 group, aa_i32 present, aa_i32 lane,
                       aa_i32 finite, float inverse, AA_OUT(aa_u32) row, AA_LOCAL aa_u32* pieces, AA_LOCAL aa_u32* upper) {
  const aa_i32 fours = (aa_i32)t.fours;
  f.bits = bits;
  AA_PRAGMA_UNROLL for (aa_i32 k = 0; k < AA_FOURS; ++k) {
    const aa_i32 at = k * t.width + lane;
    if (k * t.width < fours) {
      aa_u32 code[4], random[4];
      AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < 4; ++j) random[j] = 0;
      if (stochastic) aa_philox(o.seed, o.offset + (aa_u64)(group * fours + at), random);
      aa_four four = AA_FOUR_OF(AA_X, held[k]);
      AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < 4; ++j) {
        const float x = aa_mul_rn(tiny ? aa_flush(four.v[j]) : four.v[j], inverse);
        code[j] = stochastic ? code_of(1, aa_flush(x), f, aa_unit(random[j])) : code_of(0, x, f, 0.0f);
        if (tiny && !finite) code[j] = 0;
      }
      if (at < fours) {
        if (bits == 8) {
          if (present) row[at] = code[0] | code[1] << 8 | code[2] << 16 | code[3] << 24;
        } else if (bits == 4) {
          if (present) AA_AS_OUT(aa_u16, row)[at] = (aa_u16)(code[0] | code[1] << 4 | code[2] << 8 | code[3] << 12);
        } else if (bits == 6) {
          pieces[at] = code[0] | code[1] << 6 | code[2] << 12 | code[3] << 18;
        } else {
          pieces[at] = code[0] | code[1] << 12 | code[2] << 24;
          upper[at] = code[2] >> 8 | code[3] << 4;
        }
      }
    }
  }
}

AA_FN void store_group(const aa_i32 bits, const int stochastic, AA_PRIVATE const AA_RAW_FOUR(AA_X)* held, aa_quant_teams t,
                       aa_fp_numbers f, aa_quant_options o, aa_i64 group, aa_i32 present, aa_i32 lane, float scale,
                       AA_OUT(aa_u8) rows, AA_LOCAL aa_u32* pieces, AA_LOCAL aa_u32* upper) {
  const float inverse = aa_div_ftz(1.0f, scale);
  const aa_i32 finite = !aa_isnan(scale), words = (aa_i32)t.fours * bits / 8;
  AA_OUT(aa_u32) row = AA_AS_OUT(aa_u32, rows) + group * (words + 1);
  if (present && lane == 0) row[words] = aa_bits(scale);
  if (stochastic || tiny_matters(inverse)) {
    store_codes(bits, stochastic, 1, held, t, f, o, group, present, lane, finite, inverse, row, pieces, upper);
  } else {
    store_codes(bits, stochastic, 0, held, t, f, o, group, present, lane, finite, inverse, row, pieces, upper);
  }
  if (bits == 6 || bits == 12) {
    AA_BARRIER();
    if (present) {
      for (aa_i32 w = lane; w < words; w += t.width) row[w] = bits == 6 ? word_of_6(pieces, w) : word_of_12(pieces, upper, w);
    }
  }
}

// Quantizes the group of the team that `id` belongs to; `stochastic` is a constant.
AA_FN void quantize_team(const int stochastic, AA_IN(void) x, aa_quant_teams t, aa_fp_numbers f, aa_quant_options o,
                         AA_OUT(aa_u8) rows, AA_LOCAL float* scratch, AA_LOCAL aa_u32* pieces, aa_i64 group_id, aa_i32 id) {
  const aa_i32 lane = id & (t.width - 1), fours = (aa_i32)t.fours;
  // A team without a group repeats the last one, and stores nothing.
  const aa_i64 number = group_id * t.teams + (id >> t.width_bits);
  const aa_i32 present = number < t.groups;
  const aa_i64 group = present ? number : t.groups - 1;
  AA_IN(AA_STORAGE(AA_X)) from = AA_AS_IN(AA_STORAGE(AA_X), x) + 4 * group * fours;
  AA_RAW_FOUR(AA_X) held[AA_FOURS];
  AA_PRAGMA_UNROLL for (aa_i32 k = 0; k < AA_FOURS; ++k) {
    // Beyond the group's end, the last four once more.
    const aa_i32 at = k * t.width + lane;
    if (k * t.width < fours) held[k] = AA_LOAD_FOUR(AA_X, from, at < fours ? at : fours - 1);
  }
  team_range range = no_range();
  AA_PRAGMA_UNROLL for (aa_i32 k = 0; k < AA_FOURS; ++k) {
    if (k * t.width < fours) range = range_with(range, AA_FOUR_OF(AA_X, held[k]), 0);
  }
  const float scale = fp_scale_of(team_max(largest_of(range), t.width, scratch, id), f);
  AA_LOCAL aa_u32* own = pieces + (id >> t.width_bits) * t.width * AA_FOURS;
  AA_LOCAL aa_u32* upper = own + AA_GROUP_SIZE * AA_FOURS;
  if (f.bits == 8) store_group(8, stochastic, held, t, f, o, group, present, lane, scale, rows, own, upper);
  if (f.bits == 6) store_group(6, stochastic, held, t, f, o, group, present, lane, scale, rows, own, upper);
  if (f.bits == 12) store_group(12, stochastic, held, t, f, o, group, present, lane, scale, rows, own, upper);
  if (f.bits == 4) store_group(4, stochastic, held, t, f, o, group, present, lane, scale, rows, own, upper);
}

AA_KERNEL(AA_NAME_X(fp_team), AA_GROUP_SIZE)
(AA_IN(void) x, AA_VALUE(aa_quant_teams) t, AA_VALUE(aa_fp_numbers) f, AA_VALUE(aa_quant_options) o, AA_OUT(aa_u8) rows) {
  AA_SCRATCH(scratch);
  AA_LOCAL_ARRAY(aa_u32, pieces, AA_GROUP_SIZE * AA_FOURS * 2);
  quantize_team(0, x, t, f, o, rows, scratch, pieces, AA_GROUP_ID(0), AA_LOCAL_ID);
}
AA_REGISTER(AA_NAME_X(fp_team), AA_GROUP_SIZE)

// With stochastic rounding, whose random numbers take many registers.
AA_KERNEL(AA_NAME_X(fp_team_random), AA_GROUP_SIZE)
(AA_IN(void) x, AA_VALUE(aa_quant_teams) t, AA_VALUE(aa_fp_numbers) f, AA_VALUE(aa_quant_options) o, AA_OUT(aa_u8) rows) {
  AA_SCRATCH(scratch);
  AA_LOCAL_ARRAY(aa_u32, pieces, AA_GROUP_SIZE * AA_FOURS * 2);
  quantize_team(1, x, t, f, o, rows, scratch, pieces, AA_GROUP_ID(0), AA_LOCAL_ID);
}
AA_REGISTER(AA_NAME_X(fp_team_random), AA_GROUP_SIZE)

// Reads the part of a group from four `begin` on that a team takes; `bits` is a constant, that of the format.
AA_FN void load_codes(const aa_i32 bits, AA_IN(aa_u32) row, aa_quant_teams t, aa_fp_numbers f, aa_i64 begin, aa_i32 lane,
                      AA_OUT(AA_STORAGE(AA_X)) out) {
  const aa_i32 left = (aa_i32)(t.fours - begin < AA_FOURS * t.width ? t.fours - begin : AA_FOURS * t.width);
  const float scale = aa_flush(aa_float(row[t.fours * bits / 8]));
  // With such a scale no number times it is denormal.
  const aa_i32 normal = scale >= aa_float((aa_u32)(f.bias + f.mantissa_bits) << 23);
  f.bits = bits;
  AA_IN(aa_u32) from = row + begin * bits / 8;
  aa_u32 low[AA_FOURS], high[AA_FOURS];
  AA_PRAGMA_UNROLL for (aa_i32 k = 0; k < AA_FOURS; ++k) {
    const aa_i32 at = k * t.width + lane;
    low[k] = high[k] = 0;
    if (at < left) {
      // The word after the last code is the scale.
      const aa_u32 word = (aa_u32)(at * bits) / 8u;
      low[k] = from[word];
      if (bits == 6 || bits == 12) high[k] = from[word + 1];
    }
  }
#ifdef AA_HAS_DENORMALS
  // The bits of a code at the place of a float's, times a power of two, are its number: with that power in the scale one
  // multiplication rounds once, as it does after number_of().
  const float factor = aa_mul_rn(scale, aa_float((aa_u32)(254 - f.bias) << 23));
  aa_u32 special = normal && scale < aa_float((aa_u32)(127 + f.bias) << 23) ? 0 : 1;
  if (bits == 8) {
    AA_PRAGMA_UNROLL for (aa_i32 k = 0; k < AA_FOURS; ++k) {
      special |= ((low[k] & 0x7f7f7f7fu) + (aa_u32)(128 - f.first_special) * 0x01010101u) & 0x80808080u;
    }
  }
  if (special == 0) {
    AA_PRAGMA_UNROLL for (aa_i32 k = 0; k < AA_FOURS; ++k) {
      const aa_i32 at = k * t.width + lane;
      if (at < left) {
        const aa_u64 four = ((aa_u64)high[k] << 32 | low[k]) >> (at * (4 * bits) & 31);
        aa_four v;
        AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < 4; ++j) {
          const aa_u32 code = (aa_u32)(four >> (bits * j)) & ((1u << bits) - 1u);
          const aa_u32 sign = (code << (32 - bits)) & 0x80000000u;
          v.v[j] = aa_mul_rn(aa_float(sign | (code & ((1u << (bits - 1)) - 1u)) << (23 - f.mantissa_bits)), factor);
        }
        AA_STORE_NUMBERS(AA_X, out, at, v);
      }
    }
    return;
  }
#endif
  AA_PRAGMA_UNROLL for (aa_i32 k = 0; k < AA_FOURS; ++k) {
    const aa_i32 at = k * t.width + lane;
    if (at < left) {
      const aa_i32 shift = at * (4 * bits) & 31;
      const aa_u64 four = ((aa_u64)high[k] << 32 | low[k]) >> shift;
      aa_four v;
      AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < 4; ++j) {
        v.v[j] = aa_mul_rn(number_of((aa_u32)(four >> (bits * j)) & ((1u << bits) - 1u), f), scale);
      }
      if (!normal) {
        AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < 4; ++j) v.v[j] = aa_flush(v.v[j]);
      }
      AA_STORE_FOUR(AA_X, out, at, v);
    }
  }
}

// `chosen` as in fp_load of fp_quantizer.cl. A group of any size: groups of items of dimension 1 share it.
AA_KERNEL(AA_NAME_X(fp_team_load), AA_GROUP_SIZE)
(AA_IN(aa_u8) rows, AA_IN(aa_i64) chosen, AA_VALUE(aa_i64) groups_per_row, AA_VALUE(aa_quant_teams) t,
 AA_VALUE(aa_fp_numbers) f, AA_OUT(void) out) {
  const aa_i32 id = AA_LOCAL_ID, lane = id & (t.width - 1);
  const aa_i64 group = AA_GROUP_ID(0) * t.teams + (id >> t.width_bits);
  if (group >= t.groups) return;
  aa_i64 source = group;
  if (groups_per_row > 0) {
    const aa_i64 row = group / groups_per_row;
    source = chosen[row] * groups_per_row + (group - row * groups_per_row);
  }
  AA_IN(aa_u32) codes = AA_AS_IN(aa_u32, rows) + source * (t.fours * f.bits / 8 + 1);
  const aa_i64 begin = AA_GROUP_ID(1) * AA_FOURS * t.width;
  AA_OUT(AA_STORAGE(AA_X)) part = AA_AS_OUT(AA_STORAGE(AA_X), out) + 4 * (group * t.fours + begin);
  if (f.bits == 8) load_codes(8, codes, t, f, begin, lane, part);
  if (f.bits == 6) load_codes(6, codes, t, f, begin, lane, part);
  if (f.bits == 12) load_codes(12, codes, t, f, begin, lane, part);
  if (f.bits == 4) load_codes(4, codes, t, f, begin, lane, part);
}
AA_REGISTER(AA_NAME_X(fp_team_load), AA_GROUP_SIZE)
#endif
