// Implements attention and quantized_attention with the kernels of attention.cl, quantized_attention.cl and e4m3_attention.cl.
#include <algorithm>
#include <cstdint>

#include "ops/portable/op_group.h"
#include "runtime/ops/kernel_arguments.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::ops::portable {
namespace {

#include "kernels/portable/attention_arguments.h"

class AttentionOps final : public OpGroup {
 public:
  explicit AttentionOps(DriverAccelerator& accelerator)
      : kernels_(accelerator, "attention.cl", {"attention"}, KernelSet::Types::xw),
        quantized_(accelerator, "quantized_attention.cl", {"quantized_attention"}, KernelSet::Types::x),
        e4m3_(accelerator, "e4m3_attention.cl", {"e4m3_attention"}, KernelSet::Types::x) {}

  std::span<const Op> ops() const override { return list; }
  bool supports(Op op, const aa_op_call& call, const aa_kernel_tuning&) override {
    return !is_quantized(op) || is_e4m3(call) ||
           (has_aligned_blocks(call.tensors[2]) && has_aligned_blocks(call.tensors[3]));
  }

  void enqueue(Op op, const aa_op_call& call, const int& device) override {
    if (is_quantized(op)) {
      launch(params_of<aa_quantized_attention_params>(call), call, device, is_e4m3(call) ? e4m3_ : quantized_);
    } else {
      launch(params_of<aa_attention_params>(call), call, device, kernels_);
    }
  }

 private:
  static bool is_quantized(Op op) { return op == Op::QuantizedAttention || op == Op::QuantizedAttentionByRow; }

  // Of a call of quantized_attention.
  static bool is_e4m3(const aa_op_call& call) {
    return params_of<aa_quantized_attention_params>(call).format == AA_CACHE_F8_E4M3;
  }

  // `Params` has scale, softcap and window.
  template <class Params>
  void launch(const Params& params, const aa_op_call& call, int device, KernelSet& kernels) {
    const aa_tensor &out = call.tensors[0], &q = call.tensors[1], &k = call.tensors[2], &v = call.tensors[3],
                    &sequence = call.tensors[4], &positions = call.tensors[5], &slopes = call.tensors[6],
                    &sinks = call.tensors[7];
    aa_attention a{};
    a.tokens = q.shape[0];
    a.heads = q.shape[1];
    a.size = q.shape[2];
    if (a.tokens == 0 || a.heads == 0 || a.size == 0) return;
    a.heads_per_kv = a.heads / k.shape[1];
    a.sequences = k.shape[0];
    a.slots = k.shape[2];
    a.contiguous = q.strides[2] == 1 && k.strides[3] == 1 && v.strides[3] == 1 && v.dtype == k.dtype;
    std::copy_n(q.strides, 3, a.q_stride);
    std::copy_n(out.strides, 3, a.out_stride);
    std::copy_n(k.strides, 4, a.k_stride);
    std::copy_n(v.strides, 4, a.v_stride);
    a.sequence_stride = sequence.strides[0];
    a.position_stride = positions.strides[0];
    a.has_slopes = slopes.dtype != AA_DTYPE_NONE;
    a.has_sinks = sinks.dtype != AA_DTYPE_NONE;
    if (a.has_slopes != 0) a.slope_stride = slopes.strides[0];
    if (a.has_sinks != 0) a.sink_stride = sinks.strides[0];
    a.scale = params.scale;
    a.softcap = params.softcap;
    a.window = params.window;
    a.out_dtype = out.dtype;
    a.v_dtype = v.dtype;

    const aa_kernel_tuning& tuning = kernels_.tuning(device);
    a.chunk = tuning.group_size > 1 ? int64_t{AA_ATTENTION_PER_ITEM} * tuning.group_size
              : a.contiguous        ? AA_ATTENTION_CHUNK
                                    : AA_ATTENTION_STRIDED_CHUNK;
    LaunchShape shape;
    shape.grid[0] = groups_for(a.tokens * a.heads, 1);
    shape.grid[1] = groups_for(a.size, a.chunk);
    shape.block[0] = static_cast<uint32_t>(tuning.group_size);
    const Element x = element_of(q.dtype);
    kernels.launch_for(0, device, x, &kernels == &kernels_ ? element_of(k.dtype) : x, shape, out.data, q.data, k.data,
                       v.data, sequence.data, positions.data, slopes.data, sinks.data, a);
  }

  // The order in which a group sums depends only on its row, so one kernel serves both forms of an op.
  static constexpr Op list[] = {Op::Attention, Op::AttentionByRow, Op::QuantizedAttention, Op::QuantizedAttentionByRow};
  KernelSet kernels_;
  KernelSet quantized_;
  KernelSet e4m3_;
};

}  // namespace

std::unique_ptr<OpGroup> make_attention_ops(DriverAccelerator& accelerator) {
  return std::make_unique<AttentionOps>(accelerator);
}

}  // namespace anyaccel::ops::portable
