// Shared by decode_qkv.cu and decode_tiles_qkv.cu: a unit is two rows of w_q, w_k or w_v, the two that rotary position
// embedding turns together where it turns them at all, so that queries, keys and values go from the sums to where they stay.
// Heads are numbered through: those of q, of k, of v. See decode_products.h.
#ifndef ANYACCEL_KERNELS_DECODE_QKV_H_
#define ANYACCEL_KERNELS_DECODE_QKV_H_

#include "decode_units.h"

struct aa_qkv_work {
  AA_IN(void) w_q;
  AA_IN(void) w_k;
  AA_IN(void) w_v;
  AA_IN(void) bias_q;
  AA_IN(void) bias_k;
  AA_IN(void) bias_v;
  AA_OUT(void) q;
  AA_OUT(void) k_cache;
  AA_OUT(void) v_cache;
  aa_decode_heads q_heads;
  aa_decode_heads k_heads;
  aa_decode_heads v_heads;
  AA_IN(float) cosines;
  AA_IN(float) sines;
  AA_IN(aa_i32) sequence;
  AA_IN(aa_i32) positions;
  aa_decode_rope rope;
};

// Elements `first` and `second` of a head; pair: what turns them, -1: nothing does.
struct aa_qkv_place {
  aa_i32 kind;  // 0: q, 1: k, 2: v
  aa_i32 head;  // of its kind
  aa_i32 first, second, pair;
};
AA_FN aa_qkv_place aa_place_of(const aa_qkv_work& work, aa_i32 unit) {
  const aa_i32 half = work.rope.head_size / 2;
  aa_i32 head = unit / half;
  const aa_i32 i = unit - head * half;
  aa_i32 kind = 0;
  if (head >= work.q_heads.heads) {
    head -= work.q_heads.heads;
    kind = 1;
    if (head >= work.k_heads.heads) {
      head -= work.k_heads.heads;
      kind = 2;
    }
  }
  const bool turned = kind < 2 && i < work.rope.pairs;
  if (turned && !work.rope.interleaved) return {kind, head, i, i + work.rope.pairs, i};
  return {kind, head, 2 * i, 2 * i + 1, turned ? i : -1};
}
AA_FN aa_decode_heads aa_heads_of(const aa_qkv_work& work, aa_i32 kind) {
  return kind == 0 ? work.q_heads : kind == 1 ? work.k_heads : work.v_heads;
}

AA_FN void aa_unit_rows(const aa_qkv_work& work, aa_i32 unit, AA_IN(aa_u8) (&row)[2]) {
  const aa_qkv_place at = aa_place_of(work, unit);
  AA_IN(void) w = at.kind == 0 ? work.w_q : at.kind == 1 ? work.w_k : work.w_v;
  const aa_i64 stride = at.kind == 0 ? work.q_heads.w_row : at.kind == 1 ? work.k_heads.w_row : work.v_heads.w_row;
  const aa_i32 from = at.head * work.rope.head_size;
  row[0] = AA_AS_IN(aa_u8, w) + (from + at.first) * stride;
  row[1] = AA_AS_IN(aa_u8, w) + (from + at.second) * stride;
}

// The cache location of a token's keys and values: `first` is the sequence (-1: nowhere), `second` the slot. Of tokens
// that name the same slot the last one is written.
AA_FN aa_decode_token aa_unit_token(const aa_qkv_work& work, aa_i32 token) {
  const aa_i32 sequence = work.sequence[token * work.rope.sequence_inner];
  const aa_i32 slot = work.positions[token * work.rope.position_inner];
  bool written = sequence >= 0 && sequence < work.rope.sequences && slot >= 0 && slot < work.rope.slots;
  AA_PRAGMA_NO_UNROLL for (aa_i32 later = token + 1; later < work.rope.tokens; ++later) {
    if (work.sequence[later * work.rope.sequence_inner] == sequence &&
        work.positions[later * work.rope.position_inner] == slot) {
      written = false;
    }
  }
  return {0, written ? sequence : -1, slot};
}

// The two biases, cosine and sine.
AA_FN void aa_unit_fetch(const aa_qkv_work& work, aa_i32 unit, aa_i32 token, aa_u32 (&raw)[4]) {
  const aa_qkv_place at = aa_place_of(work, aa_opaque(unit));
  const aa_decode_heads heads = aa_heads_of(work, at.kind);
  if (heads.bias_dtype) {
    AA_IN(void) bias = at.kind == 0 ? work.bias_q : at.kind == 1 ? work.bias_k : work.bias_v;
    const aa_i32 from = at.head * work.rope.head_size;
    raw[0] = aa_load_raw(bias, heads.bias_dtype, (from + at.first) * heads.bias_inner);
    raw[1] = aa_load_raw(bias, heads.bias_dtype, (from + at.second) * heads.bias_inner);
  }
  if (at.pair >= 0) {
    raw[2] = aa_bits(work.cosines[token * work.rope.cos_row + at.pair * work.rope.cos_inner]);
    raw[3] = aa_bits(work.sines[token * work.rope.sin_row + at.pair * work.rope.sin_inner]);
  }
}
AA_FN void aa_unit_end(const aa_qkv_work& work, aa_i32 unit, aa_i32 token, const float (&sums)[2],
                       const aa_u32 (&raw)[4], const aa_decode_token& about) {
  const aa_qkv_place at = aa_place_of(work, aa_opaque(unit));
  const aa_decode_heads heads = aa_heads_of(work, at.kind);
  float a = sums[0];
  float b = sums[1];
  if (heads.bias_dtype) {
    a += aa_raw_value(raw[0], heads.bias_dtype);
    b += aa_raw_value(raw[1], heads.bias_dtype);
  }
  if (at.pair >= 0) {
    const float cosine = aa_float(raw[2]), sine = aa_float(raw[3]);
    const float turned = aa_fma(a, cosine, -(b * sine));
    b = aa_fma(b, cosine, a * sine);
    a = turned;
  }
  if (at.kind != 0 && about.first < 0) return;
  const aa_i64 to = (at.kind == 0 ? token * heads.outer : about.first * heads.outer + about.second * heads.slot) +
                    at.head * heads.head;
  AA_OUT(void) out = at.kind == 0 ? work.q : at.kind == 1 ? work.k_cache : work.v_cache;
  const aa_i32 dtype = aa_opaque(heads.dtype);
  aa_store_value(out, dtype, to + at.first * heads.inner, a);
  aa_store_value(out, dtype, to + at.second * heads.inner, b);
}

#endif  // ANYACCEL_KERNELS_DECODE_QKV_H_
