// The products of attention of one token with AVX-512: those of attention_wide-inl.h in fp32, or with AVX512_BF16 those
// of attention_pairs-inl.h over keys and values in bf16. Keys are multiplied so if all queries are bf16 numbers, which
// is exact. Where the result is bf16 too, queries and weights are rounded, as the op allows, and both products are
// taken in bf16, over caches in int8 and fp8 too if decoding these pays off (attention_decoded-inl.h). The matrix unit
// computes these (attention_unit-inl.h) if there is one and fits_unit() holds: few heads, many slots, dense rows of
// bf16. Defines TokenProducts, see attention_token.cpp. Empty for other instruction sets.
#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>

#include "accelerators/cpu/kernels/attention_decoded-inl.h"
#include "accelerators/cpu/kernels/attention_pairs-inl.h"
#include "accelerators/cpu/kernels/attention_rows-inl.h"
#include "accelerators/cpu/kernels/attention_softmax-inl.h"
#include "accelerators/cpu/kernels/attention_token_state-inl.h"
#include "accelerators/cpu/kernels/attention_unit-inl.h"
#include "accelerators/cpu/kernels/attention_wide-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"
#include "base/simd/cpu_features.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_TOKEN_AVX512_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_TOKEN_AVX512_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_TOKEN_AVX512_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_TOKEN_AVX512_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

// As with_rows(), but with the smallest power of two that is at least `rows`, or 8. The surplus rows are zeros.
template <class Function>
HWY_INLINE int with_padded_rows(int64_t rows, Function function) {
  if (rows > 4) return function(std::integral_constant<int, 8>());
  if (rows > 2) return function(std::integral_constant<int, 4>());
  if (rows > 1) return function(std::integral_constant<int, 2>());
  return function(std::integral_constant<int, 1>());
}

class TokenProducts {
 public:
  explicit TokenProducts(TokenState& state) : s_(state) {}

  void prepare() {
    const bool rounds = s_.call.out->dtype == AA_DTYPE_BF16;
    if (s_.call.k->dtype == AA_DTYPE_BF16 && cpu_features().avx512_bf16) {
      paired_values_ = s_.call.v->dtype == AA_DTYPE_BF16 && rounds;
      paired_keys_ = paired_values_ || queries_are_bf16();
    } else if (rounds && decodes_cache()) {
      paired_values_ = paired_keys_ = decodes_ = true;
    }
    if (!paired_keys_) return order_queries(s_);
    for (int64_t m = 0; m < s_.padded_rows; ++m) round_to_bf16(s_.q + m * s_.size, s_.size);
    for_padded_groups([&](auto rows, int64_t m) HWY_ATTR {
      const float* q = s_.q + m * s_.size;
      float* to = s_.spread + m * 2 * s_.size;
      if (rows == 8 && s_.size == kEightSize) {
        spread_eight(q, s_.size, to);
      } else {
        spread_pairs<rows()>(q, s_.size, to);
      }
    });
  }

  void score(const BlockRows& keys) {
    if (paired_keys_) {
      return for_paired_parts(keys, [&](const BlockRows& part, int64_t j) HWY_ATTR { score_paired(part, j); });
    }
    score_groups(s_, [&](auto type, auto rows, int64_t m, float factor) HWY_ATTR {
      score_rows<WideKeys<decltype(type)>, rows()>(keys, s_.q + m * s_.size, s_.size, factor,
                                                   s_.scores + m * kScoreStride);
    });
  }

  void weigh(int64_t first, int64_t slots) {
    const auto slope = [&](int64_t m) { return s_.slope(m, first); };
    if (paired_values_) {
      return paired_rows(0, s_.rows).raise_maxima(slots, s_.call.softcap, slope);
    }
    const int64_t vectors = (slots + kLanes - 1) / kLanes;
    for (int64_t m = 0; m < s_.rows; ++m) {
      s_.correction[m] = cpu::HWY_NAMESPACE::weigh(s_.scores + m * kScoreStride, vectors, 0, slots, s_.call.softcap,
                                                   slope(m), s_.maximum[m], s_.total + m * kLanes);
    }
  }

  void sum(const BlockRows& values) {
    if (paired_values_) {
      return for_paired_parts(values, [&](const BlockRows& part, int64_t j) HWY_ATTR { sum_paired(part, j); });
    }
    sum_groups(s_, values);
  }

  void finish() {
    if (paired_values_) return s_.finish(SumOrder::InFours, 1.0f);
    finish_sums(s_);
  }

 private:
  // Returns whether a cache in int8 or fp8 is decoded to bf16. That takes as long for one query head as for eight: on a Zen 5
  // fp8 gained a tenth with four heads and 1.5 times with eight, and int8 lost a sixth with four and gained a third with eight.
  bool decodes_cache() const {
    const auto dtype = static_cast<DType>(s_.call.k->dtype);
    if (dtype_size(dtype) != 1 || !cpu_features().fast_bf16_dot || !cpu_features().avx512_vbmi) return false;
    return s_.rows > (dtype == DType::F8E4M3 ? 2 : 4);
  }
  bool queries_are_bf16() const {
    auto low = hn::Zero(kUints);
    for (int64_t i = 0; i < s_.rows * s_.size; i += kLanes) {
      low = hn::Or(low, hn::BitCast(kUints, hn::LoadU(kFloats, s_.q + i)));
    }
    return hn::AllTrue(kUints, hn::Eq(hn::And(low, hn::Set(kUints, 0xffffu)), hn::Zero(kUints)));
  }

  // Calls function(rows, m) for groups of rows that are padded with zeros.
  template <class Function>
  HWY_INLINE void for_padded_groups(Function function) {
    for (int64_t m = 0; m < s_.rows;) {
      m += with_padded_rows(s_.rows - m, [&](auto rows) HWY_ATTR {
        function(rows, m);
        return rows();
      });
    }
  }

  // Calls function(part, j) for keys or values in bf16, whose first slot is number j of the block.
  template <class Function>
  HWY_INLINE void for_paired_parts(const BlockRows& rows, Function function) {
    if (!decodes_) return function(rows, 0);
    if (s_.call.k->dtype == AA_DTYPE_F8_E4M3) return for_decoded_parts(E4m3Type(), rows, s_.size, s_.decoded, function);
    for_decoded_parts(BlockType(), rows, s_.size, s_.decoded, function);
  }

  // Calls function(std::integral_constant) with the levels of caches that rows in bf16 are prefetched into.
  template <class Function>
  HWY_INLINE void with_levels(const BlockRows& rows, Function function) {
    if (decodes_) return function(std::integral_constant<int, 0>());
    if (rows.levels() == 1) return function(std::integral_constant<int, 1>());
    function(std::integral_constant<int, 2>());
  }

  HWY_INLINE void score_paired(const BlockRows& keys, int64_t j) {
    const float factor = score_factor(s_.call.scale, s_.call.softcap);
    with_levels(keys, [&](auto levels) HWY_ATTR {
      for_padded_groups([&](auto rows, int64_t m) HWY_ATTR {
        const float* q = s_.spread + m * 2 * s_.size;
        float* scores = s_.scores + m * kScoreStride + j;
        if (rows == 8 && s_.size == kEightSize) return score_eight<levels()>(keys, q, factor, scores);
        score_pairs<rows(), levels()>(keys, q, s_.size, factor, scores);
      });
    });
  }

  PairedRows paired_rows(int64_t m, int64_t rows) const {
    return {rows, s_.scores + m * kScoreStride, s_.maximum + m, s_.total + m * kLanes, s_.correction + m};
  }

  HWY_INLINE void sum_paired(const BlockRows& values, int64_t j) {
    with_levels(values, [&](auto levels) HWY_ATTR {
      for_padded_groups([&](auto rows, int64_t m) HWY_ATTR {
        const PairedRows own = paired_rows(m, std::min<int64_t>(rows, s_.rows - m));
        sum_pairs<rows(), levels()>(values, j, own, s_.sums + m * s_.size, s_.size);
      });
    });
  }

  TokenState& s_;
  bool paired_keys_ = false, paired_values_ = false;
  bool decodes_ = false;  // keys and values, to bf16
};

// Returns whether run_on_unit() takes a tile in place of the pairs. It needs kMostUnitSlots slots at least.
HWY_INLINE bool fits_unit(const TokenState& s) {
  const auto is_dense = [&](const aa_tensor& t) { return t.dtype == AA_DTYPE_BF16 && t.strides[2] == s.size; };
  return is_dense(*s.call.k) && is_dense(*s.call.v) && s.call.out->dtype == AA_DTYPE_BF16 && s.rows <= kMostUnitHeads &&
         s.tile.end - s.tile.begin >= kMostUnitSlots && s.call.softcap == 0 && s.call.slopes->dtype == AA_DTYPE_NONE;
}

// Runs a whole tile on the matrix unit. Returns false, and leaves the result to the pairs, if the tile does not fit or
// a sum is not finite.
template <class Unit>
bool run_on_unit(TokenState& s) {
  if (!fits_unit(s)) return false;
  const char* keys = row_of_slot(*s.call.k, s.tile, s.tile.begin);
  const char* values = row_of_slot(*s.call.v, s.tile, s.tile.begin);
  for (int64_t at = 0; at < kMostUnitSlots * 2 * s.size / 2; at += 64) {
    __builtin_prefetch(keys + at, 0, 3);
    __builtin_prefetch(values + at, 0, 3);
  }
  s.begin();
  // A negative factor gives its sign to the queries, so that the largest score has the largest weight.
  const float factor = score_factor(s.call.scale, 0);
  if (factor < 0) std::transform(s.q, s.q + s.rows * s.size, s.q, std::negate<>());
  for (int64_t m = 0; m < s.padded_rows; ++m) round_to_bf16(s.q + m * s.size, s.size);
  const UnitMemory memory{reinterpret_cast<uint16_t*>(s.spread), s.scores, reinterpret_cast<uint32_t*>(s.unit_weights),
                          s.unit_sums};
  UnitAttention<Unit> attention(memory, reinterpret_cast<const char*>(s.q), 4 * s.size, s.rows, s.size);
  attention.run(keys, values, s.tile.end - s.tile.begin, std::fabs(factor));
  for (int64_t m = 0; m < s.rows; ++m) {
    if (!attention.take(m, s.maximum[m], s.total[m * kLanes], s.sums + m * s.size)) return false;
  }
  s.finish(SumOrder::EvenThenOdd, 1.0f);
  return true;
}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
