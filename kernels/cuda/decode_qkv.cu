// "norm_qkv_rope" of anyaccel/abi/ops.h for a few tokens; see decode_products.h and decode_qkv.h.
#include "decode_products.h"
#include "decode_qkv.h"

#define AA_DECODE_QKV(shape) \
  AA_TUNED_KERNEL(AA_NAME_W(AA_CAT(decode_qkv_, shape)), AA_DECODE_THREADS, 1) \
  (AA_IN(void) x, AA_IN(void) norm, aa_decode_x xs, AA_IN(void) w_q, AA_IN(void) w_k, AA_IN(void) w_v, \
   AA_IN(void) bias_q, AA_IN(void) bias_k, AA_IN(void) bias_v, AA_OUT(void) q, AA_OUT(void) k_cache, \
   AA_OUT(void) v_cache, aa_decode_heads q_heads, aa_decode_heads k_heads, aa_decode_heads v_heads, \
   AA_IN(float) cosines, AA_IN(float) sines, AA_IN(aa_i32) sequence, AA_IN(aa_i32) positions, aa_decode_rope rope) { \
    AA_DYNAMIC_LOCAL(local); \
    const aa_qkv_work work = {w_q,     w_k,     w_v,     bias_q, bias_k, bias_v,   q,         k_cache, v_cache, \
                              q_heads, k_heads, v_heads, cosines, sines, sequence, positions, rope}; \
    aa_decode<AA_SHAPE_ROWS(shape), 2, AA_SHAPE_LOADS(shape)>(work, x, norm, xs, local); \
  } \
  AA_REGISTER_TUNED(AA_NAME_W(AA_CAT(decode_qkv_, shape)), AA_DECODE_THREADS)

AA_DECODE_KERNELS(AA_DECODE_QKV)
