// The ops that normalise rows: rms_norm, layer_norm and softmax. A row is widened to binary32 in a buffer that stays in
// the first-level cache, so that any mix of dtypes and strides takes the same path; dense binary32 rows are used in
// place.
#include <cmath>
#include <cstring>
#include <limits>

#include "accelerators/cpu/kernels/parallel.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/ops.h"
#include "base/scalar_convert.h"
#include "base/simd/dispatch.h"
#include "runtime/ops/op_params.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/norm.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/vector-inl.h"

#ifndef ANYACCEL_CPU_KERNELS_NORM_ARGUMENTS_
#define ANYACCEL_CPU_KERNELS_NORM_ARGUMENTS_
namespace anyaccel::cpu {

struct NormArguments {
  Rows out, x, residual;
  Row weight, bias;  // of dtype None when absent
  float eps;
};

struct SoftmaxArguments {
  Rows out, x;
  float scale;
};

}  // namespace anyaccel::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

float sum_of(const float* v, int64_t n) {
  auto s0 = hn::Zero(kFloats), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    s0 = hn::Add(s0, hn::LoadU(kFloats, v + i));
    s1 = hn::Add(s1, hn::LoadU(kFloats, v + i + kLanes));
    s2 = hn::Add(s2, hn::LoadU(kFloats, v + i + 2 * kLanes));
    s3 = hn::Add(s3, hn::LoadU(kFloats, v + i + 3 * kLanes));
  }
  for (; i + kLanes <= n; i += kLanes) s0 = hn::Add(s0, hn::LoadU(kFloats, v + i));
  if (i < n) s1 = hn::Add(s1, load_part(v + i, n - i));
  return sum_lanes(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

// Sum of (v - shift)^2.
float squares_of(const float* v, int64_t n, float shift) {
  const auto c = hn::Set(kFloats, shift);
  auto s0 = hn::Zero(kFloats), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    const auto d0 = hn::Sub(hn::LoadU(kFloats, v + i), c);
    const auto d1 = hn::Sub(hn::LoadU(kFloats, v + i + kLanes), c);
    const auto d2 = hn::Sub(hn::LoadU(kFloats, v + i + 2 * kLanes), c);
    const auto d3 = hn::Sub(hn::LoadU(kFloats, v + i + 3 * kLanes), c);
    s0 = hn::MulAdd(d0, d0, s0);
    s1 = hn::MulAdd(d1, d1, s1);
    s2 = hn::MulAdd(d2, d2, s2);
    s3 = hn::MulAdd(d3, d3, s3);
  }
  for (; i + kLanes <= n; i += kLanes) {
    const auto d = hn::Sub(hn::LoadU(kFloats, v + i), c);
    s0 = hn::MulAdd(d, d, s0);
  }
  if (i < n) {
    const auto d = hn::Sub(load_part(v + i, n - i, shift), c);
    s1 = hn::MulAdd(d, d, s1);
  }
  return sum_lanes(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

// to = (v - mean) * factor * weight + bias; weight and bias may be null. `to` may be v.
void scale_row(const float* v, float mean, float factor, const float* weight, const float* bias, float* to, int64_t n) {
  const auto m = hn::Set(kFloats, mean);
  const auto f = hn::Set(kFloats, factor);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    auto y = hn::Mul(hn::Sub(hn::LoadU(kFloats, v + i), m), f);
    if (weight) y = hn::Mul(y, hn::LoadU(kFloats, weight + i));
    if (bias) y = hn::Add(y, hn::LoadU(kFloats, bias + i));
    hn::StoreU(y, kFloats, to + i);
  }
  for (; i < n; ++i) {
    float y = (v[i] - mean) * factor;
    if (weight) y *= weight[i];
    if (bias) y += bias[i];
    to[i] = y;
  }
}

// Returns the row to be normalized: x, or the residual after x was added and rounded.
const float* input_row(const NormArguments& a, int64_t r, float* buffer, float* other) {
  const Row x = a.x.row(r);
  const int64_t h = x.length;
  if (!a.residual.present()) return row_floats(x, 0, h, buffer);
  const Row residual = a.residual.row(r);
  const float* left = row_floats(x, 0, h, other);
  const float* right = row_floats(residual, 0, h, buffer);
  float* sum = row_target(residual, 0, buffer);
  int64_t i = 0;
  for (; i + kLanes <= h; i += kLanes) {
    hn::StoreU(hn::Add(hn::LoadU(kFloats, left + i), hn::LoadU(kFloats, right + i)), kFloats, sum + i);
  }
  for (; i < h; ++i) sum[i] = left[i] + right[i];
  write_row(residual, 0, h, sum);
  return row_floats(residual, 0, h, buffer);
}

void norm_rows(const NormArguments& a, bool subtract_mean, int64_t begin, int64_t end) {
  const int64_t h = a.x.length();
  const size_t room = static_cast<size_t>(h + kLanes);
  float* buffer = scratch<float>(Scratch::Row0, room);
  float* other = scratch<float>(Scratch::Row1, room);
  const float* weight = nullptr;
  const float* bias = nullptr;
  if (a.weight.dtype != DType::None) weight = row_floats(a.weight, 0, h, scratch<float>(Scratch::Row2, room));
  if (a.bias.dtype != DType::None) bias = row_floats(a.bias, 0, h, scratch<float>(Scratch::Row3, room));
  for (int64_t r = begin; r < end; ++r) {
    const float* v = input_row(a, r, buffer, other);
    const float mean = subtract_mean ? sum_of(v, h) / static_cast<float>(h) : 0.0f;
    const float factor = 1.0f / std::sqrt(squares_of(v, h, mean) / static_cast<float>(h) + a.eps);
    const Row out = a.out.row(r);
    float* to = row_target(out, 0, buffer);
    scale_row(v, mean, factor, weight, bias, to, h);
    write_row(out, 0, h, to);
  }
}

void softmax_rows(const SoftmaxArguments& a, int64_t begin, int64_t end) {
  const int64_t n = a.x.length();
  float* buffer = scratch<float>(Scratch::Row0, static_cast<size_t>(n + kLanes));
  float* other = scratch<float>(Scratch::Row1, static_cast<size_t>(n + kLanes));
  const auto scale = hn::Set(kFloats, a.scale);
  const float lowest = -std::numeric_limits<float>::infinity();
  for (int64_t r = begin; r < end; ++r) {
    const float* x = row_floats(a.x.row(r), 0, n, buffer);
    const Row out = a.out.row(r);
    float* to = row_target(out, 0, other);

    auto top = hn::Set(kFloats, lowest);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) top = hn::Max(top, hn::Mul(hn::LoadU(kFloats, x + i), scale));
    float largest = max_lanes(top);
    for (; i < n; ++i) largest = std::fmax(largest, x[i] * a.scale);

    const auto shift = hn::Set(kFloats, largest);
    auto total0 = hn::Zero(kFloats), total1 = total0;
    for (i = 0; i + 2 * kLanes <= n; i += 2 * kLanes) {
      const auto e0 = exp(hn::MulSub(hn::LoadU(kFloats, x + i), scale, shift));
      const auto e1 = exp(hn::MulSub(hn::LoadU(kFloats, x + i + kLanes), scale, shift));
      total0 = hn::Add(total0, e0);
      total1 = hn::Add(total1, e1);
      hn::StoreU(e0, kFloats, to + i);
      hn::StoreU(e1, kFloats, to + i + kLanes);
    }
    for (; i < n; i += kLanes) {
      const int64_t part = std::min(kLanes, n - i);
      const auto e = exp(hn::MulSub(load_part(x + i, part), scale, shift));
      store_part(e, to + i, part);
      total1 = hn::Add(total1, load_part(to + i, part));
    }

    const float factor = 1.0f / sum_lanes(hn::Add(total0, total1));
    const auto f = hn::Set(kFloats, factor);
    for (i = 0; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(kFloats, to + i), f), kFloats, to + i);
    for (; i < n; ++i) to[i] *= factor;
    write_row(out, 0, n, to);
  }
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(norm_rows);
AA_CPU_EXPORT(softmax_rows);

namespace {

// Normalizes all rows on the worker pool.
void run_norm(const NormArguments& arguments, bool subtract_mean) {
  if (arguments.x.length() == 0) return;
  const auto rows = AA_CPU_DISPATCH(norm_rows);
  parallel_for(arguments.x.count(), arguments.x.length(),
               [&](int64_t begin, int64_t end) { rows(arguments, subtract_mean, begin, end); });
}

}  // namespace

void rms_norm(const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  run_norm({Rows(t[0]), Rows(t[1]), Rows(t[3]), single_row(t[2]), Row{}, params_of<aa_norm_params>(call).eps}, false);
}

void layer_norm(const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  run_norm(
      {Rows(t[0]), Rows(t[1]), Rows(t[4]), single_row(t[2]), single_row(t[3]), params_of<aa_norm_params>(call).eps},
      true);
}

void softmax(const aa_op_call& call) {
  const SoftmaxArguments arguments{Rows(call.tensors[0]), Rows(call.tensors[1]),
                                   params_of<aa_softmax_params>(call).scale};
  if (arguments.x.length() == 0) return;
  const auto rows = AA_CPU_DISPATCH(softmax_rows);
  parallel_for(arguments.x.count(), arguments.x.length() * 4,
               [&](int64_t begin, int64_t end) { rows(arguments, begin, end); });
}

}  // namespace anyaccel::cpu
#endif
