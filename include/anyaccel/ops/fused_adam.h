// Adam and AdamW for lists of parameters on the active accelerator: the library that "FusedAdamBuilder" loads.
//
// If the accelerator compiles kernels, tensors on one of its devices are processed there, on the current stream, with
// the same results. Otherwise the host computes, with copies there and back if it cannot access the memory, and calls
// block. See optimizer_options.h for the rules for tensors.
#pragma once

#include <vector>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/optimizer_options.h"

namespace anyaccel::ops {

class FusedAdam : public OpLibrary {
 public:
  FusedAdam(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code);
  ~FusedAdam() override;

  enum Mode { L2 = 0, AdamW = 1 };

  // Makes one step. tensor_lists are gradients, parameters, exp_avg, exp_avg_sq, all of the same length, and optionally
  // copies that receive the new parameters. noop_flag (int32, one element, may be absent): nothing is done unless it is
  // 0; kernels read it directly if it is on their device. chunk_size is the number of elements of a block of work, on
  // accelerators that use it.
  void multi_tensor_adam(int64_t chunk_size, const Tensor& noop_flag, std::span<const std::vector<Tensor>> tensor_lists,
                         double lr, double beta1, double beta2, double eps, int64_t step, int mode,
                         bool bias_correction, double weight_decay);
  // The same with gradients divided by grad_scale; the fifth list is required.
  void multi_tensor_adam_mixed_precision(int64_t chunk_size, const Tensor& noop_flag,
                                         std::span<const std::vector<Tensor>> tensor_lists, double lr, double beta1,
                                         double beta2, double eps, int64_t step, int mode, bool bias_correction,
                                         double weight_decay, double grad_scale);

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace anyaccel::ops
