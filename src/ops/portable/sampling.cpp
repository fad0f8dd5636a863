// Implements the ops of sampling.cl: argmax, repetition_penalty, sample and frequency_penalty.
#include <cmath>

#include "ops/portable/op_group.h"
#include "runtime/ops/kernel_arguments.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::ops::portable {
namespace {

class SamplingOps final : public OpGroup {
 public:
  explicit SamplingOps(DriverAccelerator& accelerator)
      : kernels_(accelerator, "sampling.cl", {"argmax", "repetition_penalty", "sample", "frequency_penalty"}) {}

  std::span<const Op> ops() const override {
    static constexpr Op list[] = {Op::Argmax, Op::RepetitionPenalty, Op::Sample, Op::FrequencyPenalty};
    return list;
  }

  bool supports(Op op, const aa_op_call& call, const aa_kernel_tuning&) override {
    return op != Op::Sample || call.tensors[1].shape[1] <= largest_vocabulary;
  }

  void enqueue(Op op, const aa_op_call& call, const int& device) override {
    const aa_tensor* t = call.tensors;
    const int64_t rows = t[0].shape[0];
    if (rows == 0) return;
    const aa_kernel_tuning& tuning = kernels_.tuning(device);
    if (op == Op::RepetitionPenalty) {
      const int64_t size = t[0].shape[1];
      if (size == 0) return;
      const auto items = static_cast<uint32_t>(tuning.items);
      return kernels_.launch(RepetitionPenaltyKernel, device,
                             {.grid = {groups_for(rows * size, items), 1, 1}, .block = {items, 1, 1}}, t[0].data,
                             t[0].strides[0], t[0].strides[1], t[1].data, t[1].strides[0], t[1].strides[1], rows, size,
                             params_of<aa_repetition_params>(call).penalty, t[0].dtype);
    }
    if (op == Op::FrequencyPenalty) {
      const int64_t size = t[0].shape[1];
      if (size == 0) return;
      const auto items = static_cast<uint32_t>(tuning.items);
      const auto& params = params_of<aa_frequency_params>(call);
      const bool has_ids = t[2].dtype != AA_DTYPE_NONE;
      return kernels_.launch(FrequencyPenaltyKernel, device,
                             {.grid = {groups_for(rows * size, items), 1, 1}, .block = {items, 1, 1}}, t[0].data,
                             t[0].strides[0], t[0].strides[1], t[1].data, t[1].strides[0], t[1].strides[1], t[2].data,
                             t[2].strides[0], rows, size, params.presence, params.frequency, t[0].dtype, t[2].dtype,
                             static_cast<int32_t>(has_ids));
    }
    const LaunchShape shape{.grid = {groups_for(rows, 1), 1, 1},
                            .block = {static_cast<uint32_t>(tuning.group_size), 1, 1}};
    const int64_t size = t[1].shape[1];
    if (op == Op::Argmax) {
      return kernels_.launch(ArgmaxKernel, device, shape, t[0].data, t[0].strides[0], t[1].data, t[1].strides[0],
                             t[1].strides[1], size, t[0].dtype, t[1].dtype);
    }
    const auto& params = params_of<aa_sample_params>(call);
    const bool has_seen = t[3].dtype != AA_DTYPE_NONE;
    kernels_.launch(SampleKernel, device, shape, t[0].data, t[0].strides[0], t[1].data, t[1].strides[0],
                    t[1].strides[1], t[2].data, t[2].strides[0], t[3].data, t[3].strides[0], t[3].strides[1], size,
                    params.temperature, params.top_p, -std::log(params.min_p), params.top_k, t[0].dtype, t[1].dtype,
                    static_cast<int32_t>(has_seen));
  }

 private:
  enum Kernel : size_t { ArgmaxKernel, RepetitionPenaltyKernel, SampleKernel, FrequencyPenaltyKernel };
  // The limit follows from the sum of weights, which are multiples of 2^-40: it must fit 64 bits.
  static constexpr int64_t largest_vocabulary = int64_t{1} << 23;

  KernelSet kernels_;
};

}  // namespace

std::unique_ptr<OpGroup> make_sampling_ops(DriverAccelerator& accelerator) {
  return std::make_unique<SamplingOps>(accelerator);
}

}  // namespace anyaccel::ops::portable
