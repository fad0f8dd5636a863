// Implements optimizers.h, the steps of the fused optimizers as portable kernels.
#include "ops/portable/optimizers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "anyaccel/error.h"
#include "anyaccel/tensor.h"
#include "ops/host/optimizers.h"
#include "runtime/ops/kernel_arguments.h"

namespace anyaccel::ops::portable {
namespace {

#include "kernels/portable/optimizer_arguments.h"

static_assert(AA_SUM_SEGMENT == AA_NORM_SEGMENT);

// The largest parameter, in elements, that may share a launch with others.
constexpr int64_t largest_of_many = int64_t{1} << 18;

// The kernels of optimizers.cl and of lamb.cl.
enum Steps : size_t { adam_step, lion_step, adam_step_many };
enum Lamb : size_t { square_sums_kernel, lamb_moments_kernel, lamb_apply_kernel };

aa_optimizer_types types_of(const aa_parameter& p) {
  return {p.param_dtype, p.grad_dtype, p.state_dtype, p.copy ? p.copy_dtype : 0};
}

aa_lamb_numbers numbers_of(const aa_lamb_args& a, float coefficient) {
  return {a.beta1,       a.one_minus_beta1, a.beta2, a.one_minus_beta2, a.eps,        a.correction1,
          a.correction2, a.weight_decay,    a.lr,    a.grad_scale,      a.eps_inside, coefficient};
}

// Waits for kernels and returns the numbers that they wrote.
std::vector<double> read_back(const Tensor& sums) {
  std::vector<double> result(static_cast<size_t>(sums.numel()));
  if (result.empty()) return result;
  const Tensor here = sums.to(Device{});
  std::memcpy(result.data(), here.data(), result.size() * sizeof(double));
  return result;
}

}  // namespace

OptimizerKernels::OptimizerKernels(DriverAccelerator& accelerator)
    : accelerator_(accelerator),
      steps_(accelerator, "optimizers.cl", {"adam_step", "lion_step", "adam_step_many"}),
      lamb_(accelerator, "lamb.cl", {"square_sums", "lamb_moments", "lamb_apply"}) {}

int64_t OptimizerKernels::step_per_item(int device) {
  return steps_.tuning(device).group_size == 1 ? AA_ADAM_ALONE : AA_ADAM_IN_GROUP;
}

int64_t OptimizerKernels::lamb_per_item(int device) {
  // An item that works alone is a thread of a processor, and takes a few strips.
  return lamb_.tuning(device).group_size == 1 ? 1024 : 1;
}

LaunchShape OptimizerKernels::items_shape(int64_t count, int64_t per_item, int device) {
  const int32_t items = steps_.tuning(device).items;
  return {.grid = {groups_for(count, items * per_item), 1, 1}, .block = {static_cast<uint32_t>(items), 1, 1}};
}

LaunchShape OptimizerKernels::segments_shape(int64_t count, int device) {
  const int32_t group = lamb_.tuning(device).group_size;
  const int64_t segments = std::max(group / AA_SUM_LANES, 1);
  return {.grid = {groups_for(count, segments * AA_NORM_SEGMENT), 1, 1}, .block = {static_cast<uint32_t>(group), 1, 1}};
}

void OptimizerKernels::step(std::span<const aa_parameter> parameters, const aa_adam_args& args, const void* noop,
                            int device) {
  const int64_t each = step_per_item(device);
  const auto numbers = std::bit_cast<aa_adam_numbers>(args);
  const auto same_types = [](const aa_parameter& a, const aa_parameter& b) {
    const aa_optimizer_types x = types_of(a), y = types_of(b);
    return x.param == y.param && x.grad == y.grad && x.state == y.state && x.copy == y.copy;
  };
  // Small parameters wait for others of the same types. Larger ones do not, because groups beyond a parameter's end
  // would cost more than is saved if the sizes differ a lot.
  std::array<const aa_parameter*, AA_MANY> waiting{};
  size_t count = 0;
  const auto flush = [&] {
    if (count > 0) step_many({waiting.data(), count}, args, noop, device);
    count = 0;
  };
  for (const aa_parameter& p : parameters) {
    if (p.count == 0) continue;
    if (p.count > largest_of_many || !has_step_many(device)) {
      steps_.launch(adam_step, device, items_shape(p.count, each, device), p.param, p.grad, p.state[0], p.state[1],
                    p.copy, noop, types_of(p), numbers, p.count);
      continue;
    }
    if (count == waiting.size() || (count > 0 && !same_types(*waiting[0], p))) flush();
    waiting[count++] = &p;
  }
  flush();
}

bool OptimizerKernels::has_step_many(int device) {
  std::call_once(step_many_known_, [&] {
    try {
      steps_.get(adam_step_many, device, Element::F32, Element::F32);
      has_step_many_ = true;
    } catch (const Error& error) {
      if (error.code() != AA_NOT_FOUND) throw;
    }
  });
  return has_step_many_;
}

void OptimizerKernels::step_many(std::span<const aa_parameter* const> parameters, const aa_adam_args& args,
                                 const void* noop, int device) {
  int64_t longest = 0;
  for (const aa_parameter* p : parameters) longest = std::max(longest, p->count);
  LaunchShape shape = items_shape(longest, step_per_item(device), device);
  shape.grid[1] = static_cast<uint32_t>(parameters.size());
  // Unused places have no groups, so they may repeat the last parameter.
  const auto at = [&](size_t i) -> const aa_parameter& { return *parameters[std::min(i, parameters.size() - 1)]; };
  const auto launch = [&]<size_t... i>(std::index_sequence<i...>) {
    const auto arguments = std::tuple_cat(
        std::make_tuple(at(i).param, at(i).grad, at(i).state[0], at(i).state[1], at(i).copy, at(i).count)...);
    std::apply(
        [&](const auto&... argument) {
          steps_.launch(adam_step_many, device, shape, noop, types_of(at(0)), std::bit_cast<aa_adam_numbers>(args),
                        argument...);
        },
        arguments);
  };
  launch(std::make_index_sequence<AA_MANY>());
}

void OptimizerKernels::step(std::span<const aa_parameter> parameters, const aa_lion_args& args, const void* noop,
                            int device) {
  const aa_lion_numbers numbers{args.beta1, args.one_minus_beta1, args.beta2, args.one_minus_beta2, args.lr,
                                args.keep,  args.grad_scale,      0};
  for (const aa_parameter& p : parameters) {
    if (p.count == 0) continue;
    steps_.launch(lion_step, device, items_shape(p.count, step_per_item(device), device), p.param, p.grad, p.state[0],
                  p.copy, noop, types_of(p), numbers, p.count);
  }
}

std::vector<double> OptimizerKernels::square_sums(std::span<const aa_parameter> parameters, int device) {
  const Tensor sums = Tensor::empty({segment_count(parameters)}, DType::F64, accelerator_.device(device));
  for (const aa_parameter& p : parameters) {
    if (p.count == 0) continue;
    lamb_.launch(square_sums_kernel, device, segments_shape(p.count, device), p.grad, int64_t{p.grad_dtype}, p.count,
                 static_cast<void*>(sums.data_as<double>() + p.first_segment));
  }
  return read_back(sums);
}

std::vector<double> OptimizerKernels::lamb_moments(std::span<const aa_parameter> parameters, const aa_lamb_args& args,
                                                   int device) {
  const int64_t segments = segment_count(parameters);
  const Tensor sums = Tensor::empty({2 * segments}, DType::F64, accelerator_.device(device));
  for (const aa_parameter& p : parameters) {
    if (p.count == 0) continue;
    double* const first = sums.data_as<double>() + p.first_segment;
    lamb_.launch(lamb_moments_kernel, device, segments_shape(p.count, device), p.param, p.grad, p.state[0], p.state[1],
                 types_of(p), numbers_of(args, 0), p.count, static_cast<void*>(first),
                 static_cast<void*>(first + segments));
  }
  return read_back(sums);
}

void OptimizerKernels::lamb_apply(std::span<const aa_parameter> parameters, const aa_lamb_args& args,
                                  std::span<const float> coefficients, int device) {
  const int64_t each = lamb_per_item(device);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const aa_parameter& p = parameters[i];
    if (p.count == 0) continue;
    lamb_.launch(lamb_apply_kernel, device, items_shape(p.count, each, device), p.param, p.state[0], p.state[1], p.copy,
                 types_of(p), numbers_of(args, coefficients[i]), p.count, each);
  }
}

}  // namespace anyaccel::ops::portable
