// Products of one row of x with quantized weights for AVX2: a struct for each format, for quantized_row.cpp. Included after
// base/simd/highway.h, once per instruction set.
//
// The number of vector instructions bounds these kernels. A group of 32 values takes a product of bytes, whose pairs add up in 16 bits, one
// that widens their sums, a conversion, and a multiply-add with its scale, which is read from memory in all lanes and so takes no
// shuffle. The arithmetic on the scales of a block's eight groups is one vector's.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "accelerators/cpu/kernels/quantized_round-inl.h"
#include "accelerators/cpu/kernels/quantized_row.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_AVX2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_AVX2_INL_H_
#undef ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_AVX2_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_AVX2_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2

constexpr int64_t kBlock = 256;

HWY_INLINE __m256i load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
HWY_INLINE __m128i load_half(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
HWY_INLINE __m256i low_nibbles(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
HWY_INLINE __m256i high_nibbles(__m256i v) { return low_nibbles(_mm256_srli_epi16(v, 4)); }
HWY_INLINE __m256i in_both_halves(int w0, int w1, int w2, int w3) {
  return _mm256_broadcastsi128_si256(_mm_setr_epi32(w0, w1, w2, w3));
}
// Sixteen sums of two products of bytes each, in 16 bits; `u` without a sign.
HWY_INLINE __m256i pairs_of(__m256i u, __m256i x) { return _mm256_maddubs_epi16(u, x); }
HWY_INLINE __m256i widened(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }
HWY_INLINE __m256 add_scaled(__m256 total, __m256i sums, const float* scale) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), _mm256_broadcast_ss(scale), total);
}
// The halves at b, b + step, b + 2 * step ... in the lanes 0, 1, 2 ... or, if `even_first`, 0, 4, 1, 5, 2, 6, 3, 7. Put together in scalar
// registers, which have little else to do.
HWY_INLINE __m256 eight_halves(const uint8_t* b, int64_t step, bool even_first) {
  const auto half = [&](int i) {
    uint16_t bits;
    std::memcpy(&bits, b + i * step, sizeof bits);
    return static_cast<uint64_t>(bits);
  };
  const int next = even_first ? 2 : 1, second = even_first ? 1 : 4;
  const auto four = [&](int i) {
    return half(i) | half(i + next) << 16 | half(i + 2 * next) << 32 | half(i + 3 * next) << 48;
  };
  const __m128i low = _mm_cvtsi64_si128(static_cast<int64_t>(four(0)));
  return _mm256_cvtph_ps(_mm_unpacklo_epi64(low, _mm_cvtsi64_si128(static_cast<int64_t>(four(second)))));
}

template <bool kFifth>
struct RowQ4OrQ5K {
  static constexpr int64_t kBytes = kFifth ? 176 : 144;
  static constexpr bool kFine = false;
  static constexpr int64_t kNibbles = kFifth ? 48 : 16;  // the byte at which they begin
  static int place(int group, int quarter) { return group * 32 + quarter * 8; }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    first[group] = scale;
    second[group] = -scale * static_cast<float>(sums[0] + sums[1]);
  }

  // The 8 scales and then the 8 minima, 6 bits each, of a block in each half, as bytes.
  static HWY_INLINE __m256i unpack_scales(__m256i heads) {
    // Of each head, the words 1 to 3 after d and dmin.
    const __m256i low = _mm256_srlv_epi32(_mm256_shuffle_epi32(heads, 0b11101101), in_both_halves(0, 0, 0, 4));
    const __m256i high = _mm256_srli_epi32(_mm256_shuffle_epi32(heads, 0b10000100), 2);
    const __m256i of_low = in_both_halves(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f);
    const __m256i of_high = in_both_halves(0, 0x30303030, 0, 0x30303030);
    return _mm256_or_si256(_mm256_and_si256(low, of_low), _mm256_and_si256(high, of_high));
  }
  static HWY_INLINE __m256 floats_of(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)); }
  // The fifth bits of a group.
  static HWY_INLINE __m256i fifth_bits(const uint8_t* block, int group) {
    const __m256i bits = load_bytes(block + 16);
    const __m256i shifted = group <= 4 ? _mm256_slli_epi16(bits, 4 - group) : _mm256_srli_epi16(bits, group - 4);
    return _mm256_and_si256(shifted, _mm256_set1_epi8(16));
  }

  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m256* total) {
    const __m256 factors = _mm256_loadu_ps(x.first + 16 * block), minus_sums = _mm256_loadu_ps(x.second + 16 * block);
    alignas(32) float scales[kStreams][8];
    AA_UNROLL for (int s = 0; s < kStreams; s += 2) {
      __m256i heads = _mm256_castsi128_si256(load_half(b[s]));
      if constexpr (kStreams > 1) heads = _mm256_inserti128_si256(heads, load_half(b[s + 1]), 1);
      const __m256i bytes = unpack_scales(heads);
      AA_UNROLL for (int i = 0; i < std::min(kStreams, 2); ++i) {
        const __m128i of_row = i == 0 ? _mm256_castsi256_si128(bytes) : _mm256_extracti128_si256(bytes, 1);
        const __m128 d_and_dmin = _mm_cvtph_ps(load_half(b[s + i]));
        const __m256 d = _mm256_broadcastss_ps(d_and_dmin), dmin = _mm256_broadcastss_ps(_mm_movehdup_ps(d_and_dmin));
        _mm256_store_ps(scales[s + i], _mm256_mul_ps(_mm256_mul_ps(floats_of(of_row), d), factors));
        const __m256 minima = _mm256_mul_ps(floats_of(_mm_srli_si128(of_row, 8)), dmin);
        total[s + i] = _mm256_fmadd_ps(minima, minus_sums, total[s + i]);
      }
    }
    AA_UNROLL for (int group = 0; group < 8; group += 2) {
      const int8_t* at = x.values + kBlock * block + 32 * group;
      const __m256i x0 = load_bytes(at), x1 = load_bytes(at + 32);
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        const __m256i both = load_bytes(b[s] + kNibbles + 16 * group);
        __m256i low = low_nibbles(both), high = high_nibbles(both);
        if constexpr (kFifth) {
          low = _mm256_or_si256(low, fifth_bits(b[s], group));
          high = _mm256_or_si256(high, fifth_bits(b[s], group + 1));
        }
        total[s] = add_scaled(total[s], widened(pairs_of(low, x0)), &scales[s][group]);
        total[s] = add_scaled(total[s], widened(pairs_of(high, x1)), &scales[s][group + 1]);
      }
    }
  }
};

// Eight blocks of 32 values are taken as one. The sums of each add up in 16 bits, so that only eight are converted and scaled.
struct RowQ4_0 {
  static constexpr int64_t kBytes = 8 * 18;
  static constexpr bool kFine = false;
  // The first halves of two groups, then the second ones.
  static int place(int group, int quarter) {
    return group / 2 * 64 + quarter / 2 * 32 + group % 2 * 16 + quarter % 2 * 8;
  }
  // The even groups, then the odd ones.
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    const int at = group % 2 * 4 + group / 2;
    first[at] = scale;
    second[at] = -8 * scale * static_cast<float>(sums[0] + sums[1]);
  }

  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m256* total) {
    const __m256 factors = _mm256_loadu_ps(x.first + 16 * block), minus_sums = _mm256_loadu_ps(x.second + 16 * block);
    __m256i sums[kStreams][4];  // of two blocks each, in its halves
    AA_UNROLL for (int pair = 0; pair < 4; ++pair) {
      const int8_t* at = x.values + kBlock * block + 64 * pair;
      const __m256i x0 = load_bytes(at), x1 = load_bytes(at + 32);
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        const uint8_t* q = b[s] + 36 * pair + 2;
        const __m256i two = _mm256_inserti128_si256(_mm256_castsi128_si256(load_half(q)), load_half(q + 18), 1);
        sums[s][pair] = _mm256_add_epi16(pairs_of(low_nibbles(two), x0), pairs_of(high_nibbles(two), x1));
      }
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      // No more than 8 times 2 * 15 * 127 in 16 bits.
      const auto added = [](__m256i a, __m256i c) HWY_ATTR {
        return _mm256_add_epi16(_mm256_unpacklo_epi64(a, c), _mm256_unpackhi_epi64(a, c));
      };
      const __m256 front = _mm256_castsi256_ps(added(sums[s][0], sums[s][1]));  // the blocks 0, 2, and 1, 3
      const __m256 back = _mm256_castsi256_ps(added(sums[s][2], sums[s][3]));   // 4, 6, and 5, 7
      const __m256i all = _mm256_add_epi16(_mm256_castps_si256(_mm256_shuffle_ps(front, back, 0x88)),
                                           _mm256_castps_si256(_mm256_shuffle_ps(front, back, 0xdd)));
      const __m256 scaled = _mm256_fmadd_ps(_mm256_cvtepi32_ps(widened(all)), factors, minus_sums);
      total[s] = _mm256_fmadd_ps(eight_halves(b[s], 18, true), scaled, total[s]);
    }
  }
};

// The same for Q8_0. x has 16 bits, since rounding it to 8 would be most of the error.
struct RowQ8_0 {
  static constexpr int64_t kBytes = 8 * 34;
  static constexpr bool kFine = true;
  static int place(int group, int quarter) { return group * 32 + quarter * 8; }
  static void put_factors(float* first, float* /*second*/, int group, float scale, const int32_t* /*sums*/) {
    first[group] = scale;
  }

  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m256* total) {
    const __m256 factors = _mm256_loadu_ps(x.first + 16 * block);
    alignas(32) float scales[kStreams][8];
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      _mm256_store_ps(scales[s], _mm256_mul_ps(eight_halves(b[s], 34, false), factors));
    }
    AA_UNROLL for (int group = 0; group < 8; ++group) {
      const int8_t* at = x.values + 2 * (kBlock * block + 32 * group);
      const __m256i x0 = load_bytes(at), x1 = load_bytes(at + 32);
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        const uint8_t* q = b[s] + 34 * group + 2;
        const __m256i first = _mm256_madd_epi16(_mm256_cvtepi8_epi16(load_half(q)), x0);
        const __m256i second = _mm256_madd_epi16(_mm256_cvtepi8_epi16(load_half(q + 16)), x1);
        total[s] = add_scaled(total[s], _mm256_add_epi32(first, second), &scales[s][group]);
      }
    }
  }
};

struct RowQ6K {
  static constexpr int64_t kBytes = 210;
  static constexpr bool kFine = false;
  static int place(int group, int quarter) { return group * 32 + quarter * 8; }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    first[group] = scale;
    for (int half = 0; half < 2; ++half) {  // scales of the weights are of 16 values
      second[2 * group + half] = -32 * scale * static_cast<float>(sums[half]);
    }
  }

  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m256* total) {
    const float* second = x.second + 16 * block;
    __m256i scales[kStreams];  // of 16 bits: those of even sixteens in the first half, those of odd ones in the second
    __m256 sums[kStreams];
    const __m256i to_upper_bytes = _mm256_setr_epi8(-1, 0, -1, 2, -1, 4, -1, 6, -1, 8, -1, 10, -1, 12, -1, 14,  //
                                                    -1, 1, -1, 3, -1, 5, -1, 7, -1, 9, -1, 11, -1, 13, -1, 15);
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      const __m128i bytes = load_half(b[s] + 192);
      scales[s] = _mm256_srai_epi16(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), to_upper_bytes), 8);
      const __m256 front = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
      const __m256 back = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)));
      sums[s] = _mm256_fmadd_ps(back, _mm256_loadu_ps(second + 8), _mm256_mul_ps(front, _mm256_loadu_ps(second)));
    }
    AA_UNROLL for (int group = 0; group < 8; ++group) {
      const __m256i values = load_bytes(x.values + kBlock * block + 32 * group);
      const __m256i of_group = _mm256_set1_epi16(static_cast<int16_t>((2 * group + 1) << 8 | 2 * group));
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        const __m256i nibbles = load_bytes(b[s] + group / 4 * 64 + group % 2 * 32);
        const __m256i bits = load_bytes(b[s] + 128 + group / 4 * 32);
        const __m256i low = group % 4 < 2 ? low_nibbles(nibbles) : high_nibbles(nibbles);
        const __m256i u = _mm256_or_si256(low, upper_bits(bits, group % 4));
        // The products are multiplied with their integer scales where they are widened.
        const __m256i scaled = _mm256_madd_epi16(pairs_of(u, values), _mm256_shuffle_epi8(scales[s], of_group));
        sums[s] = add_scaled(sums[s], scaled, x.first + 16 * block + group);
      }
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      uint16_t d;
      std::memcpy(&d, b[s] + 208, sizeof d);
      total[s] = _mm256_fmadd_ps(sums[s], _mm256_set1_ps(_cvtsh_ss(d)), total[s]);
    }
  }

  // The bits 2 * number and 2 * number + 1 of each byte as its bits 4 and 5.
  static HWY_INLINE __m256i upper_bits(__m256i bits, int number) {
    const __m256i shifted =
        number < 2 ? _mm256_slli_epi16(bits, 4 - 2 * number) : _mm256_srli_epi16(bits, 2 * number - 4);
    return _mm256_and_si256(shifted, _mm256_set1_epi8(0x30));
  }
};

// Rounds x to 8 bits, or 16 for `kFine` ones, in groups of 32 values. One with a NaN or an infinity gets a NaN as its scale, which every
// sum with it then is.
template <class Format>
void round_row_for(const float* x, int64_t k, int8_t* values, float* first, float* second) {
  for (int64_t block = 0; block < k / kBlock; ++block, first += 16, second += 16) {
    for (int group = 0; group < 8; ++group) {
      const float* from = x + block * kBlock + group * 32;
      const RoundedValues r = round_values(from, Format::kFine ? 127.0F * 256.0F : 127.0F);
      AA_UNROLL for (int half = 0; half < 2; ++half) {
        const __m256i wide = r.half_as_16_bits(half);
        if constexpr (Format::kFine) {
          int8_t* to = values + 2 * (block * kBlock + group * 32 + half * 16);
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), wide);
        } else {
          const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
          int8_t* to = values + block * kBlock;
          _mm_storeu_si64(to + Format::place(group, 2 * half), bytes);
          _mm_storeu_si64(to + Format::place(group, 2 * half + 1), _mm_unpackhi_epi64(bytes, bytes));
        }
      }
      Format::put_factors(first, second, group, r.scale, r.sums);
    }
  }
}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
