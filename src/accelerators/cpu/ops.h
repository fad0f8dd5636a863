// The CPU's implementations of the ops of include/anyaccel/abi/ops.h, by name.
#pragma once

#include <span>
#include <string_view>

#include "anyaccel/abi/ops.h"

namespace anyaccel::cpu {

// Runs one call to its end on the calling thread and the worker pool. The call has passed the checks of
// src/ops/dispatch/op_schema.h. Throws anyaccel::InvalidArgument (code AA_OUT_OF_RANGE) for values inside tensors that are out
// of range, before anything is written.
using OpFunction = void (*)(const aa_op_call& call);

struct OpEntry {
  std::string_view name;
  OpFunction fast;       // vectorized, on all threads, any strides and dtypes the definition allows
  OpFunction reference;  // plain C++, one thread, accumulating in double: the executable definition
};

// Every op of abi/ops.h, in the order of its table, then the forms by rows. An entry's index is the number that `find` gives.
std::span<const OpEntry> op_entries();

}  // namespace anyaccel::cpu
