// Attention of one token over keys and values in bf16 by dot products of pairs (AVX512_BF16), whose instructions have
// twice the multiply-adds of those in fp32. Pairs are elements 2 i and 2 i + 1 of queries and keys, and slots 2 j and 2
// j + 1 of weights and values. Queries and weights are bf16 too. Included after base/simd/highway.h, once per
// instruction set; empty for others than AVX-512.
#include <algorithm>
#include <cstring>

#include "accelerators/cpu/kernels/attention_rows-inl.h"
#include "accelerators/cpu/kernels/attention_softmax-inl.h"
#include "accelerators/cpu/kernels/attention_values-inl.h"
#include "accelerators/cpu/kernels/bf16_dots-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_PAIRS_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_PAIRS_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_PAIRS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

// Rounds n floats, a multiple of kPair, to bf16 in place: these take the first half of the memory.
HWY_INLINE void round_to_bf16(float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += kPair) {
    _mm512_storeu_si512(x + i / 2, round_to_bf16(hn::LoadU(kFloats, x + i), hn::LoadU(kFloats, x + i + kLanes)));
  }
}

// Puts kRows rows of queries, whose bf16 numbers are the first half of `size` floats, into the order of score_pairs().
// For each kPair elements (16 pairs), each p < 4 and each row there is a vector whose 128 bits number b are four times
// pair 4 b + p. `to` has 2 * kRows * size floats.
template <int kRows>
HWY_INLINE void spread_pairs(const float* q, int64_t size, float* to) {
  for (int64_t i = 0; i < size / 2; i += kLanes, to += 4 * kRows * kLanes) {
    for (int m = 0; m < kRows; ++m) {
      const __m512 pairs = _mm512_loadu_ps(q + m * size + i);
      _mm512_storeu_ps(to + m * kLanes, _mm512_permute_ps(pairs, 0x00));
      _mm512_storeu_ps(to + (kRows + m) * kLanes, _mm512_permute_ps(pairs, 0x55));
      _mm512_storeu_ps(to + (2 * kRows + m) * kLanes, _mm512_permute_ps(pairs, 0xaa));
      _mm512_storeu_ps(to + (3 * kRows + m) * kLanes, _mm512_permute_ps(pairs, 0xff));
    }
  }
}

// Transposes 4 x 4 lanes within each 128 bits of four vectors.
HWY_INLINE void transpose_fours(__m512 (&v)[4]) {
  const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(v[0], v[1])),
                b = _mm512_castps_pd(_mm512_unpacklo_ps(v[2], v[3]));
  const __m512d c = _mm512_castps_pd(_mm512_unpackhi_ps(v[0], v[1])),
                d = _mm512_castps_pd(_mm512_unpackhi_ps(v[2], v[3]));
  v[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
  v[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
  v[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(c, d));
  v[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(c, d));
}

// Adds up the four 128-bit parts of each vector, of which there are one, two or four, and stores four sums of each.
template <int kFours>
HWY_INLINE void store_sums_of_blocks(const FloatVec* v, float factor, float* to) {
  const auto halves = [](FloatVec a, FloatVec b) HWY_ATTR {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a.raw, b.raw, 0x44), _mm512_shuffle_f32x4(a.raw, b.raw, 0xee));
  };
  if constexpr (kFours == 4) {
    const __m512 first = halves(v[0], v[1]), second = halves(v[2], v[3]);
    const __m512 sums =
        _mm512_add_ps(_mm512_shuffle_f32x4(first, second, 0x88), _mm512_shuffle_f32x4(first, second, 0xdd));
    _mm512_storeu_ps(to, _mm512_mul_ps(sums, _mm512_set1_ps(factor)));
  } else if constexpr (kFours == 2) {
    const __m512 both = halves(v[0], v[1]), parts = _mm512_shuffle_f32x4(both, both, 0xd8);
    const __m256 sums = _mm256_add_ps(_mm512_castps512_ps256(parts), _mm512_extractf32x8_ps(parts, 1));
    _mm256_storeu_ps(to, _mm256_mul_ps(sums, _mm256_set1_ps(factor)));
  } else {
    const __m256 both = _mm256_add_ps(_mm512_castps512_ps256(v[0].raw), _mm512_extractf32x8_ps(v[0].raw, 1));
    const __m128 sums = _mm_add_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1));
    _mm_storeu_ps(to, _mm_mul_ps(sums, _mm_set1_ps(factor)));
  }
}

// scores[m * kScoreStride + i] = factor * query m * key j + i for 4 * kFours slots: kFours rows of each stream from `at` on.
//
// Four keys are transposed within 128 bits, so that a lane has products of one slot only. That leaves fewer lanes to be
// summed than a whole key in each vector, and takes half of the shuffles of a complete transposition.
template <int kRows, int kFours, int kLevels>
HWY_INLINE void score_fours(const char* const (&at)[kStreams], const BlockRows& keys, int64_t j, const float* q,
                            int64_t size, float factor, float* scores) {
  static_assert(kStreams == 4);
  FloatVec sums[kRows * kFours];
  AA_UNROLL for (FloatVec& sum : sums) sum = hn::Zero(kFloats);
  for (int64_t line = 0; line < 2 * size; line += 2 * kPair, q += 4 * kRows * kLanes) {
    __m512 pairs[kFours][4];
    AA_UNROLL for (int g = 0; g < kFours; ++g) {
      AA_UNROLL for (int s = 0; s < 4; ++s) {
        const char* from = at[s] + g * keys.stride + line;
        pairs[g][s] = _mm512_loadu_ps(from);
        keys.prefetch<kLevels>(j, from);
      }
      transpose_fours(pairs[g]);
    }
    AA_UNROLL for (int p = 0; p < 4; ++p) {
      AA_UNROLL for (int m = 0; m < kRows; ++m) {
        const __m512i pair = _mm512_loadu_si512(q + (p * kRows + m) * kLanes);
        AA_UNROLL for (int g = 0; g < kFours; ++g) {
          FloatVec& sum = sums[m * kFours + g];
          sum = dot_pairs(_mm512_castps_si512(pairs[g][p]), pair, sum);
        }
      }
    }
  }
  AA_UNROLL for (int m = 0; m < kRows; ++m) {
    store_sums_of_blocks<kFours>(sums + m * kFours, factor, scores + m * kScoreStride);
  }
}

// scores[m * kScoreStride + j] = factor * query m * key j, with q from spread_pairs().
//
// Keys are read nearly in the order of their addresses: with 16 slots at a time in place of 8, four queries of 128
// elements read 0.85 of what a Zen 5 can read instead of 0.91.
template <int kRows, int kLevels>
HWY_NOINLINE void score_pairs(const BlockRows& keys, const float* q, int64_t size, float factor, float* scores) {
  constexpr int kFours = kRows < 4 ? 4 : 2;
  constexpr int64_t kAtOnce = kStreams * kFours;
  const char* at[kStreams];
  AA_UNROLL for (int s = 0; s < kStreams; ++s) at[s] = keys.first + s * keys.stream_stride;
  int64_t j = 0;
  for (; j + kAtOnce <= keys.slots; j += kAtOnce) {
    score_fours<kRows, kFours, kLevels>(at, keys, j, q, size, factor, scores + j);
    AA_UNROLL for (int s = 0; s < kStreams; ++s) at[s] += kFours * keys.stride;
  }
  for (; j < keys.slots; j += kStreams) {
    for (int s = 0; s < kStreams; ++s) at[s] = keys.row(std::min(j + s, keys.slots - 1));
    score_fours<kRows, 1, kLevels>(at, keys, j, q, size, factor, scores + j);
  }
}

// The size of eight rows of queries that are kept in registers.
constexpr int64_t kEightSize = 64;

// Puts eight rows of kEightSize bf16 numbers, `size` floats apart, into the order of score_eight(): vector i has pairs 2 i and
// 2 i + 1 of each row.
HWY_INLINE void spread_eight(const float* q, int64_t size, float* to) {
  constexpr int64_t kTwoPairs = 2 * sizeof(float);
  for (int64_t i = 0; i < kEightSize / 4; ++i) {
    for (int64_t m = 0; m < 8; ++m, to += 2) std::memcpy(to, q + m * size + 2 * i, kTwoPairs);
  }
}

// The scores of four slots, one of each stream.
template <int kLevels>
HWY_INLINE void score_four_slots(const char* const (&at)[kStreams], const BlockRows& keys, int64_t j,
                                 const __m512i (&q)[kEightSize / 4], FloatVec factor, float* scores) {
  static_assert(kStreams == 4);
  FloatVec sums[2][4];
  AA_UNROLL for (int s = 0; s < 4; ++s) sums[0][s] = sums[1][s] = hn::Zero(kFloats);
  AA_UNROLL for (int i = 0; i < kEightSize / 4; ++i) {
    AA_UNROLL for (int s = 0; s < 4; ++s) {
      if (i % 8 == 0) keys.prefetch<kLevels>(j, at[s] + 8 * i);
      int64_t two_pairs;
      std::memcpy(&two_pairs, at[s] + 8 * i, sizeof two_pairs);
      sums[i % 2][s] = dot_pairs(_mm512_set1_epi64(two_pairs), q[i], sums[i % 2][s]);
    }
  }
  AA_UNROLL for (int s = 0; s < 4; ++s) sums[0][s] = hn::Add(sums[0][s], sums[1][s]);
  const auto add_neighbours = [&](FloatVec a, FloatVec b) HWY_ATTR {
    const __m512 sum = _mm512_add_ps(_mm512_shuffle_ps(a.raw, b.raw, 0x88), _mm512_shuffle_ps(a.raw, b.raw, 0xdd));
    return _mm512_mul_ps(sum, factor.raw);
  };
  const __m512 first = add_neighbours(sums[0][0], sums[0][1]), second = add_neighbours(sums[0][2], sums[0][3]);
  const __m512 even = _mm512_shuffle_ps(first, second, 0x88), odd = _mm512_shuffle_ps(first, second, 0xdd);
  const auto store = [&](int m, __m128 row) HWY_ATTR { _mm_storeu_ps(scores + m * kScoreStride, row); };
  store(0, _mm512_castps512_ps128(even));
  store(1, _mm512_castps512_ps128(odd));
  store(2, _mm512_extractf32x4_ps(even, 1));
  store(3, _mm512_extractf32x4_ps(odd, 1));
  store(4, _mm512_extractf32x4_ps(even, 2));
  store(5, _mm512_extractf32x4_ps(odd, 2));
  store(6, _mm512_extractf32x4_ps(even, 3));
  store(7, _mm512_extractf32x4_ps(odd, 3));
}

// As score_pairs() for eight rows of kEightSize elements, with q from spread_eight().
//
// Queries stay in registers, a lane has products of one row only, and keys are broadcast two pairs at a time, so that nothing is
// transposed and keys are read in the order of their addresses.
template <int kLevels>
HWY_NOINLINE void score_eight(const BlockRows& keys, const float* queries, float factor, float* scores) {
  __m512i q[kEightSize / 4];
  AA_UNROLL for (int i = 0; i < kEightSize / 4; ++i) q[i] = _mm512_loadu_si512(queries + i * kLanes);
  const auto all_factor = hn::Set(kFloats, factor);
  const char* at[kStreams];
  AA_UNROLL for (int s = 0; s < kStreams; ++s) at[s] = keys.first + s * keys.stream_stride;
  int64_t j = 0;
  for (; j + kStreams <= keys.slots; j += kStreams) {
    score_four_slots<kLevels>(at, keys, j, q, all_factor, scores + j);
    AA_UNROLL for (int s = 0; s < kStreams; ++s) at[s] += keys.stride;
  }
  if (j == keys.slots) return;
  for (int s = 0; s < kStreams; ++s) at[s] = keys.row(std::min(j + s, keys.slots - 1));
  score_four_slots<kLevels>(at, keys, j, q, all_factor, scores + j);
}

// The softmax of `rows` rows of scores, which are kScoreStride floats apart. The weights are rounded to bf16, and take the first
// half of their row's memory. The totals are those of the rounded weights: a value that all slots have in common is then the
// exact result, and rounding errors of weights count only as far as values differ.
struct PairedRows {
  int64_t rows;
  float* scores;
  float* maximum;     // [rows]
  float* total;       // [rows][kLanes]: partial sums of the weights
  float* correction;  // [rows]: factors for the sums so far

  // Updates maxima and totals for the scores of a block. slope_of(m) returns the RowSlope of row m.
  //
  // The maxima of all rows come first, so that the powers follow each other without waiting for the maximum of their row.
  template <class SlopeOf>
  HWY_INLINE void raise_maxima(int64_t slots, float softcap, SlopeOf slope_of) const {
    const int64_t padded = (slots + kPair - 1) / kPair * kPair;
    // A soft cap would make the padding finite, so it is masked then.
    const int64_t end = softcap > 0 ? slots : padded;
    for (int64_t m = 0; m < rows; ++m) {
      float *own = scores + m * kScoreStride, *own_total = total + m * kLanes;
      for (int64_t j = slots; j < padded; ++j) own[j] = kMinusInfinity;
      correction[m] = raise_maximum(own, padded / kLanes, 0, end, softcap, slope_of(m), maximum[m]).correction;
      hn::StoreU(hn::Mul(hn::LoadU(kFloats, own_total), hn::Set(kFloats, correction[m])), kFloats, own_total);
    }
  }

  // Turns the scores of the slots [begin, end) into weights, whole groups of kPair. Where `begin` lies within a group, the
  // call for the slots before it has turned this group already.
  HWY_INLINE void turn_into_weights(int64_t begin, int64_t end) const {
    const __m512i ones = _mm512_set1_epi16(0x3f80);
    for (int64_t m = 0; m < rows; ++m) {
      float *own = scores + m * kScoreStride, *own_total = total + m * kLanes;
      const auto top = hn::Set(kFloats, maximum[m] == kMinusInfinity ? 0.0f : maximum[m]);
      // The error of coarse_power() is far below that of rounding to bf16.
      const auto weight = [&](const float* score)
                              HWY_ATTR { return coarse_power(hn::Sub(hn::LoadU(kFloats, score), top), 0); };
      auto sum = hn::LoadU(kFloats, own_total);
      for (int64_t i = (begin + kPair - 1) / kPair; i * kPair < end; ++i) {
        const __m512i weights = round_to_bf16(weight(own + i * kPair), weight(own + i * kPair + kLanes));
        _mm512_storeu_si512(own + i * kLanes, weights);
        sum = dot_pairs(weights, ones, sum);
      }
      hn::StoreU(sum, kFloats, own_total);
    }
  }
};

// sums[m] = sums[m] * correction[m] + sum over slots of weights[m][j] * value j, for kLines * kPair elements from d on.
// Unpacking leaves the sums of each kPair elements in another order: those of elements 8 i to 8 i + 3 first
// (SumOrder::InFours).
template <int kRows, int kLines, int kLevels>
HWY_INLINE void sum_pair_columns(const BlockRows& values, int64_t d, const float* weights, const float* correction,
                                 float* sums, int64_t size) {
  FloatVec sum[kRows][2 * kLines];
  AA_UNROLL for (int m = 0; m < kRows; ++m) {
    AA_UNROLL for (int n = 0; n < 2 * kLines; ++n) {
      sum[m][n] = hn::Mul(hn::LoadU(kFloats, sums + m * size + d + n * kLanes), hn::Set(kFloats, correction[m]));
    }
  }
  const auto add = [&](int64_t j, const __m512i(&first)[kLines], const __m512i(&second)[kLines]) HWY_ATTR {
    __m512i pairs[2 * kLines];
    AA_UNROLL for (int p = 0; p < kLines; ++p) {
      pairs[2 * p] = _mm512_unpacklo_epi16(first[p], second[p]);
      pairs[2 * p + 1] = _mm512_unpackhi_epi16(first[p], second[p]);
    }
    AA_UNROLL for (int m = 0; m < kRows; ++m) {
      const __m512i weight = _mm512_castps_si512(_mm512_set1_ps(weights[m * kScoreStride + j / 2]));
      AA_UNROLL for (int n = 0; n < 2 * kLines; ++n) sum[m][n] = dot_pairs(pairs[n], weight, sum[m][n]);
    }
  };
  const auto load = [&](int64_t j, const char* row, __m512i(&lines)[kLines]) HWY_ATTR {
    AA_UNROLL for (int p = 0; p < kLines; ++p) {
      const char* at = row + 2 * (d + p * kPair);
      lines[p] = _mm512_loadu_si512(at);
      values.prefetch<kLevels>(j, at);
    }
  };
  __m512i first[kLines], second[kLines];
  const char* row = values.first;
  int64_t j = 0;
  for (; j + kStreams <= values.slots; j += kStreams, row += values.stride) {
    AA_UNROLL for (int s = 0; s < kStreams; s += 2) {
      load(j, row + s * values.stream_stride, first);
      load(j, row + (s + 1) * values.stream_stride, second);
      add(j + s, first, second);
    }
  }
  for (; j < values.slots; j += 2) {
    load(j, values.row(j), first);
    AA_UNROLL for (__m512i& line : second) line = _mm512_setzero_si512();
    if (j + 1 < values.slots) load(j, values.row(j + 1), second);
    add(j, first, second);
  }
  AA_UNROLL for (int m = 0; m < kRows; ++m) {
    AA_UNROLL for (int n = 0; n < 2 * kLines; ++n) { hn::StoreU(sum[m][n], kFloats, sums + m * size + d + n * kLanes); }
  }
}

constexpr float kNoCorrection[kMostRows] = {1, 1, 1, 1, 1, 1, 1, 1};

// As sum_pair_columns() for whole rows of values, the first of which is that of slot `first` of the block. Turns their scores
// into weights before.
//
// A few slots at a time go through all of their columns, so that values are read nearly in the order of their addresses and
// come from the first-level cache after the first pass. With a whole block for each pass, eight rows of 64 elements read 0.75
// to 0.8 of what a Zen 5 can read in place of 0.95. Weights are made just before they are used, because nothing is read while many of them are made.
template <int kRows, int kLevels>
HWY_NOINLINE void sum_pairs(const BlockRows& values, int64_t first, const PairedRows& rows, float* sums, int64_t size) {
  constexpr int kLines = kMostRows / kRows < 4 ? kMostRows / kRows : 4;
  constexpr int64_t kTogether = kLines == 1 ? kPair : kSlots;
  for (int64_t j = 0; j < values.slots; j += kTogether) {
    const BlockRows part = values.part(j, kTogether);
    rows.turn_into_weights(first + j, first + j + part.slots);
    const float* weights = rows.scores + (first + j) / 2;
    // The sums are corrected once for each block.
    const float* factor = first + j == 0 ? rows.correction : kNoCorrection;
    int64_t d = 0;
    for (; d + kLines * kPair <= size; d += kLines * kPair) {
      sum_pair_columns<kRows, kLines, kLevels>(part, d, weights, factor, sums, size);
    }
    for (; d < size; d += kPair) sum_pair_columns<kRows, 1, kLevels>(part, d, weights, factor, sums, size);
  }
}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
