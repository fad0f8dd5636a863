// Products of several rows of x with quantized weights, as integers: for processors with AVX2, or AVX-512 and VNNI.
#pragma once

#include <cstdint>

#include "accelerators/cpu/kernels/quantized_linear.h"

namespace anyaccel::cpu {

// Rows of x as integers, in groups of 32 with a scale each.
struct TiledInput {
  const int8_t* values = nullptr;  // [m][k]; the upper bytes where x has `lower` ones too
  const int8_t* lower = nullptr;   // [m][k], for Q8_0 with VNNI: x = scale * (256 * values + lower)
  // [m][k], in place of both where AVX2 unpacks weights to 16 bits. Of each four values the first and the third come
  // first.
  const int16_t* wide = nullptr;
  const float* scales = nullptr;    // [m][k / 32]
  const float* sums = nullptr;      // [m][k / 32]: scale * sum of the group
  const int32_t* starts = nullptr;  // [m][k / 16 or k / 32]: initial values of the integer sums
};

// Returns true if the processor and the format have such products.
bool takes_tiles(uint32_t format);
// out = x * transpose(w) + bias + residual, x rounded as AA_QUANTIZED_ROUNDED allows. The order of a row's sums does not depend
// on the number of rows. Uses the worker pool.
void multiply_tiles(const QuantizedProduct& product);

}  // namespace anyaccel::cpu
