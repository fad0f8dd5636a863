// Implements ops::SpatialInference with the op "add".
#include "anyaccel/ops/spatial_inference.h"

#include <string>

#include "anyaccel/accelerator.h"
#include "ops/builders.h"
#include "ops/layers/argument_checks.h"
#include "runtime/ops/included_op_builder.h"

namespace anyaccel::ops {
namespace {

// Returns the tensor with its channels last, which is their order in memory: [N, H, W, C] or [N, S, C].
Tensor channels_last(ArgumentChecks& check, const char* name, const Tensor& x) {
  check.dtype(name, x, DType::F16);
  check.require(x.ndim() == 3 || x.ndim() == 4,
                std::string(name) + " has shape " + x.shape().to_string() + ", expected [N, C, H, W] or [N, S, C]");
  const Tensor last = x.ndim() == 4 ? x.permute({0, 2, 3, 1}) : x;
  check.require(last.is_contiguous() || last.numel() == 0,
                std::string(name) + " is not contiguous, expected " +
                    (x.ndim() == 4 ? "[N, C, H, W] with the channels innermost in memory (channels last)"
                                   : "[N, S, C] contiguous"));
  const int64_t channels = last.size(-1);
  check.require(channels % 8 == 0,
                std::string(name) + " has " + std::to_string(channels) + " channels, expected a multiple of 8");
  return last;
}

Tensor bias_of(ArgumentChecks& check, const char* name, const Tensor& bias, const Tensor& last) {
  check.tensor(name, bias, DType::F16, {last.size(-1)});
  return bias.expand(last.shape());
}

Tensor as_given(const Tensor& last) { return last.ndim() == 4 ? last.permute({0, 3, 1, 2}) : last; }

}  // namespace

Tensor SpatialInference::nhwc_bias_add(const Tensor& x, const Tensor& bias) {
  ArgumentChecks check(accelerator_, "nhwc_bias_add");
  const Tensor last = channels_last(check, "x", x);
  const Tensor out = Tensor::empty(last.shape(), DType::F16, x.device());
  ops_.add(out, last, bias_of(check, "bias", bias, last));
  return as_given(out);
}

Tensor SpatialInference::nhwc_bias_add_add(const Tensor& x, const Tensor& bias, const Tensor& other) {
  ArgumentChecks check(accelerator_, "nhwc_bias_add_add");
  const Tensor last = channels_last(check, "x", x);
  check.tensor("other", other, DType::F16, x.shape());
  const Tensor more = channels_last(check, "other", other);
  const Tensor out = Tensor::empty(last.shape(), DType::F16, x.device());
  ops_.add(out, last, bias_of(check, "bias", bias, last));
  ops_.add(out, out, more);
  return as_given(out);
}

Tensor SpatialInference::nhwc_bias_add_bias_add(const Tensor& x, const Tensor& bias, const Tensor& other,
                                                const Tensor& other_bias) {
  ArgumentChecks check(accelerator_, "nhwc_bias_add_bias_add");
  const Tensor last = channels_last(check, "x", x);
  check.tensor("other", other, DType::F16, x.shape());
  const Tensor more = channels_last(check, "other", other);
  const Tensor right = bias_of(check, "other_bias", other_bias, last);
  const Tensor out = Tensor::empty(last.shape(), DType::F16, x.device());
  const Tensor second = Tensor::empty(last.shape(), DType::F16, x.device());
  ops_.add(out, last, bias_of(check, "bias", bias, last));
  ops_.add(second, more, right);
  ops_.add(out, out, second);
  return as_given(out);
}

std::unique_ptr<OpBuilder> make_spatial_inference_builder(Accelerator& accelerator) {
  return std::make_unique<IncludedOpBuilder<SpatialInference>>("SpatialInferenceBuilder", accelerator);
}

}  // namespace anyaccel::ops
