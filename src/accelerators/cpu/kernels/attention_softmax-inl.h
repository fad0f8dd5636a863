// The online softmax of attention: one row of scores at a time, or eight with AVX2. Included after base/simd/highway.h,
// once per instruction set.
#include <algorithm>
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
// In the bf16 kernels for prompts and on the matrix unit: how far scores, in units of log2(e), may exceed the maximum
// that weights are relative to before it is raised.
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

// 2^x with half a unit of bf16's last place (2^-8 of the mantissa) added, so that cutting off the lower 16 bits rounds
// it. The relative error of what is left is below 2^-8 + 3e-6.
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

// Caps the scores of so many vectors, adds the slope times the distance, and sets those outside of [begin, end) to
// -infinity. Returns the largest of each lane.
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

// What turns the scores of a row into weights after its maximum may have grown.
struct Shift {
  FloatVec maximum;
  float correction;  // the factor for the sums of the row so far

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

// Floats that weigh_rows() needs behind the maxima and corrections of the rows.
constexpr int64_t kBehindRows = HWY_TARGET == HWY_AVX2 ? kLanes : 0;

#if HWY_TARGET == HWY_AVX2
// The largest lane of each of kLanes vectors, in the order of the vectors.
HWY_INLINE FloatVec maxima_of_lanes(const FloatVec (&v)[kLanes]) {
  const auto two = [](__m256 a, __m256 b)
                       HWY_ATTR { return _mm256_max_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd)); };
  const auto four = [&](int i) HWY_ATTR { return two(two(v[i].raw, v[i + 1].raw), two(v[i + 2].raw, v[i + 3].raw)); };
  const __m256 low = four(0), high = four(4);
  return FloatVec{_mm256_max_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31))};
}

// What weigh_rows() needs to know of a row: the whole vectors of scores that were computed, and the range that it sees.
// Without vectors, the row is left alone.
struct RowScores {
  int64_t vectors, begin, end;
  RowSlope slope;
};

// As weigh() for `rows` rows whose scores are `stride` floats apart; of_row(m) returns the RowScores of row m. The
// parts that are bound by latency, the maxima and the branches that depend on them, are computed for kLanes rows at
// once, so that the exponentials follow each other without gaps. Up to kLanes - 1 maxima behind the last row are read
// and stored unchanged, except that a NaN may be lost, whose row has NaN as its sums anyway. As many corrections are
// written.
template <class OfRow>
HWY_INLINE void weigh_rows(int64_t rows, float* scores, int64_t stride, float softcap, float* maximum, float* total,
                           float* correction, OfRow of_row) {
  for (int64_t first = 0; first < rows; first += kLanes) {
    const int64_t count = std::min<int64_t>(kLanes, rows - first);
    RowScores row[kLanes];
    FloatVec tops[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      tops[i] = hn::Set(kFloats, kMinusInfinity);
      if (i >= count) continue;
      row[i] = of_row(first + i);
      float* own = scores + (first + i) * stride;
      if (row[i].begin > 0 || row[i].end < row[i].vectors * kLanes || softcap > 0 || row[i].slope.slope != 0) {
        tops[i] = cap_and_mask(own, row[i].vectors, row[i].begin, row[i].end, softcap, row[i].slope);
      } else {
        for (int64_t v = 0; v < row[i].vectors; ++v) tops[i] = hn::Max(tops[i], hn::LoadU(kFloats, own + v * kLanes));
      }
    }
    const auto before = hn::LoadU(kFloats, maximum + first);
    const auto now = hn::Max(before, maxima_of_lanes(tops));
    // A row may have seen nothing, or only -infinity, so far.
    const auto hidden = hn::Eq(now, hn::Set(kFloats, kMinusInfinity));
    const auto reference = hn::IfThenElse(hidden, hn::Zero(kFloats), now);
    hn::StoreU(now, kFloats, maximum + first);
    hn::StoreU(exp2_below(hn::Sub(before, reference)), kFloats, correction + first);
    float references[kLanes];
    hn::StoreU(reference, kFloats, references);
    for (int64_t i = 0; i < count; ++i) {
      if (row[i].vectors == 0) continue;
      const Shift shift{hn::Set(kFloats, references[i]), correction[first + i]};
      float *own = scores + (first + i) * stride, *own_total = total + (first + i) * kLanes;
      auto sum = hn::Zero(kFloats);
      for (int64_t v = 0; v < row[i].vectors; ++v) {
        const auto weight = shift.weight(own + v * kLanes);
        hn::StoreU(weight, kFloats, own + v * kLanes);
        sum = hn::Add(sum, weight);
      }
      hn::StoreU(hn::MulAdd(hn::LoadU(kFloats, own_total), hn::Set(kFloats, shift.correction), sum), kFloats,
                 own_total);
    }
  }
}
#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
