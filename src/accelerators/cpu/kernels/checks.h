// Checks of values inside tensors (ids, sequences, positions), made before an op writes anything.
#pragma once

#include "anyaccel/abi/ops.h"

namespace anyaccel::cpu {

// Throws InvalidArgument with AA_OUT_OF_RANGE unless every element of the 1-D index tensor lies in [0, bound).
// `bound_text` says what the bound is: "rows of the table".
void check_indices(const char* op, const char* name, const aa_tensor& indices, int64_t bound, const char* bound_text);

// The same for the targets of a loss, which may be negative: such a row counts nothing.
void check_targets(const char* op, const aa_tensor& targets, int64_t bound);

// Element i of a 1-D index tensor.
inline int64_t index_at(const aa_tensor& t, int64_t i) noexcept {
  const int64_t offset = i * t.strides[0];
  return t.dtype == AA_DTYPE_I32 ? static_cast<const int32_t*>(t.data)[offset]
                                 : static_cast<const int64_t*>(t.data)[offset];
}

}  // namespace anyaccel::cpu
