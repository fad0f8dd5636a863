// Structs that the kernels of decode_*.cu take by value; the host includes this too (see ../portable/arguments.h). Strides in
// elements, but for rows of x and of weights, which count bytes.
#ifndef ANYACCEL_KERNELS_DECODE_ARGUMENTS_H_
#define ANYACCEL_KERNELS_DECODE_ARGUMENTS_H_

#define AA_DECODE_WARPS 16
#define AA_DECODE_THREADS (32 * AA_DECODE_WARPS)
// Most rows of x.
#define AA_DECODE_ROWS 8
// Kernels are made for a number of rows of x and a number of 16-byte loads of weights that a thread has in flight, in a
// ring in shared memory: 12 loads of 512 threads are 96 KiB a multiprocessor, of which a memory of 3 TB/s brings 23 KiB
// a microsecond. 4 are for what leaves less room: more rows of x, or a multiprocessor with 100 KiB.
#define AA_DECODE_RING_BYTES(loads) ((loads)*16 * AA_DECODE_THREADS)

// x [M,K], its norm, and how the work is cut: units of neighbouring rows of weights, a range of them for each block. A group is
// what a warp loads at once, 512 bytes of each row of a unit; each warp of a block takes an equal share of its groups.
typedef struct aa_decode_x {
  aa_i64 row;        /* bytes */
  aa_i32 dtype;      /* neighbours along K, each four aligned to their size */
  aa_i32 norm_dtype; /* the same; 0: the norm has no weight */
  aa_i32 normed;     /* 1: x is divided by its root mean square */
  float eps;
  aa_i32 m;          /* rows that there are */
  aa_i32 rows;       /* rows that the kernel is made for, >= m */
  aa_i32 k;          /* a multiple of what 16 bytes of a row of weights hold */
  aa_i32 groups;     /* of a unit, the last one perhaps not full */
  aa_i32 units_each; /* units of every block, and how many blocks, the first ones, have one more */
  aa_i32 units_more;
  aa_i32 early; /* 1: no kernel that may still run writes the weights, so they are read before aa_grid_wait() */
  float inverse_k;
  aa_i32 rounds; /* 1: the norm's result is rounded to bf16 */
  aa_i32 reserved;
} aa_decode_x;

// One w [N,K] with its out [M,N] and bias [N].
typedef struct aa_decode_part {
  aa_i64 w_row; /* bytes, a multiple of 16; of Q6_K, of 2 */
  aa_i64 out_row;
  aa_i64 out_inner;
  aa_i64 bias_inner;
  aa_i32 n;
  aa_i32 units; /* 0: no such part */
  aa_i32 out_dtype;
  aa_i32 bias_dtype; /* 0: no bias */
} aa_decode_part;

typedef struct aa_decode_residual {
  aa_i64 row;
  aa_i64 inner;
  aa_i32 dtype; /* 0: none */
  aa_i32 reserved;
} aa_decode_residual;

// Rows of w_q, w_k or w_v, and where their results go: q [T,Hq,D], or a cache [B,Hk,S,D].
typedef struct aa_decode_heads {
  aa_i64 w_row; /* bytes, a multiple of 16; of Q6_K, of 2 */
  aa_i64 bias_inner;
  aa_i64 outer; /* of T or B */
  aa_i64 head;
  aa_i64 slot; /* 0 for q */
  aa_i64 inner;
  aa_i32 heads;
  aa_i32 dtype;
  aa_i32 bias_dtype; /* 0: no bias */
  aa_i32 reserved;
} aa_decode_heads;

typedef struct aa_decode_rope {
  aa_i64 cos_row;
  aa_i64 cos_inner;
  aa_i64 sin_row;
  aa_i64 sin_inner;
  aa_i64 sequence_inner;
  aa_i64 position_inner;
  aa_i32 head_size;   /* even */
  aa_i32 pairs;       /* R */
  aa_i32 interleaved; /* pairs are (2i, 2i + 1), else (i, i + R) */
  aa_i32 sequences;   /* B */
  aa_i32 slots;       /* S */
  aa_i32 tokens;
} aa_decode_rope;

#endif  // ANYACCEL_KERNELS_DECODE_ARGUMENTS_H_
