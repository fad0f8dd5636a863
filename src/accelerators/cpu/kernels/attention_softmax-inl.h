// The online softmax of attention, one row of scores at a time. Included after base/simd/highway.h, once per instruction set.
#include <limits>
#include <numbers>

#include "accelerators/cpu/kernels/activation-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_SOFTMAX_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_SOFTMAX_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_SOFTMAX_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// On the matrix unit, by how much scores, in units of log2(e), may be above the maximum that weights are relative to.
constexpr float kMaximumLag = 8.0f;

// 2^x + added * 2^floor(x), x <= 127; the relative error of the power is below 3e-6. Below -127 it is 0 or, for the processor's
// products of bf16, as good as 0.
HWY_INLINE FloatVec coarse_power(FloatVec x, float added) {
#if HWY_TARGET == HWY_AVX3
  const FloatVec f{_mm512_reduce_ps(x.raw, 0x09)};  // x - floor(x), and 0 for -infinity
#else
  x = at_least(-127.0f, x);
  const auto whole = hn::Floor(x);
  const auto f = hn::Sub(x, whole);
#endif
  // Minimax polynomial of 2^f on [0, 1].
  auto p = hn::Set(kFloats, 0.0135341679f);
  p = hn::MulAdd(p, f, hn::Set(kFloats, 0.0520114606f));
  p = hn::MulAdd(p, f, hn::Set(kFloats, 0.241442757f));
  p = hn::MulAdd(p, f, hn::Set(kFloats, 0.693003834f));
  p = hn::MulAdd(p, f, hn::Set(kFloats, 1.00000259f + added));
#if HWY_TARGET == HWY_AVX3
  return FloatVec{_mm512_scalef_ps(p.raw, x.raw)};
#else
  return hn::BitCast(kFloats, hn::Add(hn::BitCast(kInts, p), hn::ShiftLeft<23>(hn::ConvertTo(kInts, whole))));
#endif
}

// 2^x, to be rounded to bf16 by cutting off the lower half of its bits: the 2^-8 of the mantissa that a cut needs are added. The
// relative error of what is left is below 2^-8 + 3e-6.
HWY_INLINE FloatVec power_to_cut(FloatVec x) { return coarse_power(x, 0x1p-8f); }

// Returns the factor by which queries, or their scores, are multiplied: scores are held in units of log2(e), so that the
// exponential is a power of two, and before a soft cap in units of the cap.
HWY_INLINE float score_factor(float scale, float softcap) {
  return softcap > 0 ? scale / softcap : scale * std::numbers::log2e_v<float>;
}

// The slope of a row's head, in the units of scores, and the row's own slot, from which it counts distances.
struct RowSlope {
  float slope;
  int64_t own;
};

// Caps the scores of so many vectors, adds the slope times the distance, and makes those outside of [begin, end) -infinity.
// Returns the largest of each lane.
HWY_INLINE FloatVec cap_and_mask(float* scores, int64_t vectors, int64_t begin, int64_t end, float softcap,
                                 RowSlope slope) {
  const auto first = hn::Set(kInts, static_cast<int32_t>(begin));
  const auto last = hn::Set(kInts, static_cast<int32_t>(end - 1));
  auto top = hn::Set(kFloats, kMinusInfinity);
  for (int64_t i = 0; i < vectors; ++i) {
    auto s = hn::LoadU(kFloats, scores + i * kLanes);
    if (softcap > 0) s = hn::Mul(Tanh()(s), hn::Set(kFloats, softcap * std::numbers::log2e_v<float>));
    const auto slot = hn::Iota(kInts, static_cast<int32_t>(i * kLanes));
    if (slope.slope != 0) {
      const auto distance = hn::Sub(slot, hn::Set(kInts, static_cast<int32_t>(slope.own)));
      s = hn::MulAdd(hn::ConvertTo(kFloats, distance), hn::Set(kFloats, slope.slope), s);
    }
    const auto hidden = hn::Or(hn::Lt(slot, first), hn::Gt(slot, last));
    s = hn::IfThenElse(hn::RebindMask(kFloats, hidden), hn::Set(kFloats, kMinusInfinity), s);
    hn::StoreU(s, kFloats, scores + i * kLanes);
    top = hn::Max(top, s);
  }
  return top;
}

// How scores of a row become weights, after the maximum of the row may have grown.
struct Shift {
  FloatVec maximum;
  float correction;  // by which the row's sums so far must be multiplied

  HWY_INLINE FloatVec weight(const float* scores) const {
    return exp2_below(hn::Sub(hn::LoadU(kFloats, scores), maximum));
  }
};

// Masks the scores of a row outside of [begin, end), caps the others and adds the slope, and updates the row's maximum.
HWY_INLINE Shift raise_maximum(float* scores, int64_t vectors, int64_t begin, int64_t end, float softcap,
                               RowSlope slope, float& row_maximum) {
  const float before = row_maximum;
  auto top = hn::Set(kFloats, before);
  if (begin > 0 || end < vectors * kLanes || softcap > 0 || slope.slope != 0) {
    top = hn::Max(top, cap_and_mask(scores, vectors, begin, end, softcap, slope));
  } else {
    for (int64_t i = 0; i < vectors; ++i) top = hn::Max(top, hn::LoadU(kFloats, scores + i * kLanes));
  }
  float correction = 1;
  // Later blocks seldom bring a new maximum.
  if (!hn::AllFalse(kFloats, hn::Gt(top, hn::Set(kFloats, before)))) {
    row_maximum = max_lanes(top);
    correction = hn::GetLane(exp2_below(hn::Set(kFloats, before - row_maximum)));
  }
  // A row may have seen nothing, or only -infinity, so far.
  return {hn::Set(kFloats, row_maximum == kMinusInfinity ? 0.0f : row_maximum), correction};
}

// Turns the scores [begin, end) of a row into weights, the others into 0, and updates the row's maximum and `total`, the
// kLanes partial sums of its weights. Returns the factor by which the row's sums so far must be multiplied.
HWY_INLINE float weigh(float* scores, int64_t vectors, int64_t begin, int64_t end, float softcap, RowSlope slope,
                       float& row_maximum, float* row_total) {
  const Shift shift = raise_maximum(scores, vectors, begin, end, softcap, slope, row_maximum);
  auto total = hn::Zero(kFloats);
  for (int64_t i = 0; i < vectors; ++i) {
    const auto weight = shift.weight(scores + i * kLanes);
    hn::StoreU(weight, kFloats, scores + i * kLanes);
    total = hn::Add(total, weight);
  }
  hn::StoreU(hn::MulAdd(hn::LoadU(kFloats, row_total), hn::Set(kFloats, shift.correction), total), kFloats, row_total);
  return shift.correction;
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
