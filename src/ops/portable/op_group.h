// Declares the groups of portable ops: each is one source file in this folder, which launches the kernels of one or two
// files of kernels/portable.
#pragma once

#include <cstdint>
#include <memory>

#include "anyaccel/abi/ops.h"
#include "anyaccel/driver_accelerator.h"
#include "ops/portable/kernel_set.h"
#include "runtime/ops/op_group.h"

namespace anyaccel::ops::portable {

// A group whose queries get the tuning of a device; it launches on the calling thread's current stream of the device
// with the given index.
using OpGroup = anyaccel::OpGroup<const aa_kernel_tuning, const int>;
using OpGroups = anyaccel::OpGroups<const aa_kernel_tuning, const int>;

// Returns whether the blocks of a quantized cache U8 [B,Hk,S,C] begin at even addresses, where their scales can be read.
inline bool has_aligned_blocks(const aa_tensor& cache) {
  const auto address = reinterpret_cast<uintptr_t>(cache.data);
  return ((address | static_cast<uintptr_t>(cache.strides[0] | cache.strides[1] | cache.strides[2])) & 1u) == 0;
}

std::unique_ptr<OpGroup> make_linear_ops(DriverAccelerator& accelerator);  // linear, linear_multi, gated_linear
std::unique_ptr<OpGroup> make_quantized_ops(
    DriverAccelerator& accelerator);  // quantized_linear, quantized_embedding(_shard)
std::unique_ptr<OpGroup> make_attention_ops(DriverAccelerator& accelerator);    // attention, quantized_attention
std::unique_ptr<OpGroup> make_row_ops(DriverAccelerator& accelerator);          // embedding, norms, softmax
std::unique_ptr<OpGroup> make_position_ops(DriverAccelerator& accelerator);     // rope_table, rope, writes of caches
std::unique_ptr<OpGroup> make_elementwise_ops(DriverAccelerator& accelerator);  // activations, add, copy, increment
std::unique_ptr<OpGroup> make_sampling_ops(DriverAccelerator& accelerator);     // argmax, repetition_penalty, sample
std::unique_ptr<OpGroup> make_random_ops(DriverAccelerator& accelerator);       // random
std::unique_ptr<OpGroup> make_matmul_ops(DriverAccelerator& accelerator);       // matmul
std::unique_ptr<OpGroup> make_training_ops(DriverAccelerator& accelerator);     // the other ops of training

}  // namespace anyaccel::ops::portable
