// Products of rows of x, rounded to integers in groups of 32 values, with rows of quantized weights, for AVX2 and
// AVX-512. quantized_linear.cpp calls them where quantized_row.cpp and quantized_tiles.cpp have no kernel. Included
// after base/simd/highway.h, once per instruction set.
//
// The add() of a format (quantized_blocks-inl.h) unpacks a block of weights in registers and hands its groups to Sums,
// which multiplies each with the same group of one or four rows of x: an integer dot product, one conversion and one
// multiply-add.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "accelerators/cpu/kernels/quantized_blocks-inl.h"
#include "accelerators/cpu/kernels/quantized_linear.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_QUANTIZED_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_QUANTIZED_SUMS_INL_H_
#undef ANYACCEL_CPU_KERNELS_QUANTIZED_SUMS_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_QUANTIZED_SUMS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if AA_HAS_INTEGER_DOTS

constexpr float kFiner = 256;  // steps of QuantizedInput::finer in one of QuantizedInput::rounded

// Eight 32-bit sums of four products of bytes each: `u` is unsigned, `s` signed. Without VNNI, pairs of products are
// added in 16 bits and must not saturate: `u` is at most 128, `s` at most 127 in magnitude.
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

// Sums of products of one row of weights with kM rows of x. Groups alternate between two partial sums, so that an
// addition need not wait for the one before it.
template <bool kVnni, int kM>
struct Sums {
  const int8_t* x = nullptr;         // of the first row of x
  const int16_t* x_finer = nullptr;  // of the same row
  const float* scales = nullptr;
  const float* group_sums = nullptr;
  int64_t k = 0;
  __m256 products[2][kM];
  float offsets[2][kM];
  // Products of both sides' scales for the eight groups of a block, and sums of offsets: see begin_block().
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
  // The same for scale * q with signed q, without an offset; the first 16 values have `scale`, the last 16
  // `second_scale`.
  HWY_INLINE void add_signed(int64_t g, int part, __m256i q, float scale, float second_scale) {
    const __m256i magnitude = _mm256_abs_epi8(q);
    const __m256 both = _mm256_set_m128(_mm_set1_ps(second_scale), _mm_set1_ps(scale));
    AA_UNROLL for (int m = 0; m < kM; ++m) {
      const __m256 sums = _mm256_cvtepi32_ps(dot_bytes<kVnni>(magnitude, _mm256_sign_epi8(group(m, g), q)));
      const __m256 factor = _mm256_mul_ps(both, _mm256_set1_ps(scales[m * (k / kGroup) + g]));
      products[part][m] = _mm256_fmadd_ps(sums, factor, products[part][m]);
    }
  }
  // The same for q from 0 to 63, with two offsets too: the halves of the vectors are for the first and the last 16 values.
  HWY_INLINE void add_halves(int64_t g, int part, __m256i q, __m256 both_scales, __m256 both_offsets) {
    AA_UNROLL for (int m = 0; m < kM; ++m) {
      const __m256 dots = _mm256_cvtepi32_ps(dot_bytes<kVnni>(q, group(m, g)));
      const __m256 of_x = _mm256_cvtepi32_ps(dot_bytes<kVnni>(_mm256_set1_epi8(1), group(m, g)));
      const __m256 sum = _mm256_fmadd_ps(dots, both_scales, _mm256_mul_ps(of_x, both_offsets));
      const __m256 scale = _mm256_set1_ps(scales[m * (k / kGroup) + g]);
      products[part][m] = _mm256_fmadd_ps(sum, scale, products[part][m]);
    }
  }
  // The same for weights of 8 bits and x of 16 bits: rounding x to 8 bits would cause most of the error.
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
  // Sets the scales and offsets of the eight groups from g on, and combines them with those of x for all eight at once.
  HWY_INLINE void begin_block(int64_t g, __m256 of_scales, __m256 of_offsets) {
    AA_UNROLL for (int m = 0; m < kM; ++m) {
      const int64_t at = m * (k / kGroup) + g;
      block_scales[m] = _mm256_mul_ps(of_scales, _mm256_loadu_ps(scales + at));
      block_offsets[m] = _mm256_fmadd_ps(of_offsets, _mm256_loadu_ps(group_sums + at), block_offsets[m]);
    }
  }
  // Adds group g + i of that block.
  HWY_INLINE void add_of_block(int64_t g, int i, __m256i q) {
    AA_UNROLL for (int m = 0; m < kM; ++m) {
      const __m256 sums = _mm256_cvtepi32_ps(dot_bytes<kVnni>(q, group(m, g + i)));
      const __m256 scale = _mm256_permutevar8x32_ps(block_scales[m], _mm256_set1_epi32(i));
      products[i % 2][m] = _mm256_fmadd_ps(sums, scale, products[i % 2][m]);
    }
  }
  // The same for signed q. The halves of `both` are two further factors, for the first and the last 16 values.
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

// out[(first_m + m) * out_stride + s * rows + r] = row s * rows + r of the weights times row first_m + m of x, for r < rows,
// s < kStreams, m < kM. Several parts of the weights are read side by side, as in gemv_streams-inl.h.
template <class Format, bool kVnni, int kStreams, int kM>
void multiply_streams(const uint8_t* w, int64_t w_stride, int64_t rows, const QuantizedInput& x, int64_t k,
                      int64_t first_m, float* out, int64_t out_stride) {
  // Prefetch distances in bytes, for the first- and the second-level cache.
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

template <class Format, bool kVnni, int kM>
void multiply_rows(const uint8_t* w, int64_t w_stride, int64_t rows, const QuantizedInput& x, int64_t k,
                   int64_t first_m, float* out, int64_t out_stride) {
  constexpr int kStreams = kM == 1 ? 4 : 1;
  const int64_t per_stream = rows / kStreams, done = per_stream * kStreams;
  multiply_streams<Format, kVnni, kStreams, kM>(w, w_stride, per_stream, x, k, first_m, out, out_stride);
  if (done == rows) return;
  multiply_streams<Format, kVnni, 1, kM>(w + done * w_stride, w_stride, rows - done, x, k, first_m, out + done,
                                         out_stride);
}

// An instance of multiply_rows() takes long to compile, so there is one for four rows of x and one for a single row.
// Several rows come only from quantized_linear_by_row(): quantized_tiles.cpp multiplies the others.
template <class Format, bool kVnni>
void multiply_any_m(const uint8_t* w, int64_t w_stride, int64_t rows, const QuantizedInput& x, int64_t k,
                    int64_t count_m, float* out, int64_t out_stride) {
  int64_t m = 0;
  for (; m + 4 <= count_m; m += 4) multiply_rows<Format, kVnni, 4>(w, w_stride, rows, x, k, m, out, out_stride);
  for (; m < count_m; ++m) multiply_rows<Format, kVnni, 1>(w, w_stride, rows, x, k, m, out, out_stride);
}

// Rounds a row of x to 8 bits and, unless `finer` is null, to 16. A group with a NaN or an infinity gets a NaN as its
// scale, so that every sum with it becomes NaN.
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
    const __m256 inverse = _mm256_set1_ps(finite && scale >= std::numeric_limits<float>::min() ? 1 / scale : 0.0F);
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

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
