// Implements norm_rows.h.
#include "accelerators/cuda/ops/norm_rows.h"

#include <algorithm>

#include "accelerators/cuda/ops/op_group.h"
#include "accelerators/cuda/ops/row_layout.h"
#include "accelerators/cuda/stream.h"

namespace anyaccel::cuda {
namespace {

using aa_i32 = int32_t;
using aa_i64 = int64_t;
#include "kernels/cuda/row_arguments.h"

constexpr int64_t norm_vector = 8;  // elements that a thread takes at once

// A tensor of one row that may be absent.
bool is_vector(const aa_tensor& t) {
  return !is_there(t) || (is_float(t) && is_aligned_to_16(t) && (t.strides[0] == 1 || t.shape[0] == 1));
}

}  // namespace

bool NormRows::supports(const NormCall& call) {
  const int64_t size = row_size(call.out);
  return size % norm_vector == 0 && size <= AA_NORM_THREADS * AA_NORM_CHUNKS * norm_vector &&
         aligned_row_step(call.out) && aligned_row_step(call.x) && is_vector(call.weight) && is_vector(call.bias) &&
         (!is_there(call.residual) || aligned_row_step(call.residual));
}

void NormRows::launch(const NormCall& call, bool centred, float eps, Stream& stream) {
  aa_norm_rows a{};
  a.size = row_size(call.out);
  a.out_row = *aligned_row_step(call.out);
  a.x_row = *aligned_row_step(call.x);
  a.residual_row = is_there(call.residual) ? *aligned_row_step(call.residual) : 0;
  a.out_dtype = call.out.dtype;
  a.x_dtype = call.x.dtype;
  a.residual_dtype = call.residual.dtype;
  a.weight_dtype = call.weight.dtype;
  a.bias_dtype = call.bias.dtype;
  a.centred = centred;
  // All chunks of a thread are used, so that it has as many loads on their way at once. The same for any number of rows: sums must
  // not depend on it.
  const int64_t threads = (a.size / norm_vector + AA_NORM_CHUNKS - 1) / AA_NORM_CHUNKS;
  a.threads = std::min<int32_t>(AA_NORM_THREADS, static_cast<int32_t>((threads + 31) / 32 * 32));
  a.eps = eps;
  const TunedLaunch shape{.grid = {static_cast<unsigned>(ops::portable::row_count_of(call.out)), 1, 1},
                          .block = static_cast<unsigned>(a.threads),
                          .overlaps_previous = true};
  kernels_.launch(0, stream.handle(), shape, call.out.data, call.x.data, call.weight.data, call.bias.data,
                  call.residual.data, a);
}

}  // namespace anyaccel::cuda
