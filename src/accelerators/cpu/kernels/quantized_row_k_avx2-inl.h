// As quantized_row_avx2-inl.h, for formats of 256 values in a block, which quantized_row_k.cpp instantiates. Included after
// base/simd/highway.h, once per instruction set.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "accelerators/cpu/kernels/quantized_row_avx2-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_K_AVX2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_K_AVX2_INL_H_
#undef ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_K_AVX2_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_K_AVX2_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2

template <bool kFifth>
struct RowQ4OrQ5K {
  static constexpr int64_t kBytes = kFifth ? 176 : 144;
  static constexpr bool kFine = false;
  static constexpr int64_t kNibbles = kFifth ? 48 : 16;  // byte offset of the nibbles in a block
  static int place(int group, int quarter) { return group * 32 + quarter * 8; }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    first[group] = scale;
    second[group] = -scale * static_cast<float>(sums[0] + sums[1]);
  }

  // Unpacks the scales and minima (6 bits each) of two blocks, whose first 16 bytes are the halves of `heads`. Each
  // half of the result has a block's 8 scales, then its 8 minima, as bytes.
  static HWY_INLINE __m256i unpack_scales(__m256i heads) {
    // Words 1 to 3 of a head (word 0 is d and dmin) hold the packed bits. The low bits of the four words of the result
    // are those of words 1, 3, 2 and 3 >> 4; the upper two bits of words 1 and 3 of the result come from words 1 and 2.
    const __m256i low = _mm256_srlv_epi32(_mm256_shuffle_epi32(heads, 0b11101101), in_both_halves(0, 0, 0, 4));
    const __m256i high = _mm256_srli_epi32(_mm256_shuffle_epi32(heads, 0b10000100), 2);
    const __m256i of_low = in_both_halves(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f);
    const __m256i of_high = in_both_halves(0, 0x30303030, 0, 0x30303030);
    return _mm256_or_si256(_mm256_and_si256(low, of_low), _mm256_and_si256(high, of_high));
  }
  static HWY_INLINE __m256 floats_of(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)); }
  // The fifth bits of a group, as 16 or 0 in each of 32 bytes.
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
    // A 16-bit sum adds at most four pairs of products: 4 * 2 * 31 * 127 = 31,496 fits.
    __m256i sums[2][kStreams];  // groups 0 to 3, and 4 to 7: two sums of each group in either half
    AA_UNROLL for (int side = 0; side < 2; ++side) {
      const int8_t* at = x.values + kBlock * block + 128 * side;
      const __m256i x0 = load_bytes(at), x1 = load_bytes(at + 32), x2 = load_bytes(at + 64), x3 = load_bytes(at + 96);
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        sums[side][s] = add_twos(two_groups(b[s], 4 * side, x0, x1), two_groups(b[s], 4 * side + 2, x2, x3));
      }
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      const __m256i front = widened(sums[0][s]), back = widened(sums[1][s]);
      const __m256i all =
          _mm256_add_epi32(_mm256_permute2x128_si256(front, back, 0x20), _mm256_permute2x128_si256(front, back, 0x31));
      total[s] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(all), _mm256_load_ps(scales[s]), total[s]);
    }
  }

  // Products of groups `group` and `group` + 1, the low and the high nibbles of the same 32 bytes, with x0 and x1: each
  // half has four 16-bit sums of the first group, then four of the second.
  static HWY_INLINE __m256i two_groups(const uint8_t* block, int group, __m256i x0, __m256i x1) {
    const __m256i both = load_bytes(block + kNibbles + 16 * group);
    __m256i low = low_nibbles(both), high = high_nibbles(both);
    if constexpr (kFifth) {
      low = _mm256_or_si256(low, fifth_bits(block, group));
      high = _mm256_or_si256(high, fifth_bits(block, group + 1));
    }
    return add_fours(pairs_of(low, x0), pairs_of(high, x1));
  }
};

// In each half, the 16-bit lanes `group` and `group` + 1, four times each.
HWY_INLINE __m256i four_each(__m256i scales, int group) {
  const auto word = [](int number) { return static_cast<int16_t>((2 * number + 1) << 8 | 2 * number); };
  const int16_t a = word(group), b = word(group + 1);
  return _mm256_shuffle_epi8(scales, _mm256_setr_epi16(a, a, a, a, b, b, b, b, a, a, a, a, b, b, b, b));
}
// The sum of 16 signed bytes times the 16 numbers at `numbers`, in eight parts.
HWY_INLINE __m256 times_bytes(__m128i bytes, const float* numbers) {
  const __m256 front = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  const __m256 back = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)));
  return _mm256_fmadd_ps(back, _mm256_loadu_ps(numbers + 8), _mm256_mul_ps(front, _mm256_loadu_ps(numbers)));
}

// Formats with a scale for each 16 values, an integer, times a number d for the block. Format::scales_of(b) has the 16 scales,
// Format::kAtD is where d is, and Format::values_of(b, side, i) has the values of group 4 * side + i as unsigned bytes up to 63.
// Format::offset_of(b, scales, second, total) returns what is added in parts that d multiplies, and adds to `total` what d does not
// multiply. put_factors() repeats the scale of a group of
// x for both of its halves.
template <class Format, int kStreams>
HWY_INLINE void add_sixteens(const uint8_t* const* b, const BlockRow& x, int64_t block, __m256* total) {
  const float *first = x.first + 16 * block, *second = x.second + 16 * block;
  const auto four_floats_twice = [](const float* four)
                                     HWY_ATTR { return _mm256_broadcast_ps(reinterpret_cast<const __m128*>(four)); };
  __m256i scales[kStreams];  // 16-bit lanes: even runs of 16 values in the lower half, odd ones in the upper
  __m256 sums[kStreams];
  const __m256i to_upper_bytes = _mm256_setr_epi8(-1, 0, -1, 2, -1, 4, -1, 6, -1, 8, -1, 10, -1, 12, -1, 14,  //
                                                  -1, 1, -1, 3, -1, 5, -1, 7, -1, 9, -1, 11, -1, 13, -1, 15);
  AA_UNROLL for (int s = 0; s < kStreams; ++s) {
    const __m128i bytes = Format::scales_of(b[s]);
    scales[s] = _mm256_srai_epi16(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), to_upper_bytes), 8);
    sums[s] = Format::offset_of(b[s], bytes, second, total[s]);
  }
  AA_UNROLL for (int side = 0; side < 2; ++side) {
    const int8_t* at = x.values + kBlock * block + 128 * side;
    const __m256i x0 = load_bytes(at), x1 = load_bytes(at + 32), x2 = load_bytes(at + 64), x3 = load_bytes(at + 96);
    const __m256 of_front = four_floats_twice(first + 8 * side), of_back = four_floats_twice(first + 8 * side + 4);
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      // A 16-bit sum adds two pairs of products: 2 * 2 * 63 * 127 = 32,004 fits.
      const __m256i front =
          add_fours(pairs_of(Format::values_of(b[s], side, 0), x0), pairs_of(Format::values_of(b[s], side, 1), x1));
      const __m256i back =
          add_fours(pairs_of(Format::values_of(b[s], side, 2), x2), pairs_of(Format::values_of(b[s], side, 3), x3));
      // vpmaddwd applies the integer scales while it widens the sums.
      sums[s] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(front, four_each(scales[s], 4 * side))), of_front,
                                sums[s]);
      sums[s] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(back, four_each(scales[s], 4 * side + 2))),
                                of_back, sums[s]);
    }
  }
  AA_UNROLL for (int s = 0; s < kStreams; ++s) {
    uint16_t d;
    std::memcpy(&d, b[s] + Format::kAtD, sizeof d);
    total[s] = _mm256_fmadd_ps(sums[s], _mm256_set1_ps(_cvtsh_ss(d)), total[s]);
  }
}
// What put_factors() of these formats does; `zero` is subtracted from each value.
inline void put_factors_of_sixteens(float* first, float* second, int group, float scale, const int32_t* sums,
                                    int zero) {
  for (int half = 0; half < 2; ++half) {
    first[2 * group + half] = scale;
    second[2 * group + half] = scale * static_cast<float>(-zero * sums[half]);
  }
}
// Pairs of bits of group 4 * side + i of 64 bytes.
HWY_INLINE __m256i pairs_of_bits_at(const uint8_t* q, int side, int i) {
  return _mm256_and_si256(_mm256_srli_epi16(load_bytes(q + 32 * side), 2 * i), _mm256_set1_epi8(3));
}

struct RowQ2K {
  static constexpr int64_t kBytes = 84, kAtD = 80;
  static constexpr bool kFine = false;
  static int place(int group, int quarter) { return group * 32 + quarter * 8; }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    put_factors_of_sixteens(first, second, group, scale, sums, 1);
  }
  static HWY_INLINE __m128i scales_of(const uint8_t* b) { return _mm_and_si128(load_half(b), _mm_set1_epi8(15)); }
  static HWY_INLINE __m256i values_of(const uint8_t* b, int side, int i) { return pairs_of_bits_at(b + 16, side, i); }
  // The minima have a factor of their own.
  static HWY_INLINE __m256 offset_of(const uint8_t* b, __m128i /*scales*/, const float* second, __m256& total) {
    const __m128i minima = _mm_and_si128(_mm_srli_epi16(load_half(b), 4), _mm_set1_epi8(15));
    uint16_t m;
    std::memcpy(&m, b + 82, sizeof m);
    total = _mm256_fmadd_ps(times_bytes(minima, second), _mm256_set1_ps(_cvtsh_ss(m)), total);
    return _mm256_setzero_ps();
  }
  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m256* total) {
    add_sixteens<RowQ2K, kStreams>(b, x, block, total);
  }
};

struct RowQ3K {
  static constexpr int64_t kBytes = 110, kAtD = 108;
  static constexpr bool kFine = false;
  static int place(int group, int quarter) { return group * 32 + quarter * 8; }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    put_factors_of_sixteens(first, second, group, scale, sums, 4);
  }
  // Of 12 bytes, the low and then the high nibbles of the first eight are the low four bits of the scales. The other four have the
  // upper two bits: those of four scales, then of the next four.
  static HWY_INLINE __m128i scales_of(const uint8_t* b) {
    int32_t high;
    std::memcpy(&high, b + 104, sizeof high);
    const __m128i eight = _mm_loadu_si64(b + 96);
    const __m128i low = _mm_and_si128(_mm_unpacklo_epi64(eight, _mm_srli_epi16(eight, 4)), _mm_set1_epi8(15));
    const __m128i pairs =
        _mm_and_si128(_mm_srlv_epi32(_mm_set1_epi32(high), _mm_setr_epi32(0, 2, 4, 6)), _mm_set1_epi8(3));
    return _mm_sub_epi8(_mm_or_si128(low, _mm_slli_epi16(pairs, 4)), _mm_set1_epi8(32));
  }
  static HWY_INLINE __m256i values_of(const uint8_t* b, int side, int i) {
    const __m256i bits = load_bytes(b);
    const int bit = 4 * side + i;
    const __m256i third = bit < 2 ? _mm256_slli_epi16(bits, 2 - bit) : _mm256_srli_epi16(bits, bit - 2);
    return _mm256_or_si256(pairs_of_bits_at(b + 32, side, i), _mm256_and_si256(third, _mm256_set1_epi8(4)));
  }
  static HWY_INLINE __m256 offset_of(const uint8_t* /*b*/, __m128i scales, const float* second, __m256& /*total*/) {
    return times_bytes(scales, second);
  }
  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m256* total) {
    add_sixteens<RowQ3K, kStreams>(b, x, block, total);
  }
};

struct RowQ6K {
  static constexpr int64_t kBytes = 210, kAtD = 208;
  static constexpr bool kFine = false;
  static int place(int group, int quarter) { return group * 32 + quarter * 8; }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    put_factors_of_sixteens(first, second, group, scale, sums, 32);
  }
  static HWY_INLINE __m128i scales_of(const uint8_t* b) { return load_half(b + 192); }
  static HWY_INLINE __m256i values_of(const uint8_t* b, int side, int i) {
    const __m256i nibbles = load_bytes(b + 64 * side + i % 2 * 32), bits = load_bytes(b + 128 + 32 * side);
    const __m256i low = i < 2 ? low_nibbles(nibbles) : high_nibbles(nibbles);
    const __m256i upper = i < 2 ? _mm256_slli_epi16(bits, 4 - 2 * i) : _mm256_srli_epi16(bits, 2 * i - 4);
    return _mm256_or_si256(low, _mm256_and_si256(upper, _mm256_set1_epi8(0x30)));
  }
  static HWY_INLINE __m256 offset_of(const uint8_t* /*b*/, __m128i scales, const float* second, __m256& /*total*/) {
    return times_bytes(scales, second);
  }
  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m256* total) {
    add_sixteens<RowQ6K, kStreams>(b, x, block, total);
  }
};

// Formats of the numbers -1, 0 and 1 with one scale for a block: Format::values_of<group>() gives those of a group as unsigned bytes,
// 1 too large.
template <class Format, int kStreams>
HWY_INLINE void add_ternary(const uint8_t* const* b, const BlockRow& x, int64_t block, __m256* total) {
  const __m256 factors = _mm256_loadu_ps(x.first + 16 * block), offsets = _mm256_loadu_ps(x.second + 16 * block);
  __m256i sums[2][kStreams];  // groups 0 to 3, and 4 to 7: two sums of each group in either half
  const auto add_side = [&]<int kSide>() HWY_ATTR {
    const int8_t* at = x.values + kBlock * block + 128 * kSide;
    const __m256i x0 = load_bytes(at), x1 = load_bytes(at + 32), x2 = load_bytes(at + 64), x3 = load_bytes(at + 96);
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      sums[kSide][s] = add_twos(add_fours(pairs_of(Format::template values_of<4 * kSide>(b[s]), x0),
                                          pairs_of(Format::template values_of<4 * kSide + 1>(b[s]), x1)),
                                add_fours(pairs_of(Format::template values_of<4 * kSide + 2>(b[s]), x2),
                                          pairs_of(Format::template values_of<4 * kSide + 3>(b[s]), x3)));
    }
  };
  add_side.template operator()<0>();
  add_side.template operator()<1>();
  AA_UNROLL for (int s = 0; s < kStreams; ++s) {
    const __m256i front = widened(sums[0][s]), back = widened(sums[1][s]);
    const __m256i all =
        _mm256_add_epi32(_mm256_permute2x128_si256(front, back, 0x20), _mm256_permute2x128_si256(front, back, 0x31));
    uint16_t d;
    std::memcpy(&d, b[s] + Format::kBytes - 2, sizeof d);
    total[s] = _mm256_fmadd_ps(_mm256_fmadd_ps(_mm256_cvtepi32_ps(all), factors, offsets), _mm256_set1_ps(_cvtsh_ss(d)),
                               total[s]);
  }
}
inline void put_factors_of_ternary(float* first, float* second, int group, float scale, const int32_t* sums) {
  first[group] = scale;
  second[group] = -scale * static_cast<float>(sums[0] + sums[1]);
}
struct RowTq1_0 {
  static constexpr int64_t kBytes = 54;
  static constexpr bool kFine = false;
  static int place(int group, int quarter) { return group * 32 + quarter * 8; }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    put_factors_of_ternary(first, second, group, scale, sums);
  }
  template <int kGroup>
  static HWY_INLINE __m256i values_of(const uint8_t* b) {
    return ternary_digits<kGroup>(b);
  }
  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m256* total) {
    add_ternary<RowTq1_0, kStreams>(b, x, block, total);
  }
};
struct RowTq2_0 {
  static constexpr int64_t kBytes = 66;
  static constexpr bool kFine = false;
  static int place(int group, int quarter) { return group * 32 + quarter * 8; }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    put_factors_of_ternary(first, second, group, scale, sums);
  }
  template <int kGroup>
  static HWY_INLINE __m256i values_of(const uint8_t* b) {
    return pairs_of_bits_at(b, kGroup / 4, kGroup % 4);
  }
  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m256* total) {
    add_ternary<RowTq2_0, kStreams>(b, x, block, total);
  }
};

// Its nibbles lie as those of eight blocks of RowIq4Nl.
struct RowIq4Xs {
  static constexpr int64_t kBytes = 136;
  static constexpr bool kFine = false;
  static int place(int group, int quarter) { return RowIq4Nl::place(group, quarter); }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    RowIq4Nl::put_factors(first, second, group, scale, sums);
  }
  static HWY_INLINE const uint8_t* nibbles_of(const uint8_t* b, int group) { return b + 8 + 16 * group; }
  static HWY_INLINE __m256 scales_of(const uint8_t* b) { return iq4_xs_scales(b); }
  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m256* total) {
    add_iq4<RowIq4Xs, kStreams>(b, x, block, total);
  }
};

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
