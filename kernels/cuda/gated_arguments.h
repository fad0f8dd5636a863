// Structs that the kernels of gated.cu take by value; the host includes this too (see ../portable/arguments.h). Strides in
// elements.
#ifndef ANYACCEL_KERNELS_GATED_ARGUMENTS_H_
#define ANYACCEL_KERNELS_GATED_ARGUMENTS_H_

#define AA_GATED_THREADS 256
// Neighbouring columns that a thread does at once.
#define AA_GATED_WIDTH 8
// Neighbouring rows that a thread of gated_combine_bf16 does at once.
#define AA_GATED_ROWS 2

typedef struct aa_gated {
  aa_i64 rows;
  aa_i64 columns;
  aa_i64 out_row;
  aa_i64 out_inner;
  aa_i64 gate_row;
  aa_i64 up_row;
  aa_i64 gate_bias_inner;
  aa_i64 up_bias_inner;
  aa_i32 out_dtype;
  aa_i32 gate_bias_dtype; /* 0: none */
  aa_i32 up_bias_dtype;   /* 0: none */
  aa_i32 kind;            /* aa_activation */
  aa_i32 wide;            /* rows of all three lie dense and aligned to 16 bytes */
  aa_i32 reserved;
} aa_gated;

#endif  // ANYACCEL_KERNELS_GATED_ARGUMENTS_H_
