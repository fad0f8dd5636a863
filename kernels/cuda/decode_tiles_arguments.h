// The struct that the kernels of decode_tiles_*.cu take by value, and their sizes; the host includes this too (see
// ../portable/arguments.h). A kernel is made for a format of weights, by GGUF's number (Q4_0, Q8_0, Q4_K, Q6_K, or AA_TILES_BF16), and a
// number of columns: the most products of parts of x that a tile computes at once.
#ifndef ANYACCEL_KERNELS_DECODE_TILES_ARGUMENTS_H_
#define ANYACCEL_KERNELS_DECODE_TILES_ARGUMENTS_H_

// Most rows of x.
#define AA_TILES_ROWS 8
#define AA_TILES_BF16 30
// Values of a piece, and its bytes in a ring: eight blocks of 32 values, or one of 256. Those of Q6_K have 210 bytes, and 14 times 16
// cover them wherever they begin; with 16 more, eight rows lie in different banks.
#define AA_TILES_PIECE 256
#define AA_TILES_BYTES(number) ((number) == AA_TILES_BF16 ? 512 : (number) == 8 ? 272 : (number) == 14 ? 240 : 144)
// Units of two rows of weights in a tile. A warp multiplies a piece of each of a tile's rows at once.
#define AA_TILES_UNITS 8
// The warps of a block, and the tasks that each has under way in its ring: 90 to 136 KiB a multiprocessor.
#define AA_TILES_WARPS(number, columns) \
  ((number) == AA_TILES_BF16 ? 8 : ((number) == 8 || (number) == 14) && (columns) > 2 ? 12 : 16)
#define AA_TILES_THREADS(number, columns) (32 * AA_TILES_WARPS(number, columns))
#define AA_TILES_SLOTS(number) ((number) == AA_TILES_BF16 || (number) == 8 || (number) == 14 ? 2 : 3)
// Shared memory: the rings; x in parts, and the sums of its groups of 32, of which only formats with a minimum have a use; the sums of squares by warp
// and row; parts of tiles by thread.
#define AA_TILES_SHARED(number, columns, pieces)                                                              \
  (AA_TILES_WARPS(number, columns) *                                                                          \
       (AA_TILES_SLOTS(number) * 2 * AA_TILES_UNITS * AA_TILES_BYTES(number) + 4 * AA_TILES_ROWS + 32 * 16) + \
   (pieces) * (columns) * (512 + 32))

// x [M,K], its norm, and how the work is cut: tiles, a range of them for each block.
typedef struct aa_tiles_x {
  aa_i64 row;        /* bytes */
  aa_i32 dtype;      /* neighbours along K, each four aligned to their size */
  aa_i32 norm_dtype; /* the same; 0: the norm has no weight */
  aa_i32 normed;     /* 1: x is divided by its root mean square */
  float eps;
  float inverse_k;
  aa_i32 m;      /* rows */
  aa_i32 parts;  /* bf16 numbers that a value of x is the sum of: 1 or 2; m * parts <= columns; 1 with weights in bf16 */
  aa_i32 pieces; /* of a row: K / 256 */
  aa_i32 units;
  aa_i32 tiles_each; /* tiles of every block, and how many blocks, the first ones, have one more */
  aa_i32 tiles_more;
  aa_i32 early; /* 1: no kernel that may still run writes the weights, so they are read before aa_grid_wait() */
} aa_tiles_x;

#endif  // ANYACCEL_KERNELS_DECODE_TILES_ARGUMENTS_H_
