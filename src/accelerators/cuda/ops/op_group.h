// The groups of tuned ops: each is one source file of this folder, which launches kernels of kernels/cuda or calls the
// vendor's library. Calls that no group supports run on the portable kernels.
#pragma once

#include <memory>

#include "accelerators/cuda/device_state.h"
#include "anyaccel/abi/ops.h"
#include "anyaccel/dtype.h"
#include "runtime/ops/op_group.h"

namespace anyaccel::cuda {

class Stream;

// The size of an element in bytes.
inline int64_t size_of(int32_t dtype) { return static_cast<int64_t>(dtype_size(static_cast<DType>(dtype))); }
// Returns true if an optional tensor of a call was given.
inline bool is_there(const aa_tensor& tensor) { return tensor.dtype != AA_DTYPE_NONE; }

// Work is enqueued on the stream while the device's context is current.
using OpGroup = anyaccel::OpGroup<DeviceState, Stream>;
using OpGroups = anyaccel::OpGroups<DeviceState, Stream>;

// One object per device and group, created when the device is opened; in order of preference (op_library.cpp).
std::unique_ptr<OpGroup> make_decode_tiles(
    DeviceState& device);  // few rows: quantized_linear, norm_quantized_*, rounded; linear, norm_* of bf16
std::unique_ptr<OpGroup> make_decode_products(
    DeviceState& device);  // few rows: linear, linear_multi, gated_linear, norm_*
std::unique_ptr<OpGroup> make_decode_quantized(DeviceState& device);  // few rows: quantized_linear
std::unique_ptr<OpGroup> make_decode_attention(
    DeviceState& device);  // few queries or quantized caches, split over slots
std::unique_ptr<OpGroup> make_prefill_attention(DeviceState& device);  // many queries, matrix units
std::unique_ptr<OpGroup> make_library_products(DeviceState& device);   // many rows, cuBLASLt
std::unique_ptr<OpGroup> make_row_ops(DeviceState& device);            // embedding, rms_norm, argmax, sample, ...

}  // namespace anyaccel::cuda
