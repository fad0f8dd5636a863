// Rotary position embedding: the table of cosines and sines of a step, and the rotation of queries and keys.
#include <cmath>
#include <cstring>

#include "accelerators/cpu/kernels/parallel.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/ops.h"
#include "base/scalar_convert.h"
#include "base/simd/dispatch.h"
#include "runtime/ops/op_params.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/rope.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/vector-inl.h"

#ifndef ANYACCEL_CPU_KERNELS_ROPE_ARGUMENTS_
#define ANYACCEL_CPU_KERNELS_ROPE_ARGUMENTS_
namespace anyaccel::cpu {

struct RopeArguments {
  Rows q, k;  // rows are heads: row t * heads + h
  int64_t q_heads, k_heads;
  Rows cosine, sine;
  bool interleaved;
};

}  // namespace anyaccel::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// Rotates the r pairs of a head by angles with cosines c and sines s: elements 2 i and 2 i + 1 if interleaved, else i
// and r + i. `from` and `to` may be the same.
void rotate_head(const float* from, const float* c, const float* s, int64_t r, bool interleaved, float* to) {
  int64_t i = 0;
  for (; i + kLanes <= r; i += kLanes) {
    const auto cosine = hn::LoadU(kFloats, c + i);
    const auto sine = hn::LoadU(kFloats, s + i);
    FloatVec a, b;
    if (interleaved) {
      hn::LoadInterleaved2(kFloats, from + 2 * i, a, b);
    } else {
      a = hn::LoadU(kFloats, from + i);
      b = hn::LoadU(kFloats, from + r + i);
    }
    const auto rotated_a = hn::NegMulAdd(b, sine, hn::Mul(a, cosine));
    const auto rotated_b = hn::MulAdd(a, sine, hn::Mul(b, cosine));
    if (interleaved) {
      hn::StoreInterleaved2(rotated_a, rotated_b, kFloats, to + 2 * i);
    } else {
      hn::StoreU(rotated_a, kFloats, to + i);
      hn::StoreU(rotated_b, kFloats, to + r + i);
    }
  }
  for (; i < r; ++i) {
    const int64_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : r + i;
    const float a = from[first], b = from[second];
    to[first] = a * c[i] - b * s[i];
    to[second] = b * c[i] + a * s[i];
  }
}

void rope_tokens(const RopeArguments& a, int64_t begin, int64_t end) {
  const int64_t r = a.cosine.length();
  const size_t room = static_cast<size_t>(2 * r + kLanes);
  float* buffer = scratch<float>(Scratch::Row0, room);
  float* cosines = scratch<float>(Scratch::Row1, room);
  float* sines = scratch<float>(Scratch::Row2, room);
  for (int64_t t = begin; t < end; ++t) {
    const float* c = row_floats(a.cosine.row(t), 0, r, cosines);
    const float* s = row_floats(a.sine.row(t), 0, r, sines);
    for (int64_t head = 0; head < a.q_heads + a.k_heads; ++head) {
      const Row x = head < a.q_heads ? a.q.row(t * a.q_heads + head) : a.k.row(t * a.k_heads + head - a.q_heads);
      const float* from = row_floats(x, 0, 2 * r, buffer);
      float* to = row_target(x, 0, buffer);
      rotate_head(from, c, s, r, a.interleaved, to);
      write_row(x, 0, 2 * r, to);
    }
  }
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(rope_tokens);

void rope_table(const aa_op_call& call) {
  const float scale = params_of<aa_rope_table_params>(call).scale;
  const Rows cosines(call.tensors[0]), sines(call.tensors[1]);
  const Row inv_freq = Rows(call.tensors[2]).row(0), positions = Rows(call.tensors[3]).row(0);
  // The C library's functions reduce angles of any size exactly; this runs once per step, not once per layer.
  parallel_for(cosines.count(), cosines.length() * 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const Row cosine = cosines.row(t), sine = sines.row(t);
      const float position = static_cast<float>(reinterpret_cast<const int32_t*>(positions.data)[t * positions.stride]);
      for (int64_t r = 0; r < cosine.length; ++r) {
        const float angle = position * reinterpret_cast<const float*>(inv_freq.data)[r * inv_freq.stride];
        reinterpret_cast<float*>(cosine.data)[r * cosine.stride] = std::cos(angle) * scale;
        reinterpret_cast<float*>(sine.data)[r * sine.stride] = std::sin(angle) * scale;
      }
    }
  });
}

void rope(const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  const bool has_k = t[1].dtype != AA_DTYPE_NONE;
  const RopeArguments arguments{Rows(t[0]),
                                Rows(t[1]),
                                t[0].shape[1],
                                has_k ? t[1].shape[1] : 0,
                                Rows(t[2]),
                                Rows(t[3]),
                                params_of<aa_rope_params>(call).interleaved != 0};
  if (arguments.cosine.length() == 0) return;
  const auto tokens = AA_CPU_DISPATCH(rope_tokens);
  parallel_for(t[0].shape[0], (arguments.q_heads + arguments.k_heads) * arguments.q.length(),
               [&](int64_t begin, int64_t end) { tokens(arguments, begin, end); });
}

}  // namespace anyaccel::cpu
#endif
