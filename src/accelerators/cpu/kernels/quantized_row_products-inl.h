// Products of few rows of x with rows of quantized weights. Included by quantized_row.cpp (formats of 32 values in a block) and
// quantized_row_k.cpp (256 values), since one file took long to compile. Included after base/simd/highway.h, once per instruction
// set.
//
// Four parts of the weights are read side by side, as in gemv_streams-inl.h (two with five and six rows of x, whose sums would
// not fit into registers otherwise). Each step of a kernel is taken for all of them before the next step, because the processor
// looks only so far ahead for independent instructions. A block of weights is unpacked again for each row of x.
// quantized_row_avx2-inl.h, quantized_row_avx512-inl.h and their counterparts for 256 values have the kernel of each format.
#include <cstdint>
#include <cstring>
#include <utility>

#include "accelerators/cpu/kernels/matmul_finish-inl.h"
#include "accelerators/cpu/kernels/quantized_row.h"
#include "accelerators/cpu/kernels/quantized_row_avx2-inl.h"
#include "accelerators/cpu/kernels/quantized_row_avx512-inl.h"
#include "accelerators/cpu/kernels/quantized_row_k_avx2-inl.h"
#include "accelerators/cpu/kernels/quantized_row_k_avx512-inl.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/vector-inl.h"
#include "base/simd/cpu_features.h"

#if defined(ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_PRODUCTS_INL_H_
#undef ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_PRODUCTS_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_QUANTIZED_ROW_PRODUCTS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#undef AA_HAS_ROW_KERNELS

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
#define AA_HAS_ROW_KERNELS 1

// The most rows of x that are multiplied here, and the most for which k does not matter. With AVX2 two rows read the weights
// 1.04 to 1.5 times as fast as with quantized_tiles.cpp on a Zen 5, three rows 0.75 to 1.2 times.
constexpr int64_t kMostRowsOfX = HWY_TARGET == HWY_AVX3 ? 6 : 2, kFewRowsOfX = HWY_TARGET == HWY_AVX3 ? 4 : 2;

constexpr Distances kUsualDistances{1024, 3072};
// On two cores of a Zen 5, whose best read was 52 to 54 GB/s, Q4_0, Q4_K, Q6_K and Q8_0 read 50.5, 45.5, 49.6 and 49.2 GB/s
// with this, 49.2, 41.7, 47.5 and 48.8 without prefetches, and 47.8, 47.1, 46.3 and 45.6 with the usual distances.
constexpr Distances kDistancesOfZen5{1536, 0};
// On a Zen 3 and a Zen 4 the loops do not prefetch: the hardware prefetchers follow long streams, and alone read them 2 to
// 5% faster than with prefetch instructions, which help only where a stream begins (prefetch_starts()). Intel processors
// without AVX-512 were not measured.
inline Distances find_distances() {
  if (HWY_TARGET != HWY_AVX3) return {};
  if (cpu_features().zen5) return kDistancesOfZen5;
  return cpu_features().fast_bf16_dot ? Distances{} : kUsualDistances;
}
template <int64_t kBytes>
HWY_INLINE void prefetch_block(const uint8_t* b, Distances ahead) {
  AA_UNROLL for (int64_t line = 0; line < kBytes; line += 64) {
    __builtin_prefetch(b + ahead.near + line, 0, 3);
    if (ahead.far != 0) __builtin_prefetch(b + ahead.far + line, 0, 2);
  }
}

// out[m * out_stride + s * rows + r] = row s * rows + r of the weights times row m of x, for r < rows, s < kStreams, m < kM.
//
// Where k is no multiple of kBlock, the last blocks of a row are copied and followed by zeros: a kernel would read those of the next
// row, whose scales may be infinite.
template <class Format, int kStreams, int kM>
void multiply_streams(const uint8_t* w, int64_t w_stride, int64_t rows, const BlockRow* x, int64_t k, float* out,
                      int64_t out_stride) {
  const int64_t whole = k / kBlock, blocks = (k + kBlock - 1) / kBlock;
  const auto last_bytes = static_cast<size_t>(k % kBlock * Format::kBytes / kBlock);
  alignas(64) uint8_t last[kStreams][Format::kBytes];
  if (whole < blocks) std::memset(last, 0, sizeof last);
  const Distances ahead = find_distances();
  prefetch_starts<kStreams>(w, rows * w_stride, ahead.near != 0 ? ahead : kUsualDistances);
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* b[kStreams];
    decltype(FloatVec::raw) total[kM][kStreams];
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      b[s] = w + (s * rows + r) * w_stride;
      AA_UNROLL for (int m = 0; m < kM; ++m) total[m][s] = hn::Zero(kFloats).raw;
    }
    for (int64_t i = 0; i < blocks; ++i) {
      if (i == whole) {
        AA_UNROLL for (int s = 0; s < kStreams; ++s) {
          std::memcpy(last[s], b[s], last_bytes);
          b[s] = last[s];
        }
      }
      if (ahead.near != 0) {
        AA_UNROLL for (int s = 0; s < kStreams; ++s) prefetch_block<Format::kBytes>(b[s], ahead);
      }
      AA_UNROLL for (int m = 0; m < kM; ++m) Format::template add<kStreams>(b, x[m], i, total[m]);
      AA_UNROLL for (int s = 0; s < kStreams; ++s) b[s] += Format::kBytes;
    }
    AA_UNROLL for (int m = 0; m < kM; ++m) {
      FloatVec four[4];
      float sums[4];
      AA_UNROLL for (int s = 0; s < 4; ++s) four[s] = FloatVec{total[m][s % kStreams]};
      sum_four(four, sums);
      AA_UNROLL for (int s = 0; s < kStreams; ++s) out[m * out_stride + s * rows + r] = sums[s];
    }
  }
}

template <class Format, int kM>
void multiply_rows_of(const uint8_t* w, int64_t w_stride, int64_t rows, const BlockRow* x, int64_t k, float* out,
                      int64_t out_stride) {
  constexpr int kStreams = kM <= 4 ? 4 : 2;  // sums stay in registers
  int64_t done = 0;
  while (rows - done >= kStreams) {
    const int64_t per_stream = ((rows - done) / kStreams - 1) | 1;  // odd, as in gemv_streams-inl.h
    multiply_streams<Format, kStreams, kM>(w + done * w_stride, w_stride, per_stream, x, k, out + done, out_stride);
    done += per_stream * kStreams;
  }
  multiply_streams<Format, 1, kM>(w + done * w_stride, w_stride, rows - done, x, k, out + done, out_stride);
}

struct RowKernels {
  // For each number of rows of x.
  using Multiply = void (*)(const uint8_t*, int64_t, int64_t, const BlockRow*, int64_t, float*, int64_t);
  Multiply multiply[kMostRowsOfX] = {};
  void (*round)(const float*, int64_t, int8_t*, float*, float*) = nullptr;
  bool fine = false;
};
template <class Format>
constexpr RowKernels row_kernels_of() {
  RowKernels kernels{.round = round_row_for<Format>, .fine = Format::kFine};
  [&]<size_t... kRows>(std::index_sequence<kRows...>) {
    ((kernels.multiply[kRows] = multiply_rows_of<Format, kRows + 1>), ...);
  }
  (std::make_index_sequence<kMostRowsOfX>());
  return kernels;
}
// The kernels of a format of 256 values in a block (quantized_row_k.cpp); null pointers for others.
RowKernels find_row_kernels_of_256(uint32_t format);

#else
#define AA_HAS_ROW_KERNELS 0
#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
