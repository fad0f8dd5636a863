// Products for many rows of x with oneDNN's bf16 product, for processors that multiply bf16 much faster than F32 (AMX).
//
// The weights are bf16 as they are. x becomes bf16 without loss: an F32 number is the sum of three bf16 numbers, an F16
// number of two, so its rows are stacked as that many rows of bf16 and multiplied in one call. Products of bf16 numbers
// are exact in F32, so the result is what the ops promise: arithmetic in F32, one rounding at the end. Each thread
// takes chunks of the weights' rows from a common counter, lets oneDNN multiply them into its own memory and finishes
// the rows there.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "accelerators/cpu/kernels/matmul_args.h"
#include "accelerators/cpu/kernels/matmul_inner.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/onednn.h"
#include "accelerators/cpu/worker_pool.h"
#include "base/scalar_convert.h"
#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/gemm_onednn.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/activation-inl.h"
#include "accelerators/cpu/kernels/matmul_finish-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// Adds the sums of the smaller terms to those of the first. Where the first is not finite it is the result: the other
// terms are zeros, perhaps times an infinite weight.
void add_terms(int terms, int64_t term_stride, int64_t n, float* sums) {
  for (int64_t i = 0; i < n; ++i) {
    float small = sums[(terms - 1) * term_stride + i];
    for (int term = terms - 2; term > 0; --term) small += sums[term * term_stride + i];
    sums[i] = sums[i] - sums[i] == 0.0f ? sums[i] + small : sums[i];
  }
}

// stacked[term][row][k] = rows [m0, m0 + rows) of x; this thread's share of them.
void stack_x(const OneDnnPlan& plan, int64_t m0, int64_t rows, int index, int count) {
  const Matmul& args = *plan.args;
  for (int64_t m = rows * index / count; m < rows * (index + 1) / count; ++m) {
    split_row(row_of(args.x, m0 + m, args.k), plan.terms, rows * args.k, plan.stacked_x + m * args.k);
  }
}

// Finishes and stores a chunk: products[weight][term][row][column].
void finish_products(const OneDnnPlan& plan, const MatmulPart& part, int64_t m0, int64_t rows, int64_t column0,
                     int64_t columns, float* products) {
  const Matmul& args = *plan.args;
  float* up = products + (args.gated ? plan.terms * rows * columns : 0);
  for (int64_t m = 0; m < rows; ++m) {
    for (int weight = 0; plan.terms > 1 && weight < args.weights(); ++weight) {
      add_terms(plan.terms, rows * columns, columns, (weight == 0 ? products : up) + m * columns);
    }
    finish_row(args, part, m0 + m, column0, columns, products + m * columns, up + m * columns);
  }
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {
namespace {

AA_CPU_EXPORT(stack_x);
AA_CPU_EXPORT(finish_products);

// Rows of x in work at once. Each block of them reads, and oneDNN reorders, all weights once.
constexpr int64_t kMaxBlockRows = 512;
// Bytes of F32 products of a chunk, which are finished while they are in the second level cache.
constexpr int64_t kChunkBytes = 1 << 20;
constexpr int64_t kMinColumns = 64, kMaxColumns = 256, kColumnUnit = 32;

int64_t ceil_div(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }

OneDnnPlan make_plan(const Matmul& args, int threads) {
  OneDnnPlan plan;
  plan.args = &args;
  plan.terms = bf16_terms(args.x.dtype);
  plan.block_rows = ceil_div(args.m, ceil_div(args.m, kMaxBlockRows));
  plan.stacked_x = scratch<uint16_t>(Scratch::Partials, static_cast<size_t>(plan.terms * plan.block_rows * args.k));

  int64_t columns = 0;
  for (int i = 0; i < args.part_count; ++i) columns += args.parts[static_cast<size_t>(i)].n;
  const int64_t column_bytes = plan.terms * plan.block_rows * args.weights() * static_cast<int64_t>(sizeof(float));
  const int64_t most = std::clamp(kChunkBytes / column_bytes / kColumnUnit * kColumnUnit, kMinColumns, kMaxColumns);
  // As many chunks for each thread, nearly, as for any other.
  const int64_t rounds = std::max<int64_t>(ceil_div(columns, threads * most), 1);
  plan.chunk_columns = std::max(ceil_div(ceil_div(columns, threads * rounds), kColumnUnit), int64_t{1}) * kColumnUnit;
  for (int i = 0; i < args.part_count; ++i) {
    plan.chunks += ceil_div(args.parts[static_cast<size_t>(i)].n, plan.chunk_columns);
  }
  return plan;
}

onednn::Shape shape_of(const OneDnnPlan& plan, const Matrix& weight, int64_t rows, int64_t columns) {
  return {plan.terms * rows, columns, plan.args->k, weight.row_stride};
}

void run_chunk(const OneDnnPlan& plan, const MatmulPart& part, int64_t m0, int64_t rows, int64_t column0,
               int64_t columns) {
  const Matmul& args = *plan.args;
  const int64_t size = plan.terms * rows * columns;
  auto* products = scratch<float>(Scratch::Tile, static_cast<size_t>(args.weights() * size));
  for (int i = 0; i < args.weights(); ++i) {
    const Matrix& weight = part.weight[static_cast<size_t>(i)];
    onednn::multiply(shape_of(plan, weight, rows, columns), plan.stacked_x,
                     static_cast<const uint16_t*>(weight.at(column0, 0)), products + i * size);
  }
  AA_CPU_DISPATCH(finish_products)(plan, part, m0, rows, column0, columns, products);
}

void share(OneDnnPlan& plan, std::atomic<int64_t>& next_chunk, int index, int count) {
  const onednn::OneThread one_thread;
  const Matmul& args = *plan.args;
  WorkerPool& pool = WorkerPool::instance();
  for (int64_t m0 = 0; m0 < args.m; m0 += plan.block_rows) {
    const int64_t rows = std::min(plan.block_rows, args.m - m0);
    AA_CPU_DISPATCH(stack_x)(plan, m0, rows, index, count);
    pool.barrier(index);
    for (int64_t chunk; (chunk = next_chunk.fetch_add(1, std::memory_order_relaxed)) < plan.chunks;) {
      size_t part = 0;
      for (int64_t chunks; chunk >= (chunks = ceil_div(args.parts[part].n, plan.chunk_columns)); ++part)
        chunk -= chunks;
      const int64_t column0 = chunk * plan.chunk_columns;
      run_chunk(plan, args.parts[part], m0, rows, column0, std::min(plan.chunk_columns, args.parts[part].n - column0));
    }
    if (m0 + rows >= args.m) break;
    pool.barrier(index);  // nobody reads this block of x any more
    if (index == 0) next_chunk.store(0, std::memory_order_relaxed);
  }
}

}  // namespace

bool onednn_takes(const Matmul& args) {
  constexpr int64_t kFewestRows = 32;
  return args.m >= kFewestRows && args.k > 0 && has_bf16_rows(args);
}

void gemm_onednn(const Matmul& args) {
  WorkerPool& pool = WorkerPool::instance();
  OneDnnPlan plan = make_plan(args, pool.size());
  // A shape that oneDNN lacks is found before anything is written: the residual may be the output.
  pool.run([&](int index, int /*count*/) {
    if (index != 0 || args.part_count == 0 || args.parts[0].n == 0) return;
    const onednn::OneThread one_thread;
    onednn::prepare(
        shape_of(plan, args.parts[0].weight[0], plan.block_rows, std::min(plan.chunk_columns, args.parts[0].n)));
  });
  std::atomic<int64_t> next_chunk{0};
  pool.run([&](int index, int count) { share(plan, next_chunk, index, count); });
}

}  // namespace anyaccel::cpu
#endif  // HWY_ONCE
