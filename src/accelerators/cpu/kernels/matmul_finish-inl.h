// Shared by the matmul kernels: rows of x as bf16 terms, the last step of a row of results (bias, activation, residual,
// rounding; in matmul_finish.cpp), a small transposition, and the first prefetches of streams. Included after
// base/simd/highway.h, once per instruction set.
#include "accelerators/cpu/kernels/matmul_args.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_MATMUL_FINISH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_MATMUL_FINISH_INL_H_
#undef ANYACCEL_CPU_KERNELS_MATMUL_FINISH_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_MATMUL_FINISH_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

HWY_INLINE Row row_of(const Matrix& matrix, int64_t row, int64_t length) {
  return {static_cast<char*>(matrix.at(row, 0)), matrix.dtype, matrix.column_stride, length};
}

// read_row() with vectors for F32 too: the compiler turns its memcpy into string instructions, which are slow to start.
inline void read_floats(const Row& row, int64_t begin, int64_t n, float* to) {
  if (row.dtype == DType::F32 && row.stride == 1) {
    widen(F32Type(), reinterpret_cast<const float*>(row.data) + begin, to, n);
  } else {
    read_row(row, begin, n, to);
  }
}

// Writes a row of x as `terms` rows of bf16, term_stride apart, whose sum it is: each takes the upper 8 bits of the
// significand of what is left. Truncation, unlike rounding, cannot overflow. A number that is not finite has no
// remainder.
inline void split_row(const Row& row, int terms, int64_t term_stride, uint16_t* to) {
  const int64_t k = row.length;
  auto* rest = scratch<float>(Scratch::Row0, static_cast<size_t>(k));
  read_floats(row, 0, k, rest);
  for (int term = 0; term < terms; ++term, to += term_stride) {
    for (int64_t i = 0; i < k; ++i) {
      uint32_t bits;
      std::memcpy(&bits, &rest[i], sizeof(bits));
      const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
      // The mantissa bits that make a number a NaN may all be among those that are cut off.
      if ((bits & 0x7fffffffu) > 0x7f800000u) bits |= 0x00400000u;
      to[i] = static_cast<uint16_t>(bits >> 16);
      bits &= 0xffff0000u;
      float taken;
      std::memcpy(&taken, &bits, sizeof(taken));
      rest[i] = finite ? rest[i] - taken : 0.0f;
    }
  }
}

// Turns the plain products of row m with columns [begin, begin + n) into results and stores them. `values` belongs to
// the first weight, `up` to the second when there are two; both are overwritten. In matmul_finish.cpp, because code for all
// activations and types of results was half of what compiling a file of products took.
void finish_row(const Matmul& args, const MatmulPart& part, int64_t m, int64_t begin, int64_t n, float* values,
                float* up);
// The number of columns that finish_row() works on at once.
constexpr int64_t kFinishColumns = 256;

// Prefetches the part of row m of the output, and of the residual, that will be written soon.
inline void prefetch_row(const MatmulPart& part, int64_t m, int64_t rows, int64_t column, int64_t n) {
  if (m >= rows) return;
  for (const Matrix* matrix : {&part.out, &part.residual}) {
    if (!*matrix || matrix->column_stride != 1) continue;
    const char* begin = static_cast<const char*>(matrix->at(m, column));
    const int64_t bytes = n * static_cast<int64_t>(dtype_size(matrix->dtype));
    for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(begin + line, 1, 3);
  }
}

// How many bytes ahead of its reads a loop prefetches, into the first- and the second-level cache; 0: not at all.
struct Distances {
  int64_t near, far;
};

// Prefetches the first lines of kS consecutive streams of `bytes` each, which a loop with these distances would never
// prefetch.
template <int kS>
void prefetch_starts(const void* data, int64_t bytes, Distances ahead) {
  const auto* start = static_cast<const char*>(data);
  const int64_t near = ahead.near < bytes ? ahead.near : bytes, far = ahead.far < bytes ? ahead.far : bytes;
  for (int64_t at = 0; at < near; at += 64) {
    AA_UNROLL for (int s = 0; s < kS; ++s) __builtin_prefetch(start + s * bytes + at, 0, 3);
  }
  for (int64_t at = near; at < far; at += 64) {
    AA_UNROLL for (int s = 0; s < kS; ++s) __builtin_prefetch(start + s * bytes + at, 0, 2);
  }
}

// to[i * stride + r] = rows[r][i] for r < 4, i < kLanes.
HWY_INLINE void transpose4(const float* const (&rows)[4], float* to, int64_t stride) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  const auto a = hn::LoadU(kFloats, rows[0]), b = hn::LoadU(kFloats, rows[1]);
  const auto c = hn::LoadU(kFloats, rows[2]), d = hn::LoadU(kFloats, rows[3]);
  // 4x4 transposition inside each 128-bit block.
  const hn::RepartitionToWide<FloatTag> doubles;
  const auto ab_low = hn::BitCast(doubles, hn::InterleaveLower(kFloats, a, b));
  const auto ab_high = hn::BitCast(doubles, hn::InterleaveUpper(kFloats, a, b));
  const auto cd_low = hn::BitCast(doubles, hn::InterleaveLower(kFloats, c, d));
  const auto cd_high = hn::BitCast(doubles, hn::InterleaveUpper(kFloats, c, d));
  const FloatVec columns[4] = {hn::BitCast(kFloats, hn::InterleaveLower(doubles, ab_low, cd_low)),
                               hn::BitCast(kFloats, hn::InterleaveUpper(doubles, ab_low, cd_low)),
                               hn::BitCast(kFloats, hn::InterleaveLower(doubles, ab_high, cd_high)),
                               hn::BitCast(kFloats, hn::InterleaveUpper(doubles, ab_high, cd_high))};
  AA_UNROLL for (int64_t i = 0; i < 4; ++i) {
#if HWY_TARGET == HWY_AVX3
    _mm_storeu_ps(to + i * stride, _mm512_castps512_ps128(columns[i].raw));
    _mm_storeu_ps(to + (i + 4) * stride, _mm512_extractf32x4_ps(columns[i].raw, 1));
    _mm_storeu_ps(to + (i + 8) * stride, _mm512_extractf32x4_ps(columns[i].raw, 2));
    _mm_storeu_ps(to + (i + 12) * stride, _mm512_extractf32x4_ps(columns[i].raw, 3));
#else
    _mm_storeu_ps(to + i * stride, _mm256_castps256_ps128(columns[i].raw));
    _mm_storeu_ps(to + (i + 4) * stride, _mm256_extractf128_ps(columns[i].raw, 1));
#endif
  }
#else
  for (int64_t i = 0; i < kLanes; ++i) {
    for (int64_t r = 0; r < 4; ++r) to[i * stride + r] = rows[r][i];
  }
#endif
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
