// The ops of training as C++ functions, in addition to those of Inference: products, and the gradients of the ops that
// layers consist of. Layers call them with gradients that they keep themselves; there is no tape.
//
// Calls are checked, enqueued and run like those of Inference (inference.h): by the accelerator's driver, else by the
// portable kernels, else by the CPU with copies there and back. Shapes and meaning are those of abi/ops.h. `accumulate`
// adds to a gradient instead of overwriting it.
#pragma once

#include "anyaccel/generator.h"
#include "anyaccel/ops/inference.h"

namespace anyaccel::ops {

class Training : public Inference {
 public:
  explicit Training(Accelerator& accelerator);
  ~Training() override;

  // out [.., M, N] = a [.., M, K] * b [.., K, N]. Views transpose (Tensor::transpose) and repeat (Tensor::expand).
  void matmul(const Tensor& out, const Tensor& a, const Tensor& b, bool accumulate = false);
  // softmax(x * scale + mask) of rows; the mask may be expanded or absent. A row in which everything is -infinity gives
  // zeros.
  void softmax_masked(const Tensor& out, const Tensor& x, const Tensor& mask, float scale = 1.0f);
  // dx of softmax(x * scale + mask) = y. dx may be dy.
  void softmax_backward(const Tensor& dx, const Tensor& y, const Tensor& dy, float scale = 1.0f);
  // Computes the mean and variance + eps of rows; with `centred` false, 0 and the mean of squares + eps, for rms_norm.
  void moments(const Tensor& mean, const Tensor& variance, const Tensor& x, float eps, bool centred = true);
  // Computes the gradients of layer_norm, from the moments of x, or of rms_norm if `mean` is absent. dweight and dbias
  // may be absent.
  void norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy, const Tensor& x,
                     const Tensor& weight, const Tensor& mean, const Tensor& variance, bool accumulate = false);
  // Computes the x for which layer_norm(x) = y.
  void layer_norm_inverse(const Tensor& x, const Tensor& y, const Tensor& weight, const Tensor& bias,
                          const Tensor& mean, const Tensor& variance);
  // dx = dy * act'(x). dx may be dy or x.
  void activation_backward(const Tensor& dx, const Tensor& x, const Tensor& dy, Activation kind);
  // out = x * mask / (1 - ratio) with a new mask U8, 1 where an element is kept. It draws (numel + 3) / 4 counters of
  // random numbers from `state` on, the same on every accelerator. out may be x.
  void dropout(const Tensor& out, const Tensor& mask, const Tensor& x, float ratio, const RngState& state);
  // The same with numbers from the generator of the device that `out` is on.
  void dropout(const Tensor& out, const Tensor& mask, const Tensor& x, float ratio);
  // out = mask ? x * scale : 0. With the scale 1 / (1 - ratio) it repeats a dropout, or computes its gradient. out may
  // be x.
  void apply_mask(const Tensor& out, const Tensor& x, const Tensor& mask, float scale);
  // out [H] = the sum of the rows of x [.., H].
  void column_sums(const Tensor& out, const Tensor& x, bool accumulate = false);
  // out = a * b, element by element. out may be a or b.
  void multiply(const Tensor& out, const Tensor& a, const Tensor& b);
  // For each row, loss [R] = log(sum(exp(x))) - x at the target, and dx = scale times its gradient; dx may be absent or
  // x itself. A row with a negative target does not count: both are 0.
  void cross_entropy(const Tensor& loss, const Tensor& dx, const Tensor& x, const Tensor& targets, float scale = 1.0f);
  // dtable [V, H] (fp32): row ids[t] += dy[t], in the order of t.
  void embedding_backward(const Tensor& dtable, const Tensor& dy, const Tensor& ids);
  // Computes the gradients of gated_activation, and, if `out` is given, its result again. Each may be one of the
  // inputs.
  void gated_activation_backward(const Tensor& dgate, const Tensor& dup, const Tensor& out, const Tensor& gate,
                                 const Tensor& up, const Tensor& dy, Activation kind);
};

}  // namespace anyaccel::ops
