// Structs that kernels take by value. The host fills the same ones (it includes this file after defining aa_i64 and aa_i32),
// so members are 8 bytes wide or come in pairs of 4, and every language lays them out alike.
#ifndef ANYACCEL_KERNELS_ARGUMENTS_H_
#define ANYACCEL_KERNELS_ARGUMENTS_H_

#define AA_VIEW_DIMS 6

// The rows of a tensor [.., H]: leading dimensions, merged where strides allow (usually into one), and the stride of the
// last. Strides in elements.
typedef struct aa_rows {
  aa_i64 shape[AA_VIEW_DIMS];
  aa_i64 stride[AA_VIEW_DIMS];
  aa_i64 inner; /* stride of the last dimension */
  aa_i32 ndim;  /* leading dimensions, >= 1 */
  aa_i32 dtype; /* aa_dtype; 0: the tensor is absent */
} aa_rows;

// All elements of a tensor by their row-major number: dimensions, merged where the strides allow.
typedef struct aa_view {
  aa_i64 shape[AA_VIEW_DIMS];
  aa_i64 stride[AA_VIEW_DIMS];
  aa_i32 ndim;  /* >= 1 */
  aa_i32 dtype; /* aa_dtype; 0: the tensor is absent */
} aa_view;

#endif  // ANYACCEL_KERNELS_ARGUMENTS_H_
