// Implements kernel_arguments.h: the structs of kernels/portable/arguments.h on the host, and how tensors become
// them.
#include "runtime/ops/kernel_arguments.h"

#include <limits>
#include <string>

#include "anyaccel/error.h"

namespace anyaccel::ops::portable {
namespace {

// Merges the first `count` dimensions where one step of the outer is a whole walk of the inner; returns how many remain, at
// least one.
int32_t merge(const aa_tensor& tensor, int count, int64_t* shape, int64_t* stride) {
  int32_t n = 0;
  for (int d = 0; d < count; ++d) {
    if (tensor.shape[d] == 1) continue;
    if (n > 0 && stride[n - 1] == tensor.strides[d] * tensor.shape[d]) {
      shape[n - 1] *= tensor.shape[d];
    } else {
      shape[n++] = tensor.shape[d];
    }
    stride[n - 1] = tensor.strides[d];
  }
  if (n == 0) {
    shape[0] = 1;
    stride[0] = 1;
    n = 1;
  }
  return n;
}

int64_t product(const aa_tensor& tensor, int count) {
  int64_t n = 1;
  for (int d = 0; d < count; ++d) n *= tensor.shape[d];
  return n;
}

}  // namespace

aa_rows rows_of(const aa_tensor& tensor) {
  aa_rows rows{};
  rows.dtype = tensor.dtype;
  rows.ndim = 1;
  if (tensor.dtype == AA_DTYPE_NONE) return rows;
  rows.ndim = merge(tensor, tensor.ndim - 1, rows.shape, rows.stride);
  rows.inner = tensor.strides[tensor.ndim - 1];
  return rows;
}

aa_view view_of(const aa_tensor& tensor) {
  aa_view view{};
  view.dtype = tensor.dtype;
  view.ndim = 1;
  if (tensor.dtype == AA_DTYPE_NONE) return view;
  view.ndim = merge(tensor, tensor.ndim, view.shape, view.stride);
  return view;
}

int64_t element_count_of(const aa_tensor& tensor) { return product(tensor, tensor.ndim); }
int64_t row_count_of(const aa_tensor& tensor) { return product(tensor, tensor.ndim - 1); }

uint32_t groups_for(int64_t work, int64_t per_group) {
  const int64_t groups = (work + per_group - 1) / per_group;
  if (groups > std::numeric_limits<int32_t>::max()) {
    throw InvalidArgument("a tensor of " + std::to_string(work) + " elements or rows needs " + std::to_string(groups) +
                          " groups of a kernel; at most 2147483647 can be launched. Split the call");
  }
  return static_cast<uint32_t>(groups);
}

}  // namespace anyaccel::ops::portable
