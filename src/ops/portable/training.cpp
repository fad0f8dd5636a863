// Implements the ops of training_rows.cl and training_elementwise.cl: softmax with a mask, gradients, dropout and sums
// over columns.
#include <cmath>

#include "ops/portable/op_group.h"
#include "runtime/ops/kernel_arguments.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::ops::portable {
namespace {

int64_t row_length(const aa_tensor& t) { return t.shape[t.ndim - 1]; }

class TrainingOps final : public OpGroup {
 public:
  explicit TrainingOps(DriverAccelerator& accelerator)
      : rows_(accelerator, "training_rows.cl",
              {"softmax_masked", "softmax_backward", "moments", "norm_backward_rows", "norm_backward_columns",
               "column_sums", "layer_norm_inverse", "cross_entropy", "embedding_backward"}),
        elements_(
            accelerator, "training_elementwise.cl",
            {"activation_backward", "dropout", "apply_mask", "scaled_add", "multiply", "gated_activation_backward"}) {}

  std::span<const Op> ops() const override {
    static constexpr Op list[] = {
        Op::SoftmaxMasked, Op::SoftmaxBackward, Op::Moments,           Op::NormBackward,           Op::LayerNormInverse,
        Op::ColumnSums,    Op::Dropout,         Op::ApplyMask,         Op::ActivationBackward,     Op::ScaledAdd,
        Op::Multiply,      Op::CrossEntropy,    Op::EmbeddingBackward, Op::GatedActivationBackward};
    return list;
  }

  bool supports(Op, const aa_op_call&, const aa_kernel_tuning&) override { return true; }

  void enqueue(Op op, const aa_op_call& call, const int& device) override {
    const aa_tensor* t = call.tensors;
    switch (op) {
      case Op::SoftmaxMasked:
        return by_row(SoftmaxMasked, t[1], device, t[0].data, rows_of(t[0]), t[1].data, rows_of(t[1]), t[2].data,
                      rows_of(t[2]), row_length(t[1]), params_of<aa_softmax_params>(call).scale);
      case Op::SoftmaxBackward:
        return by_row(SoftmaxBackward, t[1], device, t[0].data, rows_of(t[0]), t[1].data, rows_of(t[1]), t[2].data,
                      rows_of(t[2]), row_length(t[1]), params_of<aa_softmax_params>(call).scale);
      case Op::Moments: {
        const auto& params = params_of<aa_moments_params>(call);
        return by_row(Moments, t[2], device, t[0].data, view_of(t[0]), t[1].data, view_of(t[1]), t[2].data,
                      rows_of(t[2]), row_length(t[2]), params.eps, params.centred);
      }
      case Op::NormBackward: return norm_backward(call, device);
      case Op::LayerNormInverse:
        return by_row(LayerNormInverse, t[1], device, t[0].data, rows_of(t[0]), t[1].data, rows_of(t[1]), t[2].data,
                      t[2].strides[0], t[3].data, t[3].strides[0], t[4].data, view_of(t[4]), t[5].data, view_of(t[5]),
                      row_length(t[1]), t[2].dtype, t[3].dtype);
      case Op::ColumnSums:
        return by_item(rows_, ColumnSums, row_length(t[0]), device, t[0].data, t[0].strides[0], t[1].data,
                       rows_of(t[1]), row_count_of(t[1]), row_length(t[0]), t[0].dtype,
                       params_of<aa_accumulate_params>(call).accumulate);
      case Op::CrossEntropy:
        return by_row(CrossEntropy, t[2], device, t[0].data, t[0].strides[0], t[1].data, rows_of(t[1]), t[2].data,
                      rows_of(t[2]), t[3].data, t[3].strides[0], row_length(t[2]),
                      params_of<aa_softmax_params>(call).scale, t[3].dtype);
      case Op::EmbeddingBackward:
        return by_row(EmbeddingBackward, t[1], device, t[0].data, t[0].strides[0], t[0].strides[1], t[1].data,
                      rows_of(t[1]), t[2].data, t[2].strides[0], t[2].shape[0], t[0].shape[0], row_length(t[1]),
                      t[2].dtype);
      default: return elementwise(op, call, element_count_of(t[0]), device);
    }
  }

 private:
  enum RowKernel : size_t {
    SoftmaxMasked,
    SoftmaxBackward,
    Moments,
    NormBackwardRows,
    NormBackwardColumns,
    ColumnSums,
    LayerNormInverse,
    CrossEntropy,
    EmbeddingBackward
  };
  enum ElementKernel : size_t { ActivationBackward, Dropout, ApplyMask, ScaledAdd, Multiply, GatedActivationBackward };

  // Launches a group for each row of x.
  template <class... Arguments>
  void by_row(RowKernel kernel, const aa_tensor& x, int device, const Arguments&... arguments) {
    if (row_count_of(x) == 0) return;
    if (row_length(x) == 0 && kernel != Moments) return;
    rows_.launch(kernel, device,
                 {.grid = {groups_for(row_count_of(x), 1), 1, 1},
                  .block = {static_cast<uint32_t>(rows_.tuning(device).group_size), 1, 1}},
                 arguments...);
  }

  // Launches `count` items that work alone.
  template <class... Arguments>
  void by_item(KernelSet& kernels, size_t kernel, int64_t count, int device, const Arguments&... arguments) {
    if (count == 0) return;
    const auto items = static_cast<uint32_t>(kernels.tuning(device).items);
    kernels.launch(kernel, device, {.grid = {groups_for(count, items), 1, 1}, .block = {items, 1, 1}}, arguments...);
  }

  void norm_backward(const aa_op_call& call, int device) {
    const aa_tensor *t = call.tensors, &dweight = t[1], &dbias = t[2], &dy = t[3], &x = t[4], &weight = t[5],
                    &mean = t[6], &variance = t[7];
    const int32_t centred = mean.dtype != AA_DTYPE_NONE ? 1 : 0;
    const aa_tensor& mean_or_any = centred ? mean : variance;
    if (dweight.dtype != AA_DTYPE_NONE || dbias.dtype != AA_DTYPE_NONE) {
      by_item(rows_, NormBackwardColumns, row_length(x), device, dweight.data, dweight.strides[0], dbias.data,
              dbias.strides[0], dy.data, rows_of(dy), x.data, rows_of(x), mean.data, view_of(mean_or_any),
              variance.data, view_of(variance), row_count_of(x), row_length(x), dweight.dtype, dbias.dtype, centred,
              params_of<aa_accumulate_params>(call).accumulate);
    }
    by_row(NormBackwardRows, x, device, t[0].data, rows_of(t[0]), dy.data, rows_of(dy), x.data, rows_of(x), weight.data,
           weight.strides[0], mean.data, view_of(mean_or_any), variance.data, view_of(variance), row_length(x),
           weight.dtype, centred);
  }

  void elementwise(Op op, const aa_op_call& call, int64_t count, int device) {
    const aa_tensor* t = call.tensors;
    if (count == 0) return;
    const aa_view first = view_of(t[0]), second = view_of(t[1]), third = view_of(t[2]);
    switch (op) {
      case Op::ActivationBackward:
        return by_item(elements_, ActivationBackward, count, device, t[0].data, first, t[1].data, second, t[2].data,
                       third, count, params_of<aa_activation_params>(call).kind);
      case Op::Dropout: {
        const auto& params = params_of<aa_dropout_params>(call);
        return by_item(elements_, Dropout, (count + 3) / 4, device, t[0].data, first, t[1].data, second, t[2].data,
                       third, count, static_cast<int64_t>(params.seed), static_cast<int64_t>(params.offset),
                       static_cast<int32_t>(std::ceil(static_cast<double>(params.ratio) * 0x1p24)),
                       1.0f / (1.0f - params.ratio));
      }
      case Op::ApplyMask:
        return by_item(elements_, ApplyMask, count, device, t[0].data, first, t[1].data, second, t[2].data, third,
                       count, params_of<aa_softmax_params>(call).scale);
      case Op::GatedActivationBackward:
        return by_item(elements_, GatedActivationBackward, count, device, t[0].data, first, t[1].data, second,
                       t[2].data, third, t[3].data, view_of(t[3]), t[4].data, view_of(t[4]), t[5].data, view_of(t[5]),
                       count, params_of<aa_activation_params>(call).kind);
      case Op::ScaledAdd: {
        const auto& params = params_of<aa_scaled_add_params>(call);
        return by_item(elements_, ScaledAdd, count, device, t[0].data, first, t[1].data, second, t[2].data, third,
                       count, params.alpha, params.beta);
      }
      default:
        return by_item(elements_, Multiply, count, device, t[0].data, first, t[1].data, second, t[2].data, third,
                       count);
    }
  }

  KernelSet rows_;
  KernelSet elements_;
};

}  // namespace

std::unique_ptr<OpGroup> make_training_ops(DriverAccelerator& accelerator) {
  return std::make_unique<TrainingOps>(accelerator);
}

}  // namespace anyaccel::ops::portable
