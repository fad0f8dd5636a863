// Implements FusedLamb, see anyaccel/ops/fused_lamb.h.
#include <algorithm>
#include <cmath>

#include "anyaccel/error.h"
#include "anyaccel/ops/fused_lamb.h"
#include "base/text/number_text.h"
#include "ops/builders.h"
#include "ops/host/host_accelerator.h"
#include "ops/host/optimizers.h"

namespace anyaccel::ops {
namespace {

aa_lamb_args lamb_args(const char* op, int64_t step, const LambOptions& options) {
  check_step(op, step);
  check_not_negative(op, "lr", options.lr);
  check_beta(op, "beta1", options.beta1);
  check_beta(op, "beta2", options.beta2);
  check_not_negative(op, "eps", options.eps);
  check_not_negative(op, "weight_decay", options.weight_decay);
  check_not_negative(op, "max_coeff", options.max_coeff);
  check_not_negative(op, "min_coeff", options.min_coeff);
  if (options.min_coeff > options.max_coeff) {
    throw InvalidArgument(std::string(op) + ": min_coeff is " + number_text(options.min_coeff) +
                          " and max_coeff only " + number_text(options.max_coeff));
  }
  check_gradient_options(op, options.gradients);
  // Returns 1 - beta^step without cancellation for a beta near 1.
  const auto correction = [&](double beta) {
    if (!options.bias_correction || beta == 0) return 1.0;
    return -std::expm1(static_cast<double>(step) * std::log(beta));
  };
  aa_lamb_args args{};
  args.beta1 = static_cast<float>(options.beta1);
  args.one_minus_beta1 = static_cast<float>(1 - options.beta1);
  args.beta2 = static_cast<float>(options.beta2);
  args.one_minus_beta2 = static_cast<float>(1 - options.beta2);
  args.eps = static_cast<float>(options.eps);
  args.correction1 = static_cast<float>(correction(options.beta1));
  args.correction2 = static_cast<float>(correction(options.beta2));
  args.weight_decay = static_cast<float>(options.weight_decay);
  args.lr = static_cast<float>(options.lr);
  args.eps_inside = options.eps_inside_sqrt ? 1 : 0;
  return args;
}

// Returns the norm of all segments of a parameter.
double norm_of(const aa_parameter& parameter, std::span<const double> sums) {
  double total = 0;
  const int64_t end = segment_count({&parameter, 1});
  for (int64_t i = parameter.first_segment; i < end; ++i) total += sums[static_cast<size_t>(i)];
  return std::sqrt(total);
}

// The ratios that the steps of the parameters are multiplied by, which are also appended to `result`. `sums`: those of the squares
// of the parameters' segments, then of the updates'.
std::vector<float> coefficients(std::span<const aa_parameter> parameters, std::span<const double> sums,
                                const LambOptions& options, std::vector<double>& result) {
  std::vector<float> found;
  for (const aa_parameter& parameter : parameters) {
    const double param_norm = norm_of(parameter, sums.first(sums.size() / 2));
    const double update_norm = norm_of(parameter, sums.subspan(sums.size() / 2));
    double coefficient = 1;
    if (param_norm != 0 && update_norm != 0) {
      coefficient = param_norm / update_norm;
      if (coefficient > options.max_coeff) coefficient = options.max_coeff;
      if (coefficient < options.min_coeff) coefficient = options.min_coeff;
    }
    found.push_back(static_cast<float>(coefficient));
    result.push_back(coefficient);
  }
  return found;
}

// Returns how many parameters, at least one, are to be stepped before the next ones: as many as fit in the second-level caches of
// the threads, 1 MiB each, with their gradients and states. Of larger ones a part is still found there, up to four times that
// size. Those of which nothing would be left stay together, with a few small ones between them, since a pass over many is faster.
size_t cached_count(std::span<const aa_parameter> parameters) {
  constexpr int64_t kCached = int64_t{1} << 20;  // bytes of a thread
  const int64_t most = kCached * op_services()->threads();
  int64_t bytes = 0;  // of those that gain, behind the last one that does not
  bool mixed = false;
  size_t count = 0;
  for (const aa_parameter& p : parameters) {
    const auto size = [](int32_t dtype) { return int64_t{dtype == AA_DTYPE_F32 ? 4 : 2}; };
    const int64_t own = p.count * (size(p.param_dtype) + size(p.grad_dtype) + 2 * size(p.state_dtype));
    const bool gains = own <= 4 * most;
    if (gains) bytes += own;
    if (count > 0 && bytes > (mixed || !gains ? most / 16 : most)) break;
    if (!gains) {
      mixed = true;
      bytes = 0;
    }
    ++count;
  }
  return count;
}

}  // namespace

struct FusedLamb::Code : OptimizerCode {
  Code(std::shared_ptr<HostOpLibrary> code, Accelerator& active)
      : OptimizerCode(std::move(code), active, false),
        moments_(library->function<aa_lamb_moments>("lamb_moments")),
        apply_(library->function<aa_lamb_apply>("lamb_apply")) {}

  std::vector<double> run(const char* op, int64_t step, const LambOptions& options,
                          std::span<const ParameterTensors> parameters) const {
    aa_lamb_args args = lamb_args(op, step, options);
    std::vector<double> result;
    run_optimizer(accelerator, {op, {"exp_avg", "exp_avg_sq"}, false}, parameters, kernels != nullptr,
                  [&](std::span<const aa_parameter> list, std::optional<int> device) {
                    const GradientScale scale = gradient_scale(options.gradients, list, device);
                    if (scale.skip) return;
                    args.grad_scale = scale.factor;
                    if (device) {
                      const std::vector<double> sums = kernels->lamb_moments(list, args, *device);
                      return kernels->lamb_apply(list, args, coefficients(list, sums, options, result), *device);
                    }
                    std::vector<double> sums(2 * static_cast<size_t>(segment_count(list)));
                    // The second pass over parameters finds in the caches what the first one has left there.
                    while (!list.empty()) {
                      const std::span<const aa_parameter> part = list.first(cached_count(list));
                      list = list.subspan(part.size());
                      const auto count = static_cast<int64_t>(part.size());
                      moments_(part.data(), count, &args, sums.data(), sums.data() + sums.size() / 2);
                      apply_(part.data(), count, &args, coefficients(part, sums, options, result).data());
                    }
                  });
    return result;
  }

 private:
  aa_lamb_moments* moments_;
  aa_lamb_apply* apply_;
};

FusedLamb::FusedLamb(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code)
    : code_(std::make_unique<Code>(std::move(code), accelerator)) {}
FusedLamb::~FusedLamb() = default;

double FusedLamb::lamb(const Tensor& p, const Tensor& p_copy, const Tensor& m, const Tensor& v, const Tensor& g,
                       double lr, double beta1, double beta2, double max_coeff, double min_coeff, double eps,
                       double combined_scale, int64_t step, int eps_mode, bool bias_correction, double decay) {
  if (eps_mode != 0 && eps_mode != 1) {
    throw InvalidArgument("lamb: eps_mode is " + std::to_string(eps_mode) +
                          "; expected 0 (eps under the square root) or 1 (outside)");
  }
  if (!std::isfinite(combined_scale) || combined_scale == 0) {
    throw InvalidArgument("lamb: combined_scale is " + number_text(combined_scale) +
                          "; expected a finite number other than 0");
  }
  LambOptions options{lr, beta1, beta2, eps, decay, max_coeff, min_coeff, eps_mode == 0, bias_correction, {}};
  options.gradients.scale = 1 / combined_scale;
  // A tensor with no elements means that there is no copy, as in DeepSpeed.
  static const Tensor none;
  const ParameterTensors parameter{&p, &g, {&m, &v}, p_copy && p_copy.numel() > 0 ? &p_copy : &none};
  return code_->run("lamb", step, options, {&parameter, 1})[0];
}

std::vector<double> FusedLamb::lamb_multi(int64_t step, const LambOptions& options,
                                          std::span<const LambTensors> parameters) {
  std::vector<ParameterTensors> list;
  list.reserve(parameters.size());
  for (const LambTensors& t : parameters) list.push_back({&t.param, &t.grad, {&t.exp_avg, &t.exp_avg_sq}, &t.copy});
  return code_->run("lamb_multi", step, options, list);
}

std::unique_ptr<OpBuilder> make_fused_lamb_builder(Accelerator& accelerator) {
  return std::make_unique<BundledOpBuilder<FusedLamb>>("FusedLambBuilder", std::vector<std::string>{"fused_lamb.cpp"},
                                                       accelerator);
}

}  // namespace anyaccel::ops
