// The struct that the kernels of decode_quantized.cu take by value, and their sizes; the host includes this too (see
// ../portable/arguments.h). Strides in elements, but for rows of x and of weights, which count bytes.
#ifndef ANYACCEL_KERNELS_QUANTIZED_ARGUMENTS_H_
#define ANYACCEL_KERNELS_QUANTIZED_ARGUMENTS_H_

// Most rows of x. The sums of so many take more registers than a thread of 16 warps has.
#define AA_QUANTIZED_ROWS 8
#define AA_QUANTIZED_WARPS(rows) ((rows) == AA_QUANTIZED_ROWS ? 8 : 16)
#define AA_QUANTIZED_THREADS(rows) (32 * AA_QUANTIZED_WARPS(rows))
// Values of a piece: eight blocks of 32 values, or one of 256.
#define AA_QUANTIZED_PIECE 256
// The bytes of a piece of a format, by the format's number: Q4_0, Q8_0, Q4_K, Q6_K.
#define AA_QUANTIZED_BYTES(number) ((number) == 8 ? 272 : (number) == 14 ? 210 : 144)
// A warp takes a unit of neighbouring rows of weights, and loads a step at once: so many pieces of each row.
#define AA_QUANTIZED_UNIT(rows) ((rows) <= 2 ? 2 : 4)
#define AA_QUANTIZED_STEP(number) ((number) == 8 || (number) == 14 ? 2 : 4)
// Where rows begin: at multiples of so many bytes. The 16-byte pieces of memory that a step's bytes of a row lie in, wherever it begins.
#define AA_QUANTIZED_ALIGNMENT(number) ((number) == 14 ? 2 : 16)
#define AA_QUANTIZED_CHUNKS(number) \
  ((16 - AA_QUANTIZED_ALIGNMENT(number) + AA_QUANTIZED_STEP(number) * AA_QUANTIZED_BYTES(number) + 15) / 16)
// Steps of a row under way in a block, and the shared memory for them: 56 to 72 KiB.
#define AA_QUANTIZED_DEPTH 128
#define AA_QUANTIZED_SHARED(number) (AA_QUANTIZED_DEPTH * AA_QUANTIZED_CHUNKS(number) * 16)

// out [M,N] = x [M,K] * transpose(w [N,K]) + bias [N] + residual [M,N]
typedef struct aa_quantized_decode {
  aa_i64 x_row; /* bytes */
  aa_i64 w_row; /* bytes, a multiple of the format's alignment */
  aa_i64 out_row;
  aa_i64 out_inner;
  aa_i64 bias_inner;
  aa_i64 residual_row;
  aa_i64 residual_inner;
  aa_i32 m;
  aa_i32 n;
  aa_i32 pieces; /* of a row: K / 256 */
  aa_i32 x_dtype; /* neighbours along K, each four aligned to their size */
  aa_i32 out_dtype;
  aa_i32 bias_dtype;     /* 0: none */
  aa_i32 residual_dtype; /* 0: none */
  aa_i32 early; /* 1: no kernel that may still run writes the weights, so they are read before aa_grid_wait() */
} aa_quantized_decode;

#endif  // ANYACCEL_KERNELS_QUANTIZED_ARGUMENTS_H_
