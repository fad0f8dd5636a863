// Packs signs into bits, as 1-bit optimizers send them: the library that "PackbitsBuilder" loads, the name under which
// DeepSpeed has it for XPUs. Runs on the host, with copies there and back where the tensor is elsewhere (logged once;
// an error under ANYACCEL_FALLBACK=error), and blocks.
#pragma once

#include "anyaccel/op_builder.h"
#include "anyaccel/tensor.h"

namespace anyaccel::ops {

class Packbits : public OpLibrary {
 public:
  explicit Packbits(Accelerator& accelerator) : accelerator_(accelerator) {}

  // x is F32 of one dimension, on the accelerator (or the host, if they share memory). Returns U8 [(input_size + 7) / 8]
  // with a bit for each of its first input_size elements, the first in the highest bit; 1 where the sign bit is clear.
  // Bits beyond the last element are 0. `rank` has no effect.
  Tensor packbits(const Tensor& x, int64_t input_size, int rank = 0);
  // Returns F32 [input_size]: 1 for a bit that is set, -1 for one that is not.
  Tensor unpackbits(const Tensor& packed, int64_t input_size, int rank = 0);

 private:
  Accelerator& accelerator_;
};

}  // namespace anyaccel::ops
