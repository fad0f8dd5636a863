// The contract of the portable ops: each group of ops is one source file beside this one, which turns calls of abi/ops.h
// into launches of the kernels of one or two files of kernels/portable.
#pragma once

#include <memory>
#include <span>

#include "anyaccel/abi/ops.h"
#include "anyaccel/driver_accelerator.h"
#include "ops/portable/kernel_set.h"

namespace anyaccel::ops::portable {

class OpGroup {
 public:
  virtual ~OpGroup() = default;
  // Names of abi/ops.h. The other functions number them in this order.
  virtual std::span<const char* const> ops() const = 0;
  // Whether the call can run on the device. Data pointers may be null. The host has checked the call (ops/dispatch/op_schema.h).
  virtual bool supports(size_t op, const aa_op_call& call, const aa_kernel_tuning& tuning) const = 0;
  // Launches kernels on the calling thread's current stream of `device`. A call with nothing to do launches none. Allocates
  // nothing on the heap.
  virtual void enqueue(size_t op, const aa_op_call& call, int device) = 0;
};

std::unique_ptr<OpGroup> make_linear_ops(DriverAccelerator& accelerator);       // linear, linear_multi, gated_linear
std::unique_ptr<OpGroup> make_attention_ops(DriverAccelerator& accelerator);    // attention
std::unique_ptr<OpGroup> make_row_ops(DriverAccelerator& accelerator);          // embedding, norms, softmax
std::unique_ptr<OpGroup> make_position_ops(DriverAccelerator& accelerator);     // rope_table, rope, cache_write
std::unique_ptr<OpGroup> make_elementwise_ops(DriverAccelerator& accelerator);  // activations, add, copy, increment
std::unique_ptr<OpGroup> make_sampling_ops(DriverAccelerator& accelerator);     // argmax, repetition_penalty, sample
std::unique_ptr<OpGroup> make_random_ops(DriverAccelerator& accelerator);       // random

}  // namespace anyaccel::ops::portable
