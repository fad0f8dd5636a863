// Products of several rows of x with quantized weights, as integers: for processors with AVX2, or AVX-512 and VNNI.
#pragma once

#include <cstdint>

#include "accelerators/cpu/kernels/quantized_linear.h"

namespace anyaccel::cpu {

// Returns true if the processor and the format have such products.
bool takes_tiles(uint32_t format);
// out = x * transpose(w) + bias + residual, x rounded as AA_QUANTIZED_ROUNDED allows. The order of a row's sums does not depend
// on the number of rows. Uses the worker pool.
void multiply_tiles(const QuantizedProduct& product);

}  // namespace anyaccel::cpu
