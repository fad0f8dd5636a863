// Implements linear, linear_multi and gated_linear with the kernels of kernels/portable/linear_*.cl.
#include <algorithm>
#include <array>
#include <cstdint>

#include "ops/portable/linear_plan.h"
#include "ops/portable/op_group.h"
#include "runtime/ops/kernel_arguments.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::ops::portable {
namespace {

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

  LinearPlan plan(const aa_tensor& x, bool by_row, int device) {
    return plan_linear(forms_[rows1].tuning(device), x, by_row);
  }

  void enqueue_linear(const aa_tensor& out, const aa_tensor& x, const aa_tensor& w, const aa_tensor& bias,
                      const aa_tensor& residual, bool by_row, int device) {
    if (out.shape[0] == 0 || out.shape[1] == 0) return;
    LinearPlan plan = this->plan(x, by_row, device);
    const aa_linear_part part = part_of(x, out, w, bias);
    plan.shape.grid[0] = groups_for(part.n, plan.width);
    forms_[plan.form].launch_for(linear, device, element_of(x.dtype), element_of(w.dtype), plan.shape, out.data, x.data,
                                 w.data, bias.data, residual.data, plan.x, part, residual_of(residual));
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
    LinearPlan plan = this->plan(x, by_row, device);
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
    LinearPlan plan = this->plan(x, by_row, device);
    const aa_linear_part gate = part_of(x, out, w_gate, bias_gate);
    const aa_linear_part up = part_of(x, out, w_up, bias_up);
    const int32_t kind = params_of<aa_activation_params>(call).kind;
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
