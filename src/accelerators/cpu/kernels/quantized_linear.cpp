// The ops "quantized_linear" and "quantized_linear_by_row": products with quantized weights, which are read in place.
//
// With AVX2, or AVX-512 with VNNI, quantized_row.cpp computes most products of few rows of x (up to two with AVX2, up to
// six with AVX-512) and quantized_tiles.cpp most others; with AMX, quantized_unit.cpp and quantized_bytes.cpp come before
// them. The remaining products are here: those on other processors, those whose x must not be rounded, and many rows with Q8_0.
//
// Few rows of x: threads take rows of the weights from a shared counter, decode each into the first-level cache and multiply it in
// fp32. Many rows of x: the weights are decoded a panel at a time, and the matmul of ordinary weights multiplies the panel.
#include "accelerators/cpu/kernels/quantized_linear.h"

#include <algorithm>
#include <atomic>
#include <span>

#include "accelerators/cpu/kernels/matmul_inner.h"
#include "accelerators/cpu/kernels/quantized_bytes.h"
#include "accelerators/cpu/kernels/quantized_row.h"
#include "accelerators/cpu/kernels/quantized_tiles.h"
#include "accelerators/cpu/kernels/quantized_unit.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/ops.h"
#include "accelerators/cpu/worker_pool.h"
#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/quantized_linear.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/activation-inl.h"
#include "accelerators/cpu/kernels/matmul_finish-inl.h"
#include "accelerators/cpu/kernels/quantized_blocks-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// Decodes a row of k weights; null for a format without such a function.
using DecodeRow = void (*)(const uint8_t*, int64_t, float*);
DecodeRow find_decode([[maybe_unused]] uint32_t format) {
#if HWY_TARGET == HWY_AVX3 && (HWY_TARGETS & HWY_AVX2) != 0
  return N_AVX2::find_decode(format);  // these functions are the same for both instruction sets
#elif AA_DECODES_BLOCKS
  switch (format) {
    case AA_BLOCK_Q4_0: return decode_row_as<Q4_0>;
    case AA_BLOCK_Q4_1: return decode_row_as<Q4_1>;
    case AA_BLOCK_Q5_0: return decode_row_as<Q5_0>;
    case AA_BLOCK_Q5_1: return decode_row_as<Q5_1>;
    case AA_BLOCK_Q8_0: return decode_row_as<Q8_0>;
    case AA_BLOCK_Q2_K: return decode_row_as<Q2K>;
    case AA_BLOCK_Q3_K: return decode_row_as<Q3K>;
    case AA_BLOCK_Q4_K: return decode_row_as<Q4OrQ5K<false> >;
    case AA_BLOCK_Q5_K: return decode_row_as<Q4OrQ5K<true> >;
    case AA_BLOCK_Q6_K: return decode_row_as<Q6K>;
    case AA_BLOCK_IQ4_NL: return decode_row_as<Iq4Nl>;
    case AA_BLOCK_IQ4_XS: return decode_row_as<Iq4Xs>;
    case AA_BLOCK_TQ1_0: return decode_row_as<Tq1_0>;
    case AA_BLOCK_TQ2_0: return decode_row_as<Tq2_0>;
    case AA_BLOCK_MXFP4: return decode_row_as<Mxfp4>;
    default: return nullptr;
  }
#else
  return nullptr;
#endif
}

// ---- around the products ---------------------------------------------------------------------------------------------

// Reads the rows of x into scratch memory of this thread.
const float* read_input(const QuantizedProduct& product) {
  const Matmul& args = product.args;
  auto* values = scratch<float>(Scratch::Row0, static_cast<size_t>(args.m * args.k));
  for (int64_t m = 0; m < args.m; ++m) {
    if (args.k > 0) read_floats(row_of(args.x, m, args.k), 0, args.k, values + m * args.k);
  }
  return values;
}

void decode_row(const QuantizedProduct& product, int64_t n, float* to) {
  if (const DecodeRow decode = find_decode(product.format->number)) {
    return decode(product.w + n * product.w_stride, product.args.k, to);
  }
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
void multiply_span(const QuantizedProduct& product, const float* x, int64_t begin, int64_t n) {
  const Matmul& args = product.args;
  auto* products = scratch<float>(Scratch::Tile, static_cast<size_t>(args.m * n));
  auto* weights = scratch<float>(Scratch::Row3, static_cast<size_t>(args.k));
  for (int64_t i = 0; i < n; ++i) {
    if (args.k > 0) decode_row(product, begin + i, weights);  // both inputs may be null otherwise
    for (int64_t m = 0; m < args.m; ++m) products[m * n + i] = dot_floats(weights, x + m * args.k, args.k);
  }
  for (int64_t m = 0; m < args.m; ++m) finish_row(args, args.parts[0], m, begin, n, products + m * n, nullptr);
}

// Decodes rows [begin, begin + count) of the weights to fp32 or bf16 rows at `to`.
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

AA_CPU_EXPORT(read_input);
AA_CPU_EXPORT(multiply_span);
AA_CPU_EXPORT(decode_panel);
AA_CPU_EXPORT(round_rows);

namespace {

// Most rows of x that are multiplied without a panel. With 23 rows, products of 1.1 billion weights took half the time
// of decoded panels (AVX-512 with VNNI, two cores).
constexpr int64_t kMostDirectRows = 32;
// Bytes of a decoded panel: for each thread, and at least in all. Each panel reads all of x again: with panels of 2
// MiB, prompts with Q8_0 weights took 1.3 times as long (512 rows, 2,048 and 5,632 columns, two cores of a Zen 4).
constexpr int64_t kPanelBytesOfThread = int64_t{1} << 20, kLeastPanelBytes = int64_t{16} << 20;

void multiply_directly(const QuantizedProduct& product) {
  const Matmul& args = product.args;
  const int64_t n = args.parts[0].n;
  const float* x = AA_CPU_DISPATCH(read_input)(product);
  const int64_t row_bytes = args.k / product.format->values * product.format->bytes;
  const int64_t piece = rows_of_piece(n, row_bytes, WorkerPool::instance().size());
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
  const int64_t panel_bytes = std::max(kPanelBytesOfThread * pool.size(), kLeastPanelBytes);
  const int64_t columns = std::min(std::max<int64_t>(panel_bytes / row_bytes / 64 * 64, 64), n);
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
  if (takes_unit(product)) return multiply_on_unit(product);
  if (takes_bytes(product)) return multiply_bytes(product);
  if (product.rounded && takes_few_rows(format, product.args.m, product.args.k)) return multiply_few_rows(product);
  // With Q8_0, whose x is rounded to 16 bits, bf16 products of decoded panels are half again as fast where there are any.
  const bool fast_bf16 = isa() >= Isa::Avx512 && cpu_features().fast_bf16;
  const bool panels = format == AA_BLOCK_Q8_0 && product.args.m > kMostDirectRows && fast_bf16;
  if (product.args.m > 1 && product.rounded && !panels && takes_tiles(format)) return multiply_tiles(product);
  if (product.args.m > kMostDirectRows) return multiply_panels(product);
  multiply_directly(product);
}

void quantized_linear_by_row(const aa_op_call& call) {
  const QuantizedProduct product = quantized_linear_args(call);
  if (product.args.parts[0].n == 0) return;
  if (product.rounded && has_products_by_row(product.format->number)) return multiply_by_row(product);
  for (int64_t m = 0; m < product.args.m; m += kMostDirectRows) {
    QuantizedProduct part = product;
    part.args = rows_of(product.args, m, std::min(kMostDirectRows, product.args.m - m));
    multiply_directly(part);
  }
}

}  // namespace anyaccel::cpu
#endif  // HWY_ONCE
