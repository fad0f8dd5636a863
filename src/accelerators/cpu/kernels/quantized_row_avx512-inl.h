// Products of one row of x with rows of quantized weights, for AVX-512 with VNNI: a struct for each format, which
// quantized_row.cpp instantiates. Their members are those of quantized_row_avx2-inl.h. Included after
// base/simd/highway.h, once per instruction set.
//
// Where rearranging is cheap, a 64-byte vector holds values of several groups of 32, so that a group's products add up
// as integers before they are converted and scaled, and the scales and minima of a block are computed in one vector.
// With weights in the cache, two things bound these kernels: the number of vector instructions (a Zen 4 executes about
// 1.5 of 64 bytes in a cycle when they are of several kinds) and the number of loads, since a 64-byte load that crosses
// a cache line takes 1.5 cycles.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "accelerators/cpu/kernels/quantized_row.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_AVX512_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_AVX512_INL_H_
#undef ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_AVX512_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_AVX512_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

constexpr int64_t kBlock = 256;

// Adds four products of bytes to each 32-bit lane of `sums`: `u` is unsigned, `x` signed.
HWY_INLINE __m512i add_dots(__m512i sums, __m512i u, __m512i x) {
  // Written out because functions of this instruction set are compiled without VNNI, which not every such processor has.
  asm("vpdpbusd %[x], %[u], %[sums]" : [sums] "+v"(sums) : [u] "v"(u), [x] "v"(x));  // NOLINT(hicpp-no-assembler)
  return sums;
}
// total += float(sums) * scale. Each 128 bits have one scale: lane kScale of the same 128 bits of `scales`.
template <int kScale>
HWY_INLINE __m512 add_scaled(__m512 total, __m512i sums, __m512 scales) {
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_permute_ps(scales, 0x55 * kScale), total);
}
// A block of x in registers, which all streams share.
struct BlockValues {
  __m512i v[4];
  explicit HWY_INLINE BlockValues(const int8_t* x) {
    AA_UNROLL for (int i = 0; i < 4; ++i) v[i] = _mm512_load_si512(x + 64 * i);
  }
};
HWY_INLINE __m512i load64(const uint8_t* p) { return _mm512_loadu_si512(p); }
// The same, but forced into a register: the compiler would repeat the load as a memory operand of each use, and a load
// that crosses a cache line takes 1.5 cycles.
HWY_INLINE __m512i load64_once(const uint8_t* p) {
  __m512i v = load64(p);
  asm("" : "+v"(v));  // NOLINT(hicpp-no-assembler)
  return v;
}
// The 32 bytes at p in both halves.
HWY_INLINE __m512i two_halves(const uint8_t* p) {
  return _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
HWY_INLINE __m512i low_nibbles(__m512i v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
HWY_INLINE __m512i high_nibbles(__m512i v) { return low_nibbles(_mm512_srli_epi16(v, 4)); }
// Permutation indices: each of first to first + 3 four times.
HWY_INLINE __m512i four_times(int first) {
  return _mm512_add_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3), _mm512_set1_epi32(first));
}
// Permutation indices: each of 0 to 7 twice.
HWY_INLINE __m512i twice_each() { return _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7); }
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

// Eight blocks of 32 values are processed together, like one block of 256. A vector holds eight bytes of each block, so
// that all products of a block add up in two lanes before they are converted and scaled.
struct RowQ4_0 {
  static constexpr int64_t kBytes = 8 * 18;
  static constexpr bool kFine = false;
  // The low nibbles of the first eight bytes of each block, then of the last eight, then the high nibbles of both.
  static int place(int group, int quarter) { return quarter * 64 + group * 8; }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    first[group] = scale;
    first[group + 8] = 0;
    // The initial values of the two lanes of a group's sums, which subtract 8 from each weight. They count 16 times
    // because the high nibbles, which are added first, are not shifted down; the sums are shifted afterwards.
    const int32_t starts[2] = {-8 * 16 * (sums[0] + sums[1]), 0};
    std::memcpy(second + 2 * group, starts, sizeof starts);
  }

  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m512* total) {
    const __m256 factors = _mm256_loadu_ps(x.first + 16 * block);  // scales of x
    const __m512i starts = _mm512_loadu_si512(x.second + 16 * block);
    const BlockValues values(x.values + kBlock * block);
    // A block is nine 16-bit words: a scale and eight words of nibbles. Indices below 32 select words of the first
    // source, which begins at block 0, the others words of the second source, which begins at block 4.
    const __m512i each_ninth = _mm512_zextsi128_si512(_mm_setr_epi16(0, 9, 18, 27, 32, 41, 50, 59));
    alignas(64) int16_t places[32];
    AA_UNROLL for (int i = 0; i < 32; ++i) places[i] = static_cast<int16_t>(i / 16 * 32 + i / 4 % 4 * 9 + 1 + i % 4);
    const __m512i four_of_nine = _mm512_load_si512(places);
    const __m512i low = _mm512_set1_epi8(15), high = _mm512_set1_epi8(static_cast<char>(0xf0));
    __m512 scales[kStreams];
    __m512i first[kStreams], second[kStreams], sums[kStreams];
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      const __m512i front = load64_once(b[s]), back = load64_once(b[s] + 72);
      const __m512i halves = _mm512_permutex2var_epi16(front, each_ninth, back);
      const __m256 d = _mm256_mul_ps(_mm256_cvtph_ps(_mm512_castsi512_si128(halves)), factors);
      scales[s] = _mm512_permutexvar_ps(twice_each(), _mm512_castps256_ps512(d));
      first[s] = _mm512_permutex2var_epi16(front, four_of_nine, back);
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      second[s] = _mm512_permutex2var_epi16(load64(b[s] + 8), four_of_nine, load64(b[s] + 80));
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) sums[s] =
        add_dots(starts, _mm512_and_si512(first[s], high), values.v[2]);
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      sums[s] = _mm512_srai_epi32(add_dots(sums[s], _mm512_and_si512(second[s], high), values.v[3]), 4);
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) sums[s] =
        add_dots(sums[s], _mm512_and_si512(first[s], low), values.v[0]);
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      sums[s] = add_dots(sums[s], _mm512_and_si512(second[s], low), values.v[1]);
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      total[s] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[s]), scales[s], total[s]);
    }
  }
};

// Eight blocks of Q8_0 at a time, with 16 values of each of four blocks in a vector. x is rounded to 16 bits, since
// rounding it to 8 would cause most of the error: the upper bytes of a block's 256 values come first, then the lower
// ones.
struct RowQ8_0 {
  static constexpr int64_t kBytes = 8 * 34;
  static constexpr bool kFine = true;
  // Of each four groups the first 16 values, then the last 16; the halves of the second group change places, as the
  // permutations of add() deliver them.
  static int place(int group, int quarter) {
    const int vector = group % 4 == 1 ? 1 - quarter / 2 : quarter / 2;
    return group / 4 * 128 + vector * 64 + group % 4 * 16 + quarter % 2 * 8;
  }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    first[group] = scale;
    second[group] = -128 * scale * static_cast<float>(sums[0] + sums[1]);
    first[group + 8] = second[group + 8] = 0;
  }

  // Permutation indices of 16-bit words: eight consecutive ones from each of a, b, c and d.
  static HWY_INLINE __m512i eights(int a, int b, int c, int d) {
    const int from[4] = {a, b, c, d};
    alignas(64) int16_t places[32];
    AA_UNROLL for (int i = 0; i < 32; ++i) places[i] = static_cast<int16_t>(from[i / 8] + i % 8);
    return _mm512_load_si512(places);
  }

  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m512* total) {
    const __m256 factors = _mm256_loadu_ps(x.first + 16 * block);   // scales of x
    const __m256 offsets = _mm256_loadu_ps(x.second + 16 * block);  // -128 * scale * sum of each group
    const BlockValues upper(x.values + 2 * kBlock * block), lower(x.values + 2 * kBlock * block + kBlock);
    // Four blocks are 68 words of 16 bits, every seventeenth of which is a scale. Three loads hold the words 0 to 31,
    // 32 to 63 and 36 to 67: the first and second have 16 values of each block, the first and third the other 16.
    const __m512i scales_of_four = _mm512_zextsi128_si512(_mm_setr_epi16(0, 17, 34, 51, 0, 17, 34, 51));
    const __m512i of_second = eights(1, 26, 35, 52), of_third = eights(9, 18, 43 - 4, 60 - 4);
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    __m512 scales[kStreams];
    __m128i d[kStreams];
    AA_UNROLL for (int half = 0; half < 2; ++half) {
      __m512i first[kStreams], second[kStreams], sums[kStreams];
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        const uint8_t* four = b[s] + kBytes / 2 * half;
        const __m512i front = load64_once(four), middle = load64_once(four + 64);
        const __m128i halves = _mm512_castsi512_si128(_mm512_permutex2var_epi16(front, scales_of_four, middle));
        d[s] = half == 0 ? halves : _mm_unpacklo_epi64(d[s], halves);
        // Flipping the sign bit adds 128, which makes the bytes unsigned.
        first[s] = _mm512_xor_si512(_mm512_permutex2var_epi16(front, of_second, middle), sign);
        second[s] = _mm512_xor_si512(_mm512_permutex2var_epi16(front, of_third, load64(four + 72)), sign);
      }
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        sums[s] = add_dots(_mm512_setzero_si512(), first[s], upper.v[2 * half]);
      }
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        sums[s] = _mm512_slli_epi32(add_dots(sums[s], second[s], upper.v[2 * half + 1]), 8);
      }
      AA_UNROLL for (int s = 0; s < kStreams; ++s) sums[s] = add_dots(sums[s], first[s], lower.v[2 * half]);
      AA_UNROLL for (int s = 0; s < kStreams; ++s) sums[s] = add_dots(sums[s], second[s], lower.v[2 * half + 1]);
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        const __m256 of_weights = _mm256_cvtph_ps(d[s]);
        if (half == 1) {
          total[s] = _mm512_fmadd_ps(_mm512_zextps256_ps512(of_weights), _mm512_zextps256_ps512(offsets), total[s]);
        }
        scales[s] = _mm512_castps256_ps512(_mm256_mul_ps(of_weights, factors));
      }
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        const __m512 of_blocks = _mm512_permutexvar_ps(four_times(4 * half), scales[s]);
        total[s] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[s]), of_blocks, total[s]);
      }
    }
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

// Stores a half of a group (16 values) as bytes, at its places in a block.
template <class Format>
HWY_INLINE void store_half(__m512i q, int group, int half, int8_t* to) {
  const __m128i bytes = _mm512_cvtepi32_epi8(q);
  _mm_storeu_si64(to + Format::place(group, 2 * half), bytes);
  _mm_storeu_si64(to + Format::place(group, 2 * half + 1), _mm_unpackhi_epi64(bytes, bytes));
}

// Rounds k values of x to integers of 8 bits, or of 16 if Format::kFine, with a scale for each group of 32, into the
// arrays of a BlockRow. A group with a NaN or an infinity gets a NaN as its scale, so that every sum with it becomes
// NaN.
template <class Format>
void round_row_for(const float* x, int64_t k, int8_t* values, float* first, float* second) {
  for (int64_t block = 0; block < k / kBlock; ++block, first += 16, second += 16) {
    for (int group = 0; group < 8; ++group) {
      const float* from = x + block * kBlock + group * 32;
      const __m512 a = _mm512_loadu_ps(from), b = _mm512_loadu_ps(from + 16);
      const float most = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
      const __m512 probe = _mm512_fmadd_ps(a, _mm512_setzero_ps(), _mm512_mul_ps(b, _mm512_setzero_ps()));
      const bool finite = _mm512_cmp_ps_mask(probe, probe, _CMP_UNORD_Q) == 0;
      const float scale =
          finite ? most / (Format::kFine ? 127.0F * 256.0F : 127.0F) : std::numeric_limits<float>::quiet_NaN();
      const __m512 inverse = _mm512_set1_ps(finite && scale >= std::numeric_limits<float>::min() ? 1 / scale : 0.0F);
      __m512i q[2] = {_mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)), _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse))};
      if (!finite) q[0] = q[1] = _mm512_setzero_si512();
      const int32_t sums[2] = {_mm512_reduce_add_epi32(q[0]), _mm512_reduce_add_epi32(q[1])};
      for (int half = 0; half < 2; ++half) {
        int8_t* to = values + block * (Format::kFine ? 2 * kBlock : kBlock);
        if constexpr (Format::kFine) {
          const __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(q[half], _mm512_set1_epi32(128)), 8);
          store_half<Format>(_mm512_sub_epi32(q[half], _mm512_slli_epi32(upper, 8)), group, half, to + kBlock);
          q[half] = upper;
        }
        store_half<Format>(q[half], group, half, to);
      }
      Format::put_factors(first, second, group, scale, sums);
    }
  }
}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
