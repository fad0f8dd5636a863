// The last step of a row of results of a matrix product: bias, activation, residual, rounding.
#include <cstdint>

#include "accelerators/cpu/kernels/matmul_args.h"
#include "accelerators/cpu/kernels/rows.h"
#include "base/simd/dispatch.h"
#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/matmul_finish.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/activation-inl.h"
#include "accelerators/cpu/kernels/matmul_finish-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {
namespace {

// write_row with vectors for F32 too, as read_floats.
void write_floats(const Row& row, int64_t begin, int64_t n, const float* from) {
  if (row.dtype == DType::F32 && row.stride == 1) {
    narrow(F32Type(), from, reinterpret_cast<float*>(row.data) + begin, n);
  } else {
    write_row(row, begin, n, from);
  }
}

// values[i] += row[begin + i], 0 <= i < n <= kFinishColumns.
void add_to_row(const Row& row, int64_t begin, int64_t n, float* values) {
  float buffer[kFinishColumns];
  const float* added = row_floats(row, begin, n, buffer);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(hn::Add(hn::LoadU(kFloats, values + i), hn::LoadU(kFloats, added + i)), kFloats, values + i);
  }
  for (; i < n; ++i) values[i] += added[i];
}

template <class Activation>
void gate(Activation activation, int64_t n, float* values, const float* up) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto gated = hn::Mul(activation(hn::LoadU(kFloats, values + i)), hn::LoadU(kFloats, up + i));
    hn::StoreU(gated, kFloats, values + i);
  }
  if (i < n) {
    const auto gated = hn::Mul(activation(load_part(values + i, n - i)), load_part(up + i, n - i));
    store_part(gated, values + i, n - i);
  }
}

}  // namespace

void finish_row(const Matmul& args, const MatmulPart& part, int64_t m, int64_t begin, int64_t n, float* values,
                float* up) {
  const Row out = row_of(part.out, m, part.n);
  for (int64_t i = 0; i < n; i += kFinishColumns) {
    const int64_t count = n - i < kFinishColumns ? n - i : kFinishColumns;
    if (part.bias[0]) add_to_row(row_of(part.bias[0], 0, part.n), begin + i, count, values + i);
    if (args.gated) {
      if (part.bias[1]) add_to_row(row_of(part.bias[1], 0, part.n), begin + i, count, up + i);
      with_activation(args.activation, [&](auto activation) HWY_ATTR { gate(activation, count, values + i, up + i); });
    }
    if (part.residual) add_to_row(row_of(part.residual, m, part.n), begin + i, count, values + i);
    write_floats(out, begin + i, count, values + i);
  }
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
