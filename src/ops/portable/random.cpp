// Implements the op of random.cl, random.
#include "ops/portable/op_group.h"
#include "runtime/ops/kernel_arguments.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::ops::portable {
namespace {

class RandomOps final : public OpGroup {
 public:
  explicit RandomOps(DriverAccelerator& accelerator)
      : kernels_(accelerator, "random.cl", {"random_bits", "random_uniform", "random_normal"}) {}

  std::span<const Op> ops() const override {
    static constexpr Op list[] = {Op::Random};
    return list;
  }

  bool supports(Op, const aa_op_call& call, const aa_kernel_tuning& tuning) override {
    const int32_t kind = params_of<aa_random_params>(call).kind;
    return tuning.native_f64 || (kind != AA_RANDOM_NORMAL && call.tensors[0].dtype != AA_DTYPE_F64);
  }

  void enqueue(Op, const aa_op_call& call, const int& device) override {
    const aa_tensor& out = call.tensors[0];
    const auto& params = params_of<aa_random_params>(call);
    const int64_t count = element_count_of(out);
    if (count == 0) return;
    const bool two_words = params.kind == AA_RANDOM_BITS && out.dtype == AA_DTYPE_I64;
    const int64_t counters = (count + (two_words ? 1 : 3)) / (two_words ? 2 : 4);
    const auto items = static_cast<uint32_t>(kernels_.tuning(device).items);
    const LaunchShape shape{.grid = {groups_for(counters, items), 1, 1}, .block = {items, 1, 1}};
    const auto seed = static_cast<int64_t>(params.seed), offset = static_cast<int64_t>(params.offset);
    const auto kernel = static_cast<size_t>(params.kind);
    switch (params.kind) {
      case AA_RANDOM_BITS: return kernels_.launch(kernel, device, shape, out.data, view_of(out), count, seed, offset);
      case AA_RANDOM_UNIFORM: {
        const auto low = static_cast<float>(params.low);
        const float range = static_cast<float>(params.high) - low;
        return kernels_.launch(kernel, device, shape, out.data, view_of(out), count, seed, offset, low, range);
      }
      default:
        return kernels_.launch(kernel, device, shape, out.data, view_of(out), count, seed, offset, params.low,
                               params.high);
    }
  }

 private:
  KernelSet kernels_;  // numbered like aa_random_kind
};

}  // namespace

std::unique_ptr<OpGroup> make_random_ops(DriverAccelerator& accelerator) {
  return std::make_unique<RandomOps>(accelerator);
}

}  // namespace anyaccel::ops::portable
