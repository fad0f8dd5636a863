// "rms_norm" and "layer_norm" by kernels/cuda/norms.cu, for the group of those ops and for fused ops that begin with a norm.
#pragma once

#include "accelerators/cuda/ops/tuned_kernels.h"
#include "anyaccel/abi/ops.h"

namespace anyaccel::cuda {

class Stream;

// The tensors of a call. weight, bias and residual may be absent.
struct NormCall {
  const aa_tensor& out;
  const aa_tensor& x;
  const aa_tensor& weight;
  const aa_tensor& bias;
  const aa_tensor& residual;
};

class NormRows {
 public:
  explicit NormRows(DeviceState& device) : kernels_(device, "norms.cu", {"norm_rows_tuned"}, {}) {}
  static bool supports(const NormCall& call);
  // `centred`: "layer_norm". The kernel lets the next one begin at once: what it writes is the caller's to report.
  void launch(const NormCall& call, bool centred, float eps, Stream& stream);

 private:
  TunedKernels kernels_;
};

}  // namespace anyaccel::cuda
