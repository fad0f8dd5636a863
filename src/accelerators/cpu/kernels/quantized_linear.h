// The op "quantized_linear" as its kernel sees it.
#pragma once

#include <cstdint>

#include "accelerators/cpu/kernels/matmul_args.h"
#include "base/block_format.h"

namespace anyaccel::cpu {

struct QuantizedProduct {
  Matmul args;  // one part, without a weight
  const BlockFormat* format = nullptr;
  const uint8_t* w = nullptr;  // [n] rows of blocks
  int64_t w_stride = 0;        // bytes from row to row
  bool rounded = false;
};

// Rows of x for the products with rows of weights: as fp32, or rounded to 8 bits in groups of 32.
struct QuantizedInput {
  const float* values = nullptr;    // [m][k]; null when rounded
  const int8_t* rounded = nullptr;  // [m][k]
  const float* scales = nullptr;    // [m][k / 32]: value = scale * rounded
  const float* sums = nullptr;      // [m][k / 32]: scale * sum of the group
  const int16_t* finer = nullptr;   // [m][k], for Q8_0 only: value = scale * finer / 256
  // Sums of a row are taken in an order that does not depend on the number of rows.
  bool in_one_order = false;
};

QuantizedProduct quantized_linear_args(const aa_op_call& call);

}  // namespace anyaccel::cpu
