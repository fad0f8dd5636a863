// Implements the methods of ops::Training, each of which sets the parameters of an op and runs it.
#include "anyaccel/ops/training.h"

#include <array>

#include "anyaccel/accelerator.h"
#include "ops/dispatch/inference_impl.h"

namespace anyaccel::ops {
namespace {

aa_accumulate_params accumulate_params(bool accumulate) {
  auto params = make_params<aa_accumulate_params>();
  params.accumulate = accumulate ? 1 : 0;
  return params;
}

aa_softmax_params scale_params(float scale) {
  auto params = make_params<aa_softmax_params>();
  params.scale = scale;
  return params;
}

}  // namespace

Training::Training(Accelerator& accelerator) : Inference(accelerator) {}
Training::~Training() = default;

void Training::matmul(const Tensor& out, const Tensor& a, const Tensor& b, bool accumulate) {
  const auto params = accumulate_params(accumulate);
  const Tensor a_in = impl_->amp_input(a);
  const Tensor b_in = impl_->amp_input(b);
  impl_->run(Op::Matmul, std::array{&out, &a_in, &b_in}, &params, sizeof(params));
}

void Training::softmax_masked(const Tensor& out, const Tensor& x, const Tensor& mask, float scale) {
  const auto params = scale_params(scale);
  impl_->run(Op::SoftmaxMasked, std::array{&out, &x, &mask}, &params, sizeof(params));
}

void Training::softmax_backward(const Tensor& dx, const Tensor& y, const Tensor& dy, float scale) {
  const auto params = scale_params(scale);
  impl_->run(Op::SoftmaxBackward, std::array{&dx, &y, &dy}, &params, sizeof(params));
}

void Training::moments(const Tensor& mean, const Tensor& variance, const Tensor& x, float eps, bool centred) {
  auto params = make_params<aa_moments_params>();
  params.eps = eps;
  params.centred = centred ? 1 : 0;
  impl_->run(Op::Moments, std::array{&mean, &variance, &x}, &params, sizeof(params));
}

void Training::norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                             const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& variance,
                             bool accumulate) {
  const auto params = accumulate_params(accumulate);
  impl_->run(Op::NormBackward, std::array{&dx, &dweight, &dbias, &dy, &x, &weight, &mean, &variance}, &params,
             sizeof(params));
}

void Training::layer_norm_inverse(const Tensor& x, const Tensor& y, const Tensor& weight, const Tensor& bias,
                                  const Tensor& mean, const Tensor& variance) {
  impl_->run(Op::LayerNormInverse, std::array{&x, &y, &weight, &bias, &mean, &variance});
}

void Training::activation_backward(const Tensor& dx, const Tensor& x, const Tensor& dy, Activation kind) {
  auto params = make_params<aa_activation_params>();
  params.kind = static_cast<int32_t>(kind);
  impl_->run(Op::ActivationBackward, std::array{&dx, &x, &dy}, &params, sizeof(params));
}

void Training::dropout(const Tensor& out, const Tensor& mask, const Tensor& x, float ratio, const RngState& state) {
  auto params = make_params<aa_dropout_params>();
  params.ratio = ratio;
  params.seed = state.seed;
  params.offset = state.offset;
  impl_->run(Op::Dropout, std::array{&out, &mask, &x}, &params, sizeof(params));
}

void Training::dropout(const Tensor& out, const Tensor& mask, const Tensor& x, float ratio) {
  const auto counters = static_cast<uint64_t>((x.numel() + 3) / 4);
  dropout(out, mask, x, ratio, impl_->accelerator.default_generator(out.device().index).reserve(counters));
}

void Training::apply_mask(const Tensor& out, const Tensor& x, const Tensor& mask, float scale) {
  const auto params = scale_params(scale);
  impl_->run(Op::ApplyMask, std::array{&out, &x, &mask}, &params, sizeof(params));
}

void Training::column_sums(const Tensor& out, const Tensor& x, bool accumulate) {
  const auto params = accumulate_params(accumulate);
  impl_->run(Op::ColumnSums, std::array{&out, &x}, &params, sizeof(params));
}

void Training::multiply(const Tensor& out, const Tensor& a, const Tensor& b) {
  impl_->run(Op::Multiply, std::array{&out, &a, &b});
}

void Training::cross_entropy(const Tensor& loss, const Tensor& dx, const Tensor& x, const Tensor& targets,
                             float scale) {
  const auto params = scale_params(scale);
  impl_->run(Op::CrossEntropy, std::array{&loss, &dx, &x, &targets}, &params, sizeof(params));
}

void Training::embedding_backward(const Tensor& dtable, const Tensor& dy, const Tensor& ids) {
  impl_->run(Op::EmbeddingBackward, std::array{&dtable, &dy, &ids});
}

void Training::gated_activation_backward(const Tensor& dgate, const Tensor& dup, const Tensor& out, const Tensor& gate,
                                         const Tensor& up, const Tensor& dy, Activation kind) {
  auto params = make_params<aa_activation_params>();
  params.kind = static_cast<int32_t>(kind);
  impl_->run(Op::GatedActivationBackward, std::array{&dgate, &dup, &out, &gate, &up, &dy}, &params, sizeof(params));
}

}  // namespace anyaccel::ops
