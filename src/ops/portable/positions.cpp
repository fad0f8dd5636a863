// Implements the ops of positions.cl: rope_table, rope, cache_write and quantized_cache_write.
#include <algorithm>
#include <cstdint>

#include "ops/portable/op_group.h"
#include "runtime/ops/kernel_arguments.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::ops::portable {
namespace {

#include "kernels/portable/position_arguments.h"

// Describes a cache [B,Hk,S,D], or keys or values [T,Hk,D].
aa_slots slots_of(const aa_tensor& t) {
  const int last = t.ndim - 1;
  return {t.strides[0], t.strides[1], last == 3 ? t.strides[2] : 0, t.strides[last], t.dtype, 0};
}

class PositionOps final : public OpGroup {
 public:
  explicit PositionOps(DriverAccelerator& accelerator)
      : kernels_(accelerator, "positions.cl",
                 {"rope_table", "rope", "cache_write", "quantized_cache_write", "e4m3_cache_write"}) {}

  std::span<const Op> ops() const override {
    static constexpr Op list[] = {Op::RopeTable, Op::Rope, Op::CacheWrite, Op::QuantizedCacheWrite};
    return list;
  }

  // Heads are the second dimension of rope's grid, for which all devices allow 65535 groups; the writes of caches count
  // the elements of a token in 32 bits. The scales in a quantized cache are read as halves.
  bool supports(Op op, const aa_op_call& call, const aa_kernel_tuning&) override {
    const aa_tensor* t = call.tensors;
    if (op == Op::CacheWrite || op == Op::QuantizedCacheWrite) {
      return t[2].shape[1] * t[2].shape[2] <= INT32_MAX / 2 &&
             (op == Op::CacheWrite || is_e4m3(call) || (has_aligned_blocks(t[0]) && has_aligned_blocks(t[1])));
    }
    const int64_t more = op == Op::Rope && t[1].dtype != AA_DTYPE_NONE ? t[1].shape[1] : 0;
    return op == Op::RopeTable || t[0].shape[1] + more <= 65535;
  }

  void enqueue(Op op, const aa_op_call& call, const int& device) override {
    const aa_kernel_tuning& tuning = kernels_.tuning(device);
    if (op == Op::RopeTable) return rope_table(call, device, static_cast<uint32_t>(tuning.items));
    LaunchShape shape{.block = {static_cast<uint32_t>(tuning.group_size), 1, 1}};
    if (op == Op::Rope) return rope(call, device, shape);
    const Kernel kernel = op == Op::CacheWrite ? CacheWriteKernel
                          : is_e4m3(call)      ? E4m3CacheWriteKernel
                                               : QuantizedCacheWriteKernel;
    cache_write(kernel, call, device, shape);
  }

 private:
  enum Kernel : size_t {
    RopeTableKernel,
    RopeKernel,
    CacheWriteKernel,
    QuantizedCacheWriteKernel,
    E4m3CacheWriteKernel
  };

  // Of a call of quantized_cache_write.
  static bool is_e4m3(const aa_op_call& call) { return params_of<aa_cache_params>(call).format == AA_CACHE_F8_E4M3; }

  void rope_table(const aa_op_call& call, int device, uint32_t items) {
    const aa_tensor* t = call.tensors;
    const int64_t tokens = t[0].shape[0], size = t[0].shape[1];
    if (tokens * size == 0) return;
    kernels_.launch(RopeTableKernel, device, {.grid = {groups_for(tokens * size, items), 1, 1}, .block = {items, 1, 1}},
                    t[0].data, t[0].strides[0], t[0].strides[1], t[1].data, t[1].strides[0], t[1].strides[1], t[2].data,
                    t[2].strides[0], t[3].data, t[3].strides[0], tokens, size,
                    params_of<aa_rope_table_params>(call).scale);
  }

  void rope(const aa_op_call& call, int device, LaunchShape& shape) {
    const aa_tensor* t = call.tensors;
    const bool has_k = t[1].dtype != AA_DTYPE_NONE;
    const int64_t tokens = t[0].shape[0], q_heads = t[0].shape[1], size = t[2].shape[1];
    const int64_t heads = q_heads + (has_k ? t[1].shape[1] : 0);
    if (tokens * heads * size == 0) return;
    const int64_t group = shape.block[0], at_once = group / std::min(size, group);
    shape.grid = {groups_for(tokens, 1), static_cast<uint32_t>((heads + at_once - 1) / at_once), 1};
    kernels_.launch(RopeKernel, device, shape, t[0].data, t[0].strides[0], t[0].strides[1], t[0].strides[2], t[1].data,
                    t[1].strides[0], t[1].strides[1], t[1].strides[2], t[2].data, t[2].strides[0], t[2].strides[1],
                    t[3].data, t[3].strides[0], t[3].strides[1], q_heads, heads, size, t[0].dtype, t[1].dtype,
                    params_of<aa_rope_params>(call).interleaved);
  }

  void cache_write(Kernel kernel, const aa_op_call& call, int device, LaunchShape& shape) {
    const aa_tensor* t = call.tensors;
    const int64_t tokens = t[2].shape[0], heads = t[2].shape[1], head_size = t[2].shape[2];
    if (tokens * heads * head_size == 0) return;
    shape.grid = {groups_for(tokens, 1), 1, 1};
    kernels_.launch(kernel, device, shape, t[0].data, slots_of(t[0]), t[1].data, slots_of(t[1]), t[2].data,
                    slots_of(t[2]), t[3].data, slots_of(t[3]), t[4].data, t[4].strides[0], t[5].data, t[5].strides[0],
                    tokens, t[0].shape[0], t[0].shape[2], static_cast<int32_t>(heads), static_cast<int32_t>(head_size));
  }

  KernelSet kernels_;
};

}  // namespace

std::unique_ptr<OpGroup> make_position_ops(DriverAccelerator& accelerator) {
  return std::make_unique<PositionOps>(accelerator);
}

}  // namespace anyaccel::ops::portable
