// The struct that the kernels of dequantize.cu and dequantize_x.cu take by value; the host includes this too (see ../portable/arguments.h).
#ifndef ANYACCEL_KERNELS_DEQUANTIZE_ARGUMENTS_H_
#define ANYACCEL_KERNELS_DEQUANTIZE_ARGUMENTS_H_

#define AA_DEQUANTIZE_THREADS 128
// Numbers of a thread: AA_WIDE of kernels in groups of one item.
#define AA_DEQUANTIZE_WIDTH 16

typedef struct aa_dequantize {
  aa_i64 rows;
  aa_i64 k;         /* numbers of a row, a multiple of 32; rows of what is written lie side by side */
  aa_i64 row_step;  /* from row to row of what is read: bytes of w, elements of x */
  aa_i64 step;      /* from element to element of x */
  aa_i32 dtype;     /* of x */
  aa_i32 out_dtype; /* fp32 or bf16 */
} aa_dequantize;

#endif  // ANYACCEL_KERNELS_DEQUANTIZE_ARGUMENTS_H_
