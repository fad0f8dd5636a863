// Adam and AdamW for parameters in host memory: the library that "CPUAdamBuilder" loads.
//
// The names are those of DeepSpeed's cpu_adam. Tensors are on the host or on an accelerator whose memory the host can
// access; methods return when the step is complete. See optimizer_options.h for the rules for tensors.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/optimizer_options.h"

namespace anyaccel::ops {

// A parameter with its gradient and states; `copy` may be absent.
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

  // Creates an optimizer, or replaces the one with this id. adamw_mode: weight decay shrinks the parameters (AdamW);
  // else it is added to the gradients (L2). Updates do not use the other values: each is given its own.
  void create_adam(int id, double lr = 1e-3, double beta1 = 0.9, double beta2 = 0.999, double eps = 1e-8,
                   double weight_decay = 0, bool adamw_mode = true, bool should_log = false);
  // Does nothing for an unknown id.
  void destroy_adam(int id);

  // Makes one step. `step` counts from 1; numbers may be skipped and repeated, since the bias correction is computed
  // anew from the number.
  void adam_update(int id, int64_t step, double lr, double beta1, double beta2, double eps, double weight_decay,
                   bool bias_correction, const Tensor& params, const Tensor& grads, const Tensor& exp_avg,
                   const Tensor& exp_avg_sq, const Tensor& copy = {});
  // Makes one step for many parameters in one parallel region, with the same result as one adam_update for each.
  // Returns the norm of the gradients if they are clipped, else 0.
  double adam_update_multi(int id, int64_t step, const AdamOptions& options, std::span<const AdamTensors> parameters);

  // Undoes the last step; the arguments, gradients included, must be the same as in that step. The result is exact only
  // up to rounding: digits that the step rounded away (many of them in bfloat16) are lost. Values that are not finite
  // stay so. Throws InvalidArgument if the old values cannot be recovered, because a beta is 0 or the decay leaves
  // nothing of a parameter.
  void adam_rollback(int id, int64_t step, double lr, double beta1, double beta2, double eps, double weight_decay,
                     bool bias_correction, const Tensor& params, const Tensor& grads, const Tensor& exp_avg,
                     const Tensor& exp_avg_sq, const Tensor& copy = {});
  double adam_rollback_multi(int id, int64_t step, const AdamOptions& options, std::span<const AdamTensors> parameters);

  // -- ZenFlow: steps run in a separate thread or process, while the program that submits them continues.
  //
  // Both sides share a control block of zenflow_adam_ctrl_size() bytes (aligned to 64 bytes, as memory of mmap() and
  // Tensor is). One thread submits and waits, one runs the worker; the tensors are in shared memory too.

  // Creates a worker, whose steps are those of the optimizer `id`. `cores`: the processors that the worker runs on;
  // empty: any. Returns a handle.
  int zenflow_adam_create(int id, std::span<const int> cores = {});
  // Adds a group of parameters. There are two sets of gradients and moments: a step uses the set of its now_state.
  // `stale`, which may be absent, receives a copy of the parameters after each step. All have param's shape.
  void zenflow_adam_register_group(int handle, const Tensor& param, const Tensor& grad0, const Tensor& grad1,
                                   const Tensor& exp_avg0, const Tensor& exp_avg1, const Tensor& exp_avg_sq0,
                                   const Tensor& exp_avg_sq1, const Tensor& stale = {});
  // Does nothing for an unknown handle. A running worker continues.
  void zenflow_adam_destroy(int handle);

  static int64_t zenflow_adam_ctrl_size() noexcept;
  // Initializes the control block, once, before either side uses it. num_groups: 1 to 1024.
  static void zenflow_adam_ctrl_init(void* control, int num_groups);
  // Runs steps until zenflow_adam_ctrl_exit(). The calling thread is pinned to the worker's cores, and so are the
  // threads that it starts: in a separate process, all threads of the optimizer. If a step fails, the wait for it
  // throws the error; the worker continues.
  void zenflow_adam_run_worker(int handle, void* control);
  // Submits a step and returns. The lists have a value for each group; now_state is 0 or 1. Up to four steps may be
  // pending; another one throws Error.
  static void zenflow_adam_submit(void* control, int now_state, int64_t step, std::span<const float> lr,
                                  std::span<const float> beta1, std::span<const float> beta2,
                                  std::span<const float> eps, std::span<const float> weight_decay,
                                  std::span<const uint8_t> bias_correction);
  // Waits for the next step, in the order of submission, that has not been waited for; returns false after timeout_s
  // seconds, so that the caller can check whether the other process is still alive. Throws Error if that step failed.
  static bool zenflow_adam_wait(void* control, double timeout_s);
  // Makes the worker return when the steps submitted before are complete.
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
