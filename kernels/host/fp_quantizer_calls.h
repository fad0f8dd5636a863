// Arguments of the ops of fp_quantizer.cpp. Every array is dense and accessible to the host.
// include/anyaccel/ops/fp_quantizer.h defines the results.
#pragma once

#include <stdint.h>

// A small floating-point format. From the highest bit down, a code has the sign, the exponent and the mantissa.
struct aa_fp_format {
  int32_t bits;  // 8, 6, 12 or 4
  int32_t mantissa_bits;
  int32_t bias;           // of the exponent
  int32_t max_code;       // the code of the largest number, without sign
  int32_t first_special;  // codes (without sign) from here on are infinity if their mantissa is zero, else NaN;
                          // larger than all codes if the format has neither
  float max_value;        // the number that max_code stands for
};

// Each group is stored as a row: its codes as a stream of bits that begins at the lowest bit of the first byte, then its scale as
// a float. group_size * bits is a multiple of 32.
struct aa_fp_quantize_args {
  aa_fp_format format;
  const void* x;  // [groups, group_size]
  int32_t dtype;
  int32_t stochastic;  // rounding is stochastic, with seed and offset; else to nearest even
  int64_t groups;
  int64_t group_size;
  uint64_t seed;
  uint64_t offset;  // in Philox counters
  uint8_t* out;
};

struct aa_fp_dequantize_args {
  aa_fp_format format;
  const uint8_t* codes;
  const int64_t* rows;  // for each row of `out` (groups_per_row groups) its row of `codes`; null: the same one
  int64_t groups_per_row;
  int64_t groups;  // of out
  int64_t group_size;
  void* out;
  int32_t dtype;
};
