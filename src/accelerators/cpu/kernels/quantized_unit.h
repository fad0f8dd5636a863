// Products of several rows of x with quantized weights on the matrix unit (AMX), both rounded to bf16.
#pragma once

#include <cstdint>

#include "accelerators/cpu/kernels/quantized_linear.h"

namespace anyaccel::cpu {

// Returns true if the unit should compute the product: the processor has one, x may be rounded, and x has enough rows.
bool takes_unit(const QuantizedProduct& product);
// out = x * transpose(w) + bias + residual, for weights of any format. The order of a row's sums does not depend on the number of
// rows. Uses the worker pool.
void multiply_on_unit(const QuantizedProduct& product);

// The rows of x that are multiplied at once, as tiles of the unit.
struct UnitPlan {
  const QuantizedProduct* product = nullptr;
  int64_t first_row = 0;
  int64_t rows = 0;
  uint16_t* x = nullptr;  // where tiles_of_x() says
  bool emulated = false;
};

// For tests: from now on, products of any number of rows that may be rounded run on the software version of the unit.
void emulate_unit(bool emulate);

}  // namespace anyaccel::cpu
