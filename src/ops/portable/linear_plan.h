// The division of a matrix product's work among groups, for the kernels of linear_*.cl and quantized_linear.cl.
#pragma once

#include <cstddef>
#include <cstdint>

#include "anyaccel/abi/compiler.h"
#include "anyaccel/abi/ops.h"
#include "anyaccel/device_op.h"
#include "runtime/ops/kernel_arguments.h"

namespace anyaccel::ops::portable {

#include "kernels/portable/linear_arguments.h"

// Forms of the kernels; see kernels/portable/linear_parts.h.
enum Form : size_t { rows1, rows4, shared };

struct LinearPlan {
  Form form;
  aa_linear_x x;
  int64_t width;      // rows of w that a group takes
  LaunchShape shape;  // but for the first dimension of the grid
};

// x is [M,K]. With `by_row`, the order in which a row is summed must not depend on the number of rows.
LinearPlan plan_linear(const aa_kernel_tuning& tuning, const aa_tensor& x, bool by_row);

aa_linear_part part_of(const aa_tensor& x, const aa_tensor& out, const aa_tensor& w, const aa_tensor& bias);
// `residual` may be absent.
aa_linear_residual residual_of(const aa_tensor& residual);

}  // namespace anyaccel::ops::portable
