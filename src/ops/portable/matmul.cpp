// Implements the op of matmul.cl, matmul.
#include <algorithm>

#include "ops/portable/linear_plan.h"
#include "ops/portable/op_group.h"
#include "runtime/ops/kernel_arguments.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::ops::portable {
namespace {

#include "kernels/portable/matmul_arguments.h"

// On every device, grids may have this many groups in their second and third dimension.
constexpr int64_t most_groups = 65535;
// The number of groups along the rows if an item works alone: enough for the cores of a processor, while each keeps its
// part of b.
constexpr int64_t row_groups = 16;

// Describes the matrices of a tensor [.., R, C] by their index.
aa_rows batches_of(aa_tensor tensor) {
  --tensor.ndim;
  return rows_of(tensor);
}

class MatmulOps final : public OpGroup {
 public:
  explicit MatmulOps(DriverAccelerator& accelerator)
      : kernels_(accelerator, "matmul.cl", {"matmul"}, KernelSet::Types::xw) {}

  std::span<const Op> ops() const override {
    static constexpr Op list[] = {Op::Matmul};
    return list;
  }

  bool supports(Op, const aa_op_call&, const aa_kernel_tuning&) override { return true; }

  void enqueue(Op, const aa_op_call& call, const int& device) override {
    const aa_tensor &out = call.tensors[0], &a = call.tensors[1], &b = call.tensors[2];
    if (element_count_of(out) == 0) return;
    const int d = out.ndim;
    aa_matmul p{};
    p.m = out.shape[d - 2];
    p.n = out.shape[d - 1];
    p.k = a.shape[d - 1];
    p.out_row = out.strides[d - 2];
    p.out_inner = out.strides[d - 1];
    p.a_row = a.strides[d - 2];
    p.a_inner = a.strides[d - 1];
    p.b_row = b.strides[d - 2];
    p.b_inner = b.strides[d - 1];
    p.batches = element_count_of(out) / (p.m * p.n);
    p.out_dtype = out.dtype;
    p.accumulate = params_of<aa_accumulate_params>(call).accumulate;
    const aa_kernel_tuning& tuning = kernels_.tuning(device);
    const int64_t group = tuning.group_size;
    LaunchShape shape{.grid = {1, 1, static_cast<uint32_t>(std::min(p.batches, most_groups))},
                      .block = {static_cast<uint32_t>(group), 1, 1}};
    if (group == 1) {
      shape.grid[0] = groups_for(p.n, wide * AA_MATMUL_STRIPS);
      shape.grid[1] = static_cast<uint32_t>(std::min<int64_t>(groups_for(p.m, AA_MATMUL_ROWS), row_groups));
    } else if (tuning.local_memory >= AA_SHARED_BYTES(group)) {
      shape.grid[0] = groups_for(p.n, AA_SHARED_N(group));
      shape.grid[1] = groups_for(p.m, AA_SHARED_M(group));
    } else {
      shape.grid[0] = groups_for(p.n, group);
      shape.grid[1] = static_cast<uint32_t>(std::min(p.m, most_groups));
    }
    kernels_.launch_for(0, device, element_of(a.dtype), element_of(b.dtype), shape, out.data, batches_of(out), a.data,
                        batches_of(a), b.data, batches_of(b), p);
  }

 private:
  static constexpr int64_t wide = 16;  // AA_WIDE of dialect.h for groups of one item
  KernelSet kernels_;
};

}  // namespace

std::unique_ptr<OpGroup> make_matmul_ops(DriverAccelerator& accelerator) {
  return std::make_unique<MatmulOps>(accelerator);
}

}  // namespace anyaccel::ops::portable
