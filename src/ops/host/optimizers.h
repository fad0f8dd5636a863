// Declares functions that the optimizers' classes share: they check tensors, make them accessible and describe them to
// the loaded code.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/ops/optimizer_options.h"
#include "kernels/host/optimizers.h"
#include "ops/portable/optimizers.h"
#include "ops/portable/portable_ops.h"

namespace anyaccel::ops {

// One parameter of a call, as the caller gave it.
struct ParameterTensors {
  const Tensor* param;
  const Tensor* grad;
  std::array<const Tensor*, 2> states;  // null if the optimizer has fewer
  const Tensor* copy;                   // may be empty
};

struct OptimizerSpec {
  const char* op;                          // "adam_update"
  std::array<const char*, 2> state_names;  // null where there is no state
  // If true, the host must be able to reach the tensors; else they may be on the active accelerator.
  bool host_only;
};

// Throws InvalidArgument unless the flag is empty or one int32.
void check_noop_flag(const char* op, const Tensor& noop_flag);
// Returns whether the flag requests that nothing be done. Waits for the flag.
bool noop_asked(const Tensor& noop_flag);

// Checks everything and calls `body` with one aa_parameter for each parameter. Its arrays are contiguous: other tensors
// are copied there and back.
//   - If `kernels`, and all tensors lie on one device of the accelerator, the arrays are there. `body` gets its number;
//     work that it enqueues on the current stream is in order.
//   - Else the host reaches the arrays, and the accelerator's work on them is done; those that it does not reach are
//     copied there and back as well.
using OptimizerBody = std::function<void(std::span<const aa_parameter>, std::optional<int> device)>;
void run_optimizer(Accelerator& accelerator, const OptimizerSpec& spec, std::span<const ParameterTensors> parameters,
                   bool kernels, const OptimizerBody& body);

// Returns the number of all segments of the parameters, which is the number of sums of squares.
int64_t segment_count(std::span<const aa_parameter> parameters);

// The code of an optimizer: functions of a loaded host library and, for an optimizer of the active accelerator, the
// accelerator's kernels if it has any.
class OptimizerCode {
 public:
  OptimizerCode(std::shared_ptr<HostOpLibrary> code, Accelerator& active, bool host_only)
      : library(std::move(code)),
        accelerator(active),
        kernels(host_only ? nullptr : portable::make_kernels<portable::OptimizerKernels>(active)),
        square_sums_(library->function<aa_grad_square_sums>("grad_square_sums")) {}

  // The factor for the gradients of a call, and their norm if they are clipped.
  struct GradientScale {
    float factor = 1;
    double norm = 0;
    bool skip = false;  // the norm is not finite
  };
  GradientScale gradient_scale(const GradientOptions& options, std::span<const aa_parameter> parameters,
                               std::optional<int> device) const;

  // Runs one step with `step`, a function of the library, or with the kernels' step() for such arguments. Returns the
  // norm if gradients are clipped, else 0. For `noop` see multi_tensor_adam; it may be empty.
  template <class Args>
  double run(const OptimizerSpec& spec, void (*step)(const aa_parameter*, int64_t, const Args*), Args args,
             const GradientOptions& gradients, std::span<const ParameterTensors> parameters,
             const Tensor& noop = {}) const {
    if (!kernels && noop_asked(noop)) return 0;
    double norm = 0;
    run_optimizer(accelerator, spec, parameters, kernels != nullptr,
                  [&](std::span<const aa_parameter> list, std::optional<int> device) {
                    const bool flag_there = noop && device && noop.device() == accelerator.device(*device);
                    if (!flag_there && noop_asked(noop)) return;
                    const GradientScale scale = gradient_scale(gradients, list, device);
                    norm = scale.norm;
                    args.grad_scale = scale.factor;
                    if (scale.skip) return;
                    if constexpr (requires { kernels->step(list, args, nullptr, 0); }) {
                      if (device) return kernels->step(list, args, flag_there ? noop.data() : nullptr, *device);
                    }
                    step(list.data(), static_cast<int64_t>(list.size()), &args);
                  });
    return norm;
  }

  const std::shared_ptr<HostOpLibrary> library;
  Accelerator& accelerator;
  const std::unique_ptr<portable::OptimizerKernels> kernels;

 private:
  aa_grad_square_sums* square_sums_;
};

// These throw InvalidArgument that names the op and the option.
void check_step(const char* op, int64_t step);
void check_beta(const char* op, const char* name, double value);          // in [0, 1)
void check_not_negative(const char* op, const char* name, double value);  // must be finite too
void check_gradient_options(const char* op, const GradientOptions& options);
[[noreturn]] void throw_unknown_optimizer(const char* op, int id, const char* create);

// Checks the lists of multi_tensor_*: the required ones are called `names`; "copies" may be missing.
void check_tensor_lists(const char* op, int64_t chunk_size, std::span<const std::vector<Tensor>> lists,
                        std::span<const char* const> names);
}  // namespace anyaccel::ops
