// Sizes and structs of embedding.cu, norms.cu, pairs.cu, positions.cu, argmax.cu and sampling.cu, which the host uses too (it
// includes this file after defining aa_i64 and aa_i32).
#ifndef ANYACCEL_KERNELS_ROW_ARGUMENTS_H_
#define ANYACCEL_KERNELS_ROW_ARGUMENTS_H_

#define AA_EMBEDDING_THREADS 128
#define AA_PAIR_THREADS 256
#define AA_POSITION_THREADS 128
#define AA_ROPE_THREADS 256
#define AA_WRITE_THREADS 256
#define AA_WRITE_TOKENS 4
// The longest row that is normalised has AA_NORM_THREADS * AA_NORM_CHUNKS * 8 elements.
#define AA_NORM_THREADS 1024
#define AA_NORM_CHUNKS 2

// Strides of rows in elements. A dtype of 0: the tensor is absent.
typedef struct aa_norm_rows {
  aa_i64 size;
  aa_i64 out_row;
  aa_i64 x_row;
  aa_i64 residual_row;
  aa_i32 out_dtype;
  aa_i32 x_dtype;
  aa_i32 residual_dtype;
  aa_i32 weight_dtype;
  aa_i32 bias_dtype;
  aa_i32 centred; /* layer_norm */
  aa_i32 threads; /* of a block */
  float eps;
} aa_norm_rows;

// A cache [B,Hk,S,D], or queries, keys or values [T,H,D]. Strides in elements.
typedef struct aa_head_slots {
  aa_i64 outer; /* of B or T */
  aa_i64 head;
  aa_i64 slot;
  aa_i64 inner;
  aa_i32 dtype;
  aa_i32 reserved;
} aa_head_slots;

// rope_cache_rows takes this beside tensors. Strides are in elements.
typedef struct aa_qkv_rows {
  aa_i64 q_row; /* from one token to the next, of products: heads are neighbours */
  aa_i64 k_row;
  aa_i64 v_row;
  aa_i64 cos_row;
  aa_i64 sin_row;
  aa_i64 sequence_step;
  aa_i64 position_step;
  aa_i64 sequences;
  aa_i64 slots;
  aa_i32 tokens;
  aa_i32 q_heads;
  aa_i32 kv_heads;
  aa_i32 size; /* of a head, in pairs: a multiple of 8, at most AA_QKV_SIZE */
} aa_qkv_rows;
#define AA_QKV_SIZE (AA_WRITE_THREADS / AA_WRITE_TOKENS * 8)

#define AA_SAMPLE_THREADS 512
#define AA_SAMPLE_BINS 2048
// Elements that a block takes at least, and blocks that share a row at most.
#define AA_SAMPLE_SHARE 4096
#define AA_SAMPLE_BLOCKS 64

// Rows of logits and where their tokens go. Strides in elements.
typedef struct aa_sample_rows {
  aa_i64 size;
  aa_i64 row; /* from one row of logits to the next */
  aa_i64 out_step;
  aa_i64 seen_row;
  aa_i64 seen_inner;
  aa_i64 rng_step;
  aa_i32 out_dtype;
  aa_i32 has_seen;
  float temperature;
  float top_p;
  aa_i32 top_k;
  aa_i32 finite_only; /* a row whose largest logit is not finite has no token: -1 */
  float reach; /* -log(min_p): how far a logit may lie below the largest, after division by the temperature */
  aa_i32 reserved;
} aa_sample_rows;

// 32-bit words that a row needs: of results, and of counters that are zero before and after (argmax: one).
#define AA_SAMPLE_RESULTS (2 + 2 * AA_SAMPLE_BLOCKS)
#define AA_SAMPLE_COUNTERS (2 + 3 * AA_SAMPLE_BINS)

#endif  // ANYACCEL_KERNELS_ROW_ARGUMENTS_H_
