// Products of several rows of x with quantized weights that quantized_tiles-inl.h unpacks. Included by
// quantized_tiles.cpp (formats of 32 values in a block) and quantized_tiles_k.cpp (256 values), since one file took
// twice as long to compile. Included after base/simd/highway.h, once per instruction set.
//
// A lane belongs to a row of the weights, and values of x are broadcast, so that no sum runs across lanes.
// multiply_columns() unpacks 16 rows of the weights and multiply_groups() multiplies them with up to kTileRows rows of
// x, whose sums stay in registers.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "accelerators/cpu/kernels/quantized_tiles-inl.h"
#include "accelerators/cpu/kernels/quantized_tiles.h"
#include "base/simd/cpu_features.h"

#if defined(ANYACCEL_CPU_KERNELS_QUANTIZED_TILE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_QUANTIZED_TILE_PRODUCTS_INL_H_
#undef ANYACCEL_CPU_KERNELS_QUANTIZED_TILE_PRODUCTS_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_QUANTIZED_TILE_PRODUCTS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if AA_HAS_QUANTIZED_TILES

#if HWY_TARGET == HWY_AVX3

constexpr int kTileRows = 8;  // most rows of x at a time

// Adds four products of bytes to each 32-bit lane: the unsigned bytes of `weights` with the four signed bytes at x.
HWY_INLINE void add_products(__m512i& sums, __m512i weights, const int8_t* x) {
  // Written out because functions of this instruction set are compiled without VNNI, which not every such processor has.
  asm("vpdpbusd (%[x])%{1to16%}, %[weights], %[sums]"  // NOLINT(hicpp-no-assembler)
      : [sums] "+v"(sums)
      : [weights] "v"(weights), [x] "r"(x), "m"(*reinterpret_cast<const int32_t*>(x)));
}

// out[m * out_stride + i] += product of row i of the unpacked weights with row first_m + m of x, over groups [first,
// first + groups), for m < kM. Prefetches as many bytes as the packed weights of these groups take, from `ahead` on,
// unless that is null.
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
  // Into the first-level cache on a Zen 5: steps of 4 to 31 sequences took 0.94 to 0.98 of the time with Q8_0, 0.92 to 0.98 with
  // Q4_K_M and 0.98 to 1.02 with Q4_0. Other processors were not measured.
  const bool near = cpu_features().zen5;
  __m512 total[kM];
  AA_UNROLL for (int m = 0; m < kM; ++m) total[m] = _mm512_loadu_ps(out + m * out_stride);
  for (int64_t g = 0; g < groups; ++g, unpacked += kGroupBytes<Format>, values += kTileGroup) {
    if (ahead != nullptr) {
      AA_UNROLL for (int64_t line = 0; line < kAheadBytes; line += 64) {
        if (near) {
          __builtin_prefetch(ahead + g * kAheadBytes + line, 0, 3);
        } else {
          __builtin_prefetch(ahead + g * kAheadBytes + line, 0, 2);
        }
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
      const __m512 of_weights = _mm512_load_ps(unpacked + kScalesAt<Format> + part * kVector);
      AA_UNROLL for (int m = 0; m < kM; ++m) {
        if constexpr (Format::kFiner) sums[m] = _mm512_add_epi32(sums[m], _mm512_slli_epi32(uppers[m], 8));
        const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[m]), of_weights);
        total[m] = _mm512_fmadd_ps(scaled, _mm512_set1_ps(scales[m * all + g]), total[m]);
      }
    }
    if constexpr (Format::kOffsets) {
      const __m512 offsets = _mm512_load_ps(unpacked + kScalesAt<Format> + kParts * kVector);
      AA_UNROLL for (int m = 0; m < kM; ++m) {
        total[m] = _mm512_fmadd_ps(offsets, _mm512_set1_ps(group_sums[m * all + g]), total[m]);
      }
    }
  }
  AA_UNROLL for (int m = 0; m < kM; ++m) _mm512_storeu_ps(out + m * out_stride, total[m]);
}

#else

constexpr int kTileRows = 4;

// Pins a vector to a register and keeps its uses in source order. Otherwise the compiler moves the additions of a group
// to its end and spills weights to the stack.
HWY_INLINE void hold(__m256i& v) { asm("" : "+x"(v)); }  // NOLINT(hicpp-no-assembler)
HWY_INLINE Ints load_and_hold(const uint8_t* p) {
  Ints v = load_ints(p);
  hold(v.v[0]);
  hold(v.v[1]);
  return v;
}
// The four bytes at x in every 32-bit lane.
HWY_INLINE __m256i repeated(const void* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof four);
  return _mm256_set1_epi32(four);
}
// Adds the products of 64 bytes of weights with four consecutive bytes of each row of x in 16-bit lanes; sets them if
// `first`.
template <int kM>
HWY_INLINE void add_byte_products(const uint8_t* weights, const int8_t* x, int64_t k, bool first,
                                  __m256i (&sums)[kM][2]) {
  const Ints w = load_and_hold(weights);
  AA_UNROLL for (int m = 0; m < kM; ++m) {
    const __m256i values = repeated(x + m * k);
    AA_UNROLL for (int i = 0; i < 2; ++i) {
      const __m256i products = _mm256_maddubs_epi16(w.v[i], values);
      sums[m][i] = first ? products : _mm256_add_epi16(sums[m][i], products);
      hold(sums[m][i]);
    }
  }
}
// The same for weights and x of 16 bits: adds products with two consecutive values of each row of x in 32-bit lanes.
template <int kM>
HWY_INLINE void add_wide_products(const uint8_t* weights, const int16_t* x, int64_t k, __m256i (&sums)[kM][2]) {
  const Ints w = load_and_hold(weights);
  AA_UNROLL for (int m = 0; m < kM; ++m) {
    const __m256i values = repeated(x + m * k);
    AA_UNROLL for (int i = 0; i < 2; ++i) {
      sums[m][i] = _mm256_add_epi32(sums[m][i], _mm256_madd_epi16(w.v[i], values));
      hold(sums[m][i]);
    }
  }
}

template <class Format, int kM>
HWY_NOINLINE void multiply_groups(const uint8_t* unpacked, const TiledInput& x, int64_t k, int64_t first_m,
                                  int64_t first, int64_t groups, const uint8_t* ahead, float* out, int64_t out_stride) {
  constexpr int64_t kAheadBytes = kColumns * Format::kBytes / (Format::kValues / kTileGroup);  // of a group
  constexpr int kParts = Format::kScales, kWords = 8 / kParts;
  // How many words (four values each) a 16-bit lane can add up without saturating, as a power of two.
  constexpr int kMostWords = 32767 / (2 * 127 * Format::kMost);
  constexpr int kWordsOfSum = std::min(kMostWords >= 8 ? 8 : kMostWords >= 4 ? 4 : 2, kWords);
  static_assert(kIn16Bits<Format> || kMostWords >= 2);
  const int64_t all = k / kTileGroup;
  const int64_t begin = first_m * k + first * kTileGroup;
  const int8_t* values = x.values + begin;
  const int16_t* wide = kIn16Bits<Format> ? x.wide + begin : nullptr;
  const float* scales = x.scales + first_m * all + first;
  const float* group_sums = x.sums + first_m * all + first;
  const int32_t* starts = x.starts + (first_m * all + first) * kParts;
  __m256 total[kM][2];
  AA_UNROLL for (int m = 0; m < kM; ++m) {
    AA_UNROLL for (int i = 0; i < 2; ++i) total[m][i] = _mm256_loadu_ps(out + m * out_stride + 8 * i);
  }
  for (int64_t g = 0; g < groups; ++g, unpacked += kGroupBytes<Format>) {
    if (ahead != nullptr) {
      AA_UNROLL for (int64_t line = 0; line < kAheadBytes; line += 64) {
        __builtin_prefetch(ahead + g * kAheadBytes + line, 0, 2);
      }
    }
    AA_UNROLL for (int part = 0; part < kParts; ++part) {
      __m256i sums[kM][2];
      AA_UNROLL for (int m = 0; m < kM; ++m) {
        const __m256i start =
            kIn16Bits<Format> ? _mm256_setzero_si256() : _mm256_set1_epi32(starts[(m * all + g) * kParts + part]);
        sums[m][0] = sums[m][1] = start;
      }
      if constexpr (kIn16Bits<Format>) {
        static_assert(kParts == 1);
        AA_UNROLL for (int j = 0; j < 16; ++j) {
          add_wide_products<kM>(unpacked + j * kVector, wide + g * kTileGroup + 2 * j, k, sums);
        }
      } else {
        AA_UNROLL for (int word = part * kWords; word < (part + 1) * kWords; word += kWordsOfSum) {
          __m256i of_words[kM][2];
          AA_UNROLL for (int j = 0; j < kWordsOfSum; ++j) {
            add_byte_products<kM>(unpacked + (word + j) * kVector, values + g * kTileGroup + 4 * (word + j), k, j == 0,
                                  of_words);
          }
          AA_UNROLL for (int m = 0; m < kM; ++m) {
            AA_UNROLL for (int i = 0; i < 2; ++i) {
              sums[m][i] = _mm256_add_epi32(sums[m][i], _mm256_madd_epi16(of_words[m][i], _mm256_set1_epi16(1)));
            }
          }
        }
      }
      const auto* of_weights = reinterpret_cast<const float*>(unpacked + kScalesAt<Format> + part * kVector);
      AA_UNROLL for (int m = 0; m < kM; ++m) {
        const __m256 of_x = _mm256_set1_ps(scales[m * all + g]);
        AA_UNROLL for (int i = 0; i < 2; ++i) {
          const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[m][i]), _mm256_load_ps(of_weights + 8 * i));
          total[m][i] = _mm256_fmadd_ps(scaled, of_x, total[m][i]);
        }
      }
    }
    if constexpr (Format::kOffsets) {
      const auto* offsets = reinterpret_cast<const float*>(unpacked + kScalesAt<Format> + kParts * kVector);
      AA_UNROLL for (int m = 0; m < kM; ++m) {
        const __m256 sum = _mm256_set1_ps(group_sums[m * all + g]);
        AA_UNROLL for (int i = 0; i < 2; ++i) {
          total[m][i] = _mm256_fmadd_ps(_mm256_load_ps(offsets + 8 * i), sum, total[m][i]);
        }
      }
    }
  }
  AA_UNROLL for (int m = 0; m < kM; ++m) {
    AA_UNROLL for (int i = 0; i < 2; ++i) _mm256_storeu_ps(out + m * out_stride + 8 * i, total[m][i]);
  }
}

#endif

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
#if HWY_TARGET == HWY_AVX3
    case 5: return run.template operator()<5>();
    case 6: return run.template operator()<6>();
    case 7: return run.template operator()<7>();
    case 8: return run.template operator()<8>();
#endif
    default: return;
  }
}

// to[block][number][row] = the 32 bits at kWordsAt[number] of that block of the row, for kColumns rows.
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

// products[m * stride + i] = row m of x times row i of the weights at w, for `m` rows of x and `n` rows of weights.
template <class Format>
void multiply_columns(const uint8_t* w, int64_t w_stride, int64_t n, const TiledInput& x, int64_t m, int64_t k,
                      uint8_t* unpacked, float* products, int64_t stride) {
  // Blocks that are unpacked at a time: for few rows of x, 512 columns, which stay in the first-level cache; for more
  // rows, all of k.
  const int64_t blocks = k / Format::kValues;
  constexpr int64_t kFewRows = 8;
  const int64_t at_once = m > kFewRows ? blocks : std::max<int64_t>(512 / Format::kValues, 1);
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
      // Words are gathered up to kAhead blocks before they are read: a vector load right after the stores of its single
      // words could not be forwarded from the store buffer and would stall.
      constexpr int64_t kAhead = 16, kWords = static_cast<int64_t>(Format::kWordsAt.size()) * kColumns;
      alignas(64) uint32_t words[kAhead * kWords + kColumns];
      for (int64_t i = 0; i < count; ++i) {
        if (i % kAhead == 0) gather_words<Format>(rows, std::min(kAhead, count - i), words);
        Format::unpack(rows, words + i % kAhead * kWords, unpacked + i * kGroups * kGroupBytes<Format>);
        for (const uint8_t*& row : rows) row += Format::kBytes;
      }
      // Prefetches, while these rows are multiplied, as many bytes of the next ones, which follow in memory.
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
  bool in_16_bits = false;
};
template <class Format>
constexpr TileKernels tile_kernels_of() {
  return {multiply_columns<Format>, kGroupBytes<Format>, Format::kZero,
          Format::kScales,          Format::kFiner,      kIn16Bits<Format>};
}
// The kernels of a format of 256 values in a block (quantized_tiles_k.cpp); null pointers for others.
TileKernels find_tile_kernels_of_256(uint32_t format);

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
