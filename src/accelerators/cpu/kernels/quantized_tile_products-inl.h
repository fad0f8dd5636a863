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
#else
constexpr int kTileRows = 4;
#endif

// A group of 32 values of kTileRows rows of x as integers. Rows that x lacks are not initialized. x is an array of these,
// [ceil(m / kTileRows)][k / 32]: a kernel then finds what it needs of all rows at constant distances from one pointer.
struct RoundedGroup {
  int8_t values[kTileRows][kTileGroup];  // the upper bytes where x has `lower` ones too
#if HWY_TARGET == HWY_AVX3
  int8_t lower[kTileRows][kTileGroup];  // if kFiner: x = scale * (256 * values + lower)
#else
  // If kIn16Bits, in place of `values`. Of each four values the first and the third come first.
  int16_t wide[kTileRows][kTileGroup];
#endif
  float scales[kTileRows];
  // Of the group, or of each half of it if it has two scales:
  union {
    int32_t starts[2][kTileRows];  // initial values of the integer sums, -kZero * sum
    float sums[2][kTileRows];      // scale * sum, if kOffsets
  };
};

// Columns that are unpacked at a time, unless a block has more.
constexpr int64_t kPieceColumns = 512;
template <class Format>
constexpr int64_t kPieceBytes = std::max<int64_t>(kPieceColumns / Format::kValues, 1) * Format::kBytes;

// What is fetched while groups are multiplied, spread over them.
struct Prefetches {
  const uint8_t* ahead = nullptr;  // as many bytes as the packed weights of the groups take; null: nothing
  // Where the piece lies that is unpacked next, in the first of 16 rows; null: it is not fetched again into the first-level cache.
  const uint8_t* next = nullptr;
  int64_t stride = 0;  // bytes from row to row
  bool near = false;   // `ahead` goes into the first-level cache, else into the second

  // The share of group number g of the call.
  template <class Format>
  HWY_INLINE void fetch(int64_t g) const {
    constexpr int64_t kBytesOfGroup = kColumns * Format::kBytes / (Format::kValues / kTileGroup);
    if (ahead != nullptr) {
      const uint8_t* from = ahead + g * kBytesOfGroup;
      AA_UNROLL for (int64_t line = 0; line < kBytesOfGroup; line += 64) {
        if (near) {
          __builtin_prefetch(from + line, 0, 3);
        } else {
          __builtin_prefetch(from + line, 0, 2);
        }
      }
    }
    if (next != nullptr && g < kColumns) {
      const uint8_t* row = next + g * stride;
      AA_UNROLL for (int64_t line = 0; line < kPieceBytes<Format>; line += 64) __builtin_prefetch(row + line, 0, 3);
      __builtin_prefetch(row + kPieceBytes<Format> - 1, 0, 3);
    }
  }
};

#if HWY_TARGET == HWY_AVX3

// Adds four products of bytes to each 32-bit lane: the unsigned bytes of `weights` with the four signed bytes at x.
HWY_INLINE void add_products(__m512i& sums, __m512i weights, const int8_t* x) {
  // Written out because functions of this instruction set are compiled without VNNI, which not every such processor has.
  asm("vpdpbusd %[x]%{1to16%}, %[weights], %[sums]"  // NOLINT(hicpp-no-assembler)
      : [sums] "+v"(sums)
      : [weights] "v"(weights), [x] "m"(*reinterpret_cast<const int32_t*>(x)));
}

// out[m * out_stride + i] += product of row i of the unpacked weights with row m of x, for m < kM and the groups at `unpacked` and
// `x`.
template <class Format, int kM>
void multiply_groups(const uint8_t* unpacked, const RoundedGroup* x, int64_t groups, const Prefetches& prefetches,
                     float* out, int64_t out_stride) {
  constexpr int kParts = Format::kScales, kWords = 8 / kParts;
  __m512 total[kM];
  AA_UNROLL for (int m = 0; m < kM; ++m) total[m] = _mm512_loadu_ps(out + m * out_stride);
  for (int64_t g = 0; g < groups; ++g, unpacked += kGroupBytes<Format>, ++x) {
    prefetches.fetch<Format>(g);
    AA_UNROLL for (int part = 0; part < kParts; ++part) {
      __m512i sums[kM], uppers[kM];
      AA_UNROLL for (int m = 0; m < kM; ++m) {
        sums[m] = Format::kOffsets ? _mm512_setzero_si512() : _mm512_set1_epi32(x->starts[part][m]);
        if constexpr (Format::kFiner) uppers[m] = _mm512_setzero_si512();
      }
      AA_UNROLL for (int j = 0; j < kWords; ++j) {
        const int word = part * kWords + j;
        const __m512i weights = _mm512_load_si512(unpacked + word * kVector);
        AA_UNROLL for (int m = 0; m < kM; ++m) {
          if constexpr (Format::kFiner) {
            add_products(uppers[m], weights, x->values[m] + 4 * word);
            add_products(sums[m], weights, x->lower[m] + 4 * word);
          } else {
            add_products(sums[m], weights, x->values[m] + 4 * word);
          }
        }
      }
      const __m512 of_weights = _mm512_load_ps(unpacked + kScalesAt<Format> + part * kVector);
      AA_UNROLL for (int m = 0; m < kM; ++m) {
        if constexpr (Format::kFiner) sums[m] = _mm512_add_epi32(sums[m], _mm512_slli_epi32(uppers[m], 8));
        const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[m]), of_weights);
        total[m] = _mm512_fmadd_ps(scaled, _mm512_set1_ps(x->scales[m]), total[m]);
      }
      if constexpr (Format::kOffsets) {
        const __m512 offsets = _mm512_load_ps(unpacked + kScalesAt<Format> + (kParts + part) * kVector);
        AA_UNROLL for (int m = 0; m < kM; ++m) {
          total[m] = _mm512_fmadd_ps(offsets, _mm512_set1_ps(x->sums[part][m]), total[m]);
        }
      }
    }
  }
  AA_UNROLL for (int m = 0; m < kM; ++m) _mm512_storeu_ps(out + m * out_stride, total[m]);
}

#else

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
HWY_INLINE void add_byte_products(const uint8_t* weights, const int8_t (*x)[kTileGroup], int at, bool first,
                                  __m256i (&sums)[kM][2]) {
  const Ints w = load_and_hold(weights);
  AA_UNROLL for (int m = 0; m < kM; ++m) {
    const __m256i values = repeated(x[m] + at);
    AA_UNROLL for (int i = 0; i < 2; ++i) {
      const __m256i products = _mm256_maddubs_epi16(w.v[i], values);
      sums[m][i] = first ? products : _mm256_add_epi16(sums[m][i], products);
      hold(sums[m][i]);
    }
  }
}
// The same for weights and x of 16 bits: adds products with two consecutive values of each row of x in 32-bit lanes.
template <int kM>
HWY_INLINE void add_wide_products(const uint8_t* weights, const int16_t (*x)[kTileGroup], int at,
                                  __m256i (&sums)[kM][2]) {
  const Ints w = load_and_hold(weights);
  AA_UNROLL for (int m = 0; m < kM; ++m) {
    const __m256i values = repeated(x[m] + at);
    AA_UNROLL for (int i = 0; i < 2; ++i) {
      sums[m][i] = _mm256_add_epi32(sums[m][i], _mm256_madd_epi16(w.v[i], values));
      hold(sums[m][i]);
    }
  }
}

template <class Format, int kM>
HWY_NOINLINE void multiply_groups(const uint8_t* unpacked, const RoundedGroup* x, int64_t groups,
                                  const Prefetches& prefetches, float* out, int64_t out_stride) {
  constexpr int kParts = Format::kScales, kWords = 8 / kParts;
  // How many words (four values each) a 16-bit lane can add up without saturating, as a power of two.
  constexpr int kMostWords = 32767 / (2 * 127 * Format::kMost);
  constexpr int kWordsOfSum = std::min(kMostWords >= 8 ? 8 : kMostWords >= 4 ? 4 : 2, kWords);
  static_assert(kIn16Bits<Format> || kMostWords >= 2);
  __m256 total[kM][2];
  AA_UNROLL for (int m = 0; m < kM; ++m) {
    AA_UNROLL for (int i = 0; i < 2; ++i) total[m][i] = _mm256_loadu_ps(out + m * out_stride + 8 * i);
  }
  for (int64_t g = 0; g < groups; ++g, unpacked += kGroupBytes<Format>, ++x) {
    prefetches.fetch<Format>(g);
    AA_UNROLL for (int part = 0; part < kParts; ++part) {
      __m256i sums[kM][2];
      AA_UNROLL for (int m = 0; m < kM; ++m) {
        const __m256i start =
            kIn16Bits<Format> || Format::kOffsets ? _mm256_setzero_si256() : _mm256_set1_epi32(x->starts[part][m]);
        sums[m][0] = sums[m][1] = start;
      }
      if constexpr (kIn16Bits<Format>) {
        static_assert(kParts == 1);
        AA_UNROLL for (int j = 0; j < 16; ++j) { add_wide_products<kM>(unpacked + j * kVector, x->wide, 2 * j, sums); }
      } else {
        AA_UNROLL for (int word = part * kWords; word < (part + 1) * kWords; word += kWordsOfSum) {
          __m256i of_words[kM][2];
          AA_UNROLL for (int j = 0; j < kWordsOfSum; ++j) {
            add_byte_products<kM>(unpacked + (word + j) * kVector, x->values, 4 * (word + j), j == 0, of_words);
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
        const __m256 of_x = _mm256_set1_ps(x->scales[m]);
        AA_UNROLL for (int i = 0; i < 2; ++i) {
          const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[m][i]), _mm256_load_ps(of_weights + 8 * i));
          total[m][i] = _mm256_fmadd_ps(scaled, of_x, total[m][i]);
        }
      }
      if constexpr (Format::kOffsets) {
        const auto* offsets = reinterpret_cast<const float*>(unpacked + kScalesAt<Format> + (kParts + part) * kVector);
        AA_UNROLL for (int m = 0; m < kM; ++m) {
          const __m256 sum = _mm256_set1_ps(x->sums[part][m]);
          AA_UNROLL for (int i = 0; i < 2; ++i) {
            total[m][i] = _mm256_fmadd_ps(_mm256_load_ps(offsets + 8 * i), sum, total[m][i]);
          }
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
void multiply_any_groups(int64_t count_m, const uint8_t* unpacked, const RoundedGroup* x, int64_t groups,
                         const Prefetches& prefetches, float* out, int64_t out_stride) {
  const auto run = [&]<int kM>() { multiply_groups<Format, kM>(unpacked, x, groups, prefetches, out, out_stride); };
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

// to[number][row] = the 32 bits at kWordsAt[number] of the block at `from` in each row.
template <class Format>
HWY_INLINE void gather_words(WeightRows& rows, int64_t from, uint32_t* to) {
  AA_UNROLL for (size_t number = 0; number < Format::kWordsAt.size(); ++number) {
    rows.hold();
    AA_UNROLL for (int r = 0; r < kColumns; ++r) {
      std::memcpy(to + static_cast<int64_t>(number) * kColumns + r, rows.row(r) + from + Format::kWordsAt[number],
                  sizeof(uint32_t));
    }
  }
}

// Unpacks `count` blocks of each of 16 rows.
//
// Words are gathered kAhead blocks before they are read: a vector load right after the stores of its single words could not be
// forwarded from the store buffer and would stall.
template <class Format>
HWY_INLINE void unpack_rows(WeightRows rows, int64_t count, uint8_t* to) {
  constexpr int64_t kAhead = 4, kWords = static_cast<int64_t>(Format::kWordsAt.size()) * kColumns;
  alignas(64) uint32_t words[2 * kAhead * kWords + kColumns];
  for (int64_t i = 0; i < std::min(kAhead, count); ++i)
    gather_words<Format>(rows, i * Format::kBytes, words + i * kWords);
  for (int64_t i = 0; i < count; ++i, to += Format::kValues / kTileGroup * kGroupBytes<Format>) {
    if (i + kAhead < count) {
      gather_words<Format>(rows, kAhead * Format::kBytes, words + (i + kAhead) % (2 * kAhead) * kWords);
    }
    Format::unpack(rows, words + i % (2 * kAhead) * kWords, to);
    rows.advance(Format::kBytes);
  }
}

// products[m * stride + i] = row m of x times row i of the weights at w, for `m` rows of x and `n` rows of weights.
template <class Format>
void multiply_columns(const uint8_t* w, int64_t w_stride, int64_t n, const RoundedGroup* x, int64_t m, int64_t k,
                      uint8_t* unpacked, float* products, int64_t stride) {
  // Blocks that are unpacked at a time, and that are multiplied then: a piece, which stays in the first-level cache. For many rows of
  // x all of k, except on a Zen 5, where pieces are better for them too; other processors were not measured again.
  constexpr int64_t kPiece = kPieceBytes<Format> / Format::kBytes, kFewRows = 8;
  constexpr int64_t kGroups = Format::kValues / kTileGroup;
  const bool zen5 = cpu_features().zen5;
  const int64_t blocks = k / Format::kValues;
  const int64_t at_once = m > kFewRows && !zen5 ? blocks : kPiece;
  alignas(64) uint8_t last_rows[kColumns * kPieceBytes<Format>];
  for (int64_t column = 0; column < n; column += kColumns) {
    for (int64_t row = 0; row < m; ++row) {
      std::fill_n(products + row * stride + column, kColumns, 0.0F);
    }
    const uint8_t* first = w + column * w_stride;
    for (int64_t block = 0; block < blocks; block += at_once) {
      const int64_t count = std::min(at_once, blocks - block);
      for (int64_t i = 0; i < count; i += kPiece) {
        const int64_t some = std::min(kPiece, count - i);
        const uint8_t* piece = first + (block + i) * Format::kBytes;
        WeightRows rows(piece, w_stride);
        if (column + kColumns > n) {  // the last row takes the place of those that are missing
          for (int64_t r = 0; r < kColumns; ++r) {
            std::memcpy(last_rows + r * kPieceBytes<Format>, piece + std::min(r, n - 1 - column) * w_stride,
                        static_cast<size_t>(some * Format::kBytes));
          }
          rows = WeightRows(last_rows, kPieceBytes<Format>);
        }
        unpack_rows<Format>(rows, some, unpacked + i * kGroups * kGroupBytes<Format>);
      }
      // The next rows follow in memory. What memory has brought since the last piece does not all stay in the first-level cache of a
      // Zen 5 until it is unpacked: without `next` the first loads of each row took a quarter of the time.
      const uint8_t* next_rows = first + kColumns * w_stride;
      Prefetches prefetches{.ahead = next_rows + block * kColumns * Format::kBytes, .stride = w_stride, .near = zen5};
      if (zen5) prefetches.next = block + at_once < blocks ? first + (block + at_once) * Format::kBytes : next_rows;
      for (int64_t row = 0; row < m; row += kTileRows) {
        multiply_any_groups<Format>(std::min<int64_t>(kTileRows, m - row), unpacked,
                                    x + row / kTileRows * (k / kTileGroup) + block * kGroups, count * kGroups,
                                    prefetches, products + row * stride + column, stride);
        prefetches.ahead = prefetches.next = nullptr;
      }
    }
  }
}

struct TileKernels {
  void (*multiply)(const uint8_t*, int64_t, int64_t, const RoundedGroup*, int64_t, int64_t, uint8_t*, float*,
                   int64_t) = nullptr;
  int64_t group_bytes = 0;
  int zero = 0;
  int parts = 1;
  bool offsets = false;
  bool finer = false;
  bool in_16_bits = false;
};
template <class Format>
constexpr TileKernels tile_kernels_of() {
  static_assert(Format::kZero == 0 || !Format::kOffsets);
  return {multiply_columns<Format>, kGroupBytes<Format>, Format::kZero,    Format::kScales,
          Format::kOffsets,         Format::kFiner,      kIn16Bits<Format>};
}
// The kernels of a format of 256 values in a block (quantized_tiles_k.cpp); null pointers for others.
TileKernels find_tile_kernels_of_256(uint32_t format);

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
