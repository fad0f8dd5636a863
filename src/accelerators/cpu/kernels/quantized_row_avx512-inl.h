// Products of rows of x with rows of quantized weights, for AVX-512 with VNNI: a struct for each format of 32 values in a block,
// which quantized_row.cpp instantiates, and what those of 256 values (quantized_row_k_avx512-inl.h) use too. Their members are those
// of quantized_row_avx2-inl.h. Included after base/simd/highway.h, once per instruction set.
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
// The 16 values of the formats IQ4, with 128 added.
HWY_INLINE __m128i iq4_bytes() {
  return _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, static_cast<char>(129), static_cast<char>(141),
                       static_cast<char>(153), static_cast<char>(166), static_cast<char>(181), static_cast<char>(197),
                       static_cast<char>(217), static_cast<char>(241));
}
// total += the products of eight groups of weights: scale * (sum of products) + other * offset. A vector of `nibbles` has four
// groups, whose low nibbles are their first halves. scale_of(s) and other_of(s) give a number for each of the eight groups of
// stream s, which `factors` and `offsets` of x multiply.
template <class Format, int kStreams, class ScaleOf, class OtherOf>
HWY_INLINE void add_nibbles(const __m512i (&nibbles)[2][kStreams], const __m512i (&others)[2][kStreams],
                            const BlockValues& values, __m256 factors, __m256 offsets, __m512* total, ScaleOf scale_of,
                            OtherOf other_of) {
  __m512 scales[kStreams];
  AA_UNROLL for (int s = 0; s < kStreams; ++s) {
    scales[s] = _mm512_castps256_ps512(_mm256_mul_ps(scale_of(s), factors));
    total[s] = _mm512_fmadd_ps(_mm512_zextps256_ps512(other_of(s)), _mm512_zextps256_ps512(offsets), total[s]);
  }
  AA_UNROLL for (int half = 0; half < 2; ++half) {
    __m512i sums[kStreams];
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      sums[s] = add_dots(_mm512_setzero_si512(), Format::template values_of<0>(nibbles[half][s], others[half][s]),
                         values.v[2 * half]);
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      sums[s] =
          add_dots(sums[s], Format::template values_of<1>(nibbles[half][s], others[half][s]), values.v[2 * half + 1]);
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      total[s] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[s]), _mm512_permutexvar_ps(four_times(4 * half), scales[s]),
                                 total[s]);
    }
  }
}

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

// Eight blocks of 32 values are processed together, like one block of 256. A vector has the nibbles of four blocks, 16 bytes of
// each: their low nibbles are the first halves of four groups, their high nibbles the second halves.
//
// Layout says where a block has what, in 16-bit words: kNibbles, kFifth (32 fifth bits), kMinimum (0: a weight is scale * (value -
// kZero)). kTable: nibbles are numbers of kNibbleTable instead of values.
template <class Layout>
struct RowOf32 {
  static constexpr int64_t kBytes = 8 * 2 * Layout::kWords;
  static constexpr bool kFine = false;
  static int place(int group, int quarter) {
    return group / 4 * 128 + quarter / 2 * 64 + group % 4 * 16 + quarter % 2 * 8;
  }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    first[group] = scale;
    second[group] = scale * static_cast<float>((Layout::kMinimum > 0 ? 1 : -Layout::kZero) * (sums[0] + sums[1]));
    first[group + 8] = second[group + 8] = 0;
  }

  // Four blocks lie in two loads: the second one ends where they end.
  static constexpr int kSecond = 4 * Layout::kWords - 32;
  // Permutation index of a word of four blocks.
  static constexpr int16_t index_of(int word) { return static_cast<int16_t>(word < 32 ? word : 32 + word - kSecond); }
  static HWY_INLINE __m512i nibble_places() {
    alignas(64) int16_t places[32];
    AA_UNROLL for (int i = 0; i < 32; ++i) places[i] = index_of(i / 8 * Layout::kWords + Layout::kNibbles + i % 8);
    return _mm512_load_si512(places);
  }
  // Word 4 + i of the first 128 bits: scale of block i; word 4 + i of the second: its minimum. The first two words of each 128
  // bits: the fifth bits of a block.
  static HWY_INLINE __m512i other_places() {
    alignas(64) int16_t places[32] = {};
    AA_UNROLL for (int i = 0; i < 4; ++i) {
      places[4 + i] = index_of(i * Layout::kWords);
      places[12 + i] = index_of(i * Layout::kWords + Layout::kMinimum);
      places[8 * i] = index_of(i * Layout::kWords + Layout::kFifth);
      places[8 * i + 1] = index_of(i * Layout::kWords + Layout::kFifth + 1);
    }
    return _mm512_load_si512(places);
  }
  // The eight numbers that words 4 to 7 of two vectors' 128 bits number kPart are.
  template <int kPart>
  static HWY_INLINE __m256 eight_halves(__m512i a, __m512i b) {
    return _mm256_cvtph_ps(
        _mm_unpackhi_epi64(_mm512_extracti32x4_epi32(a, kPart), _mm512_extracti32x4_epi32(b, kPart)));
  }
  // Turns the low or the high nibbles of four blocks into values of their first or last halves.
  template <int kHalf>
  static HWY_INLINE __m512i values_of(__m512i nibbles, [[maybe_unused]] __m512i others) {
    const __m512i u = kHalf == 0 ? low_nibbles(nibbles) : high_nibbles(nibbles);
    if constexpr (Layout::kTable) {
      return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(iq4_bytes()), u);
    } else if constexpr (Layout::kFifth > 0) {
      const __m512i spread =
          _mm512_broadcast_i32x4(kHalf == 0 ? _mm_setr_epi32(0, 0, 0x01010101, 0x01010101)
                                            : _mm_setr_epi32(0x02020202, 0x02020202, 0x03030303, 0x03030303));
      const __m512i bits = _mm512_shuffle_epi8(others, spread);
      const __mmask64 set = _mm512_test_epi8_mask(bits, _mm512_set1_epi64(static_cast<int64_t>(0x8040201008040201u)));
      return _mm512_mask_add_epi8(u, set, u, _mm512_set1_epi8(16));
    } else {
      return u;
    }
  }

  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m512* total) {
    const __m256 factors = _mm256_loadu_ps(x.first + 16 * block), offsets = _mm256_loadu_ps(x.second + 16 * block);
    const BlockValues values(x.values + kBlock * block);
    __m512i nibbles[2][kStreams], others[2][kStreams];
    AA_UNROLL for (int half = 0; half < 2; ++half) {
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        const uint8_t* four = b[s] + kBytes / 2 * half;
        const __m512i front = load64_once(four), back = load64_once(four + 2 * kSecond);
        nibbles[half][s] = _mm512_permutex2var_epi16(front, nibble_places(), back);
        others[half][s] = _mm512_permutex2var_epi16(front, other_places(), back);
      }
    }
    add_nibbles<RowOf32, kStreams>(
        nibbles, others, values, factors, offsets, total,
        [&](int s) HWY_ATTR { return eight_halves<0>(others[0][s], others[1][s]); },
        [&](int s) HWY_ATTR { return eight_halves<(Layout::kMinimum > 0 ? 1 : 0)>(others[0][s], others[1][s]); });
  }
};
struct LayoutOfQ4_1 {
  static constexpr int kWords = 10, kNibbles = 2, kFifth = 0, kMinimum = 1, kZero = 0;
  static constexpr bool kTable = false;
};
struct LayoutOfQ5_0 {
  static constexpr int kWords = 11, kNibbles = 3, kFifth = 1, kMinimum = 0, kZero = 16;
  static constexpr bool kTable = false;
};
struct LayoutOfQ5_1 {
  static constexpr int kWords = 12, kNibbles = 4, kFifth = 2, kMinimum = 1, kZero = 0;
  static constexpr bool kTable = false;
};
struct LayoutOfIq4Nl {
  static constexpr int kWords = 9, kNibbles = 1, kFifth = 0, kMinimum = 0, kZero = 128;
  static constexpr bool kTable = true;
};
using RowQ4_1 = RowOf32<LayoutOfQ4_1>;
using RowQ5_0 = RowOf32<LayoutOfQ5_0>;
using RowQ5_1 = RowOf32<LayoutOfQ5_1>;
using RowIq4Nl = RowOf32<LayoutOfIq4Nl>;

// As RowOf32, but a block has 17 bytes, which no permutation of words can select.
struct RowMxfp4 {
  static constexpr int64_t kBytes = 8 * 17;
  static constexpr bool kFine = false;
  static constexpr int kZero = 12;
  static int place(int group, int quarter) { return RowIq4Nl::place(group, quarter); }
  static void put_factors(float* first, float* second, int group, float scale, const int32_t* sums) {
    first[group] = scale;
    second[group] = scale * static_cast<float>(-kZero * (sums[0] + sums[1]));
    first[group + 8] = second[group + 8] = 0;
  }
  template <int kHalf>
  static HWY_INLINE __m512i values_of(__m512i nibbles, __m512i /*others*/) {
    const __m128i table = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table),
                               kHalf == 0 ? low_nibbles(nibbles) : high_nibbles(nibbles));
  }
  // 2^(e - 128) of eight blocks; the results of e = 0 and e = 1 are subnormal.
  static HWY_INLINE __m256 scales_of(const uint8_t* b) {
    // Byte 17 * i of each 68 is half of a word: the lower one for even i.
    const __m512i places = _mm512_zextsi128_si512(_mm_setr_epi16(0, 8, 17, 25, 32, 40, 49, 57));
    const __m512i words = _mm512_permutex2var_epi16(load64_once(b), places, load64_once(b + 68));
    const __m128i shifts = _mm_setr_epi16(0, 8, 0, 8, 0, 8, 0, 8);
    const __m128i bytes = _mm_and_si128(_mm_srlv_epi16(_mm512_castsi512_si128(words), shifts), _mm_set1_epi16(255));
    const __m256i e = _mm256_cvtepu16_epi32(bytes), two = _mm256_set1_epi32(2);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i least = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_mask_mov_epi32(normal, _mm256_cmplt_epi32_mask(e, two), least));
  }

  template <int kStreams>
  static HWY_INLINE void add(const uint8_t* const* b, const BlockRow& x, int64_t block, __m512* total) {
    const __m256 factors = _mm256_loadu_ps(x.first + 16 * block), offsets = _mm256_loadu_ps(x.second + 16 * block);
    const BlockValues values(x.values + kBlock * block);
    __m512i nibbles[2][kStreams];
    AA_UNROLL for (int half = 0; half < 2; ++half) {
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        const auto block_of = [&](int i) HWY_ATTR {
          return _mm_loadu_si128(reinterpret_cast<const __m128i*>(b[s] + 17 * (4 * half + i) + 1));
        };
        __m512i four = _mm512_castsi128_si512(block_of(0));
        four = _mm512_mask_broadcast_i32x4(four, 0x00f0, block_of(1));
        four = _mm512_mask_broadcast_i32x4(four, 0x0f00, block_of(2));
        nibbles[half][s] = _mm512_mask_broadcast_i32x4(four, 0xf000, block_of(3));
      }
    }
    __m256 scales[kStreams];
    AA_UNROLL for (int s = 0; s < kStreams; ++s) scales[s] = scales_of(b[s]);
    const auto scale = [&](int s) HWY_ATTR { return scales[s]; };
    add_nibbles<RowMxfp4, kStreams>(nibbles, nibbles, values, factors, offsets, total, scale, scale);
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
