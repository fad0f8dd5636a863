// "norm_qkv_rope" of prompts: the norm, products by the vendor's library that are rounded to bf16, and one kernel that turns queries
// and keys and writes keys and values to the cache (rope_cache_rows of kernels/cuda/positions.cu).
#pragma once

#include <array>
#include <optional>

#include "accelerators/cuda/ops/norm_rows.h"
#include "accelerators/cuda/ops/product_engine.h"
#include "accelerators/cuda/ops/tuned_kernels.h"
#include "anyaccel/abi/ops.h"

namespace anyaccel::cuda {

class Stream;

class PromptQkv {
 public:
  PromptQkv(DeviceState& device, ProductEngine& engine);
  // Returns whether enqueue() takes the call: 256 tokens or more in bf16, whole heads turned in halves, at most 256 MiB between kernels.
  bool supports(const aa_op_call& call);
  // Enqueues the whole op and does not block, but where the library's algorithms for a new kind of product are measured. What lies
  // between the kernels is scratch memory of the stream. Throws abi::Failure.
  void enqueue(const aa_op_call& call, Stream& stream);

 private:
  struct Memory;
  static ProductProblem problem(const aa_op_call& call, size_t which);
  std::optional<ProductProblem> keys_and_values(const aa_op_call& call, const Memory& memory, Stream& stream);

  DeviceState& device_;
  ProductEngine& engine_;
  NormRows norm_;
  TunedKernels kernels_;
};

}  // namespace anyaccel::cuda
