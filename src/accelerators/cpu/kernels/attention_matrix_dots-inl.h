// Both products of attention of prompts by dot products of bf16 pairs, for processors where these are fast and that
// have no matrix unit (AMD). The operands are those of attention_matrix_unit-inl.h: a vector of results is a slot, or
// an element of the head, for the 16 queries of a group. The loops differ, because tiles would not fit into registers,
// and the three steps follow one another. Included after base/simd/highway.h, once per instruction set; empty for
// others than AVX-512.
#include <algorithm>
#include <cstring>

#include "accelerators/cpu/kernels/attention_matrix_state-inl.h"
#include "accelerators/cpu/kernels/attention_weigher-inl.h"
#include "accelerators/cpu/kernels/bf16_dots-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_MATRIX_DOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_MATRIX_DOTS_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_MATRIX_DOTS_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_MATRIX_DOTS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

class DotBlocks {
 public:
  explicit DotBlocks(MatrixState& state) : s_(state), weigher_(state) {}

  // Runs two groups at a time, which share the loads of keys and values.
  void run_block() {
    for (int64_t g = 0; g < s_.groups_count;) {
      int64_t groups[2];
      int count = 0;
      for (; g < s_.groups_count && count < 2; ++g) {
        if (s_.groups[g].any.begin < s_.block + s_.slots && s_.groups[g].any.end > s_.block) groups[count++] = g;
      }
      if (count == 2) run_groups<2>(groups);
      if (count == 1) run_groups<1>(groups);
    }
  }

 private:
  template <int kGroups>
  void run_groups(const int64_t* groups) {
    // Slots behind the last one that any row sees have no weight.
    int64_t end = 0;
    for (int i = 0; i < kGroups; ++i) end = std::max(end, std::min(s_.groups[groups[i]].any.end - s_.block, s_.slots));
    score<kGroups>(groups, end);
    for (int i = 0; i < kGroups; ++i)
      weigher_.weigh(groups[i], s_.scores + i * kStageFloats, s_.weights + i * kStageFloats);
    sum<kGroups>(groups, end);
    for (int i = 0; s_.hides_infinite && i < kGroups; ++i) s_.add_infinite(groups[i], s_.weights + i * kStageFloats);
  }

  static HWY_INLINE __m512i pair_at(const uint16_t* p) {
    int32_t pair;
    std::memcpy(&pair, p, sizeof(pair));
    return _mm512_set1_epi32(pair);
  }
  // Vectors of results of each group that stay in registers.
  template <int kGroups>
  static constexpr int64_t kHeld = kGroups == 1 ? 16 : 8;

  // Computes scores of the slots up to `end`, and of some behind it.
  template <int kGroups>
  HWY_NOINLINE void score(const int64_t* groups, int64_t end) {
    constexpr int64_t kAtOnce = kHeld<kGroups>;
    const int64_t key_stride = s_.key_stride;
    for (int64_t j = 0; j < end; j += kAtOnce) {
      FloatVec sum[kAtOnce][kGroups];
      AA_UNROLL for (int64_t s = 0; s < kAtOnce; ++s) {
        AA_UNROLL for (int g = 0; g < kGroups; ++g) sum[s][g] = hn::Zero(kFloats);
      }
      for (int64_t d = 0; d < s_.padded; d += kDepth) {
        const uint16_t *q[kGroups], *keys[kAtOnce];
        AA_UNROLL for (int g = 0; g < kGroups; ++g) q[g] = s_.queries + (groups[g] * s_.padded + d) * kSide;
        const uint16_t* key_row = s_.keys + j * key_stride + d;
        AA_UNROLL for (int64_t s = 0; s < kAtOnce; ++s, key_row += key_stride) keys[s] = key_row;
        for (int64_t i = 0; i < kDepth; i += 2) {
          __m512i query[kGroups];
          AA_UNROLL for (int g = 0; g < kGroups; ++g) query[g] = _mm512_loadu_si512(q[g] + i * kSide);
          AA_UNROLL for (int64_t s = 0; s < kAtOnce; ++s) {
            const __m512i key = pair_at(keys[s] + i);
            AA_UNROLL for (int g = 0; g < kGroups; ++g) sum[s][g] = dot_pairs(key, query[g], sum[s][g]);
          }
        }
      }
      AA_UNROLL for (int64_t s = 0; s < kAtOnce; ++s) {
        AA_UNROLL for (int g = 0; g < kGroups; ++g) {
          hn::StoreU(sum[s][g], kFloats, s_.scores + g * kStageFloats + (j + s) * kSide);
        }
      }
    }
  }

  // Adds weighted values of the slots up to `end` to the sums.
  template <int kGroups>
  HWY_NOINLINE void sum(const int64_t* groups, int64_t end) {
    constexpr int64_t kAtOnce = kHeld<kGroups>;
    for (int64_t d = 0; d < s_.padded; d += kAtOnce) {
      FloatVec sum[kAtOnce][kGroups];
      float* to[kGroups];
      AA_UNROLL for (int g = 0; g < kGroups; ++g) {
        to[g] = s_.sums + (groups[g] * s_.padded + d) * kSide;
        AA_UNROLL for (int64_t r = 0; r < kAtOnce; ++r) sum[r][g] = hn::LoadU(kFloats, to[g] + r * kSide);
      }
      for (int64_t piece = 0; piece < kPieces; ++piece) {
        const uint16_t *values = s_.values + (piece * s_.padded + d) * kDepth,
                       *weights = s_.weights + piece * kTileItems;
        const int64_t count = std::min(kDepth, end - piece * kDepth);
        for (int64_t i = 0; i < count; i += 2) {
          __m512i weight[kGroups];
          AA_UNROLL for (int g = 0; g < kGroups; ++g) {
            weight[g] = _mm512_loadu_si512(weights + g * kStageFloats + i * kSide);
          }
          AA_UNROLL for (int64_t r = 0; r < kAtOnce; ++r) {
            const __m512i value = pair_at(values + r * kDepth + i);
            AA_UNROLL for (int g = 0; g < kGroups; ++g) sum[r][g] = dot_pairs(value, weight[g], sum[r][g]);
          }
        }
      }
      AA_UNROLL for (int g = 0; g < kGroups; ++g) {
        AA_UNROLL for (int64_t r = 0; r < kAtOnce; ++r) hn::StoreU(sum[r][g], kFloats, to[g] + r * kSide);
      }
    }
  }

  MatrixState& s_;
  Weigher<true> weigher_;
};

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
