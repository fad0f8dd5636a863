// Arguments of the ops of quantizer.cpp, which src/ops/host/quantizer.cpp fills in. Every array is dense and accessible to the
// host. include/anyaccel/ops/quantizer.h defines the results.
#pragma once

#include <stdint.h>

// Quantization of `groups` groups of `group_size` elements.
struct aa_quantize_args {
  const void* x;       // [groups, group_size]
  int32_t dtype;       // of x: aa_dtype
  int32_t bits;        // 8, or 4 (group_size even); quantizer_fake: 2 to 16
  int32_t asymmetric;  // params are pairs of scale and offset; else scales only
  int32_t stochastic;  // rounding is stochastic, with seed and offset; else to nearest even
  int64_t groups;
  int64_t group_size;
  uint64_t seed;
  uint64_t offset;  // in Philox counters
  void* values;     // 8 bits: int8; 4 bits: two to a byte, the first in its upper half
  float* params;
  int64_t nodes;    // with devices and pipeline, the order of the groups in values and params; 1, 1, 1: as in x
  int64_t devices;  // per node
  int64_t pipeline;
  void* error;  // error feedback in the order of x; null: none
  int32_t error_dtype;
  float error_beta;
};

// x = values * scale + offset.
struct aa_dequantize_args {
  const void* values;
  const float* params;
  int32_t bits;  // 8 or 4
  int32_t asymmetric;
  int64_t groups;
  int64_t group_size;
  void* out;
  int32_t dtype;  // of out
};

// The sum of `chunks` quantized arrays of `count` elements each, quantized again.
struct aa_quantized_reduction_args {
  const void* values;  // chunk after chunk
  const float* params;
  int32_t bits;
  int32_t asymmetric;
  int64_t chunks;
  int64_t count;  // elements of a chunk
  int64_t in_group_size;
  int64_t out_group_size;
  void* out_values;
  float* out_params;
  void* error;  // [count] or null
  int32_t error_dtype;
  float error_beta;
};

// out = values / scale + minimum with unsigned values, in F16.
struct aa_dequantize_to_half_args {
  const uint8_t* values;
  const float* scale;    // [groups]
  const float* minimum;  // [groups]
  int32_t bits;          // 8 or 4
  int64_t groups;
  int64_t group_size;
  void* out;
};
