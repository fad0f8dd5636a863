// The softmax between the two products of attention of prompts in bf16, for a group of 16 queries. These are the
// columns of the scores, so that maxima and totals are taken of whole vectors, without horizontal operations. Weights
// are relative to a maximum that may lag behind the true one, by a factor of 2^8 in the weights, so that sums seldom
// need a correction. Included after base/simd/highway.h, once per instruction set.
#include <cmath>
#include <cstdint>
#include <numbers>

#include "accelerators/cpu/kernels/attention_matrix_state-inl.h"
#include "accelerators/cpu/kernels/attention_softmax-inl.h"
#include "accelerators/cpu/kernels/bf16_dots-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_WEIGHER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_WEIGHER_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_WEIGHER_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_WEIGHER_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// Turns the scores [slots][queries] of a group into weights in pairs of slots. If kByDots, totals are added up by dot
// products of pairs, which need AVX512_BF16. begin(), weigh_pair() for each pair of slots and vector, and end() are the
// parts of weigh(), for loops that interleave them with other instructions.
template <bool kByDots>
class Weigher {
 public:
  explicit Weigher(MatrixState& state) : s_(state) {}

  static constexpr int64_t kVectors = kSide / kLanes;
  static constexpr int64_t kTotals = 4;  // independent sums of weights, so that additions overlap
  struct Weighing {
    float factor;
    FloatVec bias[kVectors];  // minus the maximum, which is added to the scores times the factor
    FloatVec total[kVectors][kTotals];
  };

  // Masks scores, and updates the maximum.
  HWY_INLINE Weighing begin(int64_t g, float* scores) {
    QueryGroup& group = s_.groups[g];
    const float units = std::fabs(score_factor(s_.call.scale, s_.call.softcap));
    const bool visible = group.all.begin <= s_.block && group.all.end >= s_.block + kMatrixSlots;
    const bool is_product = s_.call.softcap <= 0 && s_.call.slopes->dtype == AA_DTYPE_NONE;
    const bool plain = visible && is_product;
    // Scores that are only masked go through the arithmetic of plain ones, or the weights of a row would depend on the
    // other rows of its group. (A factor of 0 is excluded, because -infinity times 0 would not mask; finite scores
    // times 0 are 0 either way.)
    const bool only_masked = is_product && !visible && units > 0;
    Weighing result;
    result.factor = plain || only_masked ? units : 1.0f;
    const auto factor = hn::Set(kFloats, result.factor);
    bool corrects = false;
    float correction[kSide];
    for (int64_t v = 0; v < kVectors; ++v) {
      const int64_t m = v * kLanes;
      auto top = hn::Set(kFloats, kMinusInfinity);
      if (plain) {
        auto others = top, third = top, fourth = top;  // so that comparisons overlap
        for (int64_t j = 0; j < kMatrixSlots; j += 4) {
          const float* at = scores + j * kSide + m;
          top = hn::Max(top, hn::LoadU(kFloats, at));
          others = hn::Max(others, hn::LoadU(kFloats, at + kSide));
          third = hn::Max(third, hn::LoadU(kFloats, at + 2 * kSide));
          fourth = hn::Max(fourth, hn::LoadU(kFloats, at + 3 * kSide));
        }
        top = hn::Mul(hn::Max(hn::Max(top, others), hn::Max(third, fourth)), factor);
      } else if (only_masked) {
        top = hn::Mul(mask_column(group, m, scores + m), factor);
      } else {
        top = cap_and_mask_column(group, m, units, scores + m);
      }
      const auto before = hn::LoadU(kFloats, group.maximum + m);
      const auto raised = hn::Gt(top, hn::Add(before, hn::Set(kFloats, kMaximumLag)));
      auto total = hn::LoadU(kFloats, group.total + m);
      auto maximum = before;
      if (!hn::AllFalse(kFloats, raised)) {
        maximum = hn::IfThenElse(raised, top, before);
        hn::StoreU(maximum, kFloats, group.maximum + m);
        const auto change = hn::IfThenElse(raised, exp2_below(hn::Sub(before, top)), hn::Set(kFloats, 1.0f));
        hn::StoreU(change, kFloats, correction + m);
        total = hn::Mul(total, change);
        // The sums of rows that have seen nothing are zeros and need no correction.
        corrects =
            corrects || !hn::AllFalse(kFloats, hn::And(raised, hn::Gt(before, hn::Set(kFloats, kMinusInfinity))));
      } else {
        hn::StoreU(hn::Set(kFloats, 1.0f), kFloats, correction + m);
      }
      result.total[v][0] = total;
      for (int64_t i = 1; i < kTotals; ++i) result.total[v][i] = hn::Zero(kFloats);
      // A row may have seen nothing, or only -infinity, so far.
      const auto reference =
          hn::IfThenElse(hn::Eq(maximum, hn::Set(kFloats, kMinusInfinity)), hn::Zero(kFloats), maximum);
      result.bias[v] = hn::Neg(reference);
      const auto huge = hn::Gt(hn::Abs(reference), hn::Set(kFloats, kLargestFused));
      if (!hn::AllFalse(kFloats, huge)) {
        multiply_column(huge, factor, scores + m);
        subtract_column(huge, reference, factor, scores + m);
        result.bias[v] = hn::IfThenElse(huge, hn::Zero(kFloats), result.bias[v]);
      }
    }
    if (corrects) {
      float* sums = s_.sums + g * s_.padded * kSide;
      for (int64_t i = 0; i < s_.padded * kSide; i += kLanes) {
        const auto change = hn::LoadU(kFloats, correction + i % kSide);
        hn::StoreU(hn::Mul(hn::LoadU(kFloats, sums + i), change), kFloats, sums + i);
      }
    }
    return result;
  }

  // Turns scores into weights in pairs of slots.
  void weigh(int64_t g, float* scores, uint16_t* weights) {
    Weighing weighing = begin(g, scores);
    for (int64_t pair = 0; pair < kMatrixSlots / 2; pair += kTotals) {
      for (int64_t v = 0; v < kVectors; ++v) {
        AA_UNROLL for (int64_t i = 0; i < kTotals; ++i) {
          weigh_pair(weighing.factor, weighing.bias[v], weighing.total[v][i], scores, weights, pair + i, v);
        }
      }
    }
    end(g, weighing);
  }
  HWY_INLINE void weigh_pair(float factor, FloatVec bias, FloatVec& total, const float* scores, uint16_t* weights,
                             int64_t pair, int64_t v) {
    const float* at = scores + 2 * pair * kSide + v * kLanes;
    const auto scale = hn::Set(kFloats, factor);
    const auto even = power_to_cut(hn::MulAdd(hn::LoadU(kFloats, at), scale, bias));
    const auto odd = power_to_cut(hn::MulAdd(hn::LoadU(kFloats, at + kSide), scale, bias));
    const auto low = hn::ShiftRight<16>(hn::BitCast(kUints, even));
    const auto high = hn::And(hn::BitCast(kUints, odd), hn::Set(kUints, 0xffff0000u));
    const auto both = hn::Or(low, high);
    hn::StoreU(both, kUints, reinterpret_cast<uint32_t*>(weights) + pair * kSide + v * kLanes);
    total = add_pair(both, total);
  }
  HWY_INLINE void end(int64_t g, const Weighing& weighing) {
    for (int64_t v = 0; v < kVectors; ++v) {
      const auto& total = weighing.total[v];
      hn::StoreU(hn::Add(hn::Add(total[0], total[1]), hn::Add(total[2], total[3])), kFloats,
                 s_.groups[g].total + v * kLanes);
    }
  }

 private:
  // weigh_pair() does not round the products of scores and factor, and the maximum is such a product, rounded. Where it is
  // larger than this, the difference could be so large that weights overflow or all of them vanish.
  static constexpr float kLargestFused = 0x1p28f;

  // Of the rows that are `huge`, replaces scores by their differences from the maximum, over the factor. In two functions, or
  // the compiler would fuse the multiplication and the subtraction.
  static HWY_NOINLINE void multiply_column(hn::Mask<decltype(kFloats)> huge, FloatVec factor, float* scores) {
    for (int64_t j = 0; j < kMatrixSlots; ++j) {
      const auto s = hn::LoadU(kFloats, scores + j * kSide);
      hn::StoreU(hn::IfThenElse(huge, hn::Mul(s, factor), s), kFloats, scores + j * kSide);
    }
  }
  static HWY_NOINLINE void subtract_column(hn::Mask<decltype(kFloats)> huge, FloatVec maximum, FloatVec factor,
                                           float* scores) {
    for (int64_t j = 0; j < kMatrixSlots; ++j) {
      const auto s = hn::LoadU(kFloats, scores + j * kSide);
      hn::StoreU(hn::IfThenElse(huge, hn::Div(hn::Sub(s, maximum), factor), s), kFloats, scores + j * kSide);
    }
  }

  // Sets hidden scores of rows m to m + kLanes to -infinity. Returns the largest score of each row.
  HWY_NOINLINE FloatVec mask_column(const QueryGroup& group, int64_t m, float* scores) {
    const auto begin = hn::LoadU(kInts, group.begin + m);
    const auto last = hn::Sub(hn::LoadU(kInts, group.end + m), hn::Set(kInts, 1));
    auto top = hn::Set(kFloats, kMinusInfinity);
    for (int64_t j = 0; j < kMatrixSlots; ++j) {
      const auto slot = hn::Set(kInts, static_cast<int32_t>(s_.block + j));
      const auto hidden = hn::Or(hn::Lt(slot, begin), hn::Gt(slot, last));
      const auto s = hn::IfThenElse(hn::RebindMask(kFloats, hidden), hn::Set(kFloats, kMinusInfinity),
                                    hn::LoadU(kFloats, scores + j * kSide));
      hn::StoreU(s, kFloats, scores + j * kSide);
      top = hn::Max(top, s);
    }
    return top;
  }

  // Scales the scores of rows m to m + kLanes to units of log2(e), caps them, adds slopes, and sets hidden ones to
  // -infinity. Returns the largest score of each row.
  HWY_NOINLINE FloatVec cap_and_mask_column(const QueryGroup& group, int64_t m, float units, float* scores) {
    const auto begin = hn::LoadU(kInts, group.begin + m), end = hn::LoadU(kInts, group.end + m);
    const auto slope = hn::LoadU(kFloats, group.slope + m);
    const auto own = hn::LoadU(kInts, group.own + m), last = hn::Sub(end, hn::Set(kInts, 1));
    auto top = hn::Set(kFloats, kMinusInfinity);
    for (int64_t j = 0; j < kMatrixSlots; ++j) {
      auto s = hn::Mul(hn::LoadU(kFloats, scores + j * kSide), hn::Set(kFloats, units));
      if (s_.call.softcap > 0) {
        s = hn::Mul(Tanh()(s), hn::Set(kFloats, s_.call.softcap * std::numbers::log2e_v<float>));
      }
      const auto slot = hn::Set(kInts, static_cast<int32_t>(s_.block + j));
      s = hn::MulAdd(hn::ConvertTo(kFloats, hn::Sub(slot, own)), slope, s);
      const auto hidden = hn::Or(hn::Lt(slot, begin), hn::Gt(slot, last));
      s = hn::IfThenElse(hn::RebindMask(kFloats, hidden), hn::Set(kFloats, kMinusInfinity), s);
      hn::StoreU(s, kFloats, scores + j * kSide);
      top = hn::Max(top, s);
    }
    return top;
  }

  template <class Pairs>
  static HWY_INLINE FloatVec add_pair(Pairs pair, FloatVec total) {
#if HWY_TARGET == HWY_AVX3
    if constexpr (kByDots) {
      return dot_pairs(pair.raw, _mm512_set1_epi16(0x3f80), total);
    }
#endif
    total = hn::Add(total, hn::BitCast(kFloats, hn::And(pair, hn::Set(kUints, 0xffff0000u))));
    return hn::Add(total, hn::BitCast(kFloats, hn::ShiftLeft<16>(pair)));
  }

  MatrixState& s_;
};

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
