// LAMB on the active accelerator: the library that "FusedLambBuilder" loads.
//
// If the accelerator compiles kernels, tensors on one of its devices are processed there, on the current stream, with
// the same results (the call waits for the norms). Otherwise the host computes, with copies there and back if it cannot
// access the memory, and calls block. See optimizer_options.h for the rules for tensors.
//
// The update of a parameter is m / (sqrt(v) + eps) + weight_decay * p. bias_correction divides m and v by 1 - beta^step
// before that, as in the paper (You et al. 2020). DeepSpeed's fused_lamb multiplies lr by sqrt(1 - beta2^step) / (1 -
// beta1^step) instead, so that its norms, and with them the trust coefficients, are of updates without the correction.
// Without bias_correction both compute the same.
//
// The update is made of the new states as they are stored, because a second pass reads them again. In float16 a v below
// 2^-25 is stored as 0, and the update is then m / eps: keep the states of float16 parameters in float32.
#pragma once

#include <vector>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/optimizer_options.h"

namespace anyaccel::ops {

// A parameter with its gradient and states; `copy` may be absent.
struct LambTensors {
  Tensor param, grad, exp_avg, exp_avg_sq;
  Tensor copy = {};
};

struct LambOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double max_coeff = 10;
  double min_coeff = 0.01;
  bool eps_inside_sqrt = false;
  bool bias_correction = true;
  GradientOptions gradients = {};
};

class FusedLamb : public OpLibrary {
 public:
  FusedLamb(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code);
  ~FusedLamb() override;

  // Makes one step. Gradients are divided by combined_scale. eps_mode 0 adds eps under the square root, 1 outside.
  // p_copy may be absent. Returns the trust coefficient: the norm of the parameters over that of the update, clamped to
  // min_coeff and max_coeff, and 1 if one of the two norms is 0.
  double lamb(const Tensor& p, const Tensor& p_copy, const Tensor& m, const Tensor& v, const Tensor& g, double lr,
              double beta1, double beta2, double max_coeff, double min_coeff, double eps, double combined_scale,
              int64_t step, int eps_mode, bool bias_correction, double decay);
  // Updates many parameters in two parallel regions, and returns a coefficient for each; none if the norm for clipping
  // was not finite.
  std::vector<double> lamb_multi(int64_t step, const LambOptions& options, std::span<const LambTensors> parameters);

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace anyaccel::ops
