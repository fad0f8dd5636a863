// The products of attention of one token with AVX2. Groups of four query heads use attention_twelve-inl.h for scores,
// attention_bytes_avx2-inl.h over bytes, and attention_slots_avx2-inl.h over dense rows of bf16; the rest is that of
// attention_wide-inl.h. Weights are computed for eight heads at once. Defines TokenProducts, see attention_token.cpp.
// Empty for other instruction sets.
#include <algorithm>
#include <type_traits>

#include "accelerators/cpu/kernels/attention_bytes_avx2-inl.h"
#include "accelerators/cpu/kernels/attention_rows-inl.h"
#include "accelerators/cpu/kernels/attention_slots_avx2-inl.h"
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

static_assert(kSlots % kSlotsAtOnce == 0);

// Elements d to d + kLanes of a row, in the order of load_pair().
template <class Type>
HWY_INLINE FloatVec load_vector(Type type, const char* row, int64_t d) {
  const auto* pair = reinterpret_cast<const typename Type::Raw*>(row) + d / kPair * kPair;
  return d % kPair == 0 ? load_first(type, pair) : load_second(type, pair);
}

// As score_rows() for kTwelveRows rows of queries from pack_queries(). May write kTwelveSlots floats behind the scores
// of a row. Rows of fp8 need `spare`, of 2 * size floats.
template <class Type>
HWY_NOINLINE void score_by_twelve(const BlockRows& keys, const float* HWY_RESTRICT q, int64_t size, float factor,
                                  [[maybe_unused]] float* spare, float* HWY_RESTRICT scores) {
  static_assert(kSlots % kTwelveSlots == 0 && kSlots + kTwelveSlots <= kScoreStride);
  constexpr bool kFp8 = std::is_same_v<Type, E4m3Type>;
  constexpr int64_t kStep = 2 * kPair;  // a line of bf16
  static_assert(kStep == kWidened);
  // Dense rows are prefetched in the order of their addresses, which the hardware prefetchers follow.
  const int64_t step_bytes = row_offset(Type(), kStep);
  const bool dense = keys.stride == row_offset(Type(), size);
  const int64_t between = dense ? step_bytes : keys.stride;
  for (int64_t j = 0; j < keys.slots; j += kTwelveSlots) {
    const char* slot[kTwelveSlots];
    AA_UNROLL for (int s = 0; s < kTwelveSlots; ++s) slot[s] = keys.row(std::min(j + s, keys.slots - 1));
    if constexpr (kFp8) {
      auto* halves = reinterpret_cast<uint16_t*>(spare);
      const int64_t rows = std::min<int64_t>(kTwelveSlots, keys.slots - j);
      widen_rows(slot[0], keys.stride, rows, size, halves);
      AA_UNROLL for (int64_t s = 0; s < kTwelveSlots; ++s) {
        slot[s] = reinterpret_cast<const char*>(halves + std::min(s, rows - 1) * size);
      }
    }
    FloatVec sums[12];
    AA_UNROLL for (FloatVec& sum : sums) sum = hn::Zero(kFloats);
    const float* query = q;
    const char* next = keys.row(j);
    for (int64_t step = 0; step < size; step += kStep) {
      AA_UNROLL for (int s = 0; s < kTwelveSlots; ++s) {
        if constexpr (kFp8) {
          keys.prefetch_near(next + s * between);
        } else {
          keys.prefetch(next + s * between);
        }
        if constexpr (std::is_same_v<Type, F32Type>) keys.prefetch(next + s * between + 64);
      }
      next += dense ? kTwelveSlots * step_bytes : step_bytes;
      AA_UNROLL for (int64_t d = 0; d < kStep; d += kLanes, query += kTwelveRows * kLanes) {
        FloatVec key[kTwelveSlots];
        AA_UNROLL for (int s = 0; s < kTwelveSlots; ++s) {
          if constexpr (kFp8) {
            key[s] = load_halves(reinterpret_cast<const uint16_t*>(slot[s]) + step, d);
          } else {
            key[s] = load_vector(Type(), slot[s] + row_offset(Type(), step), d);
          }
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
    const int64_t whole = s_.rows / kTwelveRows * kTwelveRows;
    // For four heads alone, transposing keys takes as many instructions as it saves.
    if (static_cast<DType>(s_.call.k->dtype) == DType::BF16 && whole > kTwelveRows) {
      slot_queries_ = s_.spread + s_.padded_rows * s_.size;
      const float factor = score_factor(s_.call.scale, s_.call.softcap);
      for (int64_t m = 0; m < whole; m += kTwelveRows) {
        pack_slot_queries(s_.q + m * s_.size, s_.size, factor, slot_queries_ + m * s_.size);
      }
    }
    order_queries(s_);
    for (int64_t m = 0; m + kTwelveRows <= s_.rows; m += kTwelveRows) {
      float* to = s_.spread + m * s_.size;
      if (static_cast<DType>(s_.call.k->dtype) == DType::U8) {
        pack_block_queries(s_.q + m * s_.size, s_.size, to);
      } else {
        pack_queries(s_.q + m * s_.size, s_.size, to);
      }
    }
  }

  void score(const BlockRows& keys) {
    score_groups(s_, [&](auto type, auto rows, int64_t m, float factor) HWY_ATTR {
      using Type = decltype(type);
      float* scores = s_.scores + m * kScoreStride;
      const float* spread = s_.spread + m * s_.size;
      if constexpr (rows() == kTwelveRows && std::is_same_v<Type, BlockType>) {
        if (keys.slots >= kSlotsAtOnce) {
          if (m == 0) score_int8(keys, spread, s_.rows / kTwelveRows * kTwelveRows, s_.size, factor, scores);
          return;
        }
      } else if constexpr (rows() == kTwelveRows) {
        if constexpr (std::is_same_v<Type, Bf16Type>) {
          if (slot_queries_ != nullptr && keys.slots >= kSlotsAtOnce && are_dense(keys, s_.size)) {
            if (m == 0) score_bf16(keys, slot_queries_, s_.rows / kTwelveRows * kTwelveRows, s_.size, scores);
            return;
          }
        }
        float* spare = s_.unit_sums;  // no matrix unit needs it here
        return score_by_twelve<Type>(keys, spread, s_.size, factor, spare, scores);
      }
      if constexpr (rows() != kTwelveRows || std::is_same_v<Type, BlockType>) {
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

  void sum(const BlockRows& values) {
    const auto dtype = static_cast<DType>(s_.call.v->dtype);
    const auto by_four = dtype == DType::U8 ? sum_int8 : dtype == DType::F8E4M3 ? sum_fp8 : nullptr;
    int64_t m = 0;
    if (dtype == DType::BF16 && s_.rows >= kTwelveRows && are_dense(values, s_.size)) {
      m = s_.rows / kTwelveRows * kTwelveRows;
      sum_bf16(values, s_.scores, s_.correction, s_.sums, m, s_.size);
    }
    for (; by_four != nullptr && m + kTwelveRows <= s_.rows; m += kTwelveRows) {
      by_four(values, s_.scores + m * kScoreStride, s_.correction + m, s_.sums + m * s_.size, s_.size);
    }
    sum_groups(s_, values, m);
  }

  void finish() { finish_sums(s_); }

 private:
  TokenState& s_;
  float* slot_queries_ = nullptr;  // see pack_slot_queries; null where score_bf16() is not used
};

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
