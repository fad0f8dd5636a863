// Implements driver_adam.h.
#include "ops/host/driver_adam.h"

#include <array>
#include <vector>

#include "anyaccel/abi/optimizer_ops.h"
#include "anyaccel/abi/sized.hpp"

namespace anyaccel::ops {
namespace {

// One parameter's call.
struct AdamCall {
  AdamCall(const aa_parameter& parameter, int32_t op, const aa_adam_step_params& params) {
    const std::array<void*, 4> arrays{parameter.param, parameter.state[0], parameter.state[1],
                                      const_cast<void*>(parameter.grad)};
    const std::array<int32_t, 4> dtypes{parameter.param_dtype, parameter.state_dtype, parameter.state_dtype,
                                        parameter.grad_dtype};
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].data = arrays[i];
      tensors[i].dtype = dtypes[i];
      tensors[i].ndim = 1;
      tensors[i].shape[0] = parameter.count;
      tensors[i].strides[0] = 1;
    }
    call.op = op;
    call.tensors = tensors.data();
    call.tensor_count = static_cast<uint32_t>(tensors.size());
    call.params = &params;
    call.params_size = sizeof(params);
  }
  AdamCall(const AdamCall&) = delete;
  AdamCall& operator=(const AdamCall&) = delete;

  std::array<aa_tensor, 4> tensors{};
  aa_op_call call = abi::sized<aa_op_call>();
};

}  // namespace

DriverAdam::DriverAdam(Accelerator& accelerator)
    : accelerator_(accelerator), op_(accelerator.find_op(AA_ADAM_STEP_OP)) {}

bool DriverAdam::step(const OptimizerSpec& spec, std::span<const ParameterTensors> parameters, int64_t step, bool adamw,
                      const AdamOptions& options, const Tensor& noop) const {
  if (op_ < 0 || !options.bias_correction || options.gradients.scale != 1 || options.gradients.max_norm > 0) {
    return false;
  }
  for (const ParameterTensors& parameter : parameters) {
    // Tensors of the host, and wrong ones, are left to the code that everything else runs through.
    if (!*parameter.param || parameter.param->device().accelerator != &accelerator_) return false;
    if (parameter.copy && *parameter.copy) return false;
  }
  auto params = abi::sized<aa_adam_step_params>();
  params.adamw = adamw;
  params.step = step;
  params.lr = static_cast<float>(options.lr);
  params.beta1 = static_cast<float>(options.beta1);
  params.beta2 = static_cast<float>(options.beta2);
  params.eps = static_cast<float>(options.eps);
  params.weight_decay = static_cast<float>(options.weight_decay);
  bool done = false;
  run_optimizer(accelerator_, spec, parameters, true,
                [&](std::span<const aa_parameter> list, std::optional<int> device) {
                  if (!device) return;
                  std::vector<OpHandle> handles(list.size());
                  for (size_t i = 0; i < list.size(); ++i) {
                    if (list[i].count == 0) continue;
                    handles[i] = accelerator_.resolve_op(AdamCall(list[i], op_, params).call, *device);
                    if (!handles[i]) return;
                  }
                  done = true;
                  if (noop_asked(noop)) return;
                  for (size_t i = 0; i < list.size(); ++i) {
                    if (handles[i]) accelerator_.enqueue_op(handles[i], AdamCall(list[i], op_, params).call, *device);
                  }
                });
  return done;
}

}  // namespace anyaccel::ops
