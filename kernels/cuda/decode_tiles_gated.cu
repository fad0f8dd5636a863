// "norm_quantized_gated_linear", rounded, and "norm_gated_linear" of anyaccel/abi/ops.h for a few rows of x; see decode_tiles.h.
#include "decode_tiles.h"
#include "decode_gated.h"

// Base 0 is w_gate, base 1 w_up.
AA_FN aa_tile_place aa_tile_row(const aa_gated_work& work, aa_i32 unit, aa_i32 row) {
  return {unit * (row ? work.up_part.w_row : work.gate_part.w_row), row};
}
AA_FN AA_IN(aa_u8) aa_tile_base(const aa_gated_work& work, aa_u32 base) {
  return AA_AS_IN(aa_u8, base ? work.up : work.gate);
}

#define AA_TILES_GATED(name, number, columns) \
  AA_TUNED_KERNEL(name, AA_TILES_THREADS(number, columns), 1) \
  (AA_IN(void) x, AA_IN(void) norm, aa_tiles_x xs, AA_OUT(void) out, AA_IN(void) gate, AA_IN(void) up, \
   AA_IN(void) gate_bias, AA_IN(void) up_bias, aa_decode_part gate_part, aa_decode_part up_part, aa_i32 kind, \
   aa_i32 reserved) { \
    AA_DYNAMIC_LOCAL(local); \
    const aa_gated_work work = {out, gate, up, gate_bias, up_bias, gate_part, up_part, kind}; \
    aa_decode_tiles<number, columns>(work, x, norm, xs, local); \
  } \
  AA_REGISTER_TUNED(name, AA_TILES_THREADS(number, columns))

#if !defined(AA_NUMBER) || AA_NUMBER == 2
AA_TILES_OF_FORMAT(AA_TILES_GATED, decode_tiles_gated_q4_0, 2)
#endif
#if !defined(AA_NUMBER) || AA_NUMBER == 8
AA_TILES_OF_FORMAT(AA_TILES_GATED, decode_tiles_gated_q8_0, 8)
#endif
#if !defined(AA_NUMBER) || AA_NUMBER == 12
AA_TILES_OF_FORMAT(AA_TILES_GATED, decode_tiles_gated_q4_k, 12)
#endif
#if !defined(AA_NUMBER) || AA_NUMBER == 14
AA_TILES_OF_FORMAT(AA_TILES_GATED, decode_tiles_gated_q6_k, 14)
#endif
#if !defined(AA_NUMBER) || AA_NUMBER == 30
AA_TILES_OF_BF16(AA_TILES_GATED, decode_tiles_gated)
#endif
