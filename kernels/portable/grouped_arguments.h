// Declares what the kernels of grouped.cl take by value; the host includes this too (see arguments.h).
#ifndef ANYACCEL_KERNELS_GROUPED_ARGUMENTS_H_
#define ANYACCEL_KERNELS_GROUPED_ARGUMENTS_H_

// out [rows, columns] = act(x [rows, inner] * weight [expert of the row, inner, columns] * scale + bias).
typedef struct aa_grouped {
  aa_i64 rows;
  aa_i64 inner;
  aa_i64 columns;
  aa_i64 experts;
  aa_i64 tiles; /* of rows, at most: an expert's last one may be short */
  aa_i32 weight; /* AA_WEIGHT_.., or an aa_dtype */
  aa_i32 dtype; /* of out, scales and bias */
  aa_i32 has_scales; /* [experts, columns] */
  aa_i32 has_bias;   /* the same */
  aa_i32 activation; /* an aa_activation, or -1 */
  aa_i32 all_rows; /* 1: there is one expert, which has every row */
} aa_grouped;

// Integers: one to a byte, or two, of which the lower half comes first; both with a sign.
#define AA_WEIGHT_8 -8
#define AA_WEIGHT_4 -4

// Rows of a tile, and columns that an item takes; the host knows them by the tuning's group size.
#define AA_GROUPED_ROWS_OF(group_size) ((group_size) == 1 ? 8 : 4)
#define AA_GROUPED_COLUMNS_OF(group_size) ((group_size) == 1 ? 32 : 8)

#endif  // ANYACCEL_KERNELS_GROUPED_ARGUMENTS_H_
