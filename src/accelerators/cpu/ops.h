// The CPU's implementations of the ops of include/anyaccel/abi/ops.h, declared and listed from runtime/ops/op_list.h.
//
// An op `x` has two: x(), the fast one, in kernels/, and x_reference(), in reference/ (of the products: in kernels/
// matmul_reference.cpp). The references are plain loops on one thread, in double, over any strides: the executable
// definition that every other implementation is tested against, so they are written to be read. The fast versions are
// vectorized and run on all threads, with any strides and dtypes that the definition allows. Where there is no fast
// version yet, x() calls x_reference().
#pragma once

#include <span>
#include <string_view>

#include "anyaccel/abi/ops.h"
#include "runtime/ops/op_list.h"

namespace anyaccel::cpu {

#define ANYACCEL_CPU_OP(op, name, ...) \
  void name(const aa_op_call& call);   \
  void name##_reference(const aa_op_call& call);
#define ANYACCEL_CPU_OP_BY_ROW(op, name, ...) void name(const aa_op_call& call);
ANYACCEL_OPS(ANYACCEL_CPU_OP)
ANYACCEL_OPS_BY_ROW(ANYACCEL_CPU_OP_BY_ROW)
#undef ANYACCEL_CPU_OP
#undef ANYACCEL_CPU_OP_BY_ROW

// Runs one call to its end on the calling thread and the worker pool. The call has passed the checks of
// src/ops/dispatch/op_schema.h. Throws anyaccel::InvalidArgument (code AA_OUT_OF_RANGE) for values inside tensors that
// are out of range, before anything is written.
using OpFunction = void (*)(const aa_op_call& call);

struct OpEntry {
  std::string_view name;
  OpFunction fast;
  OpFunction reference;
};

// Every op but the fused ones, then the forms by rows. An entry's index is the number that `find` gives.
std::span<const OpEntry> op_entries();

}  // namespace anyaccel::cpu
