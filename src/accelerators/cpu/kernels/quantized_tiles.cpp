// See quantized_tiles.h.
//
// Sixteen rows of the weights are unpacked together, a group of 32 columns after the other, to bytes without a sign: 64 bytes
// hold four neighbouring values of each of the sixteen rows. With VNNI one instruction (vpdpbusd) multiplies them with four values
// of a row of x and adds, so that no sum ever runs across a vector; the scales of a group are applied to its sixteen sums at once.
// What makes the bytes unsigned is taken off where the sums begin. A piece of unpacked weights stays in the first-level cache
// where there are few rows of x, and is larger where many share it.
//
// With AVX2 two products of bytes are added in 16 bits, and so are as many of these sums as fit, before they are widened. Formats whose
// values are too large for that are unpacked to 16 bits, and so is x, which costs them no precision.
#include "accelerators/cpu/kernels/quantized_tiles.h"

#include <algorithm>
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
#include "accelerators/cpu/kernels/quantized_tiles-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if AA_HAS_QUANTIZED_TILES

// ---- products --------------------------------------------------------------------------------------------------------

#if HWY_TARGET == HWY_AVX3

constexpr int kTileRows = 8;  // most rows of x at a time

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

// Keeps a vector in a register, and what is computed from it in the order of the source: otherwise the compiler adds all products of a
// group last, and copies weights to the stack.
HWY_INLINE void hold(__m256i& v) { asm("" : "+x"(v)); }  // NOLINT(hicpp-no-assembler)
HWY_INLINE Ints load_and_hold(const uint8_t* p) {
  Ints v = load_ints(p);
  hold(v.v[0]);
  hold(v.v[1]);
  return v;
}
// Four bytes of x in every word.
HWY_INLINE __m256i repeated(const void* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof four);
  return _mm256_set1_epi32(four);
}
// Adds the products of 64 bytes of weights with four neighbouring bytes of each row of x, in 16 bits.
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
// The same in 32 bits for two of 16 bits.
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
  // Words whose products fit together into 16 bits, a power of two.
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
  bool in_16_bits = false;
};
template <class Format>
constexpr TileKernels tile_kernels_of() {
  return {multiply_columns<Format>, kGroupBytes<Format>, Format::kZero,
          Format::kScales,          Format::kFiner,      kIn16Bits<Format>};
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

bool has_tiles(uint32_t format) {
  if (HWY_TARGET == HWY_AVX3 && !cpu_features().avx512_vnni) return false;
  return find_tile_kernels(format).multiply != nullptr;
}
bool has_two_bytes_of_x(uint32_t format) {
  const TileKernels kernels = find_tile_kernels(format);
  return kernels.finer || kernels.in_16_bits;
}

// What the values of a group of x become: bytes, bytes and lower bytes, or 16 bits.
struct RoundedGroup {
  int8_t* values = nullptr;
  int8_t* lower = nullptr;
  int16_t* wide = nullptr;
  float* scale = nullptr;
  float* sum = nullptr;
  int32_t* starts = nullptr;
};

// Rounds a group of 32 values. One with a NaN or an infinity gets a NaN as its scale, which every sum with it then is.
HWY_INLINE void round_group(const float* x, const TileKernels& kernels, const RoundedGroup& to) {
  const bool finer = kernels.finer || kernels.in_16_bits;
  const float steps = finer ? 127.0F * 256 : 127.0F;
  int32_t sums[2];  // of the halves
#if HWY_TARGET == HWY_AVX3
  const __m512 first = _mm512_loadu_ps(x), second = _mm512_loadu_ps(x + 16);
  const float most = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(first), _mm512_abs_ps(second)));
  const __m512 probe = _mm512_fmadd_ps(first, _mm512_setzero_ps(), _mm512_mul_ps(second, _mm512_setzero_ps()));
  const bool finite = _mm512_cmp_ps_mask(probe, probe, _CMP_UNORD_Q) == 0;
  *to.scale = finite ? most / steps : std::numeric_limits<float>::quiet_NaN();
  const __m512 inverse =
      _mm512_set1_ps(finite && *to.scale >= std::numeric_limits<float>::min() ? 1 / *to.scale : 0.0F);
  __m512i q[2] = {_mm512_cvtps_epi32(_mm512_mul_ps(first, inverse)),
                  _mm512_cvtps_epi32(_mm512_mul_ps(second, inverse))};
  if (!finite) q[0] = q[1] = _mm512_setzero_si512();
  sums[0] = _mm512_reduce_add_epi32(q[0]);
  sums[1] = _mm512_reduce_add_epi32(q[1]);
  AA_UNROLL for (int i = 0; i < 2; ++i) {
    if (finer) {  // 256 * upper + lower, both with a sign
      const __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(q[i], _mm512_set1_epi32(128)), 8);
      const __m512i rest = _mm512_sub_epi32(q[i], _mm512_slli_epi32(upper, 8));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to.lower + 16 * i), _mm512_cvtepi32_epi8(rest));
      q[i] = upper;
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to.values + 16 * i), _mm512_cvtepi32_epi8(q[i]));
  }
#else
  __m256 v[4], largest = _mm256_setzero_ps(), probe = _mm256_setzero_ps();
  AA_UNROLL for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    largest = _mm256_max_ps(largest, _mm256_andnot_ps(_mm256_set1_ps(-0.0F), v[i]));
    probe = _mm256_fmadd_ps(v[i], _mm256_setzero_ps(), probe);
  }
  const float most = hn::GetLane(hn::MaxOfLanes(kFloats, FloatVec{largest}));
  const bool finite = _mm256_movemask_ps(_mm256_cmp_ps(probe, probe, _CMP_UNORD_Q)) == 0;
  *to.scale = finite ? most / steps : std::numeric_limits<float>::quiet_NaN();
  const __m256 inverse =
      _mm256_set1_ps(finite && *to.scale >= std::numeric_limits<float>::min() ? 1 / *to.scale : 0.0F);
  __m256i q[4];
  AA_UNROLL for (int i = 0; i < 4; ++i) {
    q[i] = finite ? _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse)) : _mm256_setzero_si256();
  }
  const hn::RebindToSigned<FloatTag> words;
  AA_UNROLL for (int i = 0; i < 2; ++i) {
    const hn::VFromD<decltype(words)> of_half{_mm256_add_epi32(q[2 * i], q[2 * i + 1])};
    sums[i] = hn::GetLane(hn::SumOfLanes(words, of_half));
  }
  // Packing works within halves of a vector: the order is put right afterwards.
  const __m256i halves[2] = {_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3])};
  if (kernels.in_16_bits) {
    // Of four neighbours the first and the third, then the other two.
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    AA_UNROLL for (int i = 0; i < 2; ++i) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.wide + 16 * i),
                          _mm256_shuffle_epi8(_mm256_permute4x64_epi64(halves[i], 0xD8), order));
    }
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.values),
                        _mm256_permutevar8x32_epi32(_mm256_packs_epi16(halves[0], halves[1]),
                                                    _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  }
#endif
  *to.sum = *to.scale * static_cast<float>(sums[0] + sums[1]);
  if (kernels.parts == 1) {
    to.starts[0] = -kernels.zero * (sums[0] + sums[1]);
  } else {
    to.starts[0] = -kernels.zero * sums[0];
    to.starts[1] = -kernels.zero * sums[1];
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
      RoundedGroup group;
      if (kernels.in_16_bits) {
        group.wide = const_cast<int16_t*>(to.wide) + at * kTileGroup;
      } else {
        group.values = const_cast<int8_t*>(to.values) + at * kTileGroup;
      }
      if (kernels.finer) group.lower = const_cast<int8_t*>(to.lower) + at * kTileGroup;
      group.scale = const_cast<float*>(to.scales) + at;
      group.sum = const_cast<float*>(to.sums) + at;
      group.starts = const_cast<int32_t*>(to.starts) + at * kernels.parts;
      round_group(wide + g * kTileGroup, kernels, group);
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
bool has_two_bytes_of_x(uint32_t /*format*/) { return false; }
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
AA_CPU_EXPORT(has_two_bytes_of_x);
AA_CPU_EXPORT(round_tile_rows);
AA_CPU_EXPORT(multiply_tile_span);

bool takes_tiles(uint32_t format) { return AA_BYTES_DISPATCH(has_tiles)(format); }

void multiply_tiles(const QuantizedProduct& product) {
  // Rows of the weights that a thread takes at once.
  constexpr int64_t piece = 64;
  const Matmul& args = product.args;
  const int64_t n = args.parts[0].n, m = args.m, k = args.k, groups = k / 32;
  const bool two_bytes = AA_BYTES_DISPATCH(has_two_bytes_of_x)(product.format->number);
  const auto values = static_cast<size_t>(m * k), of_groups = static_cast<size_t>(m * groups);
  auto* bytes = scratch<int8_t>(Scratch::Row1, two_bytes ? 2 * values : values);
  auto* scales = scratch<float>(Scratch::Row2, 2 * of_groups);
  TiledInput x;
  x.values = bytes;
  x.lower = two_bytes ? bytes + values : nullptr;
  x.wide = two_bytes ? reinterpret_cast<const int16_t*>(bytes) : nullptr;
  x.scales = scales;
  x.sums = scales + of_groups;
  x.starts = scratch<int32_t>(Scratch::Rounded, 2 * of_groups);
  WorkerPool& pool = WorkerPool::instance();
  const bool alone = is_small(args);
  if (alone || m * k < 32768) {
    AA_BYTES_DISPATCH(round_tile_rows)(product, 0, m, x);
  } else {
    pool.run([&](int index, int threads) {
      AA_BYTES_DISPATCH(round_tile_rows)(product, m * index / threads, m * (index + 1) / threads, x);
    });
  }
  if (alone || n <= piece) {
    for (int64_t begin = 0; begin < n; begin += piece) {
      AA_BYTES_DISPATCH(multiply_tile_span)(product, x, begin, std::min(piece, n - begin));
    }
    return;
  }
  std::atomic<int64_t> next{0};
  pool.run([&](int /*index*/, int /*count*/) {
    for (int64_t begin = next.fetch_add(piece); begin < n; begin = next.fetch_add(piece)) {
      AA_BYTES_DISPATCH(multiply_tile_span)(product, x, begin, std::min(piece, n - begin));
    }
  });
}

}  // namespace anyaccel::cpu
#endif  // HWY_ONCE
