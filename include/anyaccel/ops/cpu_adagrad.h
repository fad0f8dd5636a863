// Adagrad for parameters in host memory: the library that "CPUAdagradBuilder" loads.
//
// The names are those of DeepSpeed's cpu_adagrad. Unlike there, the weight decay is part of the numerator too (as in
// PyTorch), and gradients are not changed. Methods return when the step is complete. See optimizer_options.h for the
// rules for tensors.
#pragma once

#include <mutex>
#include <set>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/optimizer_options.h"

namespace anyaccel::ops {

// A parameter with its gradient and state; `copy` may be absent.
struct AdagradTensors {
  Tensor param, grad, exp_avg_sq;
  Tensor copy = {};
};

struct AdagradOptions {
  double lr = 1e-2;
  double eps = 1e-8;
  double weight_decay = 0;
  GradientOptions gradients = {};
};

class CPUAdagrad : public OpLibrary {
 public:
  CPUAdagrad(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code);
  ~CPUAdagrad() override;

  // Creates an optimizer, or replaces the one with this id. Updates do not use these values: each is given its own.
  void create_adagrad(int id, double lr = 1e-2, double eps = 1e-8, double weight_decay = 0, bool should_log = false);
  // Does nothing for an unknown id.
  void destroy_adagrad(int id);

  // Makes one step; `step` counts from 1 and has no effect on the result.
  void adagrad_update(int id, int64_t step, double lr, double eps, double weight_decay, const Tensor& params,
                      const Tensor& grads, const Tensor& exp_avg_sq, const Tensor& copy = {});
  // Updates many parameters in one parallel region. Returns the norm of the gradients if they are clipped, else 0.
  double adagrad_update_multi(int id, int64_t step, const AdagradOptions& options,
                              std::span<const AdagradTensors> parameters);

 private:
  struct Code;
  void check_id(const char* op, int id);

  std::unique_ptr<Code> code_;
  std::mutex mutex_;
  std::set<int> ids_;  // mutex_
};

}  // namespace anyaccel::ops
