// Integers of 8 and 4 bits with a scale for each group, like quantizer.cl and with the same bits, where a team of items holds a
// group in registers: elements are read once, and neighbouring items access neighbouring addresses. The host takes these
// kernels for groups of a multiple of four elements that are aligned and not too large, on devices with sub-groups
// (src/ops/portable/quantizers.cpp).
#include "dialect.h"
#include "integer_groups.h"
#include "quant_teams.h"

// Known to src/ops/portable/quantizers.cpp. What is done once for an item is a third of all that is done for 16 elements.
#define AA_FOURS AA_CAT(AA_FOURS_, AA_X)
#define AA_FOURS_f32 4
#define AA_FOURS_bf16 8
#define AA_FOURS_f16 8

#if AA_SUBGROUP
// The integers, as bits of rounded_bits, of a four that is number `four` of the tensor. `stochastic` and `tiny` (see
// tiny_matters) are constants.
AA_FN aa_four integers_of(const int stochastic, const int tiny, aa_four x, group_scale s, aa_quant_options o, aa_i64 four) {
  if (tiny) {
    AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < 4; ++j) x.v[j] = zero_tiny(x.v[j]);
  }
  if (o.asymmetric) {
    AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < 4; ++j) x.v[j] = aa_add_rn(x.v[j], -s.offset);
    if (tiny) {
      AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < 4; ++j) x.v[j] = zero_tiny(x.v[j]);
    }
  }
  AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < 4; ++j) x.v[j] = aa_mul_rn(x.v[j], s.inverse);
  if (stochastic) {
    aa_u32 words[4];
    aa_philox(o.seed, o.offset + (aa_u64)four, words);
    AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < 4; ++j) {
      const float exact = zero_tiny(x.v[j]), below = aa_floor(exact);
      x.v[j] = aa_unit(words[j]) < aa_add_rn(exact, -below) ? below + 1.0f : below;
    }
  }
  AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < 4; ++j) x.v[j] = aa_fmin(aa_fmax(x.v[j], s.low), s.high);
  return x;
}

// Stores a group of a team: its fours, of which `finite` says whether they have integers other than 0.
AA_FN void store_integers(const int stochastic, const int tiny, AA_PRIVATE const AA_RAW_FOUR(AA_X)* held, aa_quant_teams t,
                          aa_quant_options o, group_scale s, aa_i32 finite, aa_i64 first, aa_i32 present, aa_i32 lane,
                          AA_OUT(aa_u8) to) {
  const aa_i32 end = present ? (aa_i32)t.fours : 0;
  AA_PRAGMA_UNROLL for (aa_i32 k = 0; k < AA_FOURS; ++k) {
    const aa_i32 at = k * t.width + lane;
    if (at < end) {
      const aa_four v = integers_of(stochastic, tiny, AA_FOUR_OF(AA_X, held[k]), s, o, first + at);
      aa_u32 code[4];
      AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < 4; ++j) code[j] = tiny && !finite ? 0 : rounded_bits(v.v[j]);
      if (o.bits == 8) {
        AA_AS_OUT(aa_u32, to)[at] = (code[0] & 255u) | (code[1] & 255u) << 8 | (code[2] & 255u) << 16 | code[3] << 24;
      } else {
        AA_AS_OUT(aa_u16, to)[at] =
            (aa_u16)((code[0] & 15u) << 4 | (code[1] & 15u) | (code[2] & 15u) << 12 | (code[3] & 15u) << 8);
      }
    }
  }
}

// Quantizes the group of the team that `id` belongs to; `stochastic` is a constant.
AA_FN void quantize_team(const int stochastic, AA_IN(void) x, aa_quant_teams t, aa_quant_order order, aa_quant_options o,
                         AA_OUT(aa_u8) values, AA_OUT(float) params, AA_LOCAL float* scratch, aa_i64 group_id, aa_i32 id) {
  const aa_i32 lane = id & (t.width - 1), fours = (aa_i32)t.fours;
  // A team without a group repeats the last one, and stores nothing.
  const aa_i64 number = group_id * t.teams + (id >> t.width_bits);
  const aa_i32 present = number < t.groups;
  const aa_i64 group = present ? number : t.groups - 1;
  const aa_i64 first = group * fours;
  AA_IN(AA_STORAGE(AA_X)) from = AA_AS_IN(AA_STORAGE(AA_X), x) + 4 * first;
  AA_RAW_FOUR(AA_X) held[AA_FOURS];
  AA_PRAGMA_UNROLL for (aa_i32 k = 0; k < AA_FOURS; ++k) {
    // Beyond the group's end, the last four once more.
    const aa_i32 at = k * t.width + lane;
    if (k * t.width < fours) held[k] = AA_LOAD_FOUR(AA_X, from, at < fours ? at : fours - 1);
  }
  team_range range = no_range();
  AA_PRAGMA_UNROLL for (aa_i32 k = 0; k < AA_FOURS; ++k) {
    if (k * t.width < fours) range = range_with(range, AA_FOUR_OF(AA_X, held[k]), o.asymmetric);
  }
  aa_quant_range r;
  const float largest = largest_of(range);
  if (o.asymmetric) {
    const aa_i32 finite = aa_is_finite(largest);
    r.high = team_max(finite ? aa_flush(range.high) : largest, t.width, scratch, id);
    r.negated = team_max(finite ? aa_flush(range.negated) : largest, t.width, scratch, id);
  } else {
    r.high = r.negated = team_max(largest, t.width, scratch, id);
  }
  const group_params p = params_of(r, o.bits, o.asymmetric);
  const aa_i64 place = place_of(order, group);
  if (present && lane == 0) store_params(params, place, o.asymmetric, p);
  const group_scale s = scale_of(p, o.bits, o.asymmetric);
  const aa_i32 finite = !aa_isnan(s.scale);
  AA_OUT(aa_u8) to = values + place * fours * (o.bits == 8 ? 4 : 2);
  if (stochastic || tiny_matters(s.inverse)) {
    store_integers(stochastic, 1, held, t, o, s, finite, first, present, lane, to);
  } else {
    store_integers(stochastic, 0, held, t, o, s, finite, first, present, lane, to);
  }
}

AA_KERNEL(AA_NAME_X(quant_team), AA_GROUP_SIZE)
(AA_IN(void) x, AA_VALUE(aa_quant_teams) t, AA_VALUE(aa_quant_order) order, AA_VALUE(aa_quant_options) o,
 AA_OUT(aa_u8) values, AA_OUT(float) params) {
  AA_SCRATCH(scratch);
  quantize_team(0, x, t, order, o, values, params, scratch, AA_GROUP_ID(0), AA_LOCAL_ID);
}
AA_REGISTER(AA_NAME_X(quant_team), AA_GROUP_SIZE)

// With stochastic rounding, whose random numbers take many registers.
AA_KERNEL(AA_NAME_X(quant_team_random), AA_GROUP_SIZE)
(AA_IN(void) x, AA_VALUE(aa_quant_teams) t, AA_VALUE(aa_quant_order) order, AA_VALUE(aa_quant_options) o,
 AA_OUT(aa_u8) values, AA_OUT(float) params) {
  AA_SCRATCH(scratch);
  quantize_team(1, x, t, order, o, values, params, scratch, AA_GROUP_ID(0), AA_LOCAL_ID);
}
AA_REGISTER(AA_NAME_X(quant_team_random), AA_GROUP_SIZE)

// A group of any size: groups of items of dimension 1 share it.
AA_KERNEL(AA_NAME_X(quant_team_load), AA_GROUP_SIZE)
(AA_IN(aa_u8) values, AA_IN(float) params, AA_VALUE(aa_quant_teams) t, AA_VALUE(aa_quant_options) o, AA_OUT(void) out) {
  const aa_i32 id = AA_LOCAL_ID, lane = id & (t.width - 1);
  const aa_i64 group = AA_GROUP_ID(0) * t.teams + (id >> t.width_bits);
  if (group >= t.groups) return;
  group_params p = load_params(params, group, o.asymmetric);
  p.scale = aa_flush(p.scale);
  p.offset = aa_flush(p.offset);
  const aa_i64 first = group * t.fours;
  const aa_i64 begin = AA_GROUP_ID(1) * AA_FOURS * t.width;
  const aa_i32 left = (aa_i32)(t.fours - begin < AA_FOURS * t.width ? t.fours - begin : AA_FOURS * t.width);
  AA_IN(aa_u8) from = values + (first + begin) * (o.bits == 8 ? 4 : 2);
  AA_OUT(AA_STORAGE(AA_X)) to = AA_AS_OUT(AA_STORAGE(AA_X), out) + 4 * (first + begin);
  aa_u32 held[AA_FOURS];
  AA_PRAGMA_UNROLL for (aa_i32 k = 0; k < AA_FOURS; ++k) {
    const aa_i32 at = k * t.width + lane;
    held[k] = 0;
    if (at < left) {
      if (o.bits == 8) {
        held[k] = AA_AS_IN(aa_u32, from)[at];
      } else {
        held[k] = AA_AS_IN(aa_u16, from)[at];
      }
    }
  }
  AA_PRAGMA_UNROLL for (aa_i32 k = 0; k < AA_FOURS; ++k) {
    const aa_i32 at = k * t.width + lane;
    if (at < left) {
      aa_four v;
      const aa_i32 w = (aa_i32)held[k];
      // An integer is shifted to the upper end of a word first, for its sign. Its product with a normal scale is no denormal
      // number.
      if (o.bits == 8) {
        AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < 4; ++j) v.v[j] = (float)((aa_i32)((aa_u32)w << (24 - 8 * j)) >> 24);
      } else {
        AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < 4; ++j) {
          v.v[j] = (float)((aa_i32)((aa_u32)w << (24 - 8 * (j / 2) + 4 * (j & 1))) >> 28);
        }
      }
      AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < 4; ++j) v.v[j] = aa_add_rn(aa_mul_rn(v.v[j], p.scale), p.offset);
      if (o.asymmetric) {
        AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < 4; ++j) v.v[j] = aa_flush(v.v[j]);
      }
      AA_STORE_FOUR(AA_X, to, at, v);
    }
  }
}
AA_REGISTER(AA_NAME_X(quant_team_load), AA_GROUP_SIZE)
#endif
