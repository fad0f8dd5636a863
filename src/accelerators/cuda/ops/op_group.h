// The contract of the tuned ops: each group is one source file of this folder, which turns calls of abi/ops.h into launches
// of kernels of kernels/cuda or into calls of the vendor's library. What no group supports runs on the portable kernels.
#pragma once

#include <memory>
#include <span>

#include "accelerators/cuda/device_state.h"
#include "anyaccel/abi/ops.h"
#include "anyaccel/dtype.h"

namespace anyaccel::cuda {

class Stream;

// Of an element, in bytes.
inline int64_t size_of(int32_t dtype) { return static_cast<int64_t>(dtype_size(static_cast<DType>(dtype))); }
// Whether an optional tensor of a call was given.
inline bool is_there(const aa_tensor& tensor) { return tensor.dtype != AA_DTYPE_NONE; }

class OpGroup {
 public:
  virtual ~OpGroup() = default;
  // Names of abi/ops.h. The other functions number them in this order.
  virtual std::span<const char* const> ops() const = 0;
  // Whether the group runs this call, and runs it better than the groups after it. Data pointers may be null. The host has
  // checked the call (ops/dispatch/op_schema.h). Cheap: asked for before every call.
  virtual bool supports(size_t op, const aa_op_call& call) = 0;
  // Enqueues on the stream; the device's context is current. Does not block but for compiling and loading at first use.
  // Also while the stream captures a graph. A call with nothing to do enqueues nothing.
  virtual void enqueue(size_t op, const aa_op_call& call, Stream& stream) = 0;
};

// One object a device and group, made when the device is opened; in order of preference (op_library.cpp).
std::unique_ptr<OpGroup> make_decode_products(
    DeviceState& device);  // few rows: linear, linear_multi, gated_linear, norm_*
std::unique_ptr<OpGroup> make_decode_attention(DeviceState& device);   // few queries, split over slots
std::unique_ptr<OpGroup> make_prefill_attention(DeviceState& device);  // many queries, matrix units
std::unique_ptr<OpGroup> make_library_products(DeviceState& device);   // many rows, cuBLASLt
std::unique_ptr<OpGroup> make_row_ops(DeviceState& device);            // embedding, rms_norm, argmax, sample, ...

}  // namespace anyaccel::cuda
