// "quantized_attention" of anyaccel/abi/ops.h: attention over caches whose rows are blocks of AA_BLOCK_Q8_0, 34 bytes for 32
// values: the scale as a half, and a signed byte for each value. Rows begin at even addresses.
#include "dialect.h"
#include "arguments.h"
#include "attention_arguments.h"

typedef AA_STORAGE(AA_X) aa_q_type;
typedef aa_u8 aa_key_type;

// The byte of a cache at which the block with value d of a row begins.
AA_FN aa_i64 aa_block_of(aa_i64 row, aa_i64 d) { return row + d / 32 * 34; }

AA_FN float aa_block_scale(AA_IN(void) cache, aa_i64 block) { return aa_load_f16(AA_AS_IN(aa_u16, cache), block / 2); }

AA_FN float aa_block_value(AA_IN(void) cache, aa_i64 row, aa_i64 d) {
  const aa_i64 block = aa_block_of(row, d);
  return aa_block_scale(cache, block) * (float)AA_AS_IN(aa_i8, cache)[block + 2 + d % 32];
}

AA_FN aa_wide aa_block_wide(AA_IN(void) cache, aa_i64 row, aa_i64 d) {
  const aa_i64 block = aa_block_of(row, d);
  return aa_wide_fma(aa_wide_load_i8(AA_AS_IN(aa_i8, cache), block + 2 + d % 32),
                     aa_wide_all(aa_block_scale(cache, block)), aa_wide_all(0.0f));
}

#define AA_KEY_WIDE(k, row, d) aa_block_wide(AA_AS_IN(void, k), row, d)
#define AA_KEY_AT(k, row, d) aa_block_value(AA_AS_IN(void, k), row, d)
#define AA_CACHED_WIDE(v, row, d) aa_block_wide(v, row, d)
#define AA_CACHED_AT(v, row, d) aa_block_value(v, row, d)
#define AA_ATTENTION AA_NAME_X(quantized_attention)

#include "attention_rows.h"
