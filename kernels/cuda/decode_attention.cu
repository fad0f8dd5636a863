// "attention" of anyaccel/abi/ops.h for few tokens, each with a sequence and position of its own: the slots that a token sees
// are shared out to a.splits blocks (flash-decoding), and up to AA_DECODE_HEADS query heads of one key/value head read keys
// and values once. AA_W is the element type of the caches; AA_HEAD, when given, the one size of kernel that is wanted.
//
// The number of blocks that have work is derived from the position, on the device, so that a captured graph stays
// correct as positions grow: a block has at least AA_DECODE_LEAST_TILES tiles, or there is none. The last block of a
// token and head to finish adds up what the others left, always in the same order. Counters are zero before and after.
//
// Caches of 16 bits are multiplied by the matrix units, whose sums are fp32. A query head and the weights of the slots are cut
// into parts of 16 bits that add up to the fp32 number (three of bf16: exactly; two of f16: to 2^-21), so results are as good
// as fp32 arithmetic gives. The eight query heads are the columns of the unit; a block with fewer wastes nothing that counts,
// since memory is what it waits for. Keys go from memory to registers as the unit wants them: the order of the elements of a
// head does not matter for a sum over them, so a lane takes 16 neighbouring bytes for two steps of the unit.
#include "dialect.h"
#include "warp.h"
#include "tuned_attention.h"
#include "decode_attention.h"

#define AA_DECODE_KERNEL(size)                                                                                              \
  AA_TUNED_KERNEL(AA_NAME_W(decode_attention_##size), AA_DECODE_ATTENTION_THREADS, 1)                                                 \
  (AA_OUT(void) out, AA_IN(void) q, AA_IN(void) k, AA_IN(void) v, AA_IN(aa_i32) sequence, AA_IN(aa_i32) positions,          \
   AA_OUT(float) partial, AA_OUT(aa_u32) counters, aa_tuned_attention a) {                                                  \
    AA_LOCAL_ARRAY(aa_u32x4, queries, AA_QUERY_BYTES(size) / 16);                                                           \
    AA_LOCAL_ARRAY(aa_u32x4, slab, AA_WARPS * AA_HEADS * AA_SLAB_PITCH / 4);                                                \
    AA_LOCAL_ARRAY(float, numbers, (3 * AA_WARPS + 1) * AA_HEADS);                                                          \
    AA_LOCAL_ARRAY(aa_u32, turn, 1);                                                                                        \
    aa_decode<size>(out, q, k, v, sequence, positions, partial, counters, a, queries, slab, numbers, turn, 0);              \
  }                                                                                                                         \
  AA_REGISTER_TUNED(AA_NAME_W(decode_attention_##size), AA_DECODE_ATTENTION_THREADS)

#if !defined(AA_HEAD) || AA_HEAD == 64
AA_DECODE_KERNEL(64)
#endif
#if !defined(AA_HEAD) || AA_HEAD == 128
AA_DECODE_KERNEL(128)
#endif
#if !defined(AA_HEAD) || AA_HEAD == 256
AA_DECODE_KERNEL(256)
#endif
