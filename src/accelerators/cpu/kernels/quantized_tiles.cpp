// See quantized_tiles.h.
//
// Sixteen rows of the weights are unpacked together, one group of 32 columns after another, to unsigned bytes: 64 bytes
// hold four consecutive values of each row. With VNNI, one instruction (vpdpbusd) multiplies them with four values of a
// row of x and adds, so that no sum runs across a vector, and the scales of a group apply to its sixteen sums at once.
// The initial values of the sums subtract what makes the bytes unsigned. For few rows of x, and on a Zen 5 for any number, a
// piece of unpacked weights stays in the first-level cache; otherwise, for many rows, which share the work of unpacking, it is
// larger.
//
// With AVX2, two products of bytes are added in 16 bits, and as many of these sums as fit before they are widened.
// Formats whose values are too large for that are unpacked to 16 bits, and x is rounded to 16 bits too, which is at
// least as precise.
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
#include "accelerators/cpu/kernels/quantized_round-inl.h"
#include "accelerators/cpu/kernels/quantized_tile_products-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if AA_HAS_QUANTIZED_TILES

TileKernels find_tile_kernels(uint32_t format) {
  switch (format) {
    case AA_BLOCK_Q4_0: return tile_kernels_of<TileQ4_0>();
    case AA_BLOCK_Q4_1: return tile_kernels_of<TileQ4_1>();
    case AA_BLOCK_Q5_0: return tile_kernels_of<TileQ5_0>();
    case AA_BLOCK_Q5_1: return tile_kernels_of<TileQ5_1>();
    case AA_BLOCK_Q8_0: return tile_kernels_of<TileQ8_0>();
    case AA_BLOCK_IQ4_NL: return tile_kernels_of<TileIq4Nl>();
    case AA_BLOCK_MXFP4: return tile_kernels_of<TileMxfp4>();
    default: return find_tile_kernels_of_256(format);
  }
}

bool has_tiles(uint32_t format) { return find_tile_kernels(format).multiply != nullptr; }
size_t bytes_of_rounded(int64_t m, int64_t k) {
  return static_cast<size_t>((m + kTileRows - 1) / kTileRows * (k / kTileGroup)) * sizeof(RoundedGroup);
}

// Rounds a group of 32 values of row `row` of `to`. A group with a NaN or an infinity gets a NaN as its scale, so that every
// sum with it becomes NaN.
HWY_INLINE void round_group(const float* x, const TileKernels& kernels, RoundedGroup& to, int64_t row) {
  const bool finer = kernels.finer || kernels.in_16_bits;
  const float steps = finer ? 127.0F * 256 : 127.0F;
  int32_t sums[2];  // of the halves
#if HWY_TARGET == HWY_AVX3
  const __m512 first = _mm512_loadu_ps(x), second = _mm512_loadu_ps(x + 16);
  const float most = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(first), _mm512_abs_ps(second)));
  const __m512 probe = _mm512_fmadd_ps(first, _mm512_setzero_ps(), _mm512_mul_ps(second, _mm512_setzero_ps()));
  const bool finite = _mm512_cmp_ps_mask(probe, probe, _CMP_UNORD_Q) == 0;
  const float scale = finite ? most / steps : std::numeric_limits<float>::quiet_NaN();
  const __m512 inverse = _mm512_set1_ps(finite && scale >= std::numeric_limits<float>::min() ? 1 / scale : 0.0F);
  __m512i q[2] = {_mm512_cvtps_epi32(_mm512_mul_ps(first, inverse)),
                  _mm512_cvtps_epi32(_mm512_mul_ps(second, inverse))};
  if (!finite) q[0] = q[1] = _mm512_setzero_si512();
  sums[0] = _mm512_reduce_add_epi32(q[0]);
  sums[1] = _mm512_reduce_add_epi32(q[1]);
  AA_UNROLL for (int i = 0; i < 2; ++i) {
    if (finer) {  // q = 256 * upper + lower, both signed
      const __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(q[i], _mm512_set1_epi32(128)), 8);
      const __m512i rest = _mm512_sub_epi32(q[i], _mm512_slli_epi32(upper, 8));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to.lower[row] + 16 * i), _mm512_cvtepi32_epi8(rest));
      q[i] = upper;
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to.values[row] + 16 * i), _mm512_cvtepi32_epi8(q[i]));
  }
#else
  const RoundedValues r = round_values(x, steps);
  const float scale = r.scale;
  sums[0] = r.sums[0];
  sums[1] = r.sums[1];
  const __m256i halves[2] = {r.half_as_16_bits(0), r.half_as_16_bits(1)};
  if (kernels.in_16_bits) {
    // Of each four values the first and the third, then the other two, as unpacked weights are stored.
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    AA_UNROLL for (int i = 0; i < 2; ++i) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.wide[row] + 16 * i), _mm256_shuffle_epi8(halves[i], order));
    }
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.values[row]),
                        _mm256_permute4x64_epi64(_mm256_packs_epi16(halves[0], halves[1]), 0b11011000));
  }
#endif
  to.scales[row] = scale;
  if (kernels.parts == 1) sums[0] += sums[1];
  for (int part = 0; part < kernels.parts; ++part) {
    if (kernels.offsets) {
      to.sums[part][row] = scale * static_cast<float>(sums[part]);
    } else {
      to.starts[part][row] = -kernels.zero * sums[part];
    }
  }
}

// Rounds rows [begin, end) of x to the RoundedGroups at `to`.
void round_tile_rows(const QuantizedProduct& product, int64_t begin, int64_t end, void* to) {
  const int64_t k = product.args.k, groups = k / kTileGroup;
  const TileKernels kernels = find_tile_kernels(product.format->number);
  auto* wide = scratch<float>(Scratch::Row3, static_cast<size_t>(k));
  for (int64_t m = begin; m < end; ++m) {
    read_floats(row_of(product.args.x, m, k), 0, k, wide);
    RoundedGroup* row = static_cast<RoundedGroup*>(to) + m / kTileRows * groups;
    for (int64_t g = 0; g < groups; ++g) round_group(wide + g * kTileGroup, kernels, row[g], m % kTileRows);
  }
}

// Columns [begin, begin + n) of the result.
void multiply_tile_span(const QuantizedProduct& product, const void* x, int64_t begin, int64_t n) {
  const Matmul& args = product.args;
  const TileKernels kernels = find_tile_kernels(product.format->number);
  const int64_t stride = (n + kColumns - 1) / kColumns * kColumns;
  auto* products = scratch<float>(Scratch::Tile, static_cast<size_t>(args.m * stride));
  auto* unpacked = scratch<uint8_t>(Scratch::Partials, static_cast<size_t>(args.k / kTileGroup * kernels.group_bytes));
  kernels.multiply(product.w + begin * product.w_stride, product.w_stride, n, static_cast<const RoundedGroup*>(x),
                   args.m, args.k, unpacked, products, stride);
  for (int64_t m = 0; m < args.m; ++m) {
    finish_row(args, args.parts[0], m, begin, n, products + m * stride, nullptr);
  }
}

#else

bool has_tiles(uint32_t /*format*/) { return false; }
size_t bytes_of_rounded(int64_t /*m*/, int64_t /*k*/) { return 0; }
void round_tile_rows(const QuantizedProduct& /*product*/, int64_t /*begin*/, int64_t /*end*/, void* /*to*/) {}
void multiply_tile_span(const QuantizedProduct& /*product*/, const void* /*x*/, int64_t /*begin*/, int64_t /*n*/) {}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(has_tiles);
AA_CPU_EXPORT(bytes_of_rounded);
AA_CPU_EXPORT(round_tile_rows);
AA_CPU_EXPORT(multiply_tile_span);

bool takes_tiles(uint32_t format) { return AA_BYTES_DISPATCH(has_tiles)(format); }

void multiply_tiles(const QuantizedProduct& product) {
  // Rows of the weights that a thread takes at once.
  constexpr int64_t piece = 64;
  const Matmul& args = product.args;
  const int64_t n = args.parts[0].n, m = args.m, k = args.k;
  void* x = scratch<uint8_t>(Scratch::Rounded, AA_BYTES_DISPATCH(bytes_of_rounded)(m, k));
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
