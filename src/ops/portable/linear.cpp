// Implements linear, linear_multi and gated_linear with the kernels of kernels/portable/linear_*.cl.
#include <algorithm>
#include <array>
#include <cstdint>

#include "ops/portable/op_group.h"
#include "runtime/ops/kernel_arguments.h"

namespace anyaccel::ops::portable {
namespace {

#include "kernels/portable/linear_arguments.h"

// The files of kernels; each has one kernel per op.
enum Form : size_t { rows1, rows4, shared };

// The size of a block of rows of x, which stays in the second-level cache of a CPU core while rows of w stream through.
// With a prompt, a GPU's group should take less, so that there are enough groups.
constexpr int64_t block_bytes = 1 << 20;
constexpr int64_t largest_block = 64;
// The number of tiles of w that share such a block.
constexpr int64_t block_tiles = 4;
// With fewer rows of x, most of a shared tile would be empty.
constexpr int64_t shared_rows = 9;

aa_linear_part part_of(const aa_tensor& x, const aa_tensor& out, const aa_tensor& w, const aa_tensor& bias) {
  aa_linear_part part{};
  part.n = w.shape[0];
  part.w_row = w.strides[0];
  part.w_inner = w.strides[1];
  part.contiguous = x.strides[1] == 1 && w.strides[1] == 1;
  part.out_row = out.strides[0];
  part.out_inner = out.strides[1];
  part.out_dtype = out.dtype;
  part.bias_dtype = bias.dtype;
  if (bias.dtype != AA_DTYPE_NONE) part.bias_inner = bias.strides[0];
  return part;
}

constexpr aa_tensor absent{};

class LinearOps final : public OpGroup {
 public:
  explicit LinearOps(DriverAccelerator& accelerator)
      : forms_{KernelSet(accelerator, "linear_rows1.cl", {"linear_rows1", "linear_multi_rows1", "gated_linear_rows1"},
                         KernelSet::Types::xw),
               KernelSet(accelerator, "linear_rows4.cl", {"linear_rows4", "linear_multi_rows4", "gated_linear_rows4"},
                         KernelSet::Types::xw),
               KernelSet(accelerator, "linear_shared.cl",
                         {"linear_shared", "linear_multi_shared", "gated_linear_shared"}, KernelSet::Types::xw)},
        mixed_(accelerator, "linear_mixed.cl", {"gated_linear_mixed"}, KernelSet::Types::xw) {}

  std::span<const Op> ops() const override { return list; }
  bool supports(Op, const aa_op_call&, const aa_kernel_tuning&) override { return true; }

  void enqueue(Op op, const aa_op_call& call, const int& device) override {
    const bool by_row = op >= Op::LinearByRow;
    switch (op) {
      case Op::Linear:
      case Op::LinearByRow:
        return enqueue_linear(call.tensors[0], call.tensors[1], call.tensors[2], call.tensors[3], call.tensors[4],
                              by_row, device);
      case Op::LinearMulti:
      case Op::LinearMultiByRow: return enqueue_multi(call, by_row, device);
      default: return enqueue_gated(call, by_row, device);
    }
  }

 private:
  // The kernels in each file.
  enum Kernel : size_t { linear, linear_multi, gated_linear };
  // All ops by rows use one file of kernels, which sums every row of a tile in the same way.
  static constexpr Op list[] = {Op::Linear,      Op::LinearMulti,      Op::GatedLinear,
                                Op::LinearByRow, Op::LinearMultiByRow, Op::GatedLinearByRow};

  // The division of a call's work among groups.
  struct Plan {
    Form form;
    aa_linear_x x;
    int64_t width;  // rows of w that a group takes
    LaunchShape shape;
  };

  Plan plan(const aa_tensor& x, bool by_row, int device) {
    const aa_kernel_tuning& tuning = forms_[rows1].tuning(device);
    const int64_t m = x.shape[0];
    const int64_t k = x.shape[1];
    Plan plan{};
    plan.x = {m, k, x.strides[0], x.strides[1], std::min(m, largest_block), 1};
    plan.shape.block[0] = static_cast<uint32_t>(tuning.group_size);
    if (!by_row && tuning.group_size > 1 && m >= shared_rows &&
        tuning.local_memory >= AA_SHARED_BYTES(tuning.group_size)) {
      plan.form = shared;
      plan.width = AA_SHARED_N(tuning.group_size);
      plan.shape.grid[1] = groups_for(m, AA_SHARED_M(tuning.group_size));
      return plan;
    }
    plan.form = m == 1 && !by_row ? rows1 : rows4;
    if (m > AA_TILE_M * 2) {
      const int64_t fitting = block_bytes / (std::max<int64_t>(k, 1) * static_cast<int64_t>(sizeof(float)));
      plan.x.block = std::clamp(fitting / AA_TILE_M * AA_TILE_M, int64_t{AA_TILE_M} * 2, largest_block);
      if (tuning.group_size == 1) plan.x.tiles = block_tiles;
    }
    plan.width = plan.x.tiles * AA_TILE_N * (tuning.group_size / tuning.lanes);
    plan.shape.grid[1] = groups_for(m, plan.x.block);
    return plan;
  }

  void enqueue_linear(const aa_tensor& out, const aa_tensor& x, const aa_tensor& w, const aa_tensor& bias,
                      const aa_tensor& residual, bool by_row, int device) {
    if (out.shape[0] == 0 || out.shape[1] == 0) return;
    Plan plan = this->plan(x, by_row, device);
    const aa_linear_part part = part_of(x, out, w, bias);
    aa_linear_residual res{};
    res.dtype = residual.dtype;
    if (residual.dtype != AA_DTYPE_NONE) {
      res.row = residual.strides[0];
      res.inner = residual.strides[1];
    }
    plan.shape.grid[0] = groups_for(part.n, plan.width);
    forms_[plan.form].launch_for(linear, device, element_of(x.dtype), element_of(w.dtype), plan.shape, out.data, x.data,
                                 w.data, bias.data, residual.data, plan.x, part, res);
  }

  void enqueue_multi(const aa_op_call& call, bool by_row, int device) {
    const aa_tensor& x = call.tensors[0];
    if (x.shape[0] == 0) return;
    // A kernel is compiled for one element type of weights.
    bool one_type = true;
    for (uint32_t i = 5; i < call.tensor_count; i += 3) one_type &= call.tensors[i].dtype == call.tensors[2].dtype;
    if (!one_type) {
      for (uint32_t i = 1; i < call.tensor_count; i += 3) {
        enqueue_linear(call.tensors[i], x, call.tensors[i + 1], call.tensors[i + 2], absent, by_row, device);
      }
      return;
    }
    Plan plan = this->plan(x, by_row, device);
    std::array<aa_linear_part, 4> parts{};
    std::array<const aa_tensor*, 4> tensors;
    tensors.fill(&absent);
    size_t count = 0;
    int64_t units = 0;
    // Units are numbered part by part, and the number of each part is rounded up to whole units. In the forms that use
    // registers, a unit is a team's share.
    const aa_kernel_tuning& tuning = forms_[rows1].tuning(device);
    const int64_t teams = plan.form == shared ? 1 : tuning.group_size / tuning.lanes;
    const int64_t width = plan.width / teams;
    for (uint32_t i = 1; i < call.tensor_count; i += 3) {
      const aa_tensor* tensor = &call.tensors[i];
      if (tensor[1].shape[0] == 0) continue;
      parts[count] = part_of(x, tensor[0], tensor[1], tensor[2]);
      units += (parts[count].n + width - 1) / width;
      tensors[count++] = tensor;
    }
    if (count == 0) return;
    plan.shape.grid[0] = groups_for(units, teams);
    const auto out = [&](size_t i) { return i < count ? tensors[i][0].data : nullptr; };
    const auto w = [&](size_t i) { return i < count ? tensors[i][1].data : nullptr; };
    const auto bias = [&](size_t i) { return i < count ? tensors[i][2].data : nullptr; };
    forms_[plan.form].launch_for(linear_multi, device, element_of(x.dtype), element_of(tensors[0][1].dtype), plan.shape,
                                 x.data, plan.x, out(0), w(0), bias(0), parts[0], out(1), w(1), bias(1), parts[1],
                                 out(2), w(2), bias(2), parts[2], out(3), w(3), bias(3), parts[3]);
  }

  void enqueue_gated(const aa_op_call& call, bool by_row, int device) {
    const aa_tensor &out = call.tensors[0], &x = call.tensors[1], &w_gate = call.tensors[2], &w_up = call.tensors[3],
                    &bias_gate = call.tensors[4], &bias_up = call.tensors[5];
    if (out.shape[0] == 0 || out.shape[1] == 0) return;
    Plan plan = this->plan(x, by_row, device);
    const aa_linear_part gate = part_of(x, out, w_gate, bias_gate);
    const aa_linear_part up = part_of(x, out, w_up, bias_up);
    const int32_t kind = static_cast<const aa_activation_params*>(call.params)->kind;
    if (w_gate.dtype != w_up.dtype) {
      plan.shape.grid = {groups_for(gate.n, plan.shape.block[0]), groups_for(x.shape[0], 1), 1};
      mixed_.launch_for(0, device, element_of(x.dtype), element_of(w_gate.dtype), plan.shape, out.data, x.data,
                        w_gate.data, w_up.data, bias_gate.data, bias_up.data, plan.x, gate, up, kind, w_up.dtype);
      return;
    }
    plan.shape.grid[0] = groups_for(gate.n, plan.width);
    forms_[plan.form].launch_for(gated_linear, device, element_of(x.dtype), element_of(w_gate.dtype), plan.shape,
                                 out.data, x.data, w_gate.data, w_up.data, bias_gate.data, bias_up.data, plan.x, gate,
                                 up, kind);
  }

  std::array<KernelSet, 3> forms_;  // by Form; kernels by Op
  KernelSet mixed_;
};

}  // namespace

std::unique_ptr<OpGroup> make_linear_ops(DriverAccelerator& accelerator) {
  return std::make_unique<LinearOps>(accelerator);
}

}  // namespace anyaccel::ops::portable
