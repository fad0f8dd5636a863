// See quantized_tiles.h.
//
// Sixteen rows of the weights are unpacked together, a group of 32 columns after the other, to bytes without a sign: a vector
// holds four neighbouring values of each of the sixteen rows. One instruction (vpdpbusd) multiplies it with four values of
// a row of x and adds, so that no sum ever runs across a vector; the scales of a group are applied to its sixteen sums at once.
// What makes the bytes unsigned is taken off where the sums begin. A piece of unpacked weights stays in the first-level cache
// where there are few rows of x, and is larger where many share it.
#include "accelerators/cpu/kernels/quantized_tiles.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>

#include "accelerators/cpu/kernels/matmul_inner.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/ops.h"
#include "accelerators/cpu/worker_pool.h"
#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/quantized_tiles.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/activation-inl.h"
#include "accelerators/cpu/kernels/matmul_finish-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

constexpr int64_t kTileGroup = 32;  // values of x that share a scale
constexpr int64_t kColumns = 16;    // rows of the weights that are unpacked together
constexpr int kTileRows = 8;        // most rows of x at a time
constexpr int64_t kVector = 64;     // bytes

HWY_INLINE void store(uint8_t* p, __m512i v) { _mm512_store_si512(p, v); }
HWY_INLINE void store(uint8_t* p, __m512 v) { _mm512_store_ps(p, v); }
HWY_INLINE __m512i shift_right(__m512i v, unsigned by, int mask) {
  return _mm512_and_si512(_mm512_srli_epi16(v, by), _mm512_set1_epi8(static_cast<char>(mask)));
}

// 16 bytes of each of 16 rows: out[j] has bytes 4 * j .. 4 * j + 3 of row r in its r-th 32 bits.
HWY_INLINE void gather16(const uint8_t* const* rows, int64_t at, __m512i* out) {
  __m512i four[4];  // rows i, i + 4, i + 8, i + 12
  AA_UNROLL for (int i = 0; i < 4; ++i) {
    const auto load = [&](int r) HWY_ATTR { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[r] + at)); };
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(load(i)), load(i + 4), 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(load(i + 8)), load(i + 12), 1);
    four[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  const __m512i a = _mm512_unpacklo_epi32(four[0], four[1]), b = _mm512_unpacklo_epi32(four[2], four[3]);
  const __m512i c = _mm512_unpackhi_epi32(four[0], four[1]), d = _mm512_unpackhi_epi32(four[2], four[3]);
  out[0] = _mm512_unpacklo_epi64(a, b);
  out[1] = _mm512_unpackhi_epi64(a, b);
  out[2] = _mm512_unpacklo_epi64(c, d);
  out[3] = _mm512_unpackhi_epi64(c, d);
}
HWY_INLINE __m512 lower_half(__m512i words) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)); }
HWY_INLINE __m512 upper_half(__m512i words) { return lower_half(_mm512_srli_epi32(words, 16)); }
// Byte `number` of each of 16 words, without or with a sign.
HWY_INLINE __m512 byte_of(__m512i words, unsigned number) {
  return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(words, 8 * number), _mm512_set1_epi32(255)));
}
HWY_INLINE __m512 signed_byte_of(__m512i words, unsigned number) {
  return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(words, 24 - 8 * number), 24));
}

// Each format's unpack() takes the blocks that `rows` point to, with the 32 bits at kWordsAt of each, and writes the groups of
// 32 values one after another: eight vectors of values, then kScales vectors of scales (one of the group, or of its
// halves), then one of offsets if kOffsets: a weight is scale * (value - kZero) + offset. The layouts: aa_block_format.
template <class Format>
constexpr int64_t kGroupBytes = (8 + Format::kScales + (Format::kOffsets ? 1 : 0)) * kVector;
constexpr int64_t kScalesAt = 8 * kVector;

HWY_INLINE __m512i word(const uint32_t* words, int number) { return _mm512_load_si512(words + number * kColumns); }

// 16 bytes hold 32 values of 4 bits: the low halves the first 16.
template <class Change>
HWY_INLINE void store_nibbles(const uint8_t* const* rows, int64_t at, uint8_t* to, Change change) {
  __m512i bytes[4];
  gather16(rows, at, bytes);
  AA_UNROLL for (int j = 0; j < 4; ++j) {
    store(to + j * kVector, change(_mm512_and_si512(bytes[j], _mm512_set1_epi8(15)), j));
    store(to + (j + 4) * kVector, change(shift_right(bytes[j], 4, 15), j + 4));
  }
}
// Bits 4 * j .. 4 * j + 3 of 32, as 16 or 0 in the four bytes of each word.
HWY_INLINE __m512i four_fifth_bits(__m512i bits, unsigned j) {
  const __m512i four = _mm512_and_si512(_mm512_srli_epi32(bits, 4 * j), _mm512_set1_epi32(15));
  const __m512i spread = _mm512_mullo_epi32(four, _mm512_set1_epi32(0x00204081));
  return _mm512_slli_epi32(_mm512_and_si512(spread, _mm512_set1_epi32(0x01010101)), 4);
}

struct TileQ4_0 {
  static constexpr int64_t kValues = 32, kBytes = 18;
  static constexpr int kScales = 1, kZero = 8;
  static constexpr bool kOffsets = false, kFiner = false;
  static constexpr std::array<int64_t, 1> kWordsAt = {0};
  static HWY_INLINE void unpack(const uint8_t* const* rows, const uint32_t* words, uint8_t* to) {
    store_nibbles(rows, 2, to, [](__m512i q, int /*j*/) HWY_ATTR { return q; });
    store(to + kScalesAt, lower_half(word(words, 0)));
  }
};
struct TileQ4_1 {
  static constexpr int64_t kValues = 32, kBytes = 20;
  static constexpr int kScales = 1, kZero = 0;
  static constexpr bool kOffsets = true, kFiner = false;
  static constexpr std::array<int64_t, 1> kWordsAt = {0};
  static HWY_INLINE void unpack(const uint8_t* const* rows, const uint32_t* words, uint8_t* to) {
    store_nibbles(rows, 4, to, [](__m512i q, int /*j*/) HWY_ATTR { return q; });
    const __m512i both = word(words, 0);
    store(to + kScalesAt, lower_half(both));
    store(to + kScalesAt + kVector, upper_half(both));
  }
};
struct TileQ5_0 {
  static constexpr int64_t kValues = 32, kBytes = 22;
  static constexpr int kScales = 1, kZero = 16;
  static constexpr bool kOffsets = false, kFiner = false;
  static constexpr std::array<int64_t, 2> kWordsAt = {0, 2};
  static HWY_INLINE void unpack(const uint8_t* const* rows, const uint32_t* words, uint8_t* to) {
    const __m512i bits = word(words, 1);
    store_nibbles(rows, 6, to, [&](__m512i q, int j) HWY_ATTR {
      return _mm512_or_si512(q, four_fifth_bits(bits, static_cast<unsigned>(j)));
    });
    store(to + kScalesAt, lower_half(word(words, 0)));
  }
};
struct TileQ5_1 {
  static constexpr int64_t kValues = 32, kBytes = 24;
  static constexpr int kScales = 1, kZero = 0;
  static constexpr bool kOffsets = true, kFiner = false;
  static constexpr std::array<int64_t, 2> kWordsAt = {0, 4};
  static HWY_INLINE void unpack(const uint8_t* const* rows, const uint32_t* words, uint8_t* to) {
    const __m512i bits = word(words, 1);
    store_nibbles(rows, 8, to, [&](__m512i q, int j) HWY_ATTR {
      return _mm512_or_si512(q, four_fifth_bits(bits, static_cast<unsigned>(j)));
    });
    const __m512i both = word(words, 0);
    store(to + kScalesAt, lower_half(both));
    store(to + kScalesAt + kVector, upper_half(both));
  }
};
struct TileQ8_0 {
  static constexpr int64_t kValues = 32, kBytes = 34;
  static constexpr int kScales = 1, kZero = 128;
  static constexpr bool kOffsets = false, kFiner = true;
  static constexpr std::array<int64_t, 1> kWordsAt = {0};
  static HWY_INLINE void unpack(const uint8_t* const* rows, const uint32_t* words, uint8_t* to) {
    __m512i bytes[8];
    gather16(rows, 2, bytes);
    gather16(rows, 18, bytes + 4);
    AA_UNROLL for (int j = 0; j < 8; ++j) {
      store(to + j * kVector, _mm512_xor_si512(bytes[j], _mm512_set1_epi8(static_cast<char>(128))));
    }
    store(to + kScalesAt, lower_half(word(words, 0)));
  }
};
// The 16 values of the formats IQ4, 128 higher.
HWY_INLINE __m512i iq4_of(__m512i indices) {
  const __m128i table = _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, static_cast<char>(129), static_cast<char>(141),
                                      static_cast<char>(153), static_cast<char>(166), static_cast<char>(181),
                                      static_cast<char>(197), static_cast<char>(217), static_cast<char>(241));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), indices);
}
struct TileIq4Nl {
  static constexpr int64_t kValues = 32, kBytes = 18;
  static constexpr int kScales = 1, kZero = 128;
  static constexpr bool kOffsets = false, kFiner = false;
  static constexpr std::array<int64_t, 1> kWordsAt = {0};
  static HWY_INLINE void unpack(const uint8_t* const* rows, const uint32_t* words, uint8_t* to) {
    store_nibbles(rows, 2, to, [](__m512i q, int /*j*/) HWY_ATTR { return iq4_of(q); });
    store(to + kScalesAt, lower_half(word(words, 0)));
  }
};
struct TileMxfp4 {
  static constexpr int64_t kValues = 32, kBytes = 17;
  static constexpr int kScales = 1, kZero = 12;
  static constexpr bool kOffsets = false, kFiner = false;
  static constexpr std::array<int64_t, 1> kWordsAt = {0};
  static HWY_INLINE void unpack(const uint8_t* const* rows, const uint32_t* words, uint8_t* to) {
    const __m128i table = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    store_nibbles(rows, 1, to,
                  [&](__m512i q, int /*j*/) HWY_ATTR { return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), q); });
    // 2^(e - 128); the two least are no normal numbers.
    const __m512i e = _mm512_and_si512(word(words, 0), _mm512_set1_epi32(255));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __m512i least = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    const __mmask16 is_least = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    store(to + kScalesAt, _mm512_castsi512_ps(_mm512_mask_blend_epi32(is_least, normal, least)));
  }
};
template <bool kFifth>
struct TileQ4OrQ5K {
  static constexpr int64_t kValues = 256, kBytes = kFifth ? 176 : 144;
  static constexpr int kScales = 1, kZero = 0;
  static constexpr bool kOffsets = true, kFiner = false;
  static constexpr std::array<int64_t, 0> kWordsAt = {};
  static HWY_INLINE void unpack(const uint8_t* const* rows, const uint32_t* /*words*/, uint8_t* to) {
    constexpr int64_t kGroup = kGroupBytes<TileQ4OrQ5K>;
    __m512i head[4];  // d and dmin; then scales and minima in 6 bits
    gather16(rows, 0, head);
    const __m512 d = lower_half(head[0]), minus_dmin = _mm512_sub_ps(_mm512_setzero_ps(), upper_half(head[0]));
    const __m512i six_bits = _mm512_set1_epi32(0x3f3f3f3f), four_bits = _mm512_set1_epi32(0x0f0f0f0f);
    const auto high_pairs = [](__m512i v) HWY_ATTR {
      return _mm512_slli_epi32(_mm512_and_si512(_mm512_srli_epi32(v, 6), _mm512_set1_epi32(0x03030303)), 4);
    };
    const __m512i scales[2] = {_mm512_and_si512(head[1], six_bits),
                               _mm512_or_si512(_mm512_and_si512(head[3], four_bits), high_pairs(head[1]))};
    const __m512i minima[2] = {
        _mm512_and_si512(head[2], six_bits),
        _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi32(head[3], 4), four_bits), high_pairs(head[2]))};
    AA_UNROLL for (unsigned g = 0; g < 8; ++g) {
      store(to + g * kGroup + kScalesAt, _mm512_mul_ps(d, byte_of(scales[g / 4], g % 4)));
      store(to + g * kGroup + kScalesAt + kVector, _mm512_mul_ps(minus_dmin, byte_of(minima[g / 4], g % 4)));
    }
    __m512i high[8];
    if constexpr (kFifth) {
      gather16(rows, 16, high);
      gather16(rows, 32, high + 4);
    }
    const auto fifth = [&](__m512i q, int j, int g) HWY_ATTR {
      if constexpr (!kFifth) return q;
      const __mmask64 set = _mm512_test_epi8_mask(high[j], _mm512_set1_epi8(static_cast<char>(1 << g)));
      return _mm512_or_si512(q, _mm512_maskz_set1_epi8(set, 16));
    };
    AA_UNROLL for (int pair = 0; pair < 4; ++pair) {
      AA_UNROLL for (int half = 0; half < 2; ++half) {
        __m512i bytes[4];
        gather16(rows, (kFifth ? 48 : 16) + 32 * pair + 16 * half, bytes);
        AA_UNROLL for (int i = 0; i < 4; ++i) {
          const int j = 4 * half + i;
          uint8_t* at = to + 2 * pair * kGroup + j * kVector;
          store(at, fifth(_mm512_and_si512(bytes[i], _mm512_set1_epi8(15)), j, 2 * pair));
          store(at + kGroup, fifth(shift_right(bytes[i], 4, 15), j, 2 * pair + 1));
        }
      }
    }
  }
};
struct TileQ6K {
  static constexpr int64_t kValues = 256, kBytes = 210;
  static constexpr int kScales = 2, kZero = 32;
  static constexpr bool kOffsets = false, kFiner = false;
  static constexpr std::array<int64_t, 1> kWordsAt = {206};
  static HWY_INLINE void unpack(const uint8_t* const* rows, const uint32_t* words, uint8_t* to) {
    constexpr int64_t kGroup = kGroupBytes<TileQ6K>;
    __m512i scales[4];
    gather16(rows, 192, scales);
    const __m512 d = upper_half(word(words, 0));
    AA_UNROLL for (unsigned g = 0; g < 8; ++g) {
      AA_UNROLL for (unsigned half = 0; half < 2; ++half) {
        const unsigned number = 2 * g + half;
        store(to + g * kGroup + kScalesAt + half * kVector,
              _mm512_mul_ps(d, signed_byte_of(scales[number / 4], number % 4)));
      }
    }
    AA_UNROLL for (int half = 0; half < 2; ++half) {
      AA_UNROLL for (int quarter = 0; quarter < 2; ++quarter) {  // 16 of 32 values of a group
        __m512i high[4], first[4], second[4];
        gather16(rows, 128 + 32 * half + 16 * quarter, high);
        gather16(rows, 64 * half + 16 * quarter, first);
        gather16(rows, 64 * half + 32 + 16 * quarter, second);
        AA_UNROLL for (int i = 0; i < 4; ++i) {
          uint8_t* at = to + 4 * half * kGroup + (4 * quarter + i) * kVector;
          const auto with = [&](__m512i low, unsigned group) HWY_ATTR {
            return _mm512_or_si512(low, _mm512_slli_epi16(shift_right(high[i], 2 * group, 3), 4));
          };
          store(at, with(_mm512_and_si512(first[i], _mm512_set1_epi8(15)), 0));
          store(at + kGroup, with(_mm512_and_si512(second[i], _mm512_set1_epi8(15)), 1));
          store(at + 2 * kGroup, with(shift_right(first[i], 4, 15), 2));
          store(at + 3 * kGroup, with(shift_right(second[i], 4, 15), 3));
        }
      }
    }
  }
};
struct TileIq4Xs {
  static constexpr int64_t kValues = 256, kBytes = 136;
  static constexpr int kScales = 1, kZero = 128;
  static constexpr bool kOffsets = false, kFiner = false;
  static constexpr std::array<int64_t, 2> kWordsAt = {0, 4};
  static HWY_INLINE void unpack(const uint8_t* const* rows, const uint32_t* words, uint8_t* to) {
    constexpr int64_t kGroup = kGroupBytes<TileIq4Xs>;
    const __m512i head = word(words, 0), low = word(words, 1);  // d, then 8 pairs of bits; 8 times 4 bits
    const __m512 d = lower_half(head);
    AA_UNROLL for (unsigned g = 0; g < 8; ++g) {
      const __m512i four = _mm512_and_si512(_mm512_srli_epi32(low, 4 * g), _mm512_set1_epi32(15));
      const __m512i two = _mm512_and_si512(_mm512_srli_epi32(head, 16 + 2 * g), _mm512_set1_epi32(3));
      const __m512i scale = _mm512_sub_epi32(_mm512_or_si512(four, _mm512_slli_epi32(two, 4)), _mm512_set1_epi32(32));
      store(to + g * kGroup + kScalesAt, _mm512_mul_ps(d, _mm512_cvtepi32_ps(scale)));
      store_nibbles(rows, 8 + 16 * g, to + g * kGroup, [](__m512i q, int /*j*/) HWY_ATTR { return iq4_of(q); });
    }
  }
};

// Adds four products of bytes each: `weights` without a sign, four bytes at x with one for all.
HWY_INLINE void add_products(__m512i& sums, __m512i weights, const int8_t* x) {
  // Written out because functions of this instruction set are compiled without VNNI, which not every such processor has.
  asm("vpdpbusd (%[x])%{1to16%}, %[weights], %[sums]"  // NOLINT(hicpp-no-assembler)
      : [sums] "+v"(sums)
      : [weights] "v"(weights), [x] "r"(x), "m"(*reinterpret_cast<const int32_t*>(x)));
}

// out[m * out_stride + i] += products of row first_m + m of x, groups [first, first + groups), with the unpacked rows i.
// Prefetches from `ahead` on as many bytes as those groups are; null: nothing.
template <class Format, int kM>
void multiply_groups(const uint8_t* unpacked, const TiledInput& x, int64_t k, int64_t first_m, int64_t first,
                     int64_t groups, const uint8_t* ahead, float* out, int64_t out_stride) {
  constexpr int64_t kAheadBytes = kColumns * Format::kBytes / (Format::kValues / kTileGroup);  // of a group
  constexpr int kParts = Format::kScales, kWords = 8 / kParts;
  const int64_t all = k / kTileGroup;
  const int8_t* values = x.values + first_m * k + first * kTileGroup;
  const int8_t* lower = Format::kFiner ? x.lower + first_m * k + first * kTileGroup : nullptr;
  const float* scales = x.scales + first_m * all + first;
  const float* group_sums = x.sums + first_m * all + first;
  const int32_t* starts = x.starts + (first_m * all + first) * kParts;
  __m512 total[kM];
  AA_UNROLL for (int m = 0; m < kM; ++m) total[m] = _mm512_loadu_ps(out + m * out_stride);
  for (int64_t g = 0; g < groups; ++g, unpacked += kGroupBytes<Format>, values += kTileGroup) {
    if (ahead != nullptr) {
      AA_UNROLL for (int64_t line = 0; line < kAheadBytes; line += 64) {
        __builtin_prefetch(ahead + g * kAheadBytes + line, 0, 2);
      }
    }
    AA_UNROLL for (int part = 0; part < kParts; ++part) {
      __m512i sums[kM], uppers[kM];
      AA_UNROLL for (int m = 0; m < kM; ++m) {
        sums[m] = _mm512_set1_epi32(starts[(m * all + g) * kParts + part]);
        if constexpr (Format::kFiner) uppers[m] = _mm512_setzero_si512();
      }
      AA_UNROLL for (int j = 0; j < kWords; ++j) {
        const int word = part * kWords + j;
        const __m512i weights = _mm512_load_si512(unpacked + word * kVector);
        AA_UNROLL for (int m = 0; m < kM; ++m) {
          if constexpr (Format::kFiner) {
            add_products(uppers[m], weights, values + m * k + 4 * word);
            add_products(sums[m], weights, lower + m * k + g * kTileGroup + 4 * word);
          } else {
            add_products(sums[m], weights, values + m * k + 4 * word);
          }
        }
      }
      const __m512 of_weights = _mm512_load_ps(unpacked + kScalesAt + part * kVector);
      AA_UNROLL for (int m = 0; m < kM; ++m) {
        if constexpr (Format::kFiner) sums[m] = _mm512_add_epi32(sums[m], _mm512_slli_epi32(uppers[m], 8));
        const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[m]), of_weights);
        total[m] = _mm512_fmadd_ps(scaled, _mm512_set1_ps(scales[m * all + g]), total[m]);
      }
    }
    if constexpr (Format::kOffsets) {
      const __m512 offsets = _mm512_load_ps(unpacked + kScalesAt + kParts * kVector);
      AA_UNROLL for (int m = 0; m < kM; ++m) {
        total[m] = _mm512_fmadd_ps(offsets, _mm512_set1_ps(group_sums[m * all + g]), total[m]);
      }
    }
  }
  AA_UNROLL for (int m = 0; m < kM; ++m) _mm512_storeu_ps(out + m * out_stride, total[m]);
}

template <class Format>
void multiply_any_groups(int64_t count_m, const uint8_t* unpacked, const TiledInput& x, int64_t k, int64_t first_m,
                         int64_t first, int64_t groups, const uint8_t* ahead, float* out, int64_t out_stride) {
  const auto run = [&]<int kM>() {
    multiply_groups<Format, kM>(unpacked, x, k, first_m, first, groups, ahead, out, out_stride);
  };
  switch (count_m) {
    case 1: return run.template operator()<1>();
    case 2: return run.template operator()<2>();
    case 3: return run.template operator()<3>();
    case 4: return run.template operator()<4>();
    case 5: return run.template operator()<5>();
    case 6: return run.template operator()<6>();
    case 7: return run.template operator()<7>();
    default: return run.template operator()<8>();
  }
}

// to[block][number][row]: 32 bits of each of so many blocks.
template <class Format>
HWY_INLINE void gather_words(const uint8_t* const* rows, int64_t blocks, uint32_t* to) {
  constexpr size_t kNumbers = Format::kWordsAt.size();
  for (int64_t r = 0; r < kColumns; ++r) {
    for (int64_t i = 0; i < blocks; ++i) {
      AA_UNROLL for (size_t number = 0; number < kNumbers; ++number) {
        std::memcpy(to + (i * static_cast<int64_t>(kNumbers) + static_cast<int64_t>(number)) * kColumns + r,
                    rows[r] + i * Format::kBytes + Format::kWordsAt[number], sizeof(uint32_t));
      }
    }
  }
}

// products[m * stride + i] for rows m of x and `n` rows i of the weights from w on.
template <class Format>
void multiply_columns(const uint8_t* w, int64_t w_stride, int64_t n, const TiledInput& x, int64_t m, int64_t k,
                      uint8_t* unpacked, float* products, int64_t stride) {
  // Unpacked at a time: where few rows of x come, 512 columns, which stay in the first-level cache.
  const int64_t blocks = k / Format::kValues;
  const int64_t at_once = m > kTileRows ? blocks : std::max<int64_t>(512 / Format::kValues, 1);
  constexpr int64_t kGroups = Format::kValues / kTileGroup;
  for (int64_t column = 0; column < n; column += kColumns) {
    for (int64_t row = 0; row < m; ++row) {
      std::fill_n(products + row * stride + column, kColumns, 0.0F);
    }
    for (int64_t block = 0; block < blocks; block += at_once) {
      const int64_t count = std::min(at_once, blocks - block);
      const uint8_t* rows[kColumns];
      for (int64_t r = 0; r < kColumns; ++r) {
        rows[r] = w + std::min(column + r, n - 1) * w_stride + block * Format::kBytes;
      }
      // Single words are gathered some blocks ahead: what was just written in parts cannot be read as a whole at once.
      constexpr int64_t kAhead = 16, kWords = static_cast<int64_t>(Format::kWordsAt.size()) * kColumns;
      alignas(64) uint32_t words[kAhead * kWords + kColumns];
      for (int64_t i = 0; i < count; ++i) {
        if (i % kAhead == 0) gather_words<Format>(rows, std::min(kAhead, count - i), words);
        Format::unpack(rows, words + i % kAhead * kWords, unpacked + i * kGroups * kGroupBytes<Format>);
        for (const uint8_t*& row : rows) row += Format::kBytes;
      }
      // The next rows, which follow in memory, come while these are multiplied: as much of them as was just unpacked.
      const uint8_t* ahead = w + (column + kColumns) * w_stride + block * kColumns * Format::kBytes;
      for (int64_t row = 0; row < m; row += kTileRows) {
        multiply_any_groups<Format>(std::min<int64_t>(kTileRows, m - row), unpacked, x, k, row, block * kGroups,
                                    count * kGroups, row == 0 ? ahead : nullptr, products + row * stride + column,
                                    stride);
      }
    }
  }
}

struct TileKernels {
  void (*multiply)(const uint8_t*, int64_t, int64_t, const TiledInput&, int64_t, int64_t, uint8_t*, float*,
                   int64_t) = nullptr;
  int64_t group_bytes = 0;
  int zero = 0;
  int parts = 1;
  bool finer = false;
};
template <class Format>
constexpr TileKernels tile_kernels_of() {
  return {multiply_columns<Format>, kGroupBytes<Format>, Format::kZero, Format::kScales, Format::kFiner};
}
TileKernels find_tile_kernels(uint32_t format) {
  switch (format) {
    case AA_BLOCK_Q4_0: return tile_kernels_of<TileQ4_0>();
    case AA_BLOCK_Q4_1: return tile_kernels_of<TileQ4_1>();
    case AA_BLOCK_Q5_0: return tile_kernels_of<TileQ5_0>();
    case AA_BLOCK_Q5_1: return tile_kernels_of<TileQ5_1>();
    case AA_BLOCK_Q8_0: return tile_kernels_of<TileQ8_0>();
    case AA_BLOCK_Q4_K: return tile_kernels_of<TileQ4OrQ5K<false>>();
    case AA_BLOCK_Q5_K: return tile_kernels_of<TileQ4OrQ5K<true>>();
    case AA_BLOCK_Q6_K: return tile_kernels_of<TileQ6K>();
    case AA_BLOCK_IQ4_NL: return tile_kernels_of<TileIq4Nl>();
    case AA_BLOCK_IQ4_XS: return tile_kernels_of<TileIq4Xs>();
    case AA_BLOCK_MXFP4: return tile_kernels_of<TileMxfp4>();
    default: return {};
  }
}

bool has_tiles(uint32_t format) { return cpu_features().avx512_vnni && find_tile_kernels(format).multiply != nullptr; }

// Rounds a group of 32 values. One with a NaN or an infinity gets a NaN as its scale, which every sum with it then is.
HWY_INLINE void round_group(const float* x, bool finer, int zero, int parts, int8_t* values, int8_t* lower,
                            float* scale, float* sum, int32_t* starts) {
  const __m512 first = _mm512_loadu_ps(x), second = _mm512_loadu_ps(x + 16);
  const float most = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(first), _mm512_abs_ps(second)));
  const __m512 probe = _mm512_fmadd_ps(first, _mm512_setzero_ps(), _mm512_mul_ps(second, _mm512_setzero_ps()));
  const bool finite = _mm512_cmp_ps_mask(probe, probe, _CMP_UNORD_Q) == 0;
  const float steps = finer ? 127.0F * 256 : 127.0F;
  *scale = finite ? most / steps : std::numeric_limits<float>::quiet_NaN();
  const __m512 inverse = _mm512_set1_ps(finite && *scale > 0 ? 1 / *scale : 0.0F);
  __m512i q[2] = {_mm512_cvtps_epi32(_mm512_mul_ps(first, inverse)),
                  _mm512_cvtps_epi32(_mm512_mul_ps(second, inverse))};
  if (!finite) q[0] = q[1] = _mm512_setzero_si512();
  const int32_t sums[2] = {_mm512_reduce_add_epi32(q[0]), _mm512_reduce_add_epi32(q[1])};
  AA_UNROLL for (int i = 0; i < 2; ++i) {
    if (finer) {  // 256 * upper + lower, both with a sign
      const __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(q[i], _mm512_set1_epi32(128)), 8);
      const __m512i rest = _mm512_sub_epi32(q[i], _mm512_slli_epi32(upper, 8));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(lower + 16 * i), _mm512_cvtepi32_epi8(rest));
      q[i] = upper;
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(values + 16 * i), _mm512_cvtepi32_epi8(q[i]));
  }
  *sum = *scale * static_cast<float>(sums[0] + sums[1]);
  if (parts == 1) {
    starts[0] = -zero * (sums[0] + sums[1]);
  } else {
    starts[0] = -zero * sums[0];
    starts[1] = -zero * sums[1];
  }
}

// Rows [begin, end) of x to the places that `to` points to.
void round_tile_rows(const QuantizedProduct& product, int64_t begin, int64_t end, const TiledInput& to) {
  const int64_t k = product.args.k, groups = k / kTileGroup;
  const TileKernels kernels = find_tile_kernels(product.format->number);
  auto* wide = scratch<float>(Scratch::Row3, static_cast<size_t>(k));
  for (int64_t m = begin; m < end; ++m) {
    read_floats(row_of(product.args.x, m, k), 0, k, wide);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t at = m * groups + g;
      round_group(wide + g * kTileGroup, kernels.finer, kernels.zero, kernels.parts,
                  const_cast<int8_t*>(to.values) + at * kTileGroup,
                  kernels.finer ? const_cast<int8_t*>(to.lower) + at * kTileGroup : nullptr,
                  const_cast<float*>(to.scales) + at, const_cast<float*>(to.sums) + at,
                  const_cast<int32_t*>(to.starts) + at * kernels.parts);
    }
  }
}

// Columns [begin, begin + n) of the result.
void multiply_tile_span(const QuantizedProduct& product, const TiledInput& x, int64_t begin, int64_t n) {
  const Matmul& args = product.args;
  const TileKernels kernels = find_tile_kernels(product.format->number);
  const int64_t stride = (n + kColumns - 1) / kColumns * kColumns;
  auto* products = scratch<float>(Scratch::Tile, static_cast<size_t>(args.m * stride));
  auto* unpacked = scratch<uint8_t>(Scratch::Partials, static_cast<size_t>(args.k / kTileGroup * kernels.group_bytes));
  kernels.multiply(product.w + begin * product.w_stride, product.w_stride, n, x, args.m, args.k, unpacked, products,
                   stride);
  for (int64_t m = 0; m < args.m; ++m) {
    finish_row(args, args.parts[0], m, begin, n, products + m * stride, nullptr);
  }
}

#else

bool has_tiles(uint32_t /*format*/) { return false; }
void round_tile_rows(const QuantizedProduct& /*product*/, int64_t /*begin*/, int64_t /*end*/,
                     const TiledInput& /*to*/) {}
void multiply_tile_span(const QuantizedProduct& /*product*/, const TiledInput& /*x*/, int64_t /*begin*/,
                        int64_t /*n*/) {}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(has_tiles);
AA_CPU_EXPORT(round_tile_rows);
AA_CPU_EXPORT(multiply_tile_span);

bool takes_tiles(uint32_t format) { return AA_CPU_DISPATCH(has_tiles)(format); }

void multiply_tiles(const QuantizedProduct& product) {
  // Rows of the weights that a thread takes at once.
  constexpr int64_t piece = 64;
  const Matmul& args = product.args;
  const int64_t n = args.parts[0].n, m = args.m, k = args.k, groups = k / 32;
  const bool finer = product.format->number == AA_BLOCK_Q8_0;
  const auto values = static_cast<size_t>(m * k), of_groups = static_cast<size_t>(m * groups);
  auto* bytes = scratch<int8_t>(Scratch::Row1, finer ? 2 * values : values);
  auto* scales = scratch<float>(Scratch::Row2, 2 * of_groups);
  TiledInput x;
  x.values = bytes;
  x.lower = finer ? bytes + values : nullptr;
  x.scales = scales;
  x.sums = scales + of_groups;
  x.starts = scratch<int32_t>(Scratch::Rounded, 2 * of_groups);
  WorkerPool& pool = WorkerPool::instance();
  const bool alone = is_small(args);
  if (alone || m * k < 32768) {
    AA_CPU_DISPATCH(round_tile_rows)(product, 0, m, x);
  } else {
    pool.run([&](int index, int threads) {
      AA_CPU_DISPATCH(round_tile_rows)(product, m * index / threads, m * (index + 1) / threads, x);
    });
  }
  if (alone || n <= piece) {
    for (int64_t begin = 0; begin < n; begin += piece) {
      AA_CPU_DISPATCH(multiply_tile_span)(product, x, begin, std::min(piece, n - begin));
    }
    return;
  }
  std::atomic<int64_t> next{0};
  pool.run([&](int /*index*/, int /*count*/) {
    for (int64_t begin = next.fetch_add(piece); begin < n; begin = next.fetch_add(piece)) {
      AA_CPU_DISPATCH(multiply_tile_span)(product, x, begin, std::min(piece, n - begin));
    }
  });
}

}  // namespace anyaccel::cpu
#endif  // HWY_ONCE
