// Arguments that the kernels of attention.cl take by value; the host includes this too (see arguments.h). Strides in
// elements.
#ifndef ANYACCEL_KERNELS_ATTENTION_ARGUMENTS_H_
#define ANYACCEL_KERNELS_ATTENTION_ARGUMENTS_H_

typedef struct aa_attention {
  aa_i64 tokens;
  aa_i64 heads;
  aa_i64 heads_per_kv;
  aa_i64 sequences;
  aa_i64 slots;
  aa_i64 size;        /* D */
  aa_i64 contiguous;  /* 1: the elements of a head are neighbours in q, k and v, and v is of k's element type */
  aa_i64 chunk;       /* elements of out that one group makes */
  aa_i64 q_stride[3]; /* token, head, element */
  aa_i64 out_stride[3];
  aa_i64 k_stride[4]; /* sequence, head, slot, element */
  aa_i64 v_stride[4];
  aa_i64 sequence_stride;
  aa_i64 position_stride;
  aa_i64 slope_stride;
  aa_i64 sink_stride;
  float scale;
  float softcap;
  aa_i32 window;
  aa_i32 out_dtype;
  aa_i32 v_dtype;
  aa_i32 has_slopes;
  aa_i32 has_sinks;
  aa_i32 reserved;
} aa_attention;

// Elements of out that one item can make when it works alone: contiguous ones, and strided ones.
#define AA_ATTENTION_CHUNK 256
#define AA_ATTENTION_STRIDED_CHUNK 16
// Elements of out that each item of a group makes.
#define AA_ATTENTION_PER_ITEM 4

#endif  // ANYACCEL_KERNELS_ATTENTION_ARGUMENTS_H_
