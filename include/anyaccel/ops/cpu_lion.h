// Lion for parameters in host memory: the library that "CPULionBuilder" loads.
//
// The names are those of DeepSpeed's cpu_lion. Unlike there, a parameter does not change where the mixed momentum is 0,
// and a NaN propagates. Methods return when the step is complete. See optimizer_options.h for the rules for tensors.
#pragma once

#include <mutex>
#include <set>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/optimizer_options.h"

namespace anyaccel::ops {

// A parameter with its gradient and state; `copy` may be absent.
struct LionTensors {
  Tensor param, grad, exp_avg;
  Tensor copy = {};
};

struct LionOptions {
  double lr = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
  GradientOptions gradients = {};
};

class CPULion : public OpLibrary {
 public:
  CPULion(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code);
  ~CPULion() override;

  // Creates an optimizer, or replaces the one with this id. Updates do not use these values: each is given its own.
  void create_lion(int id, double lr = 1e-4, double beta1 = 0.9, double beta2 = 0.99, double weight_decay = 0,
                   bool should_log = false);
  // Does nothing for an unknown id.
  void destroy_lion(int id);

  // Makes one step; `step` counts from 1 and has no effect on the result.
  void lion_update(int id, int64_t step, double lr, double beta1, double beta2, double weight_decay,
                   const Tensor& params, const Tensor& grads, const Tensor& exp_avg, const Tensor& copy = {});
  // Updates many parameters in one parallel region. Returns the norm of the gradients if they are clipped, else 0.
  double lion_update_multi(int id, int64_t step, const LionOptions& options, std::span<const LionTensors> parameters);

 private:
  struct Code;
  void check_id(const char* op, int id);

  std::unique_ptr<Code> code_;
  std::mutex mutex_;
  std::set<int> ids_;  // mutex_
};

}  // namespace anyaccel::ops
