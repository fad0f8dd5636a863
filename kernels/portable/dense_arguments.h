// Arguments that the kernels of dense.cl take by value; the host includes this too (see arguments.h). Strides in
// elements.
#ifndef ANYACCEL_KERNELS_DENSE_ARGUMENTS_H_
#define ANYACCEL_KERNELS_DENSE_ARGUMENTS_H_

// Columns of the right operand of a product, AA_WIDE neighbours to a panel: element (k, j) of matrix m is at
// m * matrix + j / AA_WIDE * panel + k * row + j % AA_WIDE.
typedef struct aa_panels {
  aa_i64 matrix;
  aa_i64 panel;
  aa_i64 row;
} aa_panels;

// A matrix [rows, columns] that becomes panels, with zeros behind the last column of each group of columns.
typedef struct aa_pack {
  aa_i64 matrices;
  aa_i64 rows;
  aa_i64 columns;
  aa_i64 group;            /* columns that begin a panel of their own: those of a block, or all */
  aa_i64 panels_per_group;
  aa_i64 panels;           /* of all groups */
  aa_i64 in_matrix;
  aa_i64 in_row;
  aa_i64 in_column;
  aa_i64 part;             /* rows that an item copies */
  aa_i32 in_dtype;
  float scale;             /* what every element is multiplied by */
} aa_pack;

// out[m] = a[m] b[m] for each of `matrices`: a is [rows, inner], b has `columns` columns.
typedef struct aa_product {
  aa_i64 matrices;
  aa_i64 rows;
  aa_i64 inner;
  aa_i64 columns;
  aa_i64 a_matrix;
  aa_i64 a_row;
  aa_i64 a_inner;
  aa_i64 out_matrix;
  aa_i64 out_row;
  aa_i64 split; /* items that share a tile of rows: 1, or one for each panel */
  aa_panels b;
  aa_i64 add;   /* 1: added to what out holds */
} aa_product;

// Rows that an item computes, and columns of a panel; the host knows them by the tuning's group size. A processor's item (one
// item a row) has some tiles of rows, whatever their size is, so that it takes a panel from its nearest cache for all of them.
#define AA_ITEM_ROWS_OF(group_size) ((group_size) == 1 ? 24 : 4)
#define AA_PANEL_COLUMNS_OF(group_size) ((group_size) == 1 ? 16 : 8)

#endif  // ANYACCEL_KERNELS_DENSE_ARGUMENTS_H_
