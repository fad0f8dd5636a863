// Adam and AdamW for parameters in host memory: what "CPUAdamBuilder" loads.
//
// The names are those of DeepSpeed's cpu_adam. Tensors lie on the host or on an accelerator whose memory the host reaches;
// methods return when the step is done. See optimizer_options.h for the rules that tensors obey.
#pragma once

#include <map>
#include <mutex>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/optimizer_options.h"

namespace anyaccel::ops {

struct AdamTensors {
  Tensor param, grad, exp_avg, exp_avg_sq;
  Tensor copy = {};
};

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool bias_correction = true;
  GradientOptions gradients = {};
};

class CPUAdam : public OpLibrary {
 public:
  CPUAdam(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code);
  ~CPUAdam() override;

  // Makes an optimizer, or replaces the one of this id. adamw_mode: weight decay shrinks the parameters (AdamW); else it
  // is added to the gradients (L2). The other values are used by no update: each is given its own.
  void create_adam(int id, double lr = 1e-3, double beta1 = 0.9, double beta2 = 0.999, double eps = 1e-8,
                   double weight_decay = 0, bool adamw_mode = true, bool should_log = false);
  // Nothing for an unknown id.
  void destroy_adam(int id);

  // One step. `step` counts from 1; steps may jump and repeat, since the bias correction is computed from it anew.
  void adam_update(int id, int64_t step, double lr, double beta1, double beta2, double eps, double weight_decay,
                   bool bias_correction, const Tensor& params, const Tensor& grads, const Tensor& exp_avg,
                   const Tensor& exp_avg_sq, const Tensor& copy = {});
  // One step of many parameters in one parallel region, with the same result as one adam_update for each. Returns the norm
  // of the gradients where they are clipped, else 0.
  double adam_update_multi(int id, int64_t step, const AdamOptions& options, std::span<const AdamTensors> parameters);

  // Makes the last step undone; arguments as they were, the gradients too. Exact only to rounding: what the step rounded
  // away (much of it in bfloat16) does not come back. What is not finite stays so. InvalidArgument where a beta of 0, or a
  // decay that leaves nothing of a parameter, makes the old values unknowable.
  void adam_rollback(int id, int64_t step, double lr, double beta1, double beta2, double eps, double weight_decay,
                     bool bias_correction, const Tensor& params, const Tensor& grads, const Tensor& exp_avg,
                     const Tensor& exp_avg_sq, const Tensor& copy = {});
  double adam_rollback_multi(int id, int64_t step, const AdamOptions& options, std::span<const AdamTensors> parameters);

 private:
  struct Code;
  bool adamw_mode(const char* op, int id);

  std::unique_ptr<Code> code_;
  std::mutex mutex_;
  std::map<int, bool> adamw_by_id_;  // mutex_
};

}  // namespace anyaccel::ops
