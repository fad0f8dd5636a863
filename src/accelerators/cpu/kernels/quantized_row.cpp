// See quantized_row.h.
//
// Four parts of the weights are read side by side, as in gemv_streams-inl.h. Each step of a kernel is taken for all four before
// the next step, because the processor looks only so far ahead for independent instructions. quantized_row_avx2-inl.h
// and quantized_row_avx512-inl.h have the kernel of each format.
#include "accelerators/cpu/kernels/quantized_row.h"

#include <algorithm>
#include <atomic>

#include "accelerators/cpu/kernels/matmul_inner.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/worker_pool.h"
#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/quantized_row.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/activation-inl.h"
#include "accelerators/cpu/kernels/matmul_finish-inl.h"
#include "accelerators/cpu/kernels/quantized_row_avx2-inl.h"
#include "accelerators/cpu/kernels/quantized_row_avx512-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2

constexpr Distances kUsualDistances{1024, 3072};
// On two cores of a Zen 5, whose best read was 52 to 54 GB/s, Q4_0, Q4_K, Q6_K and Q8_0 read 50.5, 45.5, 49.6 and 49.2 GB/s
// with this, 49.2, 41.7, 47.5 and 48.8 without prefetches, and 47.8, 47.1, 46.3 and 45.6 with the usual distances.
constexpr Distances kDistancesOfZen5{1536, 0};
// On a Zen 3 and a Zen 4 the loops do not prefetch: the hardware prefetchers follow long streams, and alone read them 2 to
// 5% faster than with prefetch instructions, which help only where a stream begins (prefetch_starts()). Intel processors
// without AVX-512 were not measured.
Distances find_distances() {
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

// out[s * rows + r] = row s * rows + r of the weights times x, for r < rows, s < kStreams.
template <class Format, int kStreams>
void multiply_streams(const uint8_t* w, int64_t w_stride, int64_t rows, const BlockRow& x, int64_t blocks, float* out) {
  const Distances ahead = find_distances();
  prefetch_starts<kStreams>(w, rows * w_stride, ahead.near != 0 ? ahead : kUsualDistances);
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* b[kStreams];
    decltype(FloatVec::raw) total[kStreams];
    AA_UNROLL for (int s = 0; s < kStreams; ++s) {
      b[s] = w + (s * rows + r) * w_stride;
      total[s] = hn::Zero(kFloats).raw;
    }
    for (int64_t i = 0; i < blocks; ++i) {
      if (ahead.near != 0) {
        AA_UNROLL for (int s = 0; s < kStreams; ++s) prefetch_block<Format::kBytes>(b[s], ahead);
      }
      Format::template add<kStreams>(b, x, i, total);
      AA_UNROLL for (int s = 0; s < kStreams; ++s) b[s] += Format::kBytes;
    }
    FloatVec four[4];
    float sums[4];
    AA_UNROLL for (int s = 0; s < 4; ++s) four[s] = FloatVec{total[s % kStreams]};
    sum_four(four, sums);
    AA_UNROLL for (int s = 0; s < kStreams; ++s) out[s * rows + r] = sums[s];
  }
}

template <class Format>
void multiply_rows_of(const uint8_t* w, int64_t w_stride, int64_t rows, const BlockRow& x, int64_t blocks, float* out) {
  constexpr int kStreams = 4;
  int64_t done = 0;
  while (rows - done >= kStreams) {
    const int64_t per_stream = ((rows - done) / kStreams - 1) | 1;  // odd, as in gemv_streams-inl.h
    multiply_streams<Format, kStreams>(w + done * w_stride, w_stride, per_stream, x, blocks, out + done);
    done += per_stream * kStreams;
  }
  multiply_streams<Format, 1>(w + done * w_stride, w_stride, rows - done, x, blocks, out + done);
}

struct RowKernels {
  void (*multiply)(const uint8_t*, int64_t, int64_t, const BlockRow&, int64_t, float*) = nullptr;
  void (*round)(const float*, int64_t, int8_t*, float*, float*) = nullptr;
};
template <class Format>
constexpr RowKernels row_kernels_of() {
  return {multiply_rows_of<Format>, round_row_for<Format>};
}
RowKernels find_row_kernels(uint32_t format) {
  switch (format) {
    case AA_BLOCK_Q4_0: return row_kernels_of<RowQ4_0>();
    case AA_BLOCK_Q8_0: return row_kernels_of<RowQ8_0>();
    case AA_BLOCK_Q4_K: return row_kernels_of<RowQ4OrQ5K<false>>();
    case AA_BLOCK_Q5_K: return row_kernels_of<RowQ4OrQ5K<true>>();
    case AA_BLOCK_Q6_K: return row_kernels_of<RowQ6K>();
    default: return {};
  }
}

bool has_row_kernels(uint32_t format, int64_t k) {
  return k % kBlock == 0 && find_row_kernels(format).multiply != nullptr;
}

// Rounds the row of x into scratch memory of this thread.
BlockRow round_one_row(const QuantizedProduct& product) {
  const int64_t k = product.args.k, blocks = k / kBlock;
  auto* wide = scratch<float>(Scratch::Row0, static_cast<size_t>(k));
  auto* values = scratch<int8_t>(Scratch::Row1, static_cast<size_t>(2 * k));
  auto* factors = scratch<float>(Scratch::Row2, static_cast<size_t>(32 * blocks));
  if (k > 0) read_floats(row_of(product.args.x, 0, k), 0, k, wide);
  find_row_kernels(product.format->number).round(wide, k, values, factors, factors + 16 * blocks);
  return {values, factors, factors + 16 * blocks};
}

// Columns [begin, begin + n) of the result.
void multiply_row_span(const QuantizedProduct& product, const void* x, int64_t begin, int64_t n) {
  auto* products = scratch<float>(Scratch::Tile, static_cast<size_t>(n));
  find_row_kernels(product.format->number)
      .multiply(product.w + begin * product.w_stride, product.w_stride, n, *static_cast<const BlockRow*>(x),
                product.args.k / kBlock, products);
  finish_row(product.args, product.args.parts[0], 0, begin, n, products, nullptr);
}

// Returns how many of n rows each of `threads` takes first: four streams of an odd number of rows, three quarters of
// the rows in all. Returns 0 where such a part would be no larger than a piece.
int64_t rows_of_own_part(int64_t n, int64_t row_bytes, int64_t threads) {
  const int64_t of_stream = n * 3 / 4 / threads / 4;
  const int64_t rows = of_stream < 2 ? 0 : 4 * ((of_stream - 1) | 1);
  return rows * row_bytes < int64_t{64} << 10 ? 0 : rows;
}

// Each thread begins with one large part of the weights, since starting elsewhere costs about a microsecond in which
// little is read. The rest is shared in pieces, so that the threads end together.
void multiply_row_alone_or_shared(const QuantizedProduct& product, bool alone) {
  const BlockRow x = round_one_row(product);
  const int64_t n = product.args.parts[0].n;
  const int64_t row_bytes = product.args.k / product.format->values * product.format->bytes;
  const int64_t small_piece = rows_of_piece(n, row_bytes, WorkerPool::instance().size());
  if (alone || n <= small_piece) return multiply_row_span(product, &x, 0, n);
  std::atomic<int64_t> taken{0};
  WorkerPool::instance().run([&](int index, int count) {
    const int64_t own = rows_of_own_part(n, row_bytes, count), rest = n - own * count;
    const int64_t piece = own > 0 ? std::max<int64_t>((rest / (2 * count) + 3) / 4 * 4, 8) : small_piece;
    if (own > 0) multiply_row_span(product, &x, own * index, own);
    for (int64_t at = taken.fetch_add(piece); at < rest; at = taken.fetch_add(piece)) {
      multiply_row_span(product, &x, own * count + at, std::min(piece, rest - at));
    }
  });
}

#else

bool has_row_kernels(uint32_t /*format*/, int64_t /*k*/) { return false; }
void multiply_row_alone_or_shared(const QuantizedProduct& /*product*/, bool /*alone*/) {}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(has_row_kernels);
AA_CPU_EXPORT(multiply_row_alone_or_shared);

bool takes_one_row(uint32_t format, int64_t k) { return AA_BYTES_DISPATCH(has_row_kernels)(format, k); }

void multiply_one_row(const QuantizedProduct& product) {
  AA_BYTES_DISPATCH(multiply_row_alone_or_shared)(product, is_small(product.args));
}

}  // namespace anyaccel::cpu
#endif  // HWY_ONCE
