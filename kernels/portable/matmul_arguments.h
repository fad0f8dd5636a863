// The struct that the kernels of matmul.cl take by value, and the sizes of their tiles; the host includes it too.
#ifndef ANYACCEL_KERNELS_MATMUL_ARGUMENTS_H_
#define ANYACCEL_KERNELS_MATMUL_ARGUMENTS_H_

// out [M,N] = a [M,K] * b [K,N], many times: the leading dimensions of all three tensors are the rows of an aa_rows
// whose own elements are their rows or columns.
typedef struct aa_matmul {
  aa_i64 m;
  aa_i64 n;
  aa_i64 k;
  aa_i64 out_row;
  aa_i64 out_inner;
  aa_i64 a_row;
  aa_i64 a_inner;
  aa_i64 b_row;
  aa_i64 b_inner;
  aa_i64 batches;
  aa_i32 out_dtype;
  aa_i32 accumulate;
} aa_matmul;

// Rows that an item's tile of registers has where an item works alone; its columns are the floats of an aa_wide.
#define AA_MATMUL_ROWS 6
// Columns that such an item goes through, rows by rows: those of b for them stay in a second-level cache.
#define AA_MATMUL_STRIPS 4

#endif  // ANYACCEL_KERNELS_MATMUL_ARGUMENTS_H_
