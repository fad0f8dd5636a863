// Attention of one token over keys and values in bf16 on the matrix unit, for at most 8 query heads of a key/value
// head. Included after base/simd/highway.h, once per instruction set; empty for others than AVX-512.
//
// Keys and values are operands as they lie in the cache, so that only tile loads read them:
//   scores [slots][heads]     = K Q^T, with Q^T in pairs of elements;
//   sums   [heads x 2][pairs] = W V. The unit wants pairs of slots, but a row of V has pairs of consecutive elements.
//                               So W has a row with (w, 0), whose sums are those of the first elements of the pairs, and
//                               one with (0, w) for the second ones. Half of the products are with zeros, but the unit
//                               has throughput to spare.
// What is left to do is prefetching: a few lines with each tile and with each vector of weights, of the next block into
// the first-level cache and of the block behind it into the second-level cache.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "accelerators/cpu/kernels/attention_softmax-inl.h"
#include "accelerators/cpu/kernels/attention_transpose-inl.h"
#include "accelerators/cpu/kernels/attention_values-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"
#include "base/simd/amx.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_UNIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_UNIT_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_UNIT_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_UNIT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

constexpr int64_t kMostUnitHeads = 8;
// Slots of a block with 4 heads; with 8 heads, a block has half as many. Both have 16 vectors of weights.
constexpr int64_t kMostUnitSlots = 64;
constexpr int64_t kUnitSide = 16;
// Head size from which 4 heads are padded to 8: with 64 slots, a block and the next one would not fit into the
// first-level cache.
constexpr int64_t kLongRow = 128;

// Working memory of the calling thread, aligned to lines.
struct UnitMemory {
  uint16_t* q;        // [size / 32][16][heads][2]
  float* scores;      // [slots][heads], kMostUnitSlots * 4 floats
  uint32_t* weights;  // [slots / 16][heads][2][16]: (w, 0) and (0, w), kMostUnitSlots * 8
  float* sums;        // [size / 32][heads][2][16]: the first elements of 16 pairs, and the second ones
};

template <class Unit>
class UnitAttention {
 public:
  // Rows of the caches have `size` elements, a multiple of 32, and no gaps. `q` points to bf16 rows, `stride` bytes
  // apart: those of `heads` query heads, and rows of zeros up to kMostUnitHeads.
  UnitAttention(const UnitMemory& memory, const char* q, int64_t stride, int64_t heads, int64_t size)
      : memory_(memory), heads_(heads > 4 || size >= kLongRow ? 8 : 4), size_(size), row_(2 * size) {
    for (int64_t i = 0; i < size / 2; ++i) {
      for (int64_t h = 0; h < heads_; ++h) std::memcpy(memory_.q + (i * heads_ + h) * 2, q + h * stride + 4 * i, 4);
    }
    std::fill(memory_.sums, memory_.sums + size * heads_, 0.0f);
  }

  // Attends to `slots` slots, at least kMostUnitSlots. Multiplies scores by `factor`, which is not negative.
  HWY_NOINLINE void run(const char* k, const char* v, int64_t slots, float factor) {
    const auto heads = static_cast<uint8_t>(heads_);
    const amx::TileShape products{kUnitSide, static_cast<uint16_t>(4 * heads)}, rows{kUnitSide, 64};
    const amx::TileShape sums{static_cast<uint8_t>(2 * heads), 64};
    Unit::set_shapes({products, products, sums, sums, sums, rows});
    const int64_t block = 4 * kMostUnitSlots / heads_, bytes = block * row_;
    k_ahead_ = k + bytes;
    v_ahead_ = v + bytes;
    for (int64_t first = 0; first < slots; first += block) {
      lines_ = std::min(bytes, (slots - first - block) * row_) / 64;
      // The last block begins early enough to be whole. Slots that it shares with the block before get no weight.
      const int64_t begin = std::min(first, slots - block);
      score(k + begin * row_, block);
      weigh(first - begin, factor);
      sum(v + begin * row_);
      fetch(lines_);
    }
    Unit::release();
  }

  // Takes the maximum of head h, the sum of its weights, and its sums in the order of load_pair(). Returns false if one
  // of these is not finite: then an infinite value, times the zero of the other row, may have spoilt sums that it does
  // not belong to. Also if the weights have vanished.
  bool take(int64_t h, float& maximum, float& total, float* sums) const {
    float maxima[kLanes], totals[kLanes];
    hn::StoreU(maximum_, kFloats, maxima);
    hn::StoreU(total_, kFloats, totals);
    maximum = maxima[h];
    total = 0;
    for (int64_t i = h; i < kLanes; i += heads_) total += totals[i];
    auto zeros = hn::Zero(kFloats);  // NaN where a sum is not finite
    for (int64_t d = 0; d < size_; d += kLanes) {
      const auto part = hn::LoadU(kFloats, memory_.sums + (d / kPair * heads_ + h) * kPair + d % kPair);
      zeros = hn::MulAdd(part, hn::Zero(kFloats), zeros);
      hn::StoreU(part, kFloats, sums + d);
    }
    // The slot with the largest score has a weight of about 1, unless scores are so large that rounding them hides it.
    return std::isfinite(total) && total >= 0.5f && hn::AllTrue(kFloats, hn::Eq(zeros, hn::Zero(kFloats)));
  }

 private:
  // Prefetches so many lines of keys and as many of values.
  HWY_INLINE void fetch(int64_t lines) {
    if (lines_ <= 0) return;
    lines_ -= lines;
    const int64_t further = 4 * kMostUnitSlots / heads_ * row_;
    for (const char* const end = k_ahead_ + 64 * lines; k_ahead_ != end; k_ahead_ += 64, v_ahead_ += 64) {
      __builtin_prefetch(k_ahead_, 0, 3);
      __builtin_prefetch(k_ahead_ + further, 0, 2);
      __builtin_prefetch(v_ahead_, 0, 3);
      __builtin_prefetch(v_ahead_ + further, 0, 2);
    }
  }
  static constexpr int64_t kLinesOfTile = 7;  // of the 8 that a block has for each tile; weigh() fetches the rest

  // Six tiles are in use, not all of them: see the top of gemm_amx.cpp.
  HWY_INLINE void score(const char* k, int64_t block) {
    for (int64_t j = 0; j < block; j += kUnitSide, k += kUnitSide * row_) {
      Unit::template zero<0>();
      for (int64_t d = 0; d < size_; d += kPair) {
        Unit::template load<1>(memory_.q + d * heads_, 4 * heads_);
        Unit::template load<5>(k + 2 * d, row_);
        fetch(kLinesOfTile);
        Unit::template multiply_bf16<0, 5, 1>();
      }
      Unit::template store<0>(memory_.scores + j * heads_, 4 * heads_);
    }
  }

  // Turns the scores of the block into weights, those of the first `none` slots into zeros.
  HWY_INLINE void weigh(int64_t none, float factor) {
    float* scores = memory_.scores;
    std::fill(scores, scores + none * heads_, kMinusInfinity);
    const auto factors = hn::Set(kFloats, factor), lowest = hn::Set(kFloats, kMinusInfinity);
    auto top = lowest;
    for (int64_t i = 0; i < kLanes; ++i) top = hn::Max(top, hn::LoadU(kFloats, scores + i * kLanes));
    // Lane l belongs to head l % heads_.
    if (heads_ == 4) top = hn::Max(top, FloatVec{_mm512_shuffle_f32x4(top.raw, top.raw, 0xb1)});
    top = hn::Mul(hn::Max(top, FloatVec{_mm512_shuffle_f32x4(top.raw, top.raw, 0x4e)}), factors);
    if (!hn::AllFalse(kFloats, hn::Gt(top, hn::Add(maximum_, hn::Set(kFloats, kMaximumLag))))) raise(top);
    // A head may have seen -infinity only, so far.
    const auto maximum = hn::IfThenElse(hn::Eq(maximum_, lowest), hn::Zero(kFloats), maximum_);
    const int64_t lines = size_ / (4 * heads_);
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    FloatVec weights[kLanes];
    AA_UNROLL for (int64_t i = 0; i < kLanes; ++i) {
      const auto power = power_to_cut(hn::MulSub(hn::LoadU(kFloats, scores + i * kLanes), factors, maximum));
      weights[i] = FloatVec{_mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(power.raw), high))};
      total_ = hn::Add(total_, weights[i]);
      if (i % 4 == 3) fetch(lines);
    }
    // Vector r then belongs to head r % heads_ and has every (16 / heads_)-th slot from slot r / heads_ on.
    transpose(weights);
    AA_UNROLL for (int64_t r = 0; r < kLanes; ++r) {
      const __m512i second = _mm512_castps_si512(weights[r].raw);
      _mm512_storeu_si512(memory_.weights + 2 * r * kLanes, _mm512_srli_epi32(second, 16));
      _mm512_storeu_si512(memory_.weights + (2 * r + 1) * kLanes, second);
    }
  }

  HWY_NOINLINE void raise(FloatVec top) {
    top = hn::Max(top, maximum_);
    const auto fall = hn::IfThenElse(hn::Eq(top, hn::Set(kFloats, kMinusInfinity)), hn::Zero(kFloats), maximum_ - top);
    const auto correction = exp2_below(fall);
    total_ = hn::Mul(total_, correction);
    maximum_ = top;
    float corrections[kLanes];
    hn::StoreU(correction, kFloats, corrections);
    for (int64_t i = 0; i < size_ * heads_; i += kLanes) {
      const auto of_head = hn::Set(kFloats, corrections[i / kPair % heads_]);
      hn::StoreU(hn::Mul(hn::LoadU(kFloats, memory_.sums + i), of_head), kFloats, memory_.sums + i);
    }
  }

  HWY_INLINE void sum(const char* v) {
    const int64_t step = kLanes / heads_;  // between the slots of a tile
    for (int64_t d = 0; d < size_; d += 2 * kPair) {
      const bool two = d + kPair < size_;
      float *first = memory_.sums + d * heads_, *second = first + kPair * heads_;
      Unit::template load<3>(first, 64);
      if (two) Unit::template load<4>(second, 64);
      for (int64_t i = 0; i < step; ++i) {
        const char* rows = v + i * row_ + 2 * d;
        Unit::template load<2>(memory_.weights + i * 2 * heads_ * kLanes, 64);
        Unit::template load<5>(rows, step * row_);
        fetch(kLinesOfTile);
        Unit::template multiply_bf16<3, 2, 5>();
        if (!two) continue;
        Unit::template load<5>(rows + 64, step * row_);
        fetch(kLinesOfTile);
        Unit::template multiply_bf16<4, 2, 5>();
      }
      Unit::template store<3>(first, 64);
      if (two) Unit::template store<4>(second, 64);
    }
  }

  const UnitMemory& memory_;
  int64_t heads_, size_, row_;  // row_ in bytes
  FloatVec maximum_ = hn::Set(kFloats, kMinusInfinity), total_ = hn::Zero(kFloats);
  const char *k_ahead_ = nullptr, *v_ahead_ = nullptr;
  int64_t lines_ = 0;  // of keys or values of the next block that were not fetched yet
};

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
