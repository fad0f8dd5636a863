// Products of few rows of x with quantized weights, 256 columns at a time, as integers: for processors with AVX2, or AVX-512 and
// VNNI.
#pragma once

#include <cstdint>

#include "accelerators/cpu/kernels/quantized_linear.h"

namespace anyaccel::cpu {

// A row of x, rounded for the kernel of a format. What the arrays hold is the business of the format's put_factors().
struct BlockRow {
  // [k], of Q8_0 [2 k], and zeros up to a whole block of 256: the groups of 32 of a block in the order in which a kernel meets them.
  const int8_t* values = nullptr;
  // [ceil(k / 256)][16]: factors for the scales of the weights.
  const float* first = nullptr;
  // [ceil(k / 256)][16]: what corrects for offsets of the weights, as floats or as integers.
  const float* second = nullptr;
};

// Returns true if the processor and the format have such products for m rows of k columns and no others are faster.
bool takes_few_rows(uint32_t format, int64_t m, int64_t k);
// out = x * transpose(w) + bias + residual, x rounded as AA_QUANTIZED_ROUNDED allows. The order of a row's sums does not depend on
// the number of rows. Uses the worker pool.
void multiply_few_rows(const QuantizedProduct& product);

// The same for any number of rows, if the processor and the format have such products.
bool has_products_by_row(uint32_t format);
void multiply_by_row(const QuantizedProduct& product);

}  // namespace anyaccel::cpu
