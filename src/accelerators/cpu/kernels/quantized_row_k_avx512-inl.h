// As quantized_row_avx512-inl.h, for formats of 256 values in a block, which quantized_row_k.cpp instantiates. Included after
// base/simd/highway.h, once per instruction set.
#include <cstdint>
#include <cstring>

#include "accelerators/cpu/kernels/quantized_blocks-inl.h"
#include "accelerators/cpu/kernels/quantized_row_avx512-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_K_AVX512_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_K_AVX512_INL_H_
#undef ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_K_AVX512_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_K_AVX512_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

template <bool kFifth>
struct RowQ4OrQ5K {
  static constexpr int64_t kBytes = kFifth ? 176 : 144;
  static constexpr bool kFine = false;
  static constexpr int64_t kNibbles = kFifth ? 48 : 16;  // byte offset of the nibbles in a block
  // The even groups (low nibbles), then the odd ones (high nibbles); of the four groups of each, the first 16 values,
  // then the last 16.
  static int place(int group, int quarter) {
    return group % 2 * 128 + quarter / 2 * 64 + group / 2 * 16 + quarter % 2 * 8;
  }
  // Each 128 bits of `first` are for two groups: what multiplies their two scales, then what multiplies their two
  // minima.
  static void put_factors(float* first, float* /*second*/, int group, float scale, const int32_t* sums) {
    float* at = first + group / 2 * 4 + group % 2;
    at[0] = group % 2 == 1 && !kFifth ? scale / 16 : scale;  // Q4_K's high nibbles are not shifted down
    at[2] = -scale * static_cast<float>(sums[0] + sums[1]);
  }

  // Unpacks the 8 scales and 8 minima (6 bits each) of kStreams blocks to 16 bytes each in the order of
  // put_factors(). Returns d and dmin of each block.
  template <int kStreams>
  static HWY_INLINE __m256 unpack_scales(const uint8_t* const* b, uint8_t* to) {
    const auto head = [&](int s) HWY_ATTR { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(b[s])); };
    __m512i words = _mm512_zextsi128_si512(head(0));  // of each block: d and dmin, then the 12 packed bytes
    if constexpr (kStreams == 2) {
      words = _mm512_inserti64x2(words, head(1), 1);
    } else if constexpr (kStreams == 4) {
      const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(head(0)), head(1), 1);
      const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(head(2)), head(3), 1);
      words = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
    const auto in_each = [](int w0, int w1, int w2, int w3)
                             HWY_ATTR { return _mm512_broadcast_i32x4(_mm_setr_epi32(w0, w1, w2, w3)); };
    const __m512i low =
        _mm512_srlv_epi32(_mm512_shuffle_epi32(words, static_cast<_MM_PERM_ENUM>(0b11101101)), in_each(0, 0, 0, 4));
    const __m512i high = _mm512_srli_epi32(_mm512_shuffle_epi32(words, static_cast<_MM_PERM_ENUM>(0b10000100)), 2);
    const __m512i of_low = in_each(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f);
    const __m512i of_high = in_each(0, 0x30303030, 0, 0x30303030);
    const __m512i bytes = _mm512_or_si512(_mm512_and_si512(low, of_low), _mm512_and_si512(high, of_high));
    _mm512_store_si512(to, _mm512_shuffle_epi8(bytes, in_each(0x09080100, 0x0b0a0302, 0x0d0c0504, 0x0f0e0706)));
    const __m512i firsts = _mm512_zextsi128_si512(_mm_setr_epi32(0, 4, 8, 12));
    return _mm256_cvtph_ps(_mm512_castsi512_si128(_mm512_permutexvar_epi32(firsts, words)));
  }

  // Adds fifth bits to `values`, which are half number `half` of each of the groups first, first + 2, first + 4 and
  // first + 6.
  static HWY_INLINE __m512i with_fifth_bits(__m512i values, const uint8_t* block, int first, int half) {
    const __m512i bits =
        _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 16 + 16 * half)));
    const auto bytes = [](int bit) { return 0x01010101 << bit; };
    const __m512i each =
        _mm512_setr_epi32(bytes(first), bytes(first), bytes(first), bytes(first), bytes(first + 2), bytes(first + 2),
                          bytes(first + 2), bytes(first + 2), bytes(first + 4), bytes(first + 4), bytes(first + 4),
                          bytes(first + 4), bytes(first + 6), bytes(first + 6), bytes(first + 6), bytes(first + 6));
    return _mm512_or_si512(values, _mm512_maskz_set1_epi8(_mm512_test_epi8_mask(bits, each), 16));
  }

  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m512* total) {
    alignas(64) uint8_t bytes[64];
    const __m512 d_and_dmin = _mm512_castps256_ps512(unpack_scales<kStreams>(b, bytes));
    const __m512 factors = _mm512_loadu_ps(x.first + 16 * block);
    const BlockValues values(x.values + kBlock * block);
    __m512 scales[kStreams];
    __m512i first[kStreams], second[kStreams],
        sums[kStreams];  // first, second: the first and the last 16 nibble bytes of four pairs of groups
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      const __m512i of_stream = _mm512_broadcast_i32x4(_mm_setr_epi32(2 * s, 2 * s, 2 * s + 1, 2 * s + 1));
      const __m128i of_row = _mm_load_si128(reinterpret_cast<const __m128i*>(bytes + 16 * s));
      const __m512 wide = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(of_row));
      scales[s] = _mm512_mul_ps(_mm512_mul_ps(wide, _mm512_permutexvar_ps(of_stream, d_and_dmin)), factors);
      total[s] = _mm512_mask_add_ps(total[s], 0xcccc, total[s], scales[s]);
      const __m512i q0 = load64(b[s] + kNibbles), q1 = load64(b[s] + kNibbles + 64);
      first[s] = _mm512_shuffle_i64x2(q0, q1, 0x88);
      second[s] = _mm512_shuffle_i64x2(q0, q1, 0xdd);
    }
    AA_UNROLL for (int half = 0; half < 2; ++half) {
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        __m512i u = low_nibbles(half == 0 ? first[s] : second[s]);
        if constexpr (kFifth) u = with_fifth_bits(u, b[s], 0, half);
        sums[s] = add_dots(half == 0 ? _mm512_setzero_si512() : sums[s], u, values.v[half]);
      }
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) total[s] = add_scaled<0>(total[s], sums[s], scales[s]);
    AA_UNROLL for (int half = 0; half < 2; ++half) {
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        const __m512i both = half == 0 ? first[s] : second[s];
        const __m512i u = kFifth ? with_fifth_bits(high_nibbles(both), b[s], 1, half)
                                 : _mm512_and_si512(both, _mm512_set1_epi8(static_cast<char>(0xf0)));
        sums[s] = add_dots(half == 0 ? _mm512_setzero_si512() : sums[s], u, values.v[2 + half]);
      }
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) total[s] = add_scaled<1>(total[s], sums[s], scales[s]);
  }
};

struct RowQ6K {
  static constexpr int64_t kBytes = 210;
  static constexpr bool kFine = false;
  static int place(int group, int quarter) { return group * 32 + quarter * 8; }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    for (int half = 0; half < 2; ++half) {  // each scale of the weights covers 16 values
      const int at = place_of_scale(2 * group + half);
      first[at] = scale;
      second[at] = -32 * scale * static_cast<float>(sums[half]);
    }
  }
  // The scales of vector p of the values, one for each 16 of them, are lane p of each 128 bits, where add_scaled<p>()
  // takes them from.
  static constexpr int place_of_scale(int sixteen) { return sixteen % 4 * 4 + sixteen / 4; }

  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m512* total) {
    const __m512 factors = _mm512_loadu_ps(x.first + 16 * block);   // scale of x for each 16 values
    const __m512 offsets = _mm512_loadu_ps(x.second + 16 * block);  // -32 * scale * sum of each 16 values
    const BlockValues values(x.values + kBlock * block);
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512 scales[kStreams];
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      uint16_t d;
      std::memcpy(&d, b[s] + 208, sizeof d);
      const __m128i of_row = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b[s] + 192)), order);
      scales[s] = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(of_row)), _mm512_set1_ps(_cvtsh_ss(d)));
      total[s] = _mm512_fmadd_ps(scales[s], offsets, total[s]);
      scales[s] = _mm512_mul_ps(scales[s], factors);
    }
    add_part<kStreams, 0>(b, values, scales, total);
    add_part<kStreams, 1>(b, values, scales, total);
    add_part<kStreams, 2>(b, values, scales, total);
    add_part<kStreams, 3>(b, values, scales, total);
  }

  // Adds the products of 64 values, part kPart of four. Their low four bits are the low or the high nibbles of 64
  // bytes; their upper two bits are two pairs of bits of 32 bytes, one pair for each half of the values.
  template <int kStreams, int kPart>
  static HWY_INLINE void add_part(const uint8_t* const* b, const BlockValues& values, const __m512* scales,
                                  __m512* total) {
    constexpr int kHalf = kPart / 2;
    constexpr bool kLow = kPart % 2 == 0;
    const __m512i shifts =
        _mm512_inserti64x4(_mm512_set1_epi16(kLow ? 4 : 0), _mm256_set1_epi16(2), 1);  // left for low nibbles
    __m512i sums[kStreams];
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      const __m512i nibbles = load64(b[s] + 64 * kHalf), bits = two_halves(b[s] + 128 + 32 * kHalf);
      const __m512i shifted = kLow ? _mm512_sllv_epi16(bits, shifts) : _mm512_srlv_epi16(bits, shifts);
      const __m512i high = _mm512_and_si512(shifted, _mm512_set1_epi8(0x30));
      const __m512i low = kLow ? nibbles : _mm512_srli_epi16(nibbles, 4);
      const __m512i u = _mm512_ternarylogic_epi32(_mm512_set1_epi8(15), low, high, 0xca);  // low & 15 | high & ~15
      sums[s] = add_dots(_mm512_setzero_si512(), u, values.v[kPart]);
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) total[s] = add_scaled<kPart>(total[s], sums[s], scales[s]);
  }
};

// Four vectors of 64 values: vector p holds bits 2 * p and 2 * p + 1 of each of 64 bytes, which are group p in its first half and group
// 4 + p in its second. Scales are for 16 values, 128 bits of a vector: those of vector p are lane p of each 128 bits, where
// add_scaled<p>() takes them from.
struct PairsOfBits {
  static int place(int group, int quarter) { return group % 4 * 64 + group / 4 * 32 + quarter * 8; }
  static constexpr int place_of_scale(int group, int half) { return (group / 4 * 2 + half) * 4 + group % 4; }
  // Which of 16 scales, one for each 16 values in their order, belongs at place i.
  static constexpr int scale_at(int i) { return 2 * (i / 8 * 4 + i % 4) + i / 4 % 2; }
};
struct RowQ2K {
  static constexpr int64_t kBytes = 84;
  static constexpr bool kFine = false;
  static int place(int group, int quarter) { return PairsOfBits::place(group, quarter); }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    for (int half = 0; half < 2; ++half) {
      const int at = PairsOfBits::place_of_scale(group, half);
      first[at] = scale / static_cast<float>(1 << 2 * (group % 4));  // the pairs are not shifted down
      second[at] = -scale * static_cast<float>(sums[half]);
    }
  }

  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m512* total) {
    const __m512 factors = _mm512_loadu_ps(x.first + 16 * block), offsets = _mm512_loadu_ps(x.second + 16 * block);
    const BlockValues values(x.values + kBlock * block);
    alignas(16) int8_t order[16];
    AA_UNROLL for (int i = 0; i < 16; ++i) order[i] = static_cast<int8_t>(PairsOfBits::scale_at(i));
    __m512 scales[kStreams];
    __m512i q[kStreams];
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b[s]));
      const __m512i wide =
          _mm512_cvtepu8_epi32(_mm_shuffle_epi8(packed, _mm_load_si128(reinterpret_cast<const __m128i*>(order))));
      int32_t d_and_m;
      std::memcpy(&d_and_m, b[s] + 80, sizeof d_and_m);
      const __m128 both = _mm_cvtph_ps(_mm_cvtsi32_si128(d_and_m));
      const __m512 of_scales = _mm512_cvtepi32_ps(_mm512_and_si512(wide, _mm512_set1_epi32(15)));
      const __m512 of_minima = _mm512_cvtepi32_ps(_mm512_srli_epi32(wide, 4));
      scales[s] = _mm512_mul_ps(_mm512_mul_ps(of_scales, _mm512_broadcastss_ps(both)), factors);
      const __m512 minima = _mm512_mul_ps(of_minima, _mm512_broadcastss_ps(_mm_movehdup_ps(both)));
      total[s] = _mm512_fmadd_ps(minima, offsets, total[s]);
      q[s] = load64_once(b[s] + 16);
    }
    add_part<kStreams, 0>(q, values, scales, total);
    add_part<kStreams, 1>(q, values, scales, total);
    add_part<kStreams, 2>(q, values, scales, total);
    add_part<kStreams, 3>(q, values, scales, total);
  }
  template <int kStreams, int kPart>
  static HWY_INLINE void add_part(const __m512i* q, const BlockValues& values, const __m512* scales, __m512* total) {
    const __m512i mask = _mm512_set1_epi8(static_cast<char>(3 << 2 * kPart));
    __m512i sums[kStreams];
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      sums[s] = add_dots(_mm512_setzero_si512(), _mm512_and_si512(q[s], mask), values.v[kPart]);
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) total[s] = add_scaled<kPart>(total[s], sums[s], scales[s]);
  }
};

struct RowQ3K {
  static constexpr int64_t kBytes = 110;
  static constexpr bool kFine = false;
  static int place(int group, int quarter) { return PairsOfBits::place(group, quarter); }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    for (int half = 0; half < 2; ++half) {
      const int at = PairsOfBits::place_of_scale(group, half);
      first[at] = scale;
      second[at] = -4 * scale * static_cast<float>(sums[half]);
    }
  }

  // The 16 scales of a block, in the order of put_factors(), times d. Scale j has its low four bits in byte j % 8 of 12, the first
  // eight scales in the low nibbles, and two more bits in byte 8 + j % 4, from bit 2 * (j / 4) on.
  static HWY_INLINE __m512 scales_of(const uint8_t* b) {
    alignas(16) int8_t of_low[16], of_high[16];
    AA_UNROLL for (int i = 0; i < 16; ++i) {
      const int j = PairsOfBits::scale_at(i);
      of_low[i] = static_cast<int8_t>(2 + j % 8);
      of_high[i] = static_cast<int8_t>(2 + 8 + j % 4);
    }
    const auto picked = [&](const int8_t* places)
                            HWY_ATTR { return _mm_load_si128(reinterpret_cast<const __m128i*>(places)); };
    // The last 16 bytes of a block: two of values, the 12 packed ones, and d.
    const __m128i end = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 94));
    // Places 8 to 15 have j from 8 on. Of a word of two places j / 4 is one number.
    const __m128i low =
        _mm_and_si128(_mm_srlv_epi64(_mm_shuffle_epi8(end, picked(of_low)), _mm_set_epi64x(4, 0)), _mm_set1_epi8(15));
    const __m128i high =
        _mm_and_si128(_mm_srlv_epi16(_mm_shuffle_epi8(end, picked(of_high)), _mm_setr_epi16(0, 2, 0, 2, 4, 6, 4, 6)),
                      _mm_set1_epi8(3));
    const __m128i bytes = _mm_sub_epi8(_mm_or_si128(low, _mm_slli_epi16(high, 4)), _mm_set1_epi8(32));
    const __m128 d = _mm_cvtph_ps(_mm_srli_si128(end, 14));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), _mm512_broadcastss_ps(d));
  }

  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m512* total) {
    const __m512 factors = _mm512_loadu_ps(x.first + 16 * block), offsets = _mm512_loadu_ps(x.second + 16 * block);
    const BlockValues values(x.values + kBlock * block);
    __m512 scales[kStreams];
    __m512i pairs[kStreams], thirds[kStreams];
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      scales[s] = scales_of(b[s]);
      total[s] = _mm512_fmadd_ps(scales[s], offsets, total[s]);
      scales[s] = _mm512_mul_ps(scales[s], factors);
      pairs[s] = load64_once(b[s] + 32);
      // Bit p of each byte belongs to vector p: of the second half of the vectors bits 4 to 7, shifted down.
      thirds[s] = _mm512_srlv_epi64(two_halves(b[s]), _mm512_setr_epi64(0, 0, 0, 0, 4, 4, 4, 4));
    }
    add_part<kStreams, 0>(pairs, thirds, values, scales, total);
    add_part<kStreams, 1>(pairs, thirds, values, scales, total);
    add_part<kStreams, 2>(pairs, thirds, values, scales, total);
    add_part<kStreams, 3>(pairs, thirds, values, scales, total);
  }
  template <int kStreams, int kPart>
  static HWY_INLINE void add_part(const __m512i* pairs, const __m512i* thirds, const BlockValues& values,
                                  const __m512* scales, __m512* total) {
    __m512i sums[kStreams];
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      const __m512i low = kPart == 0 ? pairs[s] : _mm512_srli_epi16(pairs[s], 2 * kPart);
      const __m512i high = kPart <= 2 ? _mm512_slli_epi16(thirds[s], 2 - kPart) : _mm512_srli_epi16(thirds[s], 1);
      const __m512i either = _mm512_ternarylogic_epi32(_mm512_set1_epi8(3), low, high, 0xca);  // low & 3 | high & ~3
      sums[s] = add_dots(_mm512_setzero_si512(), _mm512_and_si512(either, _mm512_set1_epi8(7)), values.v[kPart]);
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) total[s] = add_scaled<kPart>(total[s], sums[s], scales[s]);
  }
};

// Formats of the numbers -1, 0 and 1 with one scale for a block. Format::values_of<p>() gives vector p of
// the values as unsigned bytes, 1 too large; put_factors() places factors where add_scaled<p>() takes them from.
template <class Format, int kStreams>
HWY_INLINE void add_ternary(const uint8_t* const* b, const BlockRow& x, int64_t block, __m512* total) {
  const __m512 factors = _mm512_loadu_ps(x.first + 16 * block), offsets = _mm512_loadu_ps(x.second + 16 * block);
  const BlockValues values(x.values + kBlock * block);
  __m512 sums[kStreams];
  AA_UNROLL for (int s = 0; s < kStreams; ++s) sums[s] = offsets;
  const auto add_part = [&]<int kPart>() HWY_ATTR {
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      const __m512i dots = add_dots(_mm512_setzero_si512(), Format::template values_of<kPart>(b[s]), values.v[kPart]);
      sums[s] = add_scaled<kPart>(sums[s], dots, factors);
    }
  };
  add_part.template operator()<0>();
  add_part.template operator()<1>();
  add_part.template operator()<2>();
  add_part.template operator()<3>();
  AA_UNROLL for (int s = 0; s < kStreams; ++s) {
    uint16_t d;
    std::memcpy(&d, b[s] + Format::kBytes - 2, sizeof d);
    total[s] = _mm512_fmadd_ps(sums[s], _mm512_set1_ps(_cvtsh_ss(d)), total[s]);
  }
}
struct RowTq1_0 {
  static constexpr int64_t kBytes = 54;
  static constexpr bool kFine = false;
  // Vector p has groups 2 * p and 2 * p + 1.
  static int place(int group, int quarter) { return group * 32 + quarter * 8; }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    for (int half = 0; half < 2; ++half) {
      const int at = (group % 2 * 2 + half) * 4 + group / 2;
      first[at] = scale;
      second[at] = -scale * static_cast<float>(sums[half]);
    }
  }
  // The digit of each byte: (b * power % 256) * 3 >> 8. `power` has 16-bit lanes.
  static HWY_INLINE __m512i digits(__m512i bytes, __m512i power) {
    const __m512i lower = _mm512_set1_epi16(0xff), three = _mm512_set1_epi16(3);
    const __m512i even = _mm512_and_si512(_mm512_mullo_epi16(bytes, power), lower);
    const __m512i odd = _mm512_srli_epi16(_mm512_mullo_epi16(_mm512_andnot_si512(lower, bytes), power), 8);
    return _mm512_ternarylogic_epi32(lower, _mm512_srli_epi16(_mm512_mullo_epi16(even, three), 8),
                                     _mm512_mullo_epi16(odd, three), 0xca);  // lower & a | ~lower & b
  }
  static HWY_INLINE __m512i halves(__m256i first, __m256i second) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
  }
  static HWY_INLINE __m256i powers(int16_t first, int16_t second) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_set1_epi16(first)), _mm_set1_epi16(second), 1);
  }
  // Groups 0 to 4 are the digits of 32 bytes. The next 16 bytes have five digits, halves of the groups 5 and 6 and the first half of
  // group 7, whose second half is four digits of four bytes.
  template <int kPart>
  static HWY_INLINE __m512i values_of(const uint8_t* b) {
    const __m256i sixteen = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 32)));
    if constexpr (kPart < 2) {
      constexpr int16_t kPower = kPart == 0 ? 1 : 9;
      return digits(two_halves(b), halves(powers(kPower, kPower), powers(3 * kPower, 3 * kPower)));
    } else if constexpr (kPart == 2) {
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
      return digits(halves(bytes, sixteen), halves(powers(81, 81), powers(1, 3)));
    } else {
      int32_t four;
      std::memcpy(&four, b + 48, sizeof four);
      const __m256i bytes = _mm256_inserti128_si256(sixteen, _mm_set1_epi32(four), 1);
      const __m256i of_bytes = _mm256_inserti128_si256(powers(81, 81), _mm_setr_epi16(1, 1, 3, 3, 9, 9, 27, 27), 1);
      return digits(halves(sixteen, bytes), halves(powers(9, 27), of_bytes));
    }
  }
  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m512* total) {
    add_ternary<RowTq1_0, kStreams>(b, x, block, total);
  }
};
struct RowTq2_0 {
  static constexpr int64_t kBytes = 66;
  static constexpr bool kFine = false;
  static int place(int group, int quarter) { return PairsOfBits::place(group, quarter); }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    RowQ2K::put_factors(first, second, group, scale, sums);
  }
  template <int kPart>
  static HWY_INLINE __m512i values_of(const uint8_t* b) {
    return _mm512_and_si512(load64(b), _mm512_set1_epi8(static_cast<char>(3 << 2 * kPart)));
  }
  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m512* total) {
    add_ternary<RowTq2_0, kStreams>(b, x, block, total);
  }
};

// Its nibbles lie as those of eight blocks of RowOf32.
struct RowIq4Xs {
  static constexpr int64_t kBytes = 136;
  static constexpr bool kFine = false;
  static int place(int group, int quarter) { return RowIq4Nl::place(group, quarter); }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    RowIq4Nl::put_factors(first, second, group, scale, sums);
  }
  template <int kHalf>
  static HWY_INLINE __m512i values_of(__m512i nibbles, __m512i others) {
    return RowIq4Nl::values_of<kHalf>(nibbles, others);
  }
  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m512* total) {
    const __m256 factors = _mm256_loadu_ps(x.first + 16 * block), offsets = _mm256_loadu_ps(x.second + 16 * block);
    const BlockValues values(x.values + kBlock * block);
    __m512i nibbles[2][kStreams];
    __m256 scales[kStreams];
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      nibbles[0][s] = load64_once(b[s] + 8);
      nibbles[1][s] = load64_once(b[s] + 72);
      scales[s] = iq4_xs_scales(b[s]);
    }
    const auto scale = [&](int s) HWY_ATTR { return scales[s]; };
    add_nibbles<RowIq4Xs, kStreams>(nibbles, nibbles, values, factors, offsets, total, scale, scale);
  }
};

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
