// Shared by both groups of "attention": the calls that each of them accepts, and the arguments of their kernels.
#pragma once

#include <cstdint>

#include "accelerators/cuda/device_state.h"
#include "anyaccel/abi/ops.h"

namespace anyaccel::cuda {

using aa_i32 = int32_t;
using aa_i64 = int64_t;
#define AA_ARGUMENTS_ONLY
#include "kernels/cuda/tuned_attention.h"
#undef AA_ARGUMENTS_ONLY

// Many tokens, caches and result of one 16-bit type: kernels/cuda/prefill_attention.cu. Its queries and weights are rounded
// to that type, so it takes only calls that round their results to it.
bool is_prefill_attention(const DeviceFacts& facts, const aa_op_call& call);
// Those of them that kernels/cuda/hopper_attention.cu can do: on compute capability 9.0, with heads of 64 or 128.
bool is_hopper_attention(const DeviceFacts& facts, const aa_op_call& call);
// All other calls that kernels/cuda/decode_attention.cu can do.
bool is_decode_attention(const DeviceFacts& facts, const aa_op_call& call);

aa_tuned_attention attention_arguments(const aa_op_call& call);

// 0, 1 and 2 for F32, BF16 and F16, and what kernels/portable/dialect.h calls them.
int attention_type(int32_t dtype) noexcept;
const char* attention_type_name(int type) noexcept;

}  // namespace anyaccel::cuda
