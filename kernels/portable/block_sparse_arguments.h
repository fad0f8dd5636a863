// Arguments that the kernels of block_sparse.cl take by value; the host includes this too (see arguments.h), after
// dense_arguments.h. Strides in elements.
#ifndef ANYACCEL_KERNELS_BLOCK_SPARSE_ARGUMENTS_H_
#define ANYACCEL_KERNELS_BLOCK_SPARSE_ARGUMENTS_H_

// out[z, n] = the block of a times b at place n of the layout, for the blocks first .. first + count - 1.
typedef struct aa_sparse_sdd {
  aa_i64 batch; /* Z */
  aa_i64 heads;
  aa_i64 first;
  aa_i64 count;
  aa_i64 block;
  aa_i64 inner;    /* K */
  aa_i64 a_matrix; /* from head to head of a */
  aa_i64 a_row;
  aa_i64 a_inner;
  aa_i64 panels_per_block;
  aa_i64 split; /* items that share a block: 1, or one for each tile */
  aa_panels b;
} aa_sparse_sdd;

// out rows = sums of blocks of a times rows of b. A list is the blocks of one row of blocks of one head.
typedef struct aa_sparse_dsd {
  aa_i64 batch;
  aa_i64 heads;
  aa_i64 lists_per_head;
  aa_i64 first_list;
  aa_i64 list_count;
  aa_i64 first_block; /* the block that a begins with */
  aa_i64 block_count; /* blocks of a for each z */
  aa_i64 block;
  aa_i64 columns; /* N */
  aa_i64 a_row;   /* within a block */
  aa_i64 a_inner;
  aa_i64 out_matrix; /* from head to head of out */
  aa_i64 split; /* items that share the tiles of a list's rows: 1, or one for each panel */
  aa_panels b;
} aa_sparse_dsd;

// Rows of scores over the blocks of a list.
typedef struct aa_sparse_rows {
  aa_i64 batch;
  aa_i64 heads;
  aa_i64 lists_per_head;
  aa_i64 first_list;
  aa_i64 list_count;
  aa_i64 first_block;
  aa_i64 block_count;
  aa_i64 block;
  aa_i64 rows;    /* of a matrix of scores, were it dense */
  aa_i64 columns;
  float scale;
  aa_i32 dtype; /* of rpe and the masks */
  aa_i32 has_rpe;
  aa_i32 key_mask_mode; /* AA_MASK_... */
  aa_i32 mask_mode;
  aa_i32 reserved;
} aa_sparse_rows;

#define AA_MASK_NONE 0
#define AA_MASK_ADD 1
#define AA_MASK_MUL 2 /* 0: not seen; else: seen */

#endif  // ANYACCEL_KERNELS_BLOCK_SPARSE_ARGUMENTS_H_
