// "quantized_attention" of anyaccel/abi/ops.h over caches of AA_CACHE_F8_E4M3: a byte for each value, with a sign, 4 bits of
// exponent with bias 7 and 3 bits of mantissa.
#include "dialect.h"
#include "arguments.h"
#include "attention_arguments.h"

typedef AA_STORAGE(AA_X) aa_q_type;
typedef aa_u8 aa_key_type;

// Without a table and without subnormal floats, which some devices take for zero.
AA_FN float aa_e4m3(aa_u32 byte) {
  const aa_u32 magnitude = byte & 0x7fu;
  const float normal = aa_float((magnitude << 20) + (120u << 23));
  const float small = (float)magnitude * (1.0f / 512.0f);
  const aa_u32 bits = magnitude == 0x7fu ? 0x7fc00000u : aa_bits(magnitude < 8u ? small : normal);
  return aa_float(bits | (byte & 0x80u) << 24);
}

AA_FN float aa_e4m3_at(AA_IN(aa_u8) cache, aa_i64 at) { return aa_e4m3(cache[at]); }

AA_FN aa_wide aa_e4m3_wide(AA_IN(aa_u8) cache, aa_i64 at) {
  aa_wide r = aa_wide_all(0.0f);
  AA_PRAGMA_UNROLL for (int j = 0; j < AA_WIDE; ++j) aa_wide_get(r, j) = aa_e4m3(cache[at + j]);
  return r;
}

#define AA_KEY_WIDE(k, row, d) aa_e4m3_wide(k, (row) + (d))
#define AA_KEY_AT(k, row, d) aa_e4m3_at(k, (row) + (d))
#define AA_CACHED_WIDE(v, row, d) aa_e4m3_wide(AA_AS_IN(aa_u8, v), (row) + (d))
#define AA_CACHED_AT(v, row, d) aa_e4m3_at(AA_AS_IN(aa_u8, v), (row) + (d))
#define AA_ATTENTION AA_NAME_X(e4m3_attention)

#include "attention_rows.h"
