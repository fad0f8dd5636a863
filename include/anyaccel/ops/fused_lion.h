// Lion for lists of parameters on the active accelerator: the library that "FusedLionBuilder" loads.
//
// If the accelerator compiles kernels, tensors on one of its devices are processed there, on the current stream, with
// the same results. Otherwise the host computes, with copies there and back if it cannot access the memory, and calls
// block. See optimizer_options.h for the rules for tensors, and cpu_lion.h for the arithmetic.
#pragma once

#include <vector>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/optimizer_options.h"

namespace anyaccel::ops {

class FusedLion : public OpLibrary {
 public:
  FusedLion(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code);
  ~FusedLion() override;

  // Makes one step. tensor_lists are gradients, parameters, exp_avg, all of the same length, and optionally copies that
  // receive the new parameters. noop_flag (int32, one element, may be absent): nothing is done unless it is 0; kernels
  // read it directly if it is on their device. chunk_size is the number of elements of a block of work, on accelerators
  // that use it.
  void multi_tensor_lion(int64_t chunk_size, const Tensor& noop_flag, std::span<const std::vector<Tensor>> tensor_lists,
                         double lr, double beta1, double beta2, int64_t step, double weight_decay);

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace anyaccel::ops
