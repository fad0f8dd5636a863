// Implements CPUAdagrad, CPULion and FusedLion, see the headers of these names in anyaccel/ops.
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "anyaccel/ops/cpu_adagrad.h"
#include "anyaccel/ops/cpu_lion.h"
#include "anyaccel/ops/fused_lion.h"
#include "base/text/number_text.h"
#include "ops/builders.h"
#include "ops/host/optimizers.h"

namespace anyaccel::ops {
namespace {

// A library with one step function.
template <class StepOp>
struct StepCode : OptimizerCode {
  StepCode(std::shared_ptr<HostOpLibrary> code, Accelerator& active, bool host_only, const char* step_name)
      : OptimizerCode(std::move(code), active, host_only), step(library->function<StepOp>(step_name)) {}

  StepOp* step;
};

using AdagradCode = StepCode<aa_adagrad_op>;
using LionCode = StepCode<aa_lion_op>;

aa_adagrad_args adagrad_args(const char* op, int64_t step, const AdagradOptions& options) {
  check_step(op, step);
  check_not_negative(op, "lr", options.lr);
  check_not_negative(op, "eps", options.eps);
  check_not_negative(op, "weight_decay", options.weight_decay);
  check_gradient_options(op, options.gradients);
  aa_adagrad_args args{};
  args.eps = static_cast<float>(options.eps);
  args.step_size = static_cast<float>(-options.lr);
  args.weight_decay = static_cast<float>(options.weight_decay);
  return args;
}

aa_lion_args lion_args(const char* op, int64_t step, const LionOptions& options) {
  check_step(op, step);
  check_not_negative(op, "lr", options.lr);
  check_beta(op, "beta1", options.beta1);
  check_beta(op, "beta2", options.beta2);
  check_not_negative(op, "weight_decay", options.weight_decay);
  check_gradient_options(op, options.gradients);
  aa_lion_args args{};
  args.beta1 = static_cast<float>(options.beta1);
  args.one_minus_beta1 = static_cast<float>(1 - options.beta1);
  args.beta2 = static_cast<float>(options.beta2);
  args.one_minus_beta2 = static_cast<float>(1 - options.beta2);
  args.lr = static_cast<float>(options.lr);
  args.keep = static_cast<float>(1 - options.lr * options.weight_decay);
  return args;
}

constexpr std::array<const char*, 2> adagrad_states{"exp_avg_sq", nullptr};
constexpr std::array<const char*, 2> lion_states{"exp_avg", nullptr};

}  // namespace

struct CPUAdagrad::Code : AdagradCode {
  using AdagradCode::AdagradCode;
};

CPUAdagrad::CPUAdagrad(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code)
    : code_(std::make_unique<Code>(std::move(code), accelerator, true, "adagrad_step")) {}
CPUAdagrad::~CPUAdagrad() = default;

void CPUAdagrad::create_adagrad(int id, double lr, double eps, double weight_decay, bool should_log) {
  adagrad_args("create_adagrad", 1, {lr, eps, weight_decay, {}});
  {
    std::lock_guard lock(mutex_);
    ids_.insert(id);
  }
  if (should_log) {
    log_info("Adagrad optimizer " + std::to_string(id) + ": lr " + number_text(lr) + ", weight decay " +
             number_text(weight_decay) + ", code " + code_->library->file());
  }
}

void CPUAdagrad::destroy_adagrad(int id) {
  std::lock_guard lock(mutex_);
  ids_.erase(id);
}

void CPUAdagrad::adagrad_update(int id, int64_t step, double lr, double eps, double weight_decay, const Tensor& params,
                                const Tensor& grads, const Tensor& exp_avg_sq, const Tensor& copy) {
  const char* op = "adagrad_update";
  check_id(op, id);
  const ParameterTensors parameter{&params, &grads, {&exp_avg_sq, nullptr}, &copy};
  code_->run({op, adagrad_states, true}, code_->step, adagrad_args(op, step, {lr, eps, weight_decay, {}}), {},
             {&parameter, 1});
}

double CPUAdagrad::adagrad_update_multi(int id, int64_t step, const AdagradOptions& options,
                                        std::span<const AdagradTensors> parameters) {
  const char* op = "adagrad_update_multi";
  check_id(op, id);
  std::vector<ParameterTensors> list;
  list.reserve(parameters.size());
  for (const AdagradTensors& p : parameters) list.push_back({&p.param, &p.grad, {&p.exp_avg_sq, nullptr}, &p.copy});
  return code_->run({op, adagrad_states, true}, code_->step, adagrad_args(op, step, options), options.gradients, list);
}

void CPUAdagrad::check_id(const char* op, int id) {
  std::lock_guard lock(mutex_);
  if (!ids_.contains(id)) throw_unknown_optimizer(op, id, "create_adagrad");
}

struct CPULion::Code : LionCode {
  using LionCode::LionCode;
};

CPULion::CPULion(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code)
    : code_(std::make_unique<Code>(std::move(code), accelerator, true, "lion_step")) {}
CPULion::~CPULion() = default;

void CPULion::create_lion(int id, double lr, double beta1, double beta2, double weight_decay, bool should_log) {
  lion_args("create_lion", 1, {lr, beta1, beta2, weight_decay, {}});
  {
    std::lock_guard lock(mutex_);
    ids_.insert(id);
  }
  if (should_log) {
    log_info("Lion optimizer " + std::to_string(id) + ": lr " + number_text(lr) + ", betas " + number_text(beta1) +
             " and " + number_text(beta2) + ", weight decay " + number_text(weight_decay) + ", code " +
             code_->library->file());
  }
}

void CPULion::destroy_lion(int id) {
  std::lock_guard lock(mutex_);
  ids_.erase(id);
}

void CPULion::lion_update(int id, int64_t step, double lr, double beta1, double beta2, double weight_decay,
                          const Tensor& params, const Tensor& grads, const Tensor& exp_avg, const Tensor& copy) {
  const char* op = "lion_update";
  check_id(op, id);
  const ParameterTensors parameter{&params, &grads, {&exp_avg, nullptr}, &copy};
  code_->run({op, lion_states, true}, code_->step, lion_args(op, step, {lr, beta1, beta2, weight_decay, {}}), {},
             {&parameter, 1});
}

double CPULion::lion_update_multi(int id, int64_t step, const LionOptions& options,
                                  std::span<const LionTensors> parameters) {
  const char* op = "lion_update_multi";
  check_id(op, id);
  std::vector<ParameterTensors> list;
  list.reserve(parameters.size());
  for (const LionTensors& p : parameters) list.push_back({&p.param, &p.grad, {&p.exp_avg, nullptr}, &p.copy});
  return code_->run({op, lion_states, true}, code_->step, lion_args(op, step, options), options.gradients, list);
}

void CPULion::check_id(const char* op, int id) {
  std::lock_guard lock(mutex_);
  if (!ids_.contains(id)) throw_unknown_optimizer(op, id, "create_lion");
}

struct FusedLion::Code : LionCode {
  using LionCode::LionCode;
};

FusedLion::FusedLion(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code)
    : code_(std::make_unique<Code>(std::move(code), accelerator, false, "lion_step")) {}
FusedLion::~FusedLion() = default;

void FusedLion::multi_tensor_lion(int64_t chunk_size, const Tensor& noop_flag,
                                  std::span<const std::vector<Tensor>> tensor_lists, double lr, double beta1,
                                  double beta2, int64_t step, double weight_decay) {
  const char* op = "multi_tensor_lion";
  constexpr std::array<const char*, 3> names{"gradients", "parameters", "exp_avg"};
  check_tensor_lists(op, chunk_size, tensor_lists, names);
  const aa_lion_args args = lion_args(op, step, {lr, beta1, beta2, weight_decay, {}});
  check_noop_flag(op, noop_flag);
  std::vector<ParameterTensors> list;
  list.reserve(tensor_lists[0].size());
  for (size_t i = 0; i < tensor_lists[0].size(); ++i) {
    list.push_back({&tensor_lists[1][i],
                    &tensor_lists[0][i],
                    {&tensor_lists[2][i], nullptr},
                    tensor_lists.size() > 3 ? &tensor_lists[3][i] : nullptr});
  }
  code_->run({op, lion_states, false}, code_->step, args, {}, list, noop_flag);
}

std::unique_ptr<OpBuilder> make_cpu_adagrad_builder(Accelerator& accelerator) {
  return std::make_unique<BundledOpBuilder<CPUAdagrad>>("CPUAdagradBuilder",
                                                        std::vector<std::string>{"cpu_adagrad.cpp"}, accelerator);
}

std::unique_ptr<OpBuilder> make_cpu_lion_builder(Accelerator& accelerator) {
  return std::make_unique<BundledOpBuilder<CPULion>>("CPULionBuilder", std::vector<std::string>{"cpu_lion.cpp"},
                                                     accelerator);
}

std::unique_ptr<OpBuilder> make_fused_lion_builder(Accelerator& accelerator) {
  return std::make_unique<BundledOpBuilder<FusedLion>>("FusedLionBuilder", std::vector<std::string>{"cpu_lion.cpp"},
                                                       accelerator);
}

}  // namespace anyaccel::ops
