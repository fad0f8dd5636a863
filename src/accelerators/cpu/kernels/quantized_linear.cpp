// Products with quantized weights, which are read in place.
//
// With AVX-512 and VNNI most products are those of quantized_row.cpp (one row of x) and quantized_tiles.cpp (several). The others
// are here.
//
// Few rows of x: threads take rows of the weights from a common counter. Where x may be rounded, each of its groups of 32
// values becomes 8-bit integers and the blocks are multiplied as integers, with one multiply-add in fp32 for a group;
// otherwise, and for formats without such a kernel, a row of weights is decoded into the first-level cache and multiplied in
// fp32. Many rows of x: the weights are decoded a panel at a time, and the products of ordinary weights multiply that.
#include "accelerators/cpu/kernels/quantized_linear.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include "accelerators/cpu/kernels/matmul_inner.h"
#include "accelerators/cpu/kernels/quantized_row.h"
#include "accelerators/cpu/kernels/quantized_tiles.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/ops.h"
#include "accelerators/cpu/worker_pool.h"
#include "base/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/quantized_linear.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/activation-inl.h"
#include "accelerators/cpu/kernels/matmul_finish-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

constexpr int64_t kGroup = 32;  // values of x that share a scale

#undef AA_HAS_INTEGER_DOTS

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
#define AA_HAS_INTEGER_DOTS 1

constexpr float kFiner = 256;  // steps of QuantizedInput::finer in one of QuantizedInput::rounded

// ---- integer products ------------------------------------------------------------------------------------------------

// Eight sums of four products of unsigned with signed bytes. Without VNNI a pair of products has 16 bits: `u` is at most
// 128, `s` at most 127 in magnitude.
template <bool kVnni>
HWY_INLINE __m256i dot_bytes(__m256i u, __m256i s) {
  if constexpr (kVnni) {
    // Written out because functions of this instruction set are compiled without VNNI, which not every such processor has.
    __m256i sums = _mm256_setzero_si256();
    asm("vpdpbusd %[s], %[u], %[sums]" : [sums] "+x"(sums) : [u] "x"(u), [s] "x"(s));  // NOLINT(hicpp-no-assembler)
    return sums;
  } else {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1));
  }
}

HWY_INLINE __m256i load32(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
HWY_INLINE float half_at(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return _cvtsh_ss(bits);
}

// 16 bytes as 32 numbers of 4 bits: the low halves, then the high ones.
HWY_INLINE __m256i nibbles(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1);
  return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

// Bit i of 32 bits as 16 or 0 in byte i.
HWY_INLINE __m256i fifth_bits(const uint8_t* p) {
  int32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  const __m256i spread = _mm256_shuffle_epi8(
      _mm256_set1_epi32(bits),
      _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
  const __m256i mask = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, mask), mask);
  return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

// Sums of products of one row of weights with kM rows of x, in two parts each, so that additions do not wait for each
// other.
template <bool kVnni, int kM>
struct Sums {
  const int8_t* x = nullptr;         // of the first row of x
  const int16_t* x_finer = nullptr;  // the same
  const float* scales = nullptr;
  const float* group_sums = nullptr;
  int64_t k = 0;
  __m256 products[2][kM];
  float offsets[2][kM];
  // Of the eight groups of a block, see begin_block().
  __m256 block_scales[kM];
  __m256 block_offsets[kM];

  HWY_INLINE void clear() {
    AA_UNROLL for (int m = 0; m < kM; ++m) {
      products[0][m] = products[1][m] = _mm256_setzero_ps();
      offsets[0][m] = offsets[1][m] = 0;
      block_offsets[m] = _mm256_setzero_ps();
    }
  }
  HWY_INLINE __m256i group(int m, int64_t g) const {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + m * k + g * kGroup));
  }
  // Adds group g of the weights: scale * q + offset, with q from 0 to 63.
  HWY_INLINE void add(int64_t g, int part, __m256i q, float scale, float offset) {
    AA_UNROLL for (int m = 0; m < kM; ++m) {
      const __m256 sums = _mm256_cvtepi32_ps(dot_bytes<kVnni>(q, group(m, g)));
      const int64_t at = m * (k / kGroup) + g;
      products[part][m] = _mm256_fmadd_ps(sums, _mm256_set1_ps(scale * scales[at]), products[part][m]);
      offsets[part][m] += offset * group_sums[at];
    }
  }
  // The same for scale * q with signed q; `scale` of the first and the second 16 values.
  HWY_INLINE void add_signed(int64_t g, int part, __m256i q, float scale, float second_scale) {
    const __m256i magnitude = _mm256_abs_epi8(q);
    const __m256 both = _mm256_set_m128(_mm_set1_ps(second_scale), _mm_set1_ps(scale));
    AA_UNROLL for (int m = 0; m < kM; ++m) {
      const __m256 sums = _mm256_cvtepi32_ps(dot_bytes<kVnni>(magnitude, _mm256_sign_epi8(group(m, g), q)));
      const __m256 factor = _mm256_mul_ps(both, _mm256_set1_ps(scales[m * (k / kGroup) + g]));
      products[part][m] = _mm256_fmadd_ps(sums, factor, products[part][m]);
    }
  }
  // The same for signed bytes with the finer x: with weights of 8 bits, rounding x to 8 bits would be most of the error.
  HWY_INLINE void add_bytes(int64_t g, int part, __m256i q, float scale) {
    const __m256i low = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(q));
    const __m256i high = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(q, 1));
    AA_UNROLL for (int m = 0; m < kM; ++m) {
      const auto* at = reinterpret_cast<const __m256i*>(x_finer + m * k + g * kGroup);
      const __m256i sums = _mm256_add_epi32(_mm256_madd_epi16(low, _mm256_loadu_si256(at)),
                                            _mm256_madd_epi16(high, _mm256_loadu_si256(at + 1)));
      const float factor = scale * scales[m * (k / kGroup) + g] / kFiner;
      products[part][m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), _mm256_set1_ps(factor), products[part][m]);
    }
  }
  // Eight groups from g on have these scales and offsets: those of x are multiplied with them at once.
  HWY_INLINE void begin_block(int64_t g, __m256 of_scales, __m256 of_offsets) {
    AA_UNROLL for (int m = 0; m < kM; ++m) {
      const int64_t at = m * (k / kGroup) + g;
      block_scales[m] = _mm256_mul_ps(of_scales, _mm256_loadu_ps(scales + at));
      block_offsets[m] = _mm256_fmadd_ps(of_offsets, _mm256_loadu_ps(group_sums + at), block_offsets[m]);
    }
  }
  // Group g + i of that block.
  HWY_INLINE void add_of_block(int64_t g, int i, __m256i q) {
    AA_UNROLL for (int m = 0; m < kM; ++m) {
      const __m256 sums = _mm256_cvtepi32_ps(dot_bytes<kVnni>(q, group(m, g + i)));
      const __m256 scale = _mm256_permutevar8x32_ps(block_scales[m], _mm256_set1_epi32(i));
      products[i % 2][m] = _mm256_fmadd_ps(sums, scale, products[i % 2][m]);
    }
  }
  // The same with signed q and two scales, which are multiplied with the group's.
  HWY_INLINE void add_signed_of_block(int64_t g, int i, __m256i q, __m256 both) {
    const __m256i magnitude = _mm256_abs_epi8(q);
    AA_UNROLL for (int m = 0; m < kM; ++m) {
      const __m256 sums = _mm256_cvtepi32_ps(dot_bytes<kVnni>(magnitude, _mm256_sign_epi8(group(m, g + i), q)));
      const __m256 scale = _mm256_permutevar8x32_ps(block_scales[m], _mm256_set1_epi32(i));
      products[i % 2][m] = _mm256_fmadd_ps(sums, _mm256_mul_ps(both, scale), products[i % 2][m]);
    }
  }
  HWY_INLINE float total(int m) const {
    const __m256 sum = _mm256_add_ps(_mm256_add_ps(products[0][m], products[1][m]), block_offsets[m]);
    const __m128 half = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1))) + (offsets[0][m] + offsets[1][m]);
  }
};

// One struct for each format with a kernel: add() takes the block whose first group is g. The layouts: aa_block_format.
struct Q4_0 {
  static constexpr int64_t kValues = 32, kBytes = 18;
  template <class S>
  static HWY_INLINE void add(S& sums, const uint8_t* b, int64_t g, int part) {
    const float d = half_at(b);
    sums.add(g, part, nibbles(b + 2), d, -8 * d);
  }
};
struct Q4_1 {
  static constexpr int64_t kValues = 32, kBytes = 20;
  template <class S>
  static HWY_INLINE void add(S& sums, const uint8_t* b, int64_t g, int part) {
    sums.add(g, part, nibbles(b + 4), half_at(b), half_at(b + 2));
  }
};
struct Q5_0 {
  static constexpr int64_t kValues = 32, kBytes = 22;
  template <class S>
  static HWY_INLINE void add(S& sums, const uint8_t* b, int64_t g, int part) {
    const float d = half_at(b);
    sums.add(g, part, _mm256_or_si256(nibbles(b + 6), fifth_bits(b + 2)), d, -16 * d);
  }
};
struct Q5_1 {
  static constexpr int64_t kValues = 32, kBytes = 24;
  template <class S>
  static HWY_INLINE void add(S& sums, const uint8_t* b, int64_t g, int part) {
    sums.add(g, part, _mm256_or_si256(nibbles(b + 8), fifth_bits(b + 4)), half_at(b), half_at(b + 2));
  }
};
struct Q8_0 {
  static constexpr int64_t kValues = 32, kBytes = 34;
  template <class S>
  static HWY_INLINE void add(S& sums, const uint8_t* b, int64_t g, int part) {
    sums.add_bytes(g, part, load32(b + 2), half_at(b));
  }
};
HWY_INLINE __m256i look_up(__m256i indices, __m128i table) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), indices);
}
HWY_INLINE __m128i iq4_table() {
  return _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}
struct Iq4Nl {
  static constexpr int64_t kValues = 32, kBytes = 18;
  template <class S>
  static HWY_INLINE void add(S& sums, const uint8_t* b, int64_t g, int part) {
    const float d = half_at(b);
    sums.add_signed(g, part, look_up(nibbles(b + 2), iq4_table()), d, d);
  }
};
struct Mxfp4 {
  static constexpr int64_t kValues = 32, kBytes = 17;
  template <class S>
  static HWY_INLINE void add(S& sums, const uint8_t* b, int64_t g, int part) {
    const __m128i table = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    const float d = std::ldexp(1.0F, static_cast<int>(b[0]) - 128);
    sums.add_signed(g, part, look_up(nibbles(b + 1), table), d, d);
  }
};

// The 8 scales, then the 8 minima, of Q4_K and Q5_K as bytes.
HWY_INLINE __m128i scales_and_minima(const uint8_t* s) {
  uint32_t a, b, c;
  std::memcpy(&a, s, 4);
  std::memcpy(&b, s + 4, 4);
  std::memcpy(&c, s + 8, 4);
  const uint32_t scales1 = (c & 0x0f0f0f0fu) | (a >> 6 & 0x03030303u) << 4;
  const uint32_t minima1 = (c >> 4 & 0x0f0f0f0fu) | (b >> 6 & 0x03030303u) << 4;
  return _mm_setr_epi32(static_cast<int>(a & 0x3f3f3f3fu), static_cast<int>(scales1), static_cast<int>(b & 0x3f3f3f3fu),
                        static_cast<int>(minima1));
}
template <bool kFifth>
struct Q4OrQ5K {
  static constexpr int64_t kValues = 256, kBytes = kFifth ? 176 : 144;
  template <class S>
  static HWY_INLINE void add(S& sums, const uint8_t* b, int64_t g, int /*part*/) {
    const __m128i bytes = scales_and_minima(b + 4);
    const auto floats_of = [](__m128i of) HWY_ATTR { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(of)); };
    sums.begin_block(g, _mm256_mul_ps(_mm256_set1_ps(half_at(b)), floats_of(bytes)),
                     _mm256_mul_ps(_mm256_set1_ps(-half_at(b + 2)), floats_of(_mm_srli_si128(bytes, 8))));
    const __m256i low_half = _mm256_set1_epi8(15);
    AA_UNROLL for (int pair = 0; pair < 4; ++pair) {
      const __m256i both = load32(b + (kFifth ? 48 : 16) + 32 * pair);
      __m256i first = _mm256_and_si256(both, low_half);
      __m256i second = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_half);
      if constexpr (kFifth) {
        const __m256i high = load32(b + 16), bit = _mm256_set1_epi8(16);
        const __m256i of_first = _mm256_set1_epi8(static_cast<char>(1 << (2 * pair)));
        const __m256i of_second = _mm256_set1_epi8(static_cast<char>(1 << (2 * pair + 1)));
        const auto fifth = [&](__m256i mask) HWY_ATTR {
          return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(high, mask), mask), bit);
        };
        first = _mm256_or_si256(first, fifth(of_first));
        second = _mm256_or_si256(second, fifth(of_second));
      }
      sums.add_of_block(g, 2 * pair, first);
      sums.add_of_block(g, 2 * pair + 1, second);
    }
  }
};
struct Q6K {
  static constexpr int64_t kValues = 256, kBytes = 210;
  template <class S>
  static HWY_INLINE void add(S& sums, const uint8_t* b, int64_t g, int /*part*/) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 192));
    const __m256 scales[2] = {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                              _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
    sums.begin_block(g, _mm256_set1_ps(half_at(b + 208)), _mm256_setzero_ps());
    AA_UNROLL for (int i = 0; i < 8; ++i) {
      const int half = i / 4, of_half = i % 4;
      const __m256i low = load32(b + 64 * half + of_half % 2 * 32);
      const __m256i high = _mm256_srli_epi16(load32(b + 128 + 32 * half), 2 * of_half);
      const __m256i q =
          _mm256_or_si256(_mm256_and_si256(of_half < 2 ? low : _mm256_srli_epi16(low, 4), _mm256_set1_epi8(15)),
                          _mm256_slli_epi16(_mm256_and_si256(high, _mm256_set1_epi8(3)), 4));
      const int first = 2 * of_half;
      const __m256i pick = _mm256_setr_epi32(first, first, first, first, first + 1, first + 1, first + 1, first + 1);
      sums.add_signed_of_block(g, i, _mm256_sub_epi8(q, _mm256_set1_epi8(32)),
                               _mm256_permutevar8x32_ps(scales[half], pick));
    }
  }
};
struct Iq4Xs {
  static constexpr int64_t kValues = 256, kBytes = 136;
  template <class S>
  static HWY_INLINE void add(S& sums, const uint8_t* b, int64_t g, int /*part*/) {
    const float d = half_at(b);
    const int high = b[2] | b[3] << 8;
    AA_UNROLL for (int i = 0; i < 8; ++i) {
      const int scale = ((b[4 + i / 2] >> (i % 2 * 4) & 15) | (high >> (2 * i) & 3) << 4) - 32;
      const float of_group = d * static_cast<float>(scale);
      sums.add_signed(g + i, i % 2, look_up(nibbles(b + 8 + 16 * i), iq4_table()), of_group, of_group);
    }
  }
};

// out[(first_m + m) * out_stride + s * rows + r] = row s * rows + r of the weights times row first_m + m of x, for r < rows,
// s < kStreams, m < kM. Several parts of the weights are read side by side, as in gemv.cpp.
template <class Format, bool kVnni, int kStreams, int kM>
void multiply_streams(const uint8_t* w, int64_t w_stride, int64_t rows, const QuantizedInput& x, int64_t k,
                      int64_t first_m, float* out, int64_t out_stride) {
  // Bytes ahead of the loads, for the first and the second level cache.
  constexpr int64_t kNear = 1024, kFar = 3072;
  constexpr int64_t kBlocksAtOnce = Format::kValues == kGroup ? 2 : 1;
  const int64_t blocks = k / Format::kValues, groups = k / kGroup;
  Sums<kVnni, kM> sums[kStreams];
  AA_UNROLL for (int s = 0; s < kStreams; ++s) {
    sums[s].x = x.rounded + first_m * k;
    if (x.finer != nullptr) sums[s].x_finer = x.finer + first_m * k;
    sums[s].scales = x.scales + first_m * groups;
    sums[s].group_sums = x.sums + first_m * groups;
    sums[s].k = k;
  }
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* b[kStreams];
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      b[s] = w + (s * rows + r) * w_stride;
      sums[s].clear();
    }
    int64_t i = 0;
    for (; i + kBlocksAtOnce <= blocks; i += kBlocksAtOnce) {
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        AA_UNROLL for (int64_t line = 0; line < kBlocksAtOnce * Format::kBytes; line += 64) {
          __builtin_prefetch(b[s] + kNear + line, 0, 3);
          __builtin_prefetch(b[s] + kFar + line, 0, 2);
        }
        AA_UNROLL for (int64_t n = 0; n < kBlocksAtOnce; ++n) {
          Format::add(sums[s], b[s] + n * Format::kBytes, (i + n) * (Format::kValues / kGroup), static_cast<int>(n));
        }
        b[s] += kBlocksAtOnce * Format::kBytes;
      }
    }
    if (i < blocks) {
      AA_UNROLL for (int s = 0; s < kStreams; ++s) Format::add(sums[s], b[s], i * (Format::kValues / kGroup), 0);
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      AA_UNROLL for (int m = 0; m < kM; ++m) out[(first_m + m) * out_stride + s * rows + r] = sums[s].total(m);
    }
  }
}

// Eight sums of four products each of two pairs of vectors: `u` at most 15.
template <bool kVnni>
HWY_INLINE __m256i dot_nibbles(__m256i u0, __m256i s0, __m256i u1, __m256i s1) {
  if constexpr (kVnni) {
    __m256i sums = _mm256_setzero_si256();
    asm("vpdpbusd %[s], %[u], %[sums]" : [sums] "+x"(sums) : [u] "x"(u0), [s] "x"(s0));  // NOLINT(hicpp-no-assembler)
    asm("vpdpbusd %[s], %[u], %[sums]" : [sums] "+x"(sums) : [u] "x"(u1), [s] "x"(s1));  // NOLINT(hicpp-no-assembler)
    return sums;
  } else {
    const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(u0, s0), _mm256_maddubs_epi16(u1, s1));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
}

// multiply_streams for Q4_0 and one row of x, which takes half the instructions: eight blocks share the arithmetic on
// scales, and two blocks a multiply-add.
template <bool kVnni>
void multiply_q4_0_streams(const uint8_t* w, int64_t w_stride, int64_t rows, const QuantizedInput& x, int64_t k,
                           float* out) {
  constexpr int kStreams = 4, kBlocks = 8;
  constexpr int64_t kBytes = Q4_0::kBytes, kNear = 1024, kFar = 3072;
  const int64_t blocks = k / kGroup;
  const __m256i low_half = _mm256_set1_epi8(15);
  const __m256i pick[4] = {_mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1), _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3),
                           _mm256_setr_epi32(4, 4, 4, 4, 5, 5, 5, 5), _mm256_setr_epi32(6, 6, 6, 6, 7, 7, 7, 7)};
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* b[kStreams];
    __m256 products[kStreams], eights[kStreams];  // of the numbers from 0 to 15, and what is taken off eight times
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      b[s] = w + (s * rows + r) * w_stride;
      products[s] = eights[s] = _mm256_setzero_ps();
    }
    int64_t i = 0;
    for (; i + kBlocks <= blocks; i += kBlocks) {
      const __m256 x_scales = _mm256_loadu_ps(x.scales + i), x_sums = _mm256_loadu_ps(x.sums + i);
      __m256 scales[kStreams];
      AA_UNROLL for (int s = 0; s < kStreams; ++s) {
        AA_UNROLL for (int64_t line = 0; line < kBlocks * kBytes; line += 64) {
          __builtin_prefetch(b[s] + kNear + line, 0, 3);
          __builtin_prefetch(b[s] + kFar + line, 0, 2);
        }
        alignas(16) uint16_t halves[kBlocks];
        AA_UNROLL for (int n = 0; n < kBlocks; ++n) std::memcpy(&halves[n], b[s] + n * kBytes, sizeof(uint16_t));
        const __m128i bits = _mm_setr_epi16(static_cast<int16_t>(halves[0]), static_cast<int16_t>(halves[1]),
                                            static_cast<int16_t>(halves[2]), static_cast<int16_t>(halves[3]),
                                            static_cast<int16_t>(halves[4]), static_cast<int16_t>(halves[5]),
                                            static_cast<int16_t>(halves[6]), static_cast<int16_t>(halves[7]));
        const __m256 d = _mm256_cvtph_ps(bits);
        scales[s] = _mm256_mul_ps(d, x_scales);
        eights[s] = _mm256_fmadd_ps(d, x_sums, eights[s]);
      }
      AA_UNROLL for (int pair = 0; pair < kBlocks / 2; ++pair) {
        const auto* at = reinterpret_cast<const __m256i*>(x.rounded + (i + 2 * pair) * kGroup);
        const __m256i first = _mm256_loadu_si256(at), second = _mm256_loadu_si256(at + 1);
        const __m256i low = _mm256_permute2x128_si256(first, second, 0x20);
        const __m256i high = _mm256_permute2x128_si256(first, second, 0x31);
        AA_UNROLL for (int s = 0; s < kStreams; ++s) {
          const auto* q = reinterpret_cast<const __m128i*>(b[s] + 2 * pair * kBytes + 2);
          const auto* next = reinterpret_cast<const __m128i*>(b[s] + (2 * pair + 1) * kBytes + 2);
          const __m256i both =
              _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(q)), _mm_loadu_si128(next), 1);
          const __m256i sums = dot_nibbles<kVnni>(_mm256_and_si256(both, low_half), low,
                                                  _mm256_and_si256(_mm256_srli_epi16(both, 4), low_half), high);
          products[s] =
              _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), _mm256_permutevar8x32_ps(scales[s], pick[pair]), products[s]);
        }
      }
      AA_UNROLL for (int s = 0; s < kStreams; ++s) b[s] += kBlocks * kBytes;
    }
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      Sums<kVnni, 1> rest;
      rest.x = x.rounded;
      rest.scales = x.scales;
      rest.group_sums = x.sums;
      rest.k = k;
      rest.clear();
      for (int64_t left = i; left < blocks; ++left, b[s] += kBytes) Q4_0::add(rest, b[s], left, 0);
      rest.products[0][0] =
          _mm256_add_ps(rest.products[0][0], _mm256_fmadd_ps(eights[s], _mm256_set1_ps(-8), products[s]));
      out[s * rows + r] = rest.total(0);
    }
  }
}

template <class Format, bool kVnni, int kM>
void multiply_rows(const uint8_t* w, int64_t w_stride, int64_t rows, const QuantizedInput& x, int64_t k,
                   int64_t first_m, float* out, int64_t out_stride) {
  constexpr int kStreams = kM == 1 ? 4 : 1;
  const int64_t per_stream = rows / kStreams, done = per_stream * kStreams;
  bool is_done = false;
  if constexpr (std::is_same_v<Format, Q4_0> && kM == 1) {
    if (!x.in_one_order) {
      QuantizedInput row = x;
      row.rounded += first_m * k;
      row.scales += first_m * (k / kGroup);
      row.sums += first_m * (k / kGroup);
      multiply_q4_0_streams<kVnni>(w, w_stride, per_stream, row, k, out + first_m * out_stride);
      is_done = true;
    }
  }
  if (!is_done) multiply_streams<Format, kVnni, kStreams, kM>(w, w_stride, per_stream, x, k, first_m, out, out_stride);
  if (done == rows) return;
  multiply_streams<Format, kVnni, 1, kM>(w + done * w_stride, w_stride, rows - done, x, k, first_m, out + done,
                                         out_stride);
}

// Each instance of multiply_rows takes long to compile, so there is one for each number of rows of x that is worth it. With
// VNNI, several rows come only from quantized_linear_by_row: others are multiplied by quantized_tiles.cpp.
template <class Format, bool kVnni>
void multiply_any_m(const uint8_t* w, int64_t w_stride, int64_t rows, const QuantizedInput& x, int64_t k,
                    int64_t count_m, float* out, int64_t out_stride) {
  int64_t m = 0;
  for (; m + 4 <= count_m; m += 4) multiply_rows<Format, kVnni, 4>(w, w_stride, rows, x, k, m, out, out_stride);
  if constexpr (!kVnni) {
    if (m + 2 <= count_m) {
      multiply_rows<Format, kVnni, 2>(w, w_stride, rows, x, k, m, out, out_stride);
      m += 2;
    }
  }
  for (; m < count_m; ++m) multiply_rows<Format, kVnni, 1>(w, w_stride, rows, x, k, m, out, out_stride);
}

// What the formats' add() fill where a row is decoded.
struct Decoded {
  float* to;
  __m256 block_scales = _mm256_setzero_ps();
  __m256 block_offsets = _mm256_setzero_ps();

  static HWY_INLINE __m256 floats(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)); }
  template <int kPart>
  static HWY_INLINE __m128i quarter(__m256i q) {
    const __m128i half = _mm256_extracti128_si256(q, kPart / 2);
    return kPart % 2 == 0 ? half : _mm_srli_si128(half, 8);
  }
  HWY_INLINE void store(int64_t g, __m256i q, __m256 scale, __m256 second_scale, __m256 offset) const {
    float* p = to + g * kGroup;
    _mm256_storeu_ps(p, _mm256_fmadd_ps(floats(quarter<0>(q)), scale, offset));
    _mm256_storeu_ps(p + 8, _mm256_fmadd_ps(floats(quarter<1>(q)), scale, offset));
    _mm256_storeu_ps(p + 16, _mm256_fmadd_ps(floats(quarter<2>(q)), second_scale, offset));
    _mm256_storeu_ps(p + 24, _mm256_fmadd_ps(floats(quarter<3>(q)), second_scale, offset));
  }
  HWY_INLINE void begin_block(int64_t /*g*/, __m256 of_scales, __m256 of_offsets) {
    block_scales = of_scales;
    block_offsets = of_offsets;
  }
  HWY_INLINE void add_of_block(int64_t g, int i, __m256i q) const {
    const __m256i pick = _mm256_set1_epi32(i);
    const __m256 scale = _mm256_permutevar8x32_ps(block_scales, pick);
    store(g + i, q, scale, scale, _mm256_permutevar8x32_ps(block_offsets, pick));
  }
  HWY_INLINE void add_signed_of_block(int64_t g, int i, __m256i q, __m256 both) const {
    const __m256 scale = _mm256_mul_ps(both, _mm256_permutevar8x32_ps(block_scales, _mm256_set1_epi32(i)));
    store(g + i, q, _mm256_permute2f128_ps(scale, scale, 0x00), _mm256_permute2f128_ps(scale, scale, 0x11),
          _mm256_setzero_ps());
  }
  HWY_INLINE void add(int64_t g, int /*part*/, __m256i q, float scale, float offset) const {
    store(g, q, _mm256_set1_ps(scale), _mm256_set1_ps(scale), _mm256_set1_ps(offset));
  }
  HWY_INLINE void add_bytes(int64_t g, int part, __m256i q, float scale) const { add_signed(g, part, q, scale, scale); }
  HWY_INLINE void add_signed(int64_t g, int /*part*/, __m256i q, float scale, float second_scale) const {
    store(g, q, _mm256_set1_ps(scale), _mm256_set1_ps(second_scale), _mm256_setzero_ps());
  }
};

template <class Format>
void decode_row_as(const uint8_t* b, int64_t k, float* to) {
  Decoded sink{to};
  for (int64_t i = 0; i < k / Format::kValues; ++i, b += Format::kBytes) {
    Format::add(sink, b, i * (Format::kValues / kGroup), 0);
  }
}

using MultiplyRows = void (*)(const uint8_t*, int64_t, int64_t, const QuantizedInput&, int64_t, int64_t, float*,
                              int64_t);

using DecodeRow = void (*)(const uint8_t*, int64_t, float*);

struct Kernels {
  MultiplyRows multiply = nullptr;
  MultiplyRows multiply_vnni = nullptr;
  DecodeRow decode = nullptr;
};

// Without VNNI these kernels are the same for both instruction sets, since all of their vectors have 256 bits.
template <class Format>
constexpr Kernels kernels_of() {
#if HWY_TARGET == HWY_AVX2
  return {multiply_any_m<Format, false>, nullptr, decode_row_as<Format>};
#elif (HWY_TARGETS & HWY_AVX2) != 0
  return {nullptr, multiply_any_m<Format, true>, nullptr};  // the others are those of AVX2
#else
  return {multiply_any_m<Format, false>, multiply_any_m<Format, true>, decode_row_as<Format>};
#endif
}

Kernels kernels_of_this_set(uint32_t format) {
  switch (format) {
    case AA_BLOCK_Q4_0: return kernels_of<Q4_0>();
    case AA_BLOCK_Q4_1: return kernels_of<Q4_1>();
    case AA_BLOCK_Q5_0: return kernels_of<Q5_0>();
    case AA_BLOCK_Q5_1: return kernels_of<Q5_1>();
    case AA_BLOCK_Q8_0: return kernels_of<Q8_0>();
    case AA_BLOCK_Q4_K: return kernels_of<Q4OrQ5K<false>>();
    case AA_BLOCK_Q5_K: return kernels_of<Q4OrQ5K<true>>();
    case AA_BLOCK_Q6_K: return kernels_of<Q6K>();
    case AA_BLOCK_IQ4_NL: return kernels_of<Iq4Nl>();
    case AA_BLOCK_IQ4_XS: return kernels_of<Iq4Xs>();
    case AA_BLOCK_MXFP4: return kernels_of<Mxfp4>();
    default: return {};
  }
}

// Null pointers for a format without kernels.
Kernels find_kernels(uint32_t format) {
  Kernels kernels = kernels_of_this_set(format);
#if HWY_TARGET == HWY_AVX3 && (HWY_TARGETS & HWY_AVX2) != 0
  const N_AVX2::Kernels of_avx2 = N_AVX2::kernels_of_this_set(format);
  kernels.multiply = of_avx2.multiply;
  kernels.decode = of_avx2.decode;
#endif
  return kernels;
}

MultiplyRows find_rows_kernel(uint32_t format) {
  const Kernels kernels = find_kernels(format);
  return kernels.multiply_vnni != nullptr && cpu_features().avx512_vnni ? kernels.multiply_vnni : kernels.multiply;
}

// Rounds a row of x. A group with a NaN or an infinity gets a NaN as its scale, which every sum with it then is.
// `finer` may be null.
void round_row(const float* x, int64_t k, int8_t* rounded, int16_t* finer, float* scales, float* sums) {
  for (int64_t g = 0; g < k / kGroup; ++g, x += kGroup, rounded += kGroup) {
    const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256 v[4], largest = _mm256_setzero_ps(), probe = _mm256_setzero_ps();
    AA_UNROLL for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + 8 * i);
      largest = _mm256_max_ps(largest, _mm256_and_ps(v[i], no_sign));
      probe = _mm256_fmadd_ps(v[i], _mm256_setzero_ps(), probe);
    }
    alignas(32) float lanes[8];
    _mm256_store_ps(lanes, largest);
    const float most = *std::max_element(lanes, lanes + 8);
    const bool finite = _mm256_movemask_ps(_mm256_cmp_ps(probe, probe, _CMP_UNORD_Q)) == 0;
    const float scale = finite ? most / 127.0F : std::numeric_limits<float>::quiet_NaN();
    const __m256 inverse = _mm256_set1_ps(finite && scale > 0 ? 1 / scale : 0.0F);
    __m256i q[4];
    AA_UNROLL for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    if (!finite) {
      AA_UNROLL for (int i = 0; i < 4; ++i) q[i] = _mm256_setzero_si256();
    }
    __m256i total = _mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
    alignas(32) int32_t parts[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(parts), total);
    int32_t sum = 0;
    for (const int32_t part : parts) sum += part;
    if (finer != nullptr) {
      const __m256 finer_inverse = _mm256_mul_ps(inverse, _mm256_set1_ps(kFiner));
      AA_UNROLL for (int i = 0; i < 2; ++i) {
        const __m256i first = _mm256_cvtps_epi32(_mm256_mul_ps(v[2 * i], finer_inverse));
        const __m256i second = _mm256_cvtps_epi32(_mm256_mul_ps(v[2 * i + 1], finer_inverse));
        const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(first, second), 0xD8);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(finer + 16 * i), words);
      }
      finer += kGroup;
    }
    // Packing works within halves of a vector: the order is put right afterwards.
    const __m256i words01 = _mm256_packs_epi32(q[0], q[1]), words23 = _mm256_packs_epi32(q[2], q[3]);
    const __m256i bytes =
        _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words01, words23), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(rounded), bytes);
    scales[g] = scale;
    sums[g] = scale * static_cast<float>(sum);
  }
}
#else
#define AA_HAS_INTEGER_DOTS 0
#endif

bool takes_rounded([[maybe_unused]] uint32_t format) {
#if AA_HAS_INTEGER_DOTS
  return find_rows_kernel(format) != nullptr;
#else
  return false;
#endif
}

// ---- around the products ---------------------------------------------------------------------------------------------

// Reads x, and rounds it if `rounded`; in scratch of this thread.
QuantizedInput read_input(const QuantizedProduct& product, bool rounded) {
  const Matmul& args = product.args;
  const int64_t k = args.k, groups = k / kGroup;
  auto* values = scratch<float>(Scratch::Row0, static_cast<size_t>(args.m * k));
  for (int64_t m = 0; m < args.m; ++m) {
    if (k > 0) read_floats(row_of(args.x, m, k), 0, k, values + m * k);
  }
  QuantizedInput input;
  if (!rounded) {
    input.values = values;
    return input;
  }
#if AA_HAS_INTEGER_DOTS
  auto* bytes = scratch<int8_t>(Scratch::Row1, static_cast<size_t>(args.m * k));
  int16_t* finer = nullptr;
  if (product.format->number == AA_BLOCK_Q8_0) {
    finer = scratch<int16_t>(Scratch::Rounded, static_cast<size_t>(args.m * k));
  }
  auto* scales = scratch<float>(Scratch::Row2, static_cast<size_t>(2 * args.m * groups));
  float* sums = scales + args.m * groups;
  for (int64_t m = 0; m < args.m; ++m) {
    round_row(values + m * k, k, bytes + m * k, finer == nullptr ? nullptr : finer + m * k, scales + m * groups,
              sums + m * groups);
  }
  input.rounded = bytes;
  input.finer = finer;
  input.scales = scales;
  input.sums = sums;
#endif
  static_cast<void>(groups);
  return input;
}

void decode_row(const QuantizedProduct& product, int64_t n, float* to) {
#if AA_HAS_INTEGER_DOTS
  if (const DecodeRow decode = find_kernels(product.format->number).decode) {
    return decode(product.w + n * product.w_stride, product.args.k, to);
  }
#endif
  const auto bytes = static_cast<size_t>(product.args.k / product.format->values * product.format->bytes);
  decode_blocks(*product.format, std::as_bytes(std::span(product.w + n * product.w_stride, bytes)),
                std::span(to, static_cast<size_t>(product.args.k)));
}

float dot_floats(const float* a, const float* b, int64_t k) {
  FloatVec sums[4] = {hn::Zero(kFloats), hn::Zero(kFloats), hn::Zero(kFloats), hn::Zero(kFloats)};
  static_assert(kGroup % kLanes == 0);
  for (int64_t i = 0; i < k; i += kGroup) {
    AA_UNROLL for (int64_t j = 0; j < kGroup / kLanes; ++j) {
      FloatVec& sum = sums[j % 4];
      sum = hn::MulAdd(hn::LoadU(kFloats, a + i + j * kLanes), hn::LoadU(kFloats, b + i + j * kLanes), sum);
    }
  }
  return sum_lanes(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
}

// Columns [begin, begin + n) of the result, for all rows of x.
void multiply_span(const QuantizedProduct& product, const QuantizedInput& x, int64_t begin, int64_t n) {
  const Matmul& args = product.args;
  auto* products = scratch<float>(Scratch::Tile, static_cast<size_t>(args.m * n));
#if AA_HAS_INTEGER_DOTS
  if (x.rounded != nullptr) {
    find_rows_kernel(product.format->number)(product.w + begin * product.w_stride, product.w_stride, n, x, args.k,
                                             args.m, products, n);
  }
#endif
  if (x.values != nullptr) {
    auto* weights = scratch<float>(Scratch::Row3, static_cast<size_t>(args.k));
    for (int64_t i = 0; i < n; ++i) {
      decode_row(product, begin + i, weights);
      for (int64_t m = 0; m < args.m; ++m) products[m * n + i] = dot_floats(weights, x.values + m * args.k, args.k);
    }
  }
  for (int64_t m = 0; m < args.m; ++m) finish_row(args, args.parts[0], m, begin, n, products + m * n, nullptr);
}

// Rows [begin, begin + count) of the weights as fp32 or bf16, to a panel whose first row is `begin`.
void decode_panel(const QuantizedProduct& product, int64_t begin, int64_t count, DType dtype, void* to) {
  const int64_t k = product.args.k;
  auto* wide = scratch<float>(Scratch::Row3, static_cast<size_t>(k));
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == DType::F32) {
      decode_row(product, begin + i, static_cast<float*>(to) + i * k);
    } else {
      decode_row(product, begin + i, wide);
      narrow(Bf16Type(), wide, static_cast<uint16_t*>(to) + i * k, k);
    }
  }
}

// Rows [begin, end) of x as bf16.
void round_rows(const Matmul& args, int64_t begin, int64_t end, uint16_t* to) {
  auto* wide = scratch<float>(Scratch::Row3, static_cast<size_t>(args.k));
  for (int64_t m = begin; m < end; ++m) {
    read_floats(row_of(args.x, m, args.k), 0, args.k, wide);
    narrow(Bf16Type(), wide, to + m * args.k, args.k);
  }
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(takes_rounded);
AA_CPU_EXPORT(read_input);
AA_CPU_EXPORT(multiply_span);
AA_CPU_EXPORT(decode_panel);
AA_CPU_EXPORT(round_rows);

namespace {

// Rows of x whose products are taken directly; more share the decoding of the weights. With 23 rows the direct products of
// 1.1 billion weights took half the time (AVX-512 with VNNI, two cores).
constexpr int64_t kMostDirectRows = 32;
// Bytes of weights that a thread takes at once, and of a decoded panel for each thread.
constexpr int64_t kPieceBytes = int64_t{256} << 10;
constexpr int64_t kPanelBytes = int64_t{1} << 20;

// `in_one_order`: as in QuantizedInput.
void multiply_directly(const QuantizedProduct& product, bool in_one_order) {
  const Matmul& args = product.args;
  const int64_t n = args.parts[0].n;
  const bool rounded = product.rounded && AA_CPU_DISPATCH(takes_rounded)(product.format->number);
  QuantizedInput x = AA_CPU_DISPATCH(read_input)(product, rounded);
  x.in_one_order = in_one_order;
  const int64_t row_bytes = std::max<int64_t>(args.k / product.format->values * product.format->bytes, 1);
  const int64_t piece = std::clamp<int64_t>(kPieceBytes / row_bytes, 8, 1024);
  if (n <= piece || is_small(args)) return AA_CPU_DISPATCH(multiply_span)(product, x, 0, n);
  std::atomic<int64_t> next{0};
  WorkerPool::instance().run([&](int /*index*/, int /*count*/) {
    for (int64_t begin = next.fetch_add(piece); begin < n; begin = next.fetch_add(piece)) {
      AA_CPU_DISPATCH(multiply_span)(product, x, begin, std::min(piece, n - begin));
    }
  });
}

void multiply_panels(const QuantizedProduct& product) {
  const Matmul& args = product.args;
  WorkerPool& pool = WorkerPool::instance();
  const int64_t n = args.parts[0].n, k = args.k;
  const DType dtype = product.rounded && cpu_features().fast_bf16 ? DType::BF16 : DType::F32;
  const int64_t row_bytes = std::max<int64_t>(k * static_cast<int64_t>(dtype_size(dtype)), 1);
  const int64_t columns = std::clamp<int64_t>(kPanelBytes * pool.size() / row_bytes / 64 * 64, 64, n);
  Matmul whole = args;
  if (dtype == DType::BF16 && args.x.dtype != DType::BF16) {
    auto* rounded = scratch<uint16_t>(Scratch::Rounded, static_cast<size_t>(args.m * k));
    pool.run([&](int index, int threads) {
      AA_CPU_DISPATCH(round_rows)(args, args.m * index / threads, args.m * (index + 1) / threads, rounded);
    });
    whole.x = {rounded, DType::BF16, k, 1};
  }
  auto* panel = scratch<char>(Scratch::Decoded, static_cast<size_t>(columns * row_bytes));
  for (int64_t begin = 0; begin < n; begin += columns) {
    const int64_t count = std::min(columns, n - begin);
    pool.run([&](int index, int threads) {
      const int64_t first = count * index / threads, last = count * (index + 1) / threads;
      AA_CPU_DISPATCH(decode_panel)(product, begin + first, last - first, dtype, panel + first * row_bytes);
    });
    Matmul part = whole;
    MatmulPart& columns_of = part.parts[0];
    columns_of.n = count;
    columns_of.weight[0] = {panel, dtype, k, 1};
    columns_of.out.data = columns_of.out.at(0, begin);
    if (columns_of.bias[0]) columns_of.bias[0].data = columns_of.bias[0].at(0, begin);
    if (columns_of.residual) columns_of.residual.data = columns_of.residual.at(0, begin);
    multiply(part);
  }
}

}  // namespace

void quantized_linear(const aa_op_call& call) {
  const QuantizedProduct product = quantized_linear_args(call);
  if (product.args.m == 0 || product.args.parts[0].n == 0) return;
  const uint32_t format = product.format->number;
  if (product.args.m == 1 && product.rounded && takes_one_row(format, product.args.k)) return multiply_one_row(product);
  // With Q8_0, whose x is rounded to 16 bits, bf16 products of decoded panels are half again as fast where there are any.
  const bool panels = format == AA_BLOCK_Q8_0 && product.args.m > kMostDirectRows && cpu_features().fast_bf16;
  if (product.args.m > 1 && product.rounded && !panels && takes_tiles(format)) return multiply_tiles(product);
  if (product.args.m > kMostDirectRows) return multiply_panels(product);
  multiply_directly(product, false);
}

void quantized_linear_by_row(const aa_op_call& call) {
  const QuantizedProduct product = quantized_linear_args(call);
  if (product.args.parts[0].n == 0) return;
  for (int64_t m = 0; m < product.args.m; m += kMostDirectRows) {
    QuantizedProduct part = product;
    part.args = rows_of(product.args, m, std::min(kMostDirectRows, product.args.m - m));
    multiply_directly(part, true);
  }
}

}  // namespace anyaccel::cpu
#endif  // HWY_ONCE
