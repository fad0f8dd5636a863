// The op "matmul": products of matrices with free strides, one or many, on the kernels of "linear".
//
// One product is split over the threads by gemm(). Many small ones are split by product: each thread then takes whole ones,
// so that no thread waits for another within a product.
#include <algorithm>

#include "accelerators/cpu/kernels/matmul_args.h"
#include "accelerators/cpu/kernels/matmul_inner.h"
#include "accelerators/cpu/kernels/parallel.h"
#include "accelerators/cpu/ops.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::cpu {
namespace {

// Multiply-adds of a product that is worth splitting when there are not many products: about a millisecond's.
constexpr int64_t kLargeProduct = int64_t{1} << 26;

Matrix matrix_at(const aa_tensor& tensor, int64_t batch, bool transposed) {
  const int lead = tensor.ndim - 2;
  int64_t offset = 0;
  for (int d = lead - 1; d >= 0; --d) {
    offset += batch % tensor.shape[d] * tensor.strides[d];
    batch /= tensor.shape[d];
  }
  const auto size = static_cast<int64_t>(dtype_size(static_cast<DType>(tensor.dtype)));
  Matrix matrix{static_cast<char*>(tensor.data) + offset * size, static_cast<DType>(tensor.dtype), tensor.strides[lead],
                tensor.strides[lead + 1]};
  if (transposed) std::swap(matrix.row_stride, matrix.column_stride);
  return matrix;
}

Matmul product(const aa_op_call& call, int64_t batch, bool accumulate) {
  const aa_tensor &out = call.tensors[0], &a = call.tensors[1], &b = call.tensors[2];
  Matmul args;
  args.m = out.shape[out.ndim - 2];
  args.k = a.shape[a.ndim - 1];
  args.x = matrix_at(a, batch, false);
  args.part_count = 1;
  MatmulPart& part = args.parts[0];
  part.n = out.shape[out.ndim - 1];
  part.weight[0] = matrix_at(b, batch, true);
  part.out = matrix_at(out, batch, false);
  if (accumulate) part.residual = part.out;
  return args;
}

}  // namespace

void matmul(const aa_op_call& call) {
  const aa_tensor& out = call.tensors[0];
  const bool accumulate = params_of<aa_accumulate_params>(call).accumulate != 0;
  int64_t batches = 1;
  for (int d = 0; d + 2 < out.ndim; ++d) batches *= out.shape[d];
  const int64_t m = out.shape[out.ndim - 2], n = out.shape[out.ndim - 1];
  const int64_t k = call.tensors[1].shape[call.tensors[1].ndim - 1];
  if (batches == 0 || m == 0 || n == 0) return;
  if (batches == 1) return multiply(product(call, 0, accumulate));
  const int64_t work = m * n * std::max<int64_t>(k, 1);
  if (work > kLargeProduct && batches < 4 * WorkerPool::instance().size()) {
    for (int64_t i = 0; i < batches; ++i) multiply(product(call, i, accumulate));
    return;
  }
  // A parallel region that begins inside another one runs on its thread alone.
  parallel_for(batches, work / 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Matmul args = product(call, i, accumulate);
      are_few_rows(args) ? gemv(args) : gemm(args);
    }
  });
}

}  // namespace anyaccel::cpu
