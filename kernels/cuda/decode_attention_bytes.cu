// "quantized_attention" of anyaccel/abi/ops.h: decode_attention.cu over caches of AA_CACHE_Q8_0 and AA_CACHE_F8_E4M3, for any number
// of tokens. Numbers of a cache are exact in f16, those of Q8_0 before they are scaled also in bf16, which weights times scales need,
// since these have any size. AA_W stands for the format: bf16 for Q8_0 and f16 for E4M3. (With f32 there is no kernel.) AA_HEAD, when
// given, is the one size of kernel that is wanted, and AA_RING the number of tiles that a warp has under way.
#include "dialect.h"
#include "warp.h"
#include "tuned_attention.h"

#define AA_CACHE_BYTES 1
#if !defined(AA_RING)
#define AA_RING AA_BYTES_RING
#endif

#define AA_FORMAT_f32 0
#define AA_FORMAT_bf16 8
#define AA_FORMAT_f16 256
#if AA_CAT(AA_FORMAT_, AA_W) == 8
#define AA_BLOCKS 1
#define AA_NAME_FORMAT(base) base##_q8_0
#else
#define AA_BLOCKS 0
#define AA_NAME_FORMAT(base) base##_e4m3
#endif

#if AA_CAT(AA_FORMAT_, AA_W)
// Queries and keys are multiplied in f16.
#undef AA_W
#define AA_W f16
#include "decode_attention.h"

#define AA_DECODE_KERNEL(size)                                                                                         \
  AA_TUNED_KERNEL(AA_NAME_FORMAT(decode_attention_##size), AA_DECODE_ATTENTION_THREADS, AA_BYTES_BLOCKS(size))         \
  (AA_OUT(void) out, AA_IN(void) q, AA_IN(void) k, AA_IN(void) v, AA_IN(aa_i32) sequence, AA_IN(aa_i32) positions,     \
   AA_OUT(float) partial, AA_OUT(aa_u32) counters, aa_tuned_attention a) {                                             \
    AA_DYNAMIC_LOCAL(ring);                                                                                            \
    AA_LOCAL_ARRAY(aa_u32x4, queries, AA_QUERY_BYTES(size) / 16);                                                      \
    AA_LOCAL_ARRAY(float, numbers, (3 * AA_WARPS + 1) * AA_HEADS);                                                     \
    AA_LOCAL_ARRAY(aa_u32, turn, 1);                                                                                   \
    aa_decode<size>(out, q, k, v, sequence, positions, partial, counters, a, queries, (aa_u32x4*)ring, numbers, turn,  \
                    ring);                                                                                             \
  }                                                                                                                    \
  AA_REGISTER_TUNED(AA_NAME_FORMAT(decode_attention_##size), AA_DECODE_ATTENTION_THREADS)

#if !defined(AA_HEAD) || AA_HEAD == 64
AA_DECODE_KERNEL(64)
#endif
#if !defined(AA_HEAD) || AA_HEAD == 128
AA_DECODE_KERNEL(128)
#endif
#if !defined(AA_HEAD) || AA_HEAD == 256
AA_DECODE_KERNEL(256)
#endif

#endif
