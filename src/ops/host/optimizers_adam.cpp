// Implements CPUAdam and FusedAdam, see anyaccel/ops/cpu_adam.h and fused_adam.h.
#include <sched.h>
#include <unistd.h>

#include <cmath>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "anyaccel/ops/cpu_adam.h"
#include "anyaccel/ops/fused_adam.h"
#include "base/text/number_text.h"
#include "ops/builders.h"
#include "ops/host/driver_adam.h"
#include "ops/host/optimizers.h"
#include "ops/host/zenflow.h"

namespace anyaccel::ops {
namespace {

struct AdamCode : OptimizerCode {
  AdamCode(std::shared_ptr<HostOpLibrary> code, Accelerator& active, bool host_only)
      : OptimizerCode(std::move(code), active, host_only),
        step(library->function<aa_adam_op>("adam_step")),
        undo(library->function<aa_adam_op>("adam_undo")) {}

  aa_adam_op* step;
  aa_adam_op* undo;
};

// Computes the factors that follow from `step` and the options, in double until the end.
aa_adam_args adam_args(const char* op, bool adamw, int64_t step, const AdamOptions& options) {
  check_step(op, step);
  check_not_negative(op, "lr", options.lr);
  check_beta(op, "beta1", options.beta1);
  check_beta(op, "beta2", options.beta2);
  check_not_negative(op, "eps", options.eps);
  check_not_negative(op, "weight_decay", options.weight_decay);
  check_gradient_options(op, options.gradients);
  double correction1 = 1, correction2 = 1;
  if (options.bias_correction) {
    // Returns 1 - beta^step without cancellation for a beta near 1.
    const auto correction = [&](double beta) {
      return beta == 0 ? 1.0 : -std::expm1(static_cast<double>(step) * std::log(beta));
    };
    correction1 = correction(options.beta1);
    correction2 = correction(options.beta2);
  }
  aa_adam_args args{};
  args.beta1 = static_cast<float>(options.beta1);
  args.one_minus_beta1 = static_cast<float>(1 - options.beta1);
  args.beta2 = static_cast<float>(options.beta2);
  args.one_minus_beta2 = static_cast<float>(1 - options.beta2);
  args.eps = static_cast<float>(options.eps);
  args.step_size = static_cast<float>(-options.lr / correction1);
  args.inv_sqrt_correction2 = static_cast<float>(1 / std::sqrt(correction2));
  args.weight_decay = adamw ? 0.0f : static_cast<float>(options.weight_decay);
  args.decay = adamw ? static_cast<float>(-options.lr * options.weight_decay) : 0.0f;
  return args;
}

constexpr std::array<const char*, 2> adam_states{"exp_avg", "exp_avg_sq"};

std::vector<ParameterTensors> parameter_list(std::span<const AdamTensors> parameters) {
  std::vector<ParameterTensors> list;
  list.reserve(parameters.size());
  for (const AdamTensors& p : parameters) list.push_back({&p.param, &p.grad, {&p.exp_avg, &p.exp_avg_sq}, &p.copy});
  return list;
}

void check_undoable(const char* op, const aa_adam_args& args) {
  if (args.beta1 == 0 || args.beta2 == 0) {
    throw InvalidArgument(std::string(op) +
                          ": a beta of 0 forgets the moments before the step, so that they cannot be had back");
  }
  if (!(1.0f + args.decay > 0)) {
    throw InvalidArgument(std::string(op) + ": lr * weight_decay is " + number_text(-args.decay) +
                          ", which leaves nothing of the parameters before the step; a step can be undone below 1");
  }
}

}  // namespace

struct CPUAdam::Code : AdamCode {
  using AdamCode::AdamCode;
};

CPUAdam::CPUAdam(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code)
    : code_(std::make_unique<Code>(std::move(code), accelerator, true)) {}
CPUAdam::~CPUAdam() = default;

void CPUAdam::create_adam(int id, double lr, double beta1, double beta2, double eps, double weight_decay,
                          bool adamw_mode, bool should_log) {
  // Checks the values although every update has its own, so that wrong ones are reported here.
  AdamOptions options;
  options.lr = lr;
  options.beta1 = beta1;
  options.beta2 = beta2;
  options.eps = eps;
  options.weight_decay = weight_decay;
  adam_args("create_adam", adamw_mode, 1, options);
  {
    std::lock_guard lock(mutex_);
    adamw_by_id_[id] = adamw_mode;
  }
  if (should_log) {
    log_info("Adam optimizer " + std::to_string(id) + ": lr " + number_text(lr) + ", betas " + number_text(beta1) +
             " and " + number_text(beta2) + ", weight decay " + number_text(weight_decay) +
             (adamw_mode ? " (AdamW)" : " (L2)") + ", code " + code_->library->file());
  }
}

void CPUAdam::destroy_adam(int id) {
  std::lock_guard lock(mutex_);
  adamw_by_id_.erase(id);
}

bool CPUAdam::adamw_mode(const char* op, int id) {
  std::lock_guard lock(mutex_);
  const auto found = adamw_by_id_.find(id);
  if (found == adamw_by_id_.end()) throw_unknown_optimizer(op, id, "create_adam");
  return found->second;
}

void CPUAdam::adam_update(int id, int64_t step, double lr, double beta1, double beta2, double eps, double weight_decay,
                          bool bias_correction, const Tensor& params, const Tensor& grads, const Tensor& exp_avg,
                          const Tensor& exp_avg_sq, const Tensor& copy) {
  const char* op = "adam_update";
  const aa_adam_args args =
      adam_args(op, adamw_mode(op, id), step, {lr, beta1, beta2, eps, weight_decay, bias_correction, {}});
  const ParameterTensors parameter{&params, &grads, {&exp_avg, &exp_avg_sq}, &copy};
  code_->run({op, adam_states, true}, code_->step, args, {}, {&parameter, 1});
}

double CPUAdam::adam_update_multi(int id, int64_t step, const AdamOptions& options,
                                  std::span<const AdamTensors> parameters) {
  const char* op = "adam_update_multi";
  const aa_adam_args args = adam_args(op, adamw_mode(op, id), step, options);
  return code_->run({op, adam_states, true}, code_->step, args, options.gradients, parameter_list(parameters));
}

void CPUAdam::adam_rollback(int id, int64_t step, double lr, double beta1, double beta2, double eps,
                            double weight_decay, bool bias_correction, const Tensor& params, const Tensor& grads,
                            const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& copy) {
  const char* op = "adam_rollback";
  const aa_adam_args args =
      adam_args(op, adamw_mode(op, id), step, {lr, beta1, beta2, eps, weight_decay, bias_correction, {}});
  check_undoable(op, args);
  const ParameterTensors parameter{&params, &grads, {&exp_avg, &exp_avg_sq}, &copy};
  code_->run({op, adam_states, true}, code_->undo, args, {}, {&parameter, 1});
}

double CPUAdam::adam_rollback_multi(int id, int64_t step, const AdamOptions& options,
                                    std::span<const AdamTensors> parameters) {
  const char* op = "adam_rollback_multi";
  const aa_adam_args args = adam_args(op, adamw_mode(op, id), step, options);
  check_undoable(op, args);
  return code_->run({op, adam_states, true}, code_->undo, args, options.gradients, parameter_list(parameters));
}

// ---- ZenFlow (the rest of its calls is in zenflow.cpp) --------------------------------------------------------------

struct CPUAdam::ZenWorker {
  struct Group {
    Tensor param, stale;
    std::array<Tensor, 2> grad, exp_avg, exp_avg_sq;  // by now_state
  };
  int id;
  std::vector<int> cores;
  std::vector<Group> groups;
};

int CPUAdam::zenflow_adam_create(int id, std::span<const int> cores) {
  const char* op = "zenflow_adam_create";
  adamw_mode(op, id);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  for (const int core : cores) {
    if (core < 0 || core >= CPU_SETSIZE || !CPU_ISSET(static_cast<size_t>(core), &allowed)) {
      throw InvalidArgument(std::string(op) + ": core " + std::to_string(core) +
                            " is not one that this process may run on; `taskset -cp " + std::to_string(getpid()) +
                            "` lists them");
    }
  }
  const std::lock_guard lock(mutex_);
  zen_workers_[next_zen_worker_] = std::make_shared<ZenWorker>(ZenWorker{id, {cores.begin(), cores.end()}, {}});
  return next_zen_worker_++;
}

namespace {

[[noreturn]] void throw_unknown_worker(const char* op, int handle) {
  throw InvalidArgument(std::string(op) + ": there is no ZenFlow worker " + std::to_string(handle) +
                        "; zenflow_adam_create makes one");
}

}  // namespace

void CPUAdam::zenflow_adam_register_group(int handle, const Tensor& param, const Tensor& grad0, const Tensor& grad1,
                                          const Tensor& exp_avg0, const Tensor& exp_avg1, const Tensor& exp_avg_sq0,
                                          const Tensor& exp_avg_sq1, const Tensor& stale) {
  const char* op = "zenflow_adam_register_group";
  const std::pair<const char*, const Tensor*> tensors[] = {{"param", &param},
                                                           {"grad0", &grad0},
                                                           {"grad1", &grad1},
                                                           {"exp_avg0", &exp_avg0},
                                                           {"exp_avg1", &exp_avg1},
                                                           {"exp_avg_sq0", &exp_avg_sq0},
                                                           {"exp_avg_sq1", &exp_avg_sq1}};
  for (const auto& [name, tensor] : tensors) {
    if (!*tensor) throw InvalidArgument(std::string(op) + ": " + name + " is absent");
    if (tensor->shape() != param.shape()) {
      throw InvalidArgument(std::string(op) + ": " + name + " has shape " + tensor->shape().to_string() +
                            "; expected param's, " + param.shape().to_string());
    }
  }
  if (stale && stale.shape() != param.shape()) {
    throw InvalidArgument(std::string(op) + ": stale has shape " + stale.shape().to_string() + "; expected param's, " +
                          param.shape().to_string());
  }
  const std::lock_guard lock(mutex_);
  const auto found = zen_workers_.find(handle);
  if (found == zen_workers_.end()) throw_unknown_worker(op, handle);
  if (found->second->groups.size() == ZenStep::most_groups) {
    throw InvalidArgument(std::string(op) + ": a worker has at most " + std::to_string(ZenStep::most_groups) +
                          " groups");
  }
  found->second->groups.push_back({param, stale, {grad0, grad1}, {exp_avg0, exp_avg1}, {exp_avg_sq0, exp_avg_sq1}});
}

void CPUAdam::zenflow_adam_destroy(int handle) {
  const std::lock_guard lock(mutex_);
  zen_workers_.erase(handle);
}

void CPUAdam::zenflow_adam_run_worker(int handle, void* control) {
  const char* op = "zenflow_adam_run_worker";
  ZenControl& block = ZenControl::at(op, control);
  std::shared_ptr<ZenWorker> worker;
  {
    const std::lock_guard lock(mutex_);
    const auto found = zen_workers_.find(handle);
    if (found == zen_workers_.end()) throw_unknown_worker(op, handle);
    worker = std::make_shared<ZenWorker>(*found->second);
  }
  if (worker->groups.size() != static_cast<size_t>(block.num_groups())) {
    throw InvalidArgument(std::string(op) + ": the worker has " + std::to_string(worker->groups.size()) +
                          " groups, and the control block is for " + std::to_string(block.num_groups()));
  }
  if (!worker->cores.empty()) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (const int core : worker->cores) CPU_SET(static_cast<size_t>(core), &cores);
    if (sched_setaffinity(0, sizeof(cores), &cores) != 0) {
      log_warning(std::string(op) + ": the system refuses to bind the worker to its cores; it runs on any");
    }
  }
  for (;;) {
    const ZenStep& step = block.take();
    if (step.exit) return;
    std::string failure;
    try {
      const auto now = static_cast<size_t>(step.now_state);
      for (size_t g = 0; g < worker->groups.size(); ++g) {
        const ZenWorker::Group& group = worker->groups[g];
        adam_update(worker->id, step.step, static_cast<double>(step.lr[g]), static_cast<double>(step.beta1[g]),
                    static_cast<double>(step.beta2[g]), static_cast<double>(step.eps[g]),
                    static_cast<double>(step.weight_decay[g]), step.bias_correction[g] != 0, group.param,
                    group.grad[now], group.exp_avg[now], group.exp_avg_sq[now], group.stale);
      }
    } catch (const std::exception& error) {
      failure = error.what();
      if (failure.empty()) failure = "an error without a text";
    }
    block.done(failure);
  }
}

struct FusedAdam::Code : AdamCode {
  Code(std::shared_ptr<HostOpLibrary> code, Accelerator& active)
      : AdamCode(std::move(code), active, false), driver_adam(active) {}

  DriverAdam driver_adam;

  void update(const char* op, int64_t chunk_size, const Tensor& noop_flag, std::span<const std::vector<Tensor>> lists,
              int64_t step, int mode, const AdamOptions& options) const {
    constexpr std::array<const char*, 4> names{"gradients", "parameters", "exp_avg", "exp_avg_sq"};
    check_tensor_lists(op, chunk_size, lists, names);
    if (mode != L2 && mode != AdamW) {
      throw InvalidArgument(std::string(op) + ": mode is " + std::to_string(mode) +
                            "; expected 0 (L2: weight decay is added to the gradients) or 1 (AdamW)");
    }
    const aa_adam_args args = adam_args(op, mode == AdamW, step, options);
    check_noop_flag(op, noop_flag);
    std::vector<ParameterTensors> parameters;
    parameters.reserve(lists[0].size());
    for (size_t i = 0; i < lists[0].size(); ++i) {
      parameters.push_back(
          {&lists[1][i], &lists[0][i], {&lists[2][i], &lists[3][i]}, lists.size() > 4 ? &lists[4][i] : nullptr});
    }
    const OptimizerSpec spec{op, adam_states, false};
    if (driver_adam.step(spec, parameters, step, mode == AdamW, options, noop_flag)) return;
    run(spec, AdamCode::step, args, options.gradients, parameters, noop_flag);
  }
};

FusedAdam::FusedAdam(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code)
    : code_(std::make_unique<Code>(std::move(code), accelerator)) {}
FusedAdam::~FusedAdam() = default;

void FusedAdam::multi_tensor_adam(int64_t chunk_size, const Tensor& noop_flag,
                                  std::span<const std::vector<Tensor>> tensor_lists, double lr, double beta1,
                                  double beta2, double eps, int64_t step, int mode, bool bias_correction,
                                  double weight_decay) {
  code_->update("multi_tensor_adam", chunk_size, noop_flag, tensor_lists, step, mode,
                {lr, beta1, beta2, eps, weight_decay, bias_correction, {}});
}

void FusedAdam::multi_tensor_adam_mixed_precision(int64_t chunk_size, const Tensor& noop_flag,
                                                  std::span<const std::vector<Tensor>> tensor_lists, double lr,
                                                  double beta1, double beta2, double eps, int64_t step, int mode,
                                                  bool bias_correction, double weight_decay, double grad_scale) {
  const char* op = "multi_tensor_adam_mixed_precision";
  if (tensor_lists.size() != 5) {
    throw InvalidArgument(
        std::string(op) + ": " + std::to_string(tensor_lists.size()) +
        " lists of tensors were given; expected 5 (gradients, parameters, exp_avg, exp_avg_sq, copies)");
  }
  if (!(grad_scale > 0) || !std::isfinite(grad_scale)) {
    throw InvalidArgument(std::string(op) + ": grad_scale is " + number_text(grad_scale) +
                          "; expected a finite number above 0");
  }
  AdamOptions options{lr, beta1, beta2, eps, weight_decay, bias_correction, {}};
  options.gradients.scale = 1 / grad_scale;
  code_->update(op, chunk_size, noop_flag, tensor_lists, step, mode, options);
}

std::unique_ptr<OpBuilder> make_cpu_adam_builder(Accelerator& accelerator) {
  return std::make_unique<BundledOpBuilder<CPUAdam>>("CPUAdamBuilder", std::vector<std::string>{"cpu_adam.cpp"},
                                                     accelerator);
}

std::unique_ptr<OpBuilder> make_fused_adam_builder(Accelerator& accelerator) {
  return std::make_unique<BundledOpBuilder<FusedAdam>>("FusedAdamBuilder", std::vector<std::string>{"cpu_adam.cpp"},
                                                       accelerator);
}

}  // namespace anyaccel::ops
