// "quantized_linear", rounded, "linear" and "norm_linear" of anyaccel/abi/ops.h for a few rows of x; see decode_tiles.h.
#include "decode_tiles.h"
#include "decode_linear.h"

using aa_tiles_linear_work = aa_linear_work<2, 1>;

AA_FN aa_tile_place aa_tile_row(const aa_tiles_linear_work& work, aa_i32 unit, aa_i32 row) {
  const aa_i32 n = 2 * unit + row, last = work.part[0].n - 1;
  return {(n < last ? n : last) * work.part[0].w_row, 0};
}
AA_FN AA_IN(aa_u8) aa_tile_base(const aa_tiles_linear_work& work, aa_u32) { return AA_AS_IN(aa_u8, work.w[0]); }

#define AA_TILES_LINEAR(name, number, columns) \
  AA_TUNED_KERNEL(name, AA_TILES_THREADS(number, columns), 1) \
  (AA_IN(void) x, AA_IN(void) norm, aa_tiles_x xs, AA_OUT(void) out, AA_IN(void) w, AA_IN(void) bias, \
   aa_decode_part part, AA_IN(void) residual, aa_decode_residual res) { \
    AA_DYNAMIC_LOCAL(local); \
    const aa_tiles_linear_work work = {{w}, {out}, {bias}, {part}, residual, res}; \
    aa_decode_tiles<number, columns>(work, x, norm, xs, local); \
  } \
  AA_REGISTER_TUNED(name, AA_TILES_THREADS(number, columns))

#if !defined(AA_NUMBER) || AA_NUMBER == 2
AA_TILES_OF_FORMAT(AA_TILES_LINEAR, decode_tiles_linear_q4_0, 2)
#endif
#if !defined(AA_NUMBER) || AA_NUMBER == 8
AA_TILES_OF_FORMAT(AA_TILES_LINEAR, decode_tiles_linear_q8_0, 8)
#endif
#if !defined(AA_NUMBER) || AA_NUMBER == 12
AA_TILES_OF_FORMAT(AA_TILES_LINEAR, decode_tiles_linear_q4_k, 12)
#endif
#if !defined(AA_NUMBER) || AA_NUMBER == 14
AA_TILES_OF_FORMAT(AA_TILES_LINEAR, decode_tiles_linear_q6_k, 14)
#endif
#if !defined(AA_NUMBER) || AA_NUMBER == 30
AA_TILES_OF_BF16(AA_TILES_LINEAR, decode_tiles_linear)
#endif
