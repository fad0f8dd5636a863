// "norm_quantized_qkv_rope", rounded, and "norm_qkv_rope" of anyaccel/abi/ops.h for a few tokens; see decode_tiles.h.
#include "decode_tiles.h"
#include "decode_qkv.h"

// Bases 0, 1 and 2 are w_q, w_k and w_v.
AA_FN aa_tile_place aa_tile_row(const aa_qkv_work& work, aa_i32 unit, aa_i32 row) {
  const aa_qkv_place at = aa_place_of(work, unit);
  const aa_i64 stride = at.kind == 0 ? work.q_heads.w_row : at.kind == 1 ? work.k_heads.w_row : work.v_heads.w_row;
  return {(at.head * work.rope.head_size + (row ? at.second : at.first)) * stride, at.kind};
}
AA_FN AA_IN(aa_u8) aa_tile_base(const aa_qkv_work& work, aa_u32 base) {
  return AA_AS_IN(aa_u8, base == 0 ? work.w_q : base == 1 ? work.w_k : work.w_v);
}

#define AA_TILES_QKV(name, number, columns) \
  AA_TUNED_KERNEL(name, AA_TILES_THREADS(number, columns), 1) \
  (AA_IN(void) x, AA_IN(void) norm, aa_tiles_x xs, AA_IN(void) w_q, AA_IN(void) w_k, AA_IN(void) w_v, \
   AA_IN(void) bias_q, AA_IN(void) bias_k, AA_IN(void) bias_v, AA_OUT(void) q, AA_OUT(void) k_cache, \
   AA_OUT(void) v_cache, aa_decode_heads q_heads, aa_decode_heads k_heads, aa_decode_heads v_heads, \
   AA_IN(float) cosines, AA_IN(float) sines, AA_IN(aa_i32) sequence, AA_IN(aa_i32) positions, aa_decode_rope rope) { \
    AA_DYNAMIC_LOCAL(local); \
    const aa_qkv_work work = {w_q,     w_k,     w_v,     bias_q, bias_k, bias_v,   q,         k_cache, v_cache, \
                              q_heads, k_heads, v_heads, cosines, sines, sequence, positions, rope}; \
    aa_decode_tiles<number, columns>(work, x, norm, xs, local); \
  } \
  AA_REGISTER_TUNED(name, AA_TILES_THREADS(number, columns))

#if !defined(AA_NUMBER) || AA_NUMBER == 2
AA_TILES_OF_FORMAT(AA_TILES_QKV, decode_tiles_qkv_q4_0, 2)
#endif
#if !defined(AA_NUMBER) || AA_NUMBER == 8
AA_TILES_OF_FORMAT(AA_TILES_QKV, decode_tiles_qkv_q8_0, 8)
#endif
#if !defined(AA_NUMBER) || AA_NUMBER == 12
AA_TILES_OF_FORMAT(AA_TILES_QKV, decode_tiles_qkv_q4_k, 12)
#endif
#if !defined(AA_NUMBER) || AA_NUMBER == 14
AA_TILES_OF_FORMAT(AA_TILES_QKV, decode_tiles_qkv_q6_k, 14)
#endif
#if !defined(AA_NUMBER) || AA_NUMBER == 30
AA_TILES_OF_BF16(AA_TILES_QKV, decode_tiles_qkv)
#endif
