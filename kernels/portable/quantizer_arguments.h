// Structs that the kernels of the two quantizers take by value, beside those of arguments.h and under the same rules.
#ifndef ANYACCEL_KERNELS_QUANTIZER_ARGUMENTS_H_
#define ANYACCEL_KERNELS_QUANTIZER_ARGUMENTS_H_

// A dense tensor as groups of elements, and how they are cut for the items of a kernel.
typedef struct aa_quant_groups {
  aa_i64 groups;
  aa_i64 group_size;
  aa_i64 part;  /* elements of a group that an item, or in quant_ranges a group of items, takes; the last takes what is left */
  aa_i64 parts; /* of a group */
} aa_quant_groups;

// A dense tensor as groups of elements with a team of items each (quant_teams.h).
typedef struct aa_quant_teams {
  aa_i64 groups;
  aa_i64 fours; /* of a group: four elements each */
  aa_i32 width; /* of a team, in items: a power of two */
  aa_i32 width_bits; /* its logarithm */
  aa_i64 teams; /* of a group of items */
} aa_quant_teams;

// The order of groups in the output: number (node, device, stage, inner) becomes (stage, device, node, inner). All 1:
// unchanged.
typedef struct aa_quant_order {
  aa_i64 nodes;
  aa_i64 devices;
  aa_i64 stages;
  aa_i64 together; /* groups that stay side by side */
} aa_quant_order;

typedef struct aa_quant_options {
  aa_i32 bits;
  aa_i32 asymmetric;
  aa_i32 dtype;       /* of the tensor that is not quantized */
  aa_i32 error_dtype; /* 0: no error feedback */
  float error_beta;
  aa_i32 stochastic;
  aa_u64 seed;
  aa_u64 offset; /* in Philox counters */
} aa_quant_options;

// Chunks of integers that are summed; see quantizer_calls.h of kernels/host.
typedef struct aa_quant_chunks {
  aa_i64 chunks;
  aa_i64 count;      /* elements of a chunk */
  aa_i64 group_size; /* of a chunk */
  aa_i64 part;       /* elements of the sum that an item takes */
} aa_quant_chunks;

// A small floating-point format; members as in aa_fp_format of kernels/host/fp_quantizer_calls.h.
typedef struct aa_fp_numbers {
  aa_i32 bits;
  aa_i32 mantissa_bits;
  aa_i32 bias;
  aa_i32 max_code;
  aa_i32 first_special;
  float max_value;
} aa_fp_numbers;

#endif  // ANYACCEL_KERNELS_QUANTIZER_ARGUMENTS_H_
