// Adam and AdamW for parameters in host memory: what "CPUAdamBuilder" loads.
//
// The names are those of DeepSpeed's cpu_adam. Tensors lie on the host or on an accelerator whose memory the host reaches;
// methods return when the step is done. See optimizer_options.h for the rules that tensors obey.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>

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

  // -- ZenFlow: steps in a thread or process of their own, while the program that submits them continues.
  //
  // Both sides know one control block, zenflow_adam_ctrl_size() bytes of memory that they share (aligned to 64 bytes, as
  // mmap() and Tensor give it). One thread submits and waits, one runs the worker; the tensors are in shared memory too.

  // A worker's parameters; steps are those of the optimizer `id`. `cores`: the processors that the worker runs on; none: any.
  // Returns a handle.
  int zenflow_adam_create(int id, std::span<const int> cores = {});
  // Adds a group of parameters. Gradients and moments are double: a step uses those of its now_state. `stale` may be absent, or
  // gets a copy of the parameters after each step. All have param's shape.
  void zenflow_adam_register_group(int handle, const Tensor& param, const Tensor& grad0, const Tensor& grad1,
                                   const Tensor& exp_avg0, const Tensor& exp_avg1, const Tensor& exp_avg_sq0,
                                   const Tensor& exp_avg_sq1, const Tensor& stale = {});
  // Does nothing for an unknown handle. A running worker continues.
  void zenflow_adam_destroy(int handle);

  static int64_t zenflow_adam_ctrl_size() noexcept;
  // Makes the block ready, once, before either side uses it. num_groups: 1 to 1024.
  static void zenflow_adam_ctrl_init(void* control, int num_groups);
  // Carries out steps until zenflow_adam_ctrl_exit(). The calling thread is bound to the worker's cores, and with it
  // the threads that it starts: in a process of its own, all of the optimizer's. A step that fails is an error of the
  // wait for it; the worker continues.
  void zenflow_adam_run_worker(int handle, void* control);
  // Asks for a step and returns. The lists have a value for each group; now_state is 0 or 1. Up to four steps may wait to be
  // begun; another one is an Error.
  static void zenflow_adam_submit(void* control, int now_state, int64_t step, std::span<const float> lr,
                                  std::span<const float> beta1, std::span<const float> beta2,
                                  std::span<const float> eps, std::span<const float> weight_decay,
                                  std::span<const uint8_t> bias_correction);
  // Waits for the next step, in the order of submission, that has not been waited for; returns false after timeout_s
  // seconds, so that the caller can check whether the other process is still alive. Error when that step failed.
  static bool zenflow_adam_wait(void* control, double timeout_s);
  // The worker returns when the steps before are complete.
  static void zenflow_adam_ctrl_exit(void* control);

 private:
  struct Code;
  struct ZenWorker;
  bool adamw_mode(const char* op, int id);

  std::unique_ptr<Code> code_;
  std::mutex mutex_;
  std::map<int, bool> adamw_by_id_;                        // mutex_
  std::map<int, std::shared_ptr<ZenWorker>> zen_workers_;  // mutex_
  int next_zen_worker_ = 0;                                // mutex_
};

}  // namespace anyaccel::ops
