// See quantized_row.h. quantized_row_products-inl.h has the products.
#include "accelerators/cpu/kernels/quantized_row.h"

#include <algorithm>
#include <atomic>
#include <utility>

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
#include "accelerators/cpu/kernels/quantized_row_products-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if AA_HAS_ROW_KERNELS

RowKernels find_row_kernels(uint32_t format) {
  switch (format) {
    case AA_BLOCK_Q4_0: return row_kernels_of<RowQ4_0>();
    case AA_BLOCK_Q4_1: return row_kernels_of<RowQ4_1>();
    case AA_BLOCK_Q5_0: return row_kernels_of<RowQ5_0>();
    case AA_BLOCK_Q5_1: return row_kernels_of<RowQ5_1>();
    case AA_BLOCK_IQ4_NL: return row_kernels_of<RowIq4Nl>();
    case AA_BLOCK_MXFP4: return row_kernels_of<RowMxfp4>();
    case AA_BLOCK_Q8_0: return row_kernels_of<RowQ8_0>();
    default: return find_row_kernels_of_256(format);
  }
}

// Bytes of a row of x for its kernel.
int64_t bytes_of_row(const RowKernels& kernels, int64_t k) {
  return k * (kernels.fine ? 2 : 1) + (k + kBlock - 1) / kBlock * 32 * static_cast<int64_t>(sizeof(float));
}

// Two cores of a Zen 5, GB/s from memory, these kernels and those of quantized_tiles.cpp, which unpack the weights first:
//
//   rows of x                     2         3         4         5         6
//   2,048 columns, Q4_0     46 : 29   46 : 28   45 : 27   42 : 26   33 : 25
//   5,632 columns, Q4_0     53 : 31   51 : 30   46 : 30   29 : 27   25 : 25
//   2,048 columns, Q8_0     61 : 34   52 : 34   43 : 33   40 : 32   34 : 30
//   5,632 columns, Q8_0     51 : 34   50 : 35   41 : 34   29 : 33   26 : 31
//
// Q4_K and Q6_K are alike. So five and six rows of x are multiplied here if they fit into the first-level cache beside the weights.
// From the second-level cache six rows are as fast with either. Other processors were not measured with several rows.
bool has_row_kernels(uint32_t format, int64_t m, int64_t k) {
  const RowKernels kernels = find_row_kernels(format);
  if (kernels.multiply[0] == nullptr || m > kMostRowsOfX) return false;
  return m <= kFewRowsOfX || m * bytes_of_row(kernels, k) <= int64_t{32} << 10;
}

// Rows of x that multiply_by_row() takes at a time.
constexpr int64_t kRowsByRow = 32;
int64_t rows_at_once() { return kRowsByRow; }
struct RoundedRows {
  BlockRow rows[kRowsByRow];
};

// Rounds the rows of x, with zeros up to a multiple of kBlock, into scratch memory of this thread. Several threads share long rows.
RoundedRows round_rows(const QuantizedProduct& product) {
  const int64_t m = product.args.m, k = product.args.k, blocks = (k + kBlock - 1) / kBlock, padded = blocks * kBlock;
  const RowKernels kernels = find_row_kernels(product.format->number);
  auto* values = scratch<int8_t>(Scratch::Row1, static_cast<size_t>(2 * padded * m));
  auto* factors = scratch<float>(Scratch::Row2, static_cast<size_t>(32 * blocks * m));
  RoundedRows x;
  const auto round = [&](int64_t begin, int64_t end) {
    auto* wide = scratch<float>(Scratch::Row0, static_cast<size_t>(padded));
    std::fill(wide + k, wide + padded, 0.0F);
    for (int64_t i = begin; i < end; ++i) {
      int8_t* own_values = values + 2 * padded * i;
      float* own_factors = factors + 32 * blocks * i;
      if (k > 0) read_floats(row_of(product.args.x, i, k), 0, k, wide);
      kernels.round(wide, padded, own_values, own_factors, own_factors + 16 * blocks);
      x.rows[i] = {own_values, own_factors, own_factors + 16 * blocks};
    }
  };
  if (m == 1 || m * k < 16384 || is_small(product.args)) {
    round(0, m);
  } else {
    WorkerPool::instance().run([&](int index, int count) { round(m * index / count, m * (index + 1) / count); });
  }
  return x;
}

// Columns [begin, begin + n) of the result.
void multiply_row_span(const QuantizedProduct& product, const RoundedRows& x, int64_t begin, int64_t n) {
  const int64_t m = product.args.m;
  auto* products = scratch<float>(Scratch::Tile, static_cast<size_t>(m * n));
  const RowKernels kernels = find_row_kernels(product.format->number);
  const int64_t most = m <= kMostRowsOfX ? kMostRowsOfX : kFewRowsOfX;
  for (int64_t i = 0; i < m; i += most) {
    kernels.multiply[std::min(most, m - i) - 1](product.w + begin * product.w_stride, product.w_stride, n, x.rows + i,
                                                product.args.k, products + i * n, n);
  }
  for (int64_t i = 0; i < m; ++i) {
    finish_row(product.args, product.args.parts[0], i, begin, n, products + i * n, nullptr);
  }
}

// Returns how many of n rows each of `threads` takes first: four streams of an odd number of rows, three quarters of
// the rows in all. Returns 0 where such a part would be no larger than a piece.
int64_t rows_of_own_part(int64_t n, int64_t row_bytes, int64_t threads) {
  const int64_t of_stream = n * 3 / 4 / threads / 4;
  const int64_t rows = of_stream < 2 ? 0 : 4 * ((of_stream - 1) | 1);
  return rows * row_bytes < int64_t{64} << 10 ? 0 : rows;
}

// Each thread begins with one large part of the weights, since starting elsewhere costs about a microsecond in which
// little is read. The rest is shared in pieces, so that the threads end together. For more rows of x than a kernel takes there are
// only pieces, which stay in the second-level cache from kernel to kernel.
void multiply_few_alone_or_shared(const QuantizedProduct& product, bool alone) {
  const RoundedRows x = round_rows(product);
  const int64_t n = product.args.parts[0].n;
  const int64_t row_bytes = product.args.k / product.format->values * product.format->bytes;
  const int64_t small_piece = rows_of_piece(n, row_bytes, WorkerPool::instance().size());
  if (alone || n <= small_piece) return multiply_row_span(product, x, 0, n);
  std::atomic<int64_t> taken{0};
  WorkerPool::instance().run([&](int index, int count) {
    const int64_t own = product.args.m <= kMostRowsOfX ? rows_of_own_part(n, row_bytes, count) : 0;
    const int64_t rest = n - own * count;
    const int64_t piece = own > 0 ? std::max<int64_t>((rest / (2 * count) + 3) / 4 * 4, 8) : small_piece;
    if (own > 0) multiply_row_span(product, x, own * index, own);
    for (int64_t at = taken.fetch_add(piece); at < rest; at = taken.fetch_add(piece)) {
      multiply_row_span(product, x, own * count + at, std::min(piece, rest - at));
    }
  });
}

#else

bool has_row_kernels(uint32_t /*format*/, int64_t /*m*/, int64_t /*k*/) { return false; }
int64_t rows_at_once() { return 1; }
void multiply_few_alone_or_shared(const QuantizedProduct& /*product*/, bool /*alone*/) {}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(has_row_kernels);
AA_CPU_EXPORT(multiply_few_alone_or_shared);
AA_CPU_EXPORT(rows_at_once);

bool takes_few_rows(uint32_t format, int64_t m, int64_t k) { return AA_BYTES_DISPATCH(has_row_kernels)(format, m, k); }

void multiply_few_rows(const QuantizedProduct& product) {
  AA_BYTES_DISPATCH(multiply_few_alone_or_shared)(product, is_small(product.args));
}

bool has_products_by_row(uint32_t format) { return takes_few_rows(format, 1, 0); }

void multiply_by_row(const QuantizedProduct& product) {
  const int64_t most = AA_BYTES_DISPATCH(rows_at_once)();
  for (int64_t m = 0; m < product.args.m; m += most) {
    QuantizedProduct part = product;
    part.args = rows_of(product.args, m, std::min(most, product.args.m - m));
    multiply_few_rows(part);
  }
}

}  // namespace anyaccel::cpu
#endif  // HWY_ONCE
