// Implements quantized_linear, quantized_embedding and quantized_embedding_shard with the kernels of quantized_linear.cl.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/block_format.h"
#include "base/text/text.h"
#include "ops/portable/linear_plan.h"
#include "ops/portable/op_group.h"
#include "runtime/ops/kernel_arguments.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::ops::portable {
namespace {

// The name of a format in kernels: AA_BLOCK of blocks.h.
std::string kernel_name(const BlockFormat& format) {
  std::string name(format.name);
  std::ranges::transform(name, name.begin(), ascii_lower);
  return name;
}

class QuantizedOps final : public OpGroup {
 public:
  explicit QuantizedOps(DriverAccelerator& accelerator)
      : accelerator_(accelerator),
        tunings_(accelerator),
        made_(block_formats().size()),
        sets_(block_formats().size()) {}

  std::span<const Op> ops() const override { return list; }
  // Kernels read two bytes at an even address, but for formats whose blocks have an odd number of them.
  bool supports(Op op, const aa_op_call& call, const aa_kernel_tuning&) override {
    const aa_tensor& w = call.tensors[is_embedding(op) ? 1 : 2];
    if (w.shape[1] == 0 || format_of(op, call).bytes % 2 != 0) return true;
    const auto address = reinterpret_cast<uintptr_t>(w.data);
    return ((address | static_cast<uintptr_t>(w.strides[0])) & 1u) == 0;
  }

  void enqueue(Op op, const aa_op_call& call, const int& device) override {
    const aa_tensor* t = call.tensors;
    if (t[0].shape[0] == 0 || t[0].shape[1] == 0) return;
    KernelSet& kernels = kernels_of(format_of(op, call));
    if (is_embedding(op)) {
      const int64_t first = op == Op::QuantizedEmbeddingShard ? params_of<aa_quantized_shard_params>(call).first : 0;
      const LaunchShape shape{.grid = {groups_for(t[0].shape[0], 1), 1, 1},
                              .block = {static_cast<uint32_t>(tunings_.of(device).group_size), 1, 1}};
      kernels.launch(embedding, device, shape, t[0].data, t[0].strides[0], t[0].strides[1], t[1].data, t[1].strides[0],
                     t[1].shape[0], first, t[2].data, t[2].strides[0], t[0].shape[1], t[0].dtype, t[2].dtype);
      return;
    }
    LinearPlan plan = plan_linear(tunings_.of(device), t[1], op == Op::QuantizedLinearByRow);
    plan.shape.grid[0] = groups_for(t[2].shape[0], plan.width);
    kernels.launch(plan.form, device, plan.shape, t[0].data, t[1].data, t[2].data, t[3].data, t[4].data, plan.x,
                   part_of(t[1], t[0], t[2], t[3]), residual_of(t[4]), t[1].dtype);
  }

 private:
  static constexpr Op list[] = {Op::QuantizedLinear, Op::QuantizedLinearByRow, Op::QuantizedEmbedding,
                                Op::QuantizedEmbeddingShard};
  static constexpr size_t embedding = shared + 1;  // kernels before it are numbered by Form

  // The op's check has found the format.
  static const BlockFormat& format_of(Op op, const aa_op_call& call) {
    const int32_t number = op == Op::QuantizedEmbeddingShard ? params_of<aa_quantized_shard_params>(call).format
                                                             : params_of<aa_quantized_params>(call).format;
    return *find_block_format(static_cast<uint32_t>(number));
  }
  static bool is_embedding(Op op) { return op == Op::QuantizedEmbedding || op == Op::QuantizedEmbeddingShard; }

  KernelSet& kernels_of(const BlockFormat& format) {
    const auto number = static_cast<size_t>(&format - block_formats().data());
    std::call_once(made_[number], [&] {
      sets_[number] = std::make_unique<KernelSet>(
          accelerator_, "quantized_linear.cl",
          std::vector<std::string>{"quantized_rows1", "quantized_rows4", "quantized_shared", "quantized_embedding"},
          KernelSet::Types::none, kernel_name(format));
    });
    return *sets_[number];
  }

  DriverAccelerator& accelerator_;
  Tunings tunings_;
  // By the position in block_formats(); made at first use.
  std::vector<std::once_flag> made_;
  std::vector<std::unique_ptr<KernelSet>> sets_;
};

}  // namespace

std::unique_ptr<OpGroup> make_quantized_ops(DriverAccelerator& accelerator) {
  return std::make_unique<QuantizedOps>(accelerator);
}

}  // namespace anyaccel::ops::portable
