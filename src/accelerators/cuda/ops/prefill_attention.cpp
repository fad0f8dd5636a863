// "attention" for many tokens on the matrix units: kernels/cuda/hopper_attention.cu where is_hopper_attention() and the compiler
// allow it, else kernels/cuda/prefill_attention.cu.
#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "accelerators/cuda/compile/compiler.h"
#include "accelerators/cuda/ops/attention_call.h"
#include "accelerators/cuda/ops/op_group.h"
#include "accelerators/cuda/ops/tuned_kernels.h"
#include "accelerators/cuda/stream.h"

namespace anyaccel::cuda {
namespace {

constexpr std::array<int64_t, 5> head_sizes = {64, 80, 96, 128, 256};
constexpr std::array<int64_t, 2> hopper_head_sizes = {64, 128};

template <size_t kCount>
size_t index_of(const std::array<int64_t, kCount>& sizes, int64_t size) {
  return static_cast<size_t>(std::find(sizes.begin(), sizes.end(), size) - sizes.begin());
}

class PrefillAttention final : public OpGroup {
 public:
  explicit PrefillAttention(DeviceState& device) : device_(device) {
    for (size_t type = 0; type < kernels_.size(); ++type) {
      const std::string name = attention_type_name(static_cast<int>(type) + 1);
      for (size_t i = 0; i < head_sizes.size(); ++i) {
        const std::string size = std::to_string(head_sizes[i]);
        kernels_[type][i] = std::make_unique<TunedKernels>(
            device, "prefill_attention.cu", std::vector<std::string>{"prefill_attention_" + size + "_" + name},
            std::vector<std::string>{"-DAA_W=" + name, "-DAA_HEAD=" + size});
      }
      for (size_t i = 0; i < hopper_head_sizes.size(); ++i) {
        const std::string size = std::to_string(hopper_head_sizes[i]);
        hopper_kernels_[type][i] = std::make_unique<TunedKernels>(
            device, "hopper_attention.cu", std::vector<std::string>{"hopper_attention_" + size + "_" + name},
            std::vector<std::string>{"-DAA_W=" + name, "-DAA_HEAD=" + size, "--gpu-architecture=sm_90a"});
      }
    }
  }

  std::span<const Op> ops() const override { return list; }
  bool supports(Op, const aa_op_call& call, DeviceState&) override {
    return is_prefill_attention(device_.facts(), call);
  }

  void enqueue(Op, const aa_op_call& call, Stream& stream) override {
    const aa_tensor &out = call.tensors[0], &q = call.tensors[1], &k = call.tensors[2], &v = call.tensors[3],
                    &sequence = call.tensors[4], &positions = call.tensors[5];
    const aa_tuned_attention a = attention_arguments(call);
    const int64_t heads = a.kv_heads * a.heads_per_kv;
    if (heads == 0) return;
    const auto type = static_cast<size_t>(attention_type(k.dtype) - 1);
    TunedLaunch shape;
    shape.overlaps_previous = true;
    TunedKernels* kernels = nullptr;
    if (is_hopper_attention(device_.facts(), call) && has_hopper_compiler()) {
      // Its blocks stay until all pieces of work are done.
      const int64_t pieces = heads * ((a.tokens + AA_HOPPER_ROWS - 1) / AA_HOPPER_ROWS);
      shape.grid = {static_cast<unsigned>(std::min<int64_t>(pieces, device_.facts().multiprocessors)), 1, 1};
      shape.block = AA_HOPPER_THREADS;
      shape.shared_bytes = static_cast<unsigned>(AA_HOPPER_LOCAL(a.size));
      kernels = hopper_kernels_[type][index_of(hopper_head_sizes, a.size)].get();
    } else {
      const int64_t rows = AA_PREFILL_ROWS(a.size);
      shape.grid = {static_cast<unsigned>(heads), static_cast<unsigned>((a.tokens + rows - 1) / rows), 1};
      shape.block = AA_PREFILL_THREADS;
      shape.shared_bytes = static_cast<unsigned>(AA_PREFILL_LOCAL(a.size));
      kernels = kernels_[type][index_of(head_sizes, a.size)].get();
    }
    kernels->launch(0, stream.handle(), shape, out.data, q.data, k.data, v.data, sequence.data, positions.data, a);
  }

 private:
  bool has_hopper_compiler() {
    std::call_once(asked_compiler_, [&] { hopper_compiler_ = compiles_own_features(device_.facts()); });
    return hopper_compiler_;
  }

  static constexpr Op list[] = {Op::Attention};
  DeviceState& device_;
  std::once_flag asked_compiler_;
  bool hopper_compiler_ = false;
  std::array<std::array<std::unique_ptr<TunedKernels>, head_sizes.size()>, 2> kernels_;  // BF16 and F16
  std::array<std::array<std::unique_ptr<TunedKernels>, hopper_head_sizes.size()>, 2> hopper_kernels_;
};

}  // namespace

std::unique_ptr<OpGroup> make_prefill_attention(DeviceState& device) {
  return std::make_unique<PrefillAttention>(device);
}

}  // namespace anyaccel::cuda
