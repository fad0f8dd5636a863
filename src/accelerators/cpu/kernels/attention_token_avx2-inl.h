// The products of attention of one token with AVX2: those of attention_wide-inl.h, but scores of four heads by attention_twelve-inl.h, and
// weights of eight heads at once. Defines TokenProducts, see attention_token.cpp. Empty for other instruction sets.
#include <algorithm>
#include <type_traits>

#include "accelerators/cpu/kernels/attention_rows-inl.h"
#include "accelerators/cpu/kernels/attention_softmax-inl.h"
#include "accelerators/cpu/kernels/attention_token_state-inl.h"
#include "accelerators/cpu/kernels/attention_twelve-inl.h"
#include "accelerators/cpu/kernels/attention_values-inl.h"
#include "accelerators/cpu/kernels/attention_wide-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_TOKEN_AVX2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_TOKEN_AVX2_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_TOKEN_AVX2_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_TOKEN_AVX2_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2

// The types whose vectors are widened one by one, as add_twelve() takes them: halves of a pair of E4m3Type share too much.
template <class Type>
constexpr bool kByTwelve = !std::is_same_v<Type, E4m3Type>;

// Elements d to d + kLanes of the order of load_pair.
template <class Type>
HWY_INLINE FloatVec load_vector(Type type, const char* row, int64_t d) {
  const auto* pair = reinterpret_cast<const typename Type::Raw*>(row) + d / kPair * kPair;
  return d % kPair == 0 ? load_first(type, pair) : load_second(type, pair);
}
HWY_INLINE FloatVec load_vector(BlockType, const char* row, int64_t d) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  const auto values = hn::LoadU(kBytes, reinterpret_cast<const int8_t*>(value_at(bytes, d)));
  const auto scale = hn::Set(kFloats, block_scale(bytes + d / kBlockValues * kBlockBytes));
  return hn::Mul(hn::ConvertTo(kFloats, hn::PromoteTo(kInts, values)), scale);
}

// As score_rows() for kTwelveRows rows of queries from pack_queries(). May write kTwelveSlots floats behind the scores of a row.
template <class Type>
HWY_NOINLINE void score_by_twelve(const BlockRows& keys, const float* HWY_RESTRICT q, int64_t size, float factor,
                                  float* HWY_RESTRICT scores) {
  static_assert(kSlots % kTwelveSlots == 0 && kSlots + kTwelveSlots <= kScoreStride);
  constexpr int64_t kStep = 2 * kPair;  // a line of bf16
  // Rows without gaps are fetched in the order of their addresses, which the processor's own prefetchers follow.
  const int64_t step_bytes = row_offset(Type(), kStep);
  const bool dense = keys.stride == row_offset(Type(), size);
  const int64_t between = dense ? step_bytes : keys.stride;
  for (int64_t j = 0; j < keys.slots; j += kTwelveSlots) {
    const char* slot[kTwelveSlots];
    AA_UNROLL for (int s = 0; s < kTwelveSlots; ++s) slot[s] = keys.row(std::min(j + s, keys.slots - 1));
    FloatVec sums[12];
    AA_UNROLL for (FloatVec& sum : sums) sum = hn::Zero(kFloats);
    const float* query = q;
    const char* next = keys.row(j);
    for (int64_t step = 0; step < size; step += kStep) {
      AA_UNROLL for (int s = 0; s < kTwelveSlots; ++s) {
        keys.prefetch(next + s * between);
        if constexpr (std::is_same_v<Type, F32Type>) keys.prefetch(next + s * between + 64);
      }
      next += dense ? kTwelveSlots * step_bytes : step_bytes;
      AA_UNROLL for (int64_t d = 0; d < kStep; d += kLanes, query += kTwelveRows * kLanes) {
        FloatVec key[kTwelveSlots];
        AA_UNROLL for (int s = 0; s < kTwelveSlots; ++s) {
          key[s] = load_vector(Type(), slot[s] + row_offset(Type(), step), d);
        }
        add_twelve(key, query, sums);
      }
    }
    store_twelve(sums, factor, scores + j, kScoreStride);
  }
}

class TokenProducts {
 public:
  explicit TokenProducts(TokenState& state) : s_(state) {}

  void prepare() {
    order_queries(s_);
    for (int64_t m = 0; m + kTwelveRows <= s_.rows; m += kTwelveRows) {
      pack_queries(s_.q + m * s_.size, s_.size, s_.spread + m * s_.size);
    }
  }

  void score(const BlockRows& keys) {
    score_groups(s_, [&](auto type, auto rows, int64_t m, float factor) HWY_ATTR {
      using Type = decltype(type);
      float* scores = s_.scores + m * kScoreStride;
      if constexpr (rows() == kTwelveRows && kByTwelve<Type>) {
        score_by_twelve<Type>(keys, s_.spread + m * s_.size, s_.size, factor, scores);
      } else {
        score_rows<WideKeys<Type>, rows()>(keys, s_.q + m * s_.size, s_.size, factor, scores);
      }
    });
  }

  void weigh(int64_t first, int64_t slots) {
    const int64_t vectors = (slots + kLanes - 1) / kLanes;
    weigh_rows(s_.rows, s_.scores, kScoreStride, s_.call.softcap, s_.maximum, s_.total, s_.correction,
               [&](int64_t m) HWY_ATTR {
                 return RowScores{vectors, 0, slots, s_.slope(m, first)};
               });
  }

  void sum(const BlockRows& values) { sum_groups(s_, values); }

  void finish() { finish_sums(s_); }

 private:
  TokenState& s_;
};

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
