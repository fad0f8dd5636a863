// The arguments that the tuned attention kernels take by value, and the code that they share. The host includes this
// file too, after defining aa_i64 and aa_i32 (see kernels/portable/arguments.h), with AA_ARGUMENTS_ONLY. Strides in
// elements.
#ifndef ANYACCEL_KERNELS_TUNED_ATTENTION_H_
#define ANYACCEL_KERNELS_TUNED_ATTENTION_H_

typedef struct aa_tuned_attention {
  aa_i64 tokens;
  aa_i64 kv_heads;
  aa_i64 heads_per_kv;
  aa_i64 sequences;
  aa_i64 slots;
  aa_i64 size; /* D */
  aa_i64 q_stride[3];   /* token, head, element */
  aa_i64 out_stride[3]; /* token, head, element */
  aa_i64 k_stride[3];   /* sequence, head, slot; of caches in bytes rows follow one another */
  aa_i64 v_stride[3];
  aa_i64 sequence_stride;
  aa_i64 position_stride;
  float scale;
  float softcap;
  aa_i32 window;
  aa_i32 q_dtype;
  aa_i32 out_dtype;
  aa_i32 splits; /* decode_attention: blocks that share the slots of one token */
  aa_i32 q_wide; /* decode_attention: q is F32, without gaps in a head, and its heads are aligned to 16 bytes */
  aa_i32 early;  /* decode_attention: 1: no kernel that may still run writes sequence and positions, and the next one may begin */
} aa_tuned_attention;

// decode_attention: threads of a block; query heads of one key/value head that a block makes, for caches of 16 and 32 bits;
// most splits; slots that a warp takes at once; fewest of these that a block is made for: one for each of its warps.
#define AA_DECODE_ATTENTION_THREADS 256
#define AA_DECODE_HEADS 8
#define AA_DECODE_HEADS_F32 4
#define AA_DECODE_MAX_SPLITS 64
#define AA_DECODE_TILE 16
#define AA_DECODE_LEAST_TILES 8
// Slots of a block whose keys and values are fetched into the second-level cache before the kernels before have ended.
#define AA_DECODE_EARLY_SLOTS 256
// Floats that one split leaves for the block that adds them up: maxima, totals, sums.
#define AA_DECODE_PARTIAL(heads, size) (((heads) * ((size) + 2) + 15) / 16 * 16)

// Caches in bytes come to shared memory: the bytes of a tile's keys, or values, in blocks of Q8_0 (where they lie as in memory, from
// the multiple of 16 bytes before them on) or as floats of 8 bits (rows 16 bytes apart); tiles under way of a warp; and the
// bytes of dynamic shared memory, which serve the sums of the warps at the end. Of heads up to 128, a multiprocessor runs so many
// blocks: decoding takes more instructions than eight warps issue while memory delivers.
#define AA_BYTES_BLOCKS(size) ((size) <= 128 ? 2 : 1)
#define AA_BYTES_TILE(size, blocks) \
  ((blocks) ? AA_DECODE_TILE * ((size) / 32 * 34) + 16 : AA_DECODE_TILE * ((size) + 16))
#define AA_BYTES_RING 2
#define AA_BYTES_RING_BYTES(size, blocks, ring) \
  (AA_DECODE_ATTENTION_THREADS / 32 * 2 * (ring) * AA_BYTES_TILE(size, blocks))
#define AA_BYTES_SLAB (AA_DECODE_ATTENTION_THREADS / 32 * AA_DECODE_HEADS * (128 + 4) * 4)
#define AA_BYTES_LOCAL(size, blocks, ring)                                                                            \
  (AA_BYTES_RING_BYTES(size, blocks, ring) > AA_BYTES_SLAB ? AA_BYTES_RING_BYTES(size, blocks, ring) \
                                                                   : AA_BYTES_SLAB)

// prefill_attention: threads of a block, rows (queries) and slots of its tiles, and bytes of dynamic shared memory.
#define AA_PREFILL_THREADS 128
#define AA_PREFILL_ROWS(size) ((size) <= 128 ? 128 : 64)
#define AA_PREFILL_SLOTS(size) ((size) <= 128 ? 64 : 32)
// Elements from one row of a tile to the next.
#define AA_PREFILL_PITCH(size) ((size) <= 64 ? 64 : (size) <= 128 ? 128 : 256)
#define AA_PREFILL_LOCAL(size) \
  ((AA_PREFILL_ROWS(size) + 4 * AA_PREFILL_SLOTS(size)) * AA_PREFILL_PITCH(size) * 2 + AA_PREFILL_ROWS(size) * 12 + 128)

// hopper_attention: threads of a block, rows of a piece of work, slots of a tile, tiles on their way, and bytes of dynamic
// shared memory. Tiles of 64 slots take a quarter more time.
#define AA_HOPPER_THREADS 384
#define AA_HOPPER_ROWS 128
#define AA_HOPPER_SLOTS 128
#define AA_HOPPER_STAGES 2
#define AA_HOPPER_LOCAL(size) \
  (1024 + (AA_HOPPER_ROWS + 2 * AA_HOPPER_STAGES * AA_HOPPER_SLOTS) * (size) * 2 + 64 * AA_HOPPER_STAGES)

#if !defined(AA_ARGUMENTS_ONLY)

#define AA_MINUS_INFINITY (-aa_float(0x7f800000u))
#define AA_LOG2_E 1.44269504088896340736f

// The matrix unit's operation for each element type, and the conversion of two floats to that type.
#define AA_MULTIPLY(type) AA_CAT(aa_mma_, type)
#define AA_PACK(type) AA_CAT(aa_pack_, type)

// Slots that a token sees: [begin, end), nothing for a sequence or position out of range but what there is.
AA_FN aa_i64 aa_first_slot(aa_i64 position, aa_i32 window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}
AA_FN aa_i64 aa_end_slot(aa_i64 position, aa_i64 slots) {
  const aa_i64 end = position < slots ? position + 1 : slots;
  return end > 0 ? end : 0;
}

// A product of query and key as an exponent of two.
AA_FN float aa_exponent(float score, float scale, float softcap) {
  if (softcap > 0.0f) return softcap * aa_tanh(score * scale / softcap) * AA_LOG2_E;
  return score * (scale * AA_LOG2_E);
}

#endif

#endif  // ANYACCEL_KERNELS_TUNED_ATTENTION_H_
