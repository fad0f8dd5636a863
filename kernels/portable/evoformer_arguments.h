// Arguments that the kernels of evoformer.cl take by value; the host includes this too (see arguments.h). Strides in
// elements.
#ifndef ANYACCEL_KERNELS_EVOFORMER_ARGUMENTS_H_
#define ANYACCEL_KERNELS_EVOFORMER_ARGUMENTS_H_

// Scores [count, row_count, pitch] of the matrices first .. first + count - 1, numbered (b * group + n) * heads + head, and of their
// rows first_row .. first_row + row_count - 1.
typedef struct aa_evoformer {
  aa_i64 first;
  aa_i64 count;
  aa_i64 first_row;
  aa_i64 row_count;
  aa_i64 pitch;
  aa_i64 heads;
  aa_i64 group;    /* N: matrices that share a pair bias */
  aa_i64 length;   /* L */
  aa_i64 size;     /* d */
  aa_i64 lse_row;  /* of a matrix in lse and delta */
  aa_i32 dtype;    /* of the biases */
  aa_i32 has_keys; /* bias1 [b, n, L] */
  aa_i32 has_pairs; /* bias2 [b, head, L, L] */
  aa_i32 known;    /* 1: lse is given; 0: it is found */
} aa_evoformer;

#endif  // ANYACCEL_KERNELS_EVOFORMER_ARGUMENTS_H_
