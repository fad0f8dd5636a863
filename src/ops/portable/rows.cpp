// Implements the ops of rows.cl: embedding, embedding_shard, rms_norm, layer_norm and softmax.
#include "ops/portable/op_group.h"
#include "runtime/ops/kernel_arguments.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::ops::portable {
namespace {

class RowOps final : public OpGroup {
 public:
  explicit RowOps(DriverAccelerator& accelerator)
      : kernels_(accelerator, "rows.cl", {"embedding", "norm_rows", "softmax"}) {}

  std::span<const Op> ops() const override {
    static constexpr Op list[] = {Op::Embedding, Op::RmsNorm, Op::LayerNorm, Op::Softmax, Op::EmbeddingShard};
    return list;
  }

  bool supports(Op, const aa_op_call&, const aa_kernel_tuning&) override { return true; }

  void enqueue(Op op, const aa_op_call& call, const int& device) override {
    const aa_tensor* t = call.tensors;
    if (element_count_of(t[0]) == 0) return;
    const int64_t size = t[0].shape[t[0].ndim - 1];
    const LaunchShape shape{.grid = {groups_for(row_count_of(t[0]), 1), 1, 1},
                            .block = {static_cast<uint32_t>(kernels_.tuning(device).group_size), 1, 1}};
    switch (op) {
      case Op::Embedding: return embedding(call, 0, shape, device);
      case Op::EmbeddingShard: return embedding(call, params_of<aa_embedding_shard_params>(call).first, shape, device);
      case Op::RmsNorm: return norm(call, aa_tensor{}, t[3], false, shape, device);
      case Op::LayerNorm: return norm(call, t[3], t[4], true, shape, device);
      default:
        return kernels_.launch(SoftmaxKernel, device, shape, t[0].data, rows_of(t[0]), t[1].data, rows_of(t[1]), size,
                               params_of<aa_softmax_params>(call).scale);
    }
  }

 private:
  enum Kernel : size_t { EmbeddingKernel, NormKernel, SoftmaxKernel };

  void embedding(const aa_op_call& call, int64_t first, const LaunchShape& shape, int device) {
    const aa_tensor* t = call.tensors;
    kernels_.launch(EmbeddingKernel, device, shape, t[0].data, t[0].strides[0], t[0].strides[1], t[1].data,
                    t[1].strides[0], t[1].strides[1], t[2].data, t[2].strides[0], t[1].shape[0], first, t[0].shape[1],
                    t[0].dtype, t[1].dtype, t[2].dtype);
  }

  void norm(const aa_op_call& call, const aa_tensor& bias, const aa_tensor& residual, bool centred,
            const LaunchShape& shape, int device) {
    const aa_tensor* t = call.tensors;
    const aa_tensor& weight = t[2];
    kernels_.launch(NormKernel, device, shape, t[0].data, rows_of(t[0]), t[1].data, rows_of(t[1]), weight.data,
                    weight.strides[0], bias.data, bias.strides[0], residual.data, rows_of(residual),
                    t[1].shape[t[1].ndim - 1], params_of<aa_norm_params>(call).eps, static_cast<int32_t>(centred),
                    weight.dtype, bias.dtype);
  }

  KernelSet kernels_;
};

}  // namespace

std::unique_ptr<OpGroup> make_row_ops(DriverAccelerator& accelerator) { return std::make_unique<RowOps>(accelerator); }

}  // namespace anyaccel::ops::portable
