// Implements the step of Adam with aclnnApplyAdamWV2, which decays the parameter (AdamW) and corrects the bias of both
// moments. Its document wants tensors of one type; the gradients' decay (L2) is not its: such a call is taken only
// without decay, where both are the same.
#include "accelerators/npu/op_rows.h"
#include "anyaccel/abi/optimizer_ops.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::npu {
namespace {

bool supports_adam(const Functions&, const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  const auto& settings = params_of<aa_adam_step_params>(call);
  if (!settings.adamw && settings.weight_decay != 0) return false;
  return are_plain({&t[0], &t[1], &t[2], &t[3]});
}

void adam(const aa_op_call& call, Work& work) {
  const aa_tensor* t = call.tensors;
  const auto& settings = params_of<aa_adam_step_params>(call);
  const Shaped step = work.temporary(type_i64, {1});
  work.range(settings.step, 1, step);
  work.call(work.f.adam, work.tensor(Shaped(t[0])), work.tensor(Shaped(t[1])), work.tensor(Shaped(t[2])), nullptr,
            work.tensor(Shaped(t[3])), work.tensor(step), settings.lr, settings.beta1, settings.beta2,
            settings.weight_decay, settings.eps, false, false);
}

}  // namespace

std::span<const OpRow> optimizer_ops() {
  static constexpr OpRow rows[] = {
      {adam_step, [](const Functions& f) { return f.adam.is_there() && f.range.is_there(); }, supports_adam, adam}};
  return rows;
}

}  // namespace anyaccel::npu
