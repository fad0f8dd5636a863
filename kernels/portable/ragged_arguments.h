// Arguments that the kernels of ragged.cl take by value; the host includes this too (see arguments.h). Strides in
// elements.
#ifndef ANYACCEL_KERNELS_RAGGED_ARGUMENTS_H_
#define ANYACCEL_KERNELS_RAGGED_ARGUMENTS_H_

// The tokens of a ragged batch and their places in a cache.
typedef struct aa_ragged {
  aa_i64 tokens;
  aa_i64 sequences;
  aa_i64 max_blocks; /* of a row of kv_blocks */
  aa_i64 cache_blocks;
  aa_i64 block; /* positions of a block */
  aa_i64 q_heads;
  aa_i64 kv_heads;
  aa_i64 size;     /* d */
  aa_i64 rotated;  /* elements of a head */
  float log_theta; /* 0 with given frequencies */
  aa_i32 dtype;
} aa_ragged;

typedef struct aa_atoms {
  aa_i64 count;
  aa_i64 q_rows; /* of q and out */
  aa_i64 q_most; /* queries of an atom, at most */
  aa_i64 sequences;
  aa_i64 max_blocks;
  aa_i64 cache_blocks;
  aa_i64 block;
  aa_i64 heads;
  aa_i64 heads_per_kv;
  aa_i64 size;
  aa_i64 k_stride[3]; /* block, position, head; the elements of a head are neighbours */
  aa_i64 v_stride[3];
  float scale;
  aa_i32 causal;
  aa_i32 dtype;
  aa_i32 reserved;
} aa_atoms;

// Rows of C numbers, which items take in pieces.
typedef struct aa_ragged_rows {
  aa_i64 tokens;
  aa_i64 rows; /* of the tensor that is read */
  aa_i64 columns;
  aa_i64 piece;
  aa_i64 positions;       /* rows of the position table; 0: there is none */
  aa_i64 position_offset;
  aa_i64 sequences;
  aa_i32 dtype;
  aa_i32 wide_ids; /* 1: ids of 8 bytes */
} aa_ragged_rows;

typedef struct aa_experts {
  aa_i64 tokens; /* that are no padding */
  aa_i64 rows;   /* T */
  aa_i64 experts;
  aa_i64 k;
  aa_i64 columns;
  aa_i64 piece;
  aa_i32 dtype;
  aa_i32 normalize;
} aa_experts;

// Elements of a head that flash_attn_by_atoms takes, and experts that a token may have.
#define AA_MOST_HEAD_SIZE 256
#define AA_MOST_CHOICES 16

#endif  // ANYACCEL_KERNELS_RAGGED_ARGUMENTS_H_
