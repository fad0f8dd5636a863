// Shows the inputs of products to a caller, such as one that measures which columns of a weight matter.
#pragma once

#include "anyaccel/tensor.h"

namespace anyaccel::ops {

// While it exists, ops::Inference calls product() on this thread before each product of floats (linear, linear_multi,
// gated_linear), and runs fused ops as the sequences that they are. Only one at a time on a thread.
class ProductObserver {
 public:
  ProductObserver() noexcept { active = this; }
  virtual ~ProductObserver() { active = nullptr; }
  ProductObserver(const ProductObserver&) = delete;
  ProductObserver& operator=(const ProductObserver&) = delete;

  // `x` [M, K] may still be computed on the stream; `w` is [N, K].
  virtual void product(const Tensor& x, const Tensor& w) = 0;

  static thread_local constinit ProductObserver* active;
};

inline void observe_product(const Tensor& x, const Tensor& w) {
  if (ProductObserver::active != nullptr) ProductObserver::active->product(x, w);
}

}  // namespace anyaccel::ops
