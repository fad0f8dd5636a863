// Structs that the kernels of linear_*.cl take by value, and the sizes of their tiles; the host includes this too (see
// arguments.h). Strides in elements.
#ifndef ANYACCEL_KERNELS_LINEAR_ARGUMENTS_H_
#define ANYACCEL_KERNELS_LINEAR_ARGUMENTS_H_

// x [M,K], and how the work is cut: a group goes through `block` rows of x, a team of lanes through `tiles` tiles of w.
typedef struct aa_linear_x {
  aa_i64 m;
  aa_i64 k;
  aa_i64 row;
  aa_i64 inner;
  aa_i64 block;
  aa_i64 tiles;
} aa_linear_x;

// One w [N,K] with its out [M,N] and bias [N].
typedef struct aa_linear_part {
  aa_i64 n; /* 0: no such part */
  aa_i64 w_row;
  aa_i64 w_inner;
  aa_i64 out_row;
  aa_i64 out_inner;
  aa_i64 bias_inner;
  aa_i64 contiguous; /* 1: the elements of a row of x are neighbours, and so are those of w */
  aa_i32 out_dtype;
  aa_i32 bias_dtype; /* 0: no bias */
} aa_linear_part;

typedef struct aa_linear_residual {
  aa_i64 row;
  aa_i64 inner;
  aa_i32 dtype; /* 0: none */
  aa_i32 reserved;
} aa_linear_residual;

// Rows of x and of w in a tile of registers.
#define AA_TILE_M 4
#define AA_TILE_N 4

// The largest aa_linear_x::block.
#define AA_LARGEST_BLOCK 64

// A group that shares tiles through local memory is a rectangle of items, each with a tile of registers; it takes
// AA_SHARED_K elements of K at a time.
#define AA_SHARED_K 16
#define AA_SHARED_COLUMNS(group) \
  ((group) >= 1024 ? 32 : (group) >= 256 ? 16 : (group) >= 64 ? 8 : (group) >= 16 ? 4 : (group) >= 4 ? 2 : 1)
#define AA_SHARED_N(group) (AA_TILE_N * AA_SHARED_COLUMNS(group))
#define AA_SHARED_M(group) (AA_TILE_M * ((group) / AA_SHARED_COLUMNS(group)))
#define AA_SHARED_BYTES(group) (AA_SHARED_K * (AA_SHARED_M(group) + AA_SHARED_N(group)) * 4)

#endif  // ANYACCEL_KERNELS_LINEAR_ARGUMENTS_H_
