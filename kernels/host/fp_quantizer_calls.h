// Arguments of the functions of fp_quantizer.cpp. Every array is dense and accessible to the host.
#pragma once

#include <stdint.h>

// A small floating-point format: sign, exponent, mantissa from the upper bit down.
struct aa_fp_format {
  int32_t bits;  // 8, 6, 12 or 4
  int32_t mantissa_bits;
  int32_t bias;           // of the exponent
  int32_t max_code;       // of the largest number, without sign
  int32_t first_special;  // codes (without sign) from here on are no numbers: infinity where the mantissa is zero, else
                          // NaN; beyond all codes when there are none
  float max_value;        // what max_code stands for
};

// The storage: for each group its codes, in one stream of bits from the lowest bit of the first byte on, then the scale
// (float). group_size * bits is a multiple of 32.
struct aa_fp_quantize_args {
  aa_fp_format format;
  const void* x;  // [groups, group_size]
  int32_t dtype;
  int32_t stochastic;  // round with seed and offset
  int64_t groups;
  int64_t group_size;
  uint64_t seed;
  uint64_t offset;  // in Philox counters
  uint8_t* out;
};

struct aa_fp_dequantize_args {
  aa_fp_format format;
  const uint8_t* codes;
  const int64_t* rows;  // for each of out's rows the row of `codes`; null: out is all of it
  int64_t groups_per_row;
  int64_t groups;  // of out
  int64_t group_size;
  void* out;
  int32_t dtype;
};
