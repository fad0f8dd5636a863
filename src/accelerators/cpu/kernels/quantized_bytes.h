// Products of a few rows of x with weights of Q8_0 on the matrix unit (AMX), as integers.
#pragma once

#include <cstdint>

#include "accelerators/cpu/kernels/quantized_linear.h"

namespace anyaccel::cpu {

// Returns true if the unit should compute the product: the processor has one, x may be rounded and has up to sixteen rows, more than
// quantized_row.h takes (two or more where the unit is emulated), and there are at least 16 rows of weights. quantized_unit.h takes
// more rows of x.
bool takes_bytes(const QuantizedProduct& product);
// out = x * transpose(w) + bias + residual, with the bits of quantized_tiles.h, so that the order of a row's sums does not depend
// on the number of rows. Uses the worker pool.
void multiply_bytes(const QuantizedProduct& product);

// At most 16 rows of x, as the unit's second operands, and what a thread needs beside them.
struct BytesPlan {
  const QuantizedProduct* product = nullptr;
  // [k / 32][1 or 2 tiles][8][16 columns][4 bytes]: x = scale * (256 * upper + lower), both bytes signed. Up to eight
  // rows share a tile, with the upper bytes of row m in column m and the lower ones in column 8 + m. For more rows, the
  // first tile has the upper bytes.
  int8_t* columns = nullptr;
  // [k / 32][16]: the scales of the rows; those of up to eight are there twice.
  float* scales = nullptr;
  bool emulated = false;
};

// For tests: from now on, such products run on the software version of the unit, on every machine.
void emulate_bytes(bool emulate);

}  // namespace anyaccel::cpu
