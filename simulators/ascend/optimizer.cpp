// Simulates the optimizer steps of Huawei's library (libopapi.so). Signature and rules are those of the documentation of
// ops-nn (optim/apply_adam_w_v2/docs): all tensors have one floating type and one shape, the number of the step is one
// element on the device.
#include <algorithm>
#include <cmath>

#include "simulators/ascend/operator.h"

namespace sim_library {

int aclnnApplyAdamWV2GetWorkspaceSize(Handle parameter, Handle first, Handle second, Handle highest,
                                      ConstHandle gradient, ConstHandle step, float lr, float beta1, float beta2,
                                      float decay, float eps, bool amsgrad, bool maximize, std::uint64_t* workspace,
                                      Handle* executor) {
  return plan("aclnnApplyAdamWV2", workspace, executor, [&](Plan& p) {
    const Tensor theta = p.output(parameter, "varRef"), m = p.output(first, "mRef"), v = p.output(second, "vRef");
    const Tensor g = p.input(gradient, "grad"), t = p.input(step, "step");
    std::vector<Tensor> all = {theta, m, v, g};
    p.require(!amsgrad || highest != nullptr, "amsgrad wants maxGradNormOptionalRef", kNnNullPointer);
    if (amsgrad) all.push_back(p.output(highest, "maxGradNormOptionalRef"));
    p.require_float(all);
    for (const Tensor& tensor : all) p.require(tensor->dims == theta->dims, "the shapes differ");
    p.require(t->elements() == 1 && (t->type == kNnInt64 || t->type == kNnFloat), "step is not one number");
    const auto run = [=, n = theta->elements()](const Views& views) {
      const double number = views[4].value(0);
      if (!(number > 0)) {
        violation("bad-argument", "aclnnApplyAdamWV2: step is " + std::to_string(number) + ", and must be above 0");
        return;
      }
      const auto correction1 = static_cast<float>(1 - std::pow(double{beta1}, number));
      const auto correction2 = static_cast<float>(1 - std::pow(double{beta2}, number));
      for (std::int64_t i = 0; i < n; ++i) {
        const float change = maximize ? -views[3].get(i) : views[3].get(i);
        const float mean = beta1 * views[1].get(i) + (1 - beta1) * change;
        const float square = beta2 * views[2].get(i) + (1 - beta2) * change * change;
        views[1].set(i, mean);
        views[2].set(i, square);
        float root = square / correction2;
        if (amsgrad) {
          root = std::max(root, views[5].get(i));
          views[5].set(i, root);
        }
        const float old = views[0].get(i);
        views[0].set(i, old - lr / (std::sqrt(root) + eps) * (mean / correction1) - lr * decay * old);
      }
    };
    return p.finish(kSomeWorkspace, run);
  });
}

SIM_OPERATOR(aclnnApplyAdamWV2)

}  // namespace sim_library

SIM_EXPORT_OPERATOR(aclnnApplyAdamWV2)
