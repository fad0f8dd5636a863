// Products for few rows of x (decoding): bound by how fast the weights come from memory.
//
// Each thread takes a contiguous span of the weights' rows, cuts it into eight (four for several rows of x) and walks the
// parts side by side, so that as many sequential streams are in flight; lines are prefetched at two distances, into the
// first and the second level cache, since the processor's own prefetchers alone reach three quarters of the bandwidth. A
// vector of weights is widened once and multiplied with all rows of x. With four streams this reached 97 to 100% of the
// bandwidth of a loop that only read the same weights, in turns with it (two cores of a Sapphire Rapids virtual machine).
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "accelerators/cpu/kernels/matmul_args.h"
#include "accelerators/cpu/kernels/matmul_inner.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/worker_pool.h"
#include "base/scalar_convert.h"
#include "base/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/gemv.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/activation-inl.h"
#include "accelerators/cpu/kernels/matmul_finish-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

constexpr int kStreams = 4;
// For one row of x. In turns on two cores of a Sapphire Rapids virtual machine, 8 streams read 3 to 4% more than 4 and up
// to 3% more than 6; 12 and 16 read less.
constexpr int kStreamsOfOneRow = 8;
// Accumulators: kStreams * rows of x, out of 32 registers with AVX-512 and 16 otherwise.
constexpr int kRowsAtOnce = kLanes >= 16 ? 6 : 3;
// More rows of x take the weights a second time, when they are still in the cache.
constexpr int kMaxPasses = 2;
// Elements of K handled between two prefetches: one cache line of a 16-bit type, two of F32.
constexpr int64_t kBlock = 32;
static_assert(kBlock % (2 * kLanes) == 0);
// Bytes ahead of the loads. Found best among 0.5 to 4 KiB on Emerald Rapids, within 1% from 1 to 2 and 2 to 4 KiB.
constexpr int64_t kNearPrefetch = 1024;
constexpr int64_t kFarPrefetch = 3072;
// The part of the weights that threads take dynamically instead of in fixed shares (one in so many), and the bytes of a
// piece. With fixed shares only, one of two threads waited 6 to 10% of the time for the other (1 to 2% with this);
// smaller pieces cost more in starting their streams than they save, and a larger part gains nothing.
constexpr int64_t kSharedPart = 8;
constexpr int64_t kPieceBytes = int64_t{256} << 10;

struct Activations {
  const float* data;  // [passes * rows][stride], F32; rows beyond those of x are zero
  int64_t stride;     // k rounded up to kBlock
  int64_t k;
  int64_t passes;
  int64_t rows;  // of a pass
};

int64_t passes_of(int64_t m) { return (m + kRowsAtOnce - 1) / kRowsAtOnce; }
int64_t rows_of_pass(int64_t m) { return (m + passes_of(m) - 1) / passes_of(m); }

// Adds the products of 2 * kLanes columns of kS rows of weights with kM rows of x to acc[s * kM + m].
template <class Type, int kS, int kM>
HWY_INLINE void add_pairs(Type type, const typename Type::Raw* const (&w)[kS], const float* x, int64_t x_stride,
                          int64_t k, FloatVec (&acc)[kS * kM]) {
  AA_UNROLL for (int s = 0; s < kS; ++s) {
    FloatVec a, b;
    load_pair(type, w[s] + k, a, b);
    AA_UNROLL for (int m = 0; m < kM; ++m) {
      FloatVec& sum = acc[s * kM + m];
      sum = hn::MulAdd(a, hn::LoadU(kFloats, x + m * x_stride + k), sum);
      sum = hn::MulAdd(b, hn::LoadU(kFloats, x + m * x_stride + k + kLanes), sum);
    }
  }
}

// The same for a block of kBlock columns.
template <class Type, int kS, int kM>
HWY_INLINE void add_block(Type type, const typename Type::Raw* const (&w)[kS], const float* x, int64_t x_stride,
                          FloatVec (&acc)[kS * kM]) {
#if HWY_TARGET == HWY_SCALAR  // one lane: unrolled, this would be most of what compiling the file takes
  for (int64_t k = 0; k < kBlock; k += 2 * kLanes) add_pairs<Type, kS, kM>(type, w, x, x_stride, k, acc);
#else
  AA_UNROLL for (int64_t k = 0; k < kBlock; k += 2 * kLanes) { add_pairs<Type, kS, kM>(type, w, x, x_stride, k, acc); }
#endif
}

// The first lines of kS streams of `bytes` each, which prefetch_block() would reach too late.
template <int kS>
void prefetch_starts(const void* data, int64_t bytes) {
  const auto* start = static_cast<const char*>(data);
  const int64_t near = std::min(bytes, kNearPrefetch), far = std::min(bytes, kFarPrefetch);
  for (int64_t at = 0; at < near; at += 64) {
    AA_UNROLL for (int s = 0; s < kS; ++s) __builtin_prefetch(start + s * bytes + at, 0, 3);
  }
  for (int64_t at = near; at < far; at += 64) {
    AA_UNROLL for (int s = 0; s < kS; ++s) __builtin_prefetch(start + s * bytes + at, 0, 2);
  }
}

template <class Raw>
HWY_INLINE void prefetch_block(const Raw* p) {
  constexpr int64_t kBytes = kBlock * static_cast<int64_t>(sizeof(Raw));
  const char* bytes = reinterpret_cast<const char*>(p);
  AA_UNROLL for (int64_t line = 0; line < kBytes; line += 64) {
    __builtin_prefetch(bytes + kNearPrefetch + line, 0, 3);
    __builtin_prefetch(bytes + kFarPrefetch + line, 0, 2);
  }
}

// The same for one row's last columns, fewer than kBlock.
template <class Type, int kM>
HWY_NOINLINE void add_tail(Type type, const typename Type::Raw* w, int64_t columns, const float* x, int64_t x_stride,
                           FloatVec* acc) {
  typename Type::Raw padded[kBlock] = {};
  std::memcpy(padded, w, static_cast<size_t>(columns) * sizeof(padded[0]));
  const typename Type::Raw* const at[1] = {padded};
  FloatVec sums[kM];
  AA_UNROLL for (int m = 0; m < kM; ++m) sums[m] = acc[m];
  add_block<Type, 1, kM>(type, at, x, x_stride, sums);
  AA_UNROLL for (int m = 0; m < kM; ++m) acc[m] = sums[m];
}

// Multiplies kS rows of weights with kM rows of x: acc[s * kM + m]. kFirst: the weights come from memory.
template <class Type, int kS, int kM, bool kFirst>
HWY_INLINE void multiply_pass(Type type, const typename Type::Raw* const (&w)[kS], const Activations& x,
                              const float* x0, FloatVec (&acc)[kS * kM]) {
  using Raw = typename Type::Raw;
  AA_UNROLL for (int i = 0; i < kS * kM; ++i) acc[i] = hn::Zero(kFloats);
  const int64_t whole = x.k / kBlock * kBlock;
  for (int64_t k = 0; k < whole; k += kBlock) {
    const Raw* at[kS];
    AA_UNROLL for (int s = 0; s < kS; ++s) {
      at[s] = w[s] + k;
      if constexpr (kFirst) prefetch_block(at[s]);
    }
    add_block<Type, kS, kM>(type, at, x0 + k, x.stride, acc);
  }
  if (whole == x.k) return;
  AA_UNROLL for (int s = 0; s < kS; ++s) {
    FloatVec sums[kM];  // acc itself stays in registers
    AA_UNROLL for (int m = 0; m < kM; ++m) sums[m] = acc[s * kM + m];
    add_tail<Type, kM>(type, w[s] + whole, x.k - whole, x0 + whole, x.stride, sums);
    AA_UNROLL for (int m = 0; m < kM; ++m) acc[s * kM + m] = sums[m];
  }
}

// out[m * out_stride + s * rows + r] = row (s * rows + r) of w times row m of x, for r < rows, s < kS.
template <class Type, int kS, int kM>
void multiply_streams(Type type, const typename Type::Raw* w, int64_t row_stride, int64_t rows, const Activations& x,
                      float* out, int64_t out_stride) {
  prefetch_starts<kS>(w, rows * row_stride * static_cast<int64_t>(sizeof(*w)));
  for (int64_t r = 0; r < rows; ++r) {
    const typename Type::Raw* p[kS];
    AA_UNROLL for (int s = 0; s < kS; ++s) p[s] = w + (s * rows + r) * row_stride;
    for (int64_t pass = 0; pass < x.passes; ++pass) {
      const float* x0 = x.data + pass * kM * x.stride;
      FloatVec acc[kS * kM];
      if (kMaxPasses * kM <= kRowsAtOnce || pass == 0) {  // fewer rows have one pass
        multiply_pass<Type, kS, kM, true>(type, p, x, x0, acc);
      } else {
        multiply_pass<Type, kS, kM, false>(type, p, x, x0, acc);
      }
      float* to = out + pass * kM * out_stride + r;
      AA_UNROLL for (int i = 0; i < kS * kM; ++i) to[i % kM * out_stride + i / kM * rows] = sum_lanes(acc[i]);
    }
  }
}

// out[m * out_stride + r] = row r of w times row m of x, r < rows. Elements of a row of w must be adjacent.
template <class Type, int kM>
void multiply_rows(Type type, const typename Type::Raw* w, int64_t row_stride, int64_t rows, const Activations& x,
                   float* out, int64_t out_stride) {
  constexpr int kParts = kM == 1 ? kStreamsOfOneRow : kStreams;
  const int64_t per_stream = rows / kParts;
  const int64_t done = per_stream * kParts;
  if (done > 0) multiply_streams<Type, kParts, kM>(type, w, row_stride, per_stream, x, out, out_stride);
  if (done == rows) return;
  // Fewer rows than streams are not worth kernels of their own for several rows of x.
  for (int64_t m = 0; m < x.passes * kM; ++m) {
    const Activations one{x.data + m * x.stride, x.stride, x.k, 1, 1};
    for (int64_t r = done; r < rows; ++r) {
      multiply_streams<Type, 1, 1>(type, w + r * row_stride, row_stride, 1, one, out + m * out_stride + r, out_stride);
    }
  }
}

template <class Type>
void multiply_m(Type type, const typename Type::Raw* w, int64_t row_stride, int64_t rows, const Activations& x,
                float* out, int64_t out_stride) {
  switch (x.rows) {
    case 1: return multiply_rows<Type, 1>(type, w, row_stride, rows, x, out, out_stride);
    case 2: return multiply_rows<Type, 2>(type, w, row_stride, rows, x, out, out_stride);
    case 3: return multiply_rows<Type, 3>(type, w, row_stride, rows, x, out, out_stride);
    default: break;
  }
  if constexpr (kRowsAtOnce > 3) {
    switch (x.rows) {
      case 4: return multiply_rows<Type, 4>(type, w, row_stride, rows, x, out, out_stride);
      case 5: return multiply_rows<Type, 5>(type, w, row_stride, rows, x, out, out_stride);
      default: return multiply_rows<Type, 6>(type, w, row_stride, rows, x, out, out_stride);
    }
  }
}

// x as read by one thread, in the order that weights of one type need.
struct Input {
  DType weights = DType::None;
  Activations x{};
};

// All rows of x as F32, in the order of a weight's type; in scratch of this thread.
template <class Type>
Activations read_activations(Type type, const Matmul& args) {
  const int64_t padded = (args.k + kBlock - 1) / kBlock * kBlock;
  const int64_t passes = passes_of(args.m), rows = rows_of_pass(args.m);
  auto* data = scratch<float>(Scratch::Row0, static_cast<size_t>(passes * rows * padded));
  for (int64_t m = 0; m < passes * rows; ++m) {
    float* row = data + m * padded;
    const int64_t k = m < args.m ? args.k : 0;
    if (k > 0) read_floats(row_of(args.x, m, k), 0, k, row);
    std::memset(row + k, 0, static_cast<size_t>(padded - k) * sizeof(float));
    order_like(type, row, padded);
  }
  return {data, padded, args.k, passes, rows};
}

// The same for any strides of w: where the elements of a row lie apart, rows are gathered first.
template <class Type>
void multiply(Type type, const Matmul& args, Input& input, const Matrix& w, int64_t begin, int64_t rows, float* out) {
  using Raw = typename Type::Raw;
  if (input.weights != w.dtype) input = {w.dtype, read_activations(type, args)};
  const Activations& x = input.x;
  const auto* first = static_cast<const Raw*>(w.at(begin, 0));
  if (w.column_stride == 1 || args.k <= 1) {
    return multiply_m(type, first, w.row_stride, rows, x, out, rows);
  }
  auto* gathered = scratch<Raw>(Scratch::Row1, static_cast<size_t>(kStreamsOfOneRow * args.k));
  for (int64_t r = 0; r < rows; r += kStreamsOfOneRow) {
    const int64_t count = rows - r < kStreamsOfOneRow ? rows - r : kStreamsOfOneRow;
    for (int64_t k = 0; k < args.k; ++k) {
      for (int64_t s = 0; s < count; ++s) {
        gathered[s * args.k + k] = first[(r + s) * w.row_stride + k * w.column_stride];
      }
    }
    multiply_m(type, gathered, args.k, count, x, out + r, rows);
  }
}

void multiply_any(const Matmul& args, Input& input, const Matrix& w, int64_t begin, int64_t rows, float* out) {
  switch (w.dtype) {
    case DType::BF16: return multiply(Bf16Type(), args, input, w, begin, rows, out);
    case DType::F16: return multiply(F16Type(), args, input, w, begin, rows, out);
    default: return multiply(F32Type(), args, input, w, begin, rows, out);
  }
}

// The cost of one output column of the part: bytes of a weight element times the number of weights.
int64_t column_cost(const Matmul& args, const MatmulPart& part) {
  int64_t cost = 0;
  for (int i = 0; i < args.weights(); ++i) {
    cost += static_cast<int64_t>(dtype_size(part.weight[static_cast<size_t>(i)].dtype));
  }
  return cost;
}

// The columns of all parts in one sequence, each as long as its cost: the threads divide this sequence among
// themselves.
int64_t line_length(const Matmul& args) {
  int64_t length = 0;
  for (int i = 0; i < args.part_count; ++i) {
    const MatmulPart& part = args.parts[static_cast<size_t>(i)];
    length += part.n * column_cost(args, part);
  }
  return length;
}

// The columns of [begin, end) of the line; cuts fall between groups of kStreamsOfOneRow columns of a part.
void multiply_span(const Matmul& args, Input& input, int64_t begin, int64_t end) {
  int64_t part_begin = 0;
  for (int i = 0; i < args.part_count; ++i) {
    const MatmulPart& part = args.parts[static_cast<size_t>(i)];
    const int64_t cost = column_cost(args, part);
    const auto column = [&](int64_t position) {
      const int64_t at = (position - part_begin) / cost;
      return position <= part_begin ? 0 : at >= part.n ? part.n : at / kStreamsOfOneRow * kStreamsOfOneRow;
    };
    const int64_t first = column(begin);
    const int64_t n = column(end) - first;
    part_begin += part.n * cost;
    if (n <= 0) continue;
    const int64_t size = passes_of(args.m) * rows_of_pass(args.m) * n;
    auto* products = scratch<float>(Scratch::Tile, static_cast<size_t>(args.weights() * size));
    float* up = products + (args.gated ? size : 0);
    multiply_any(args, input, part.weight[0], first, n, products);
    if (args.gated) multiply_any(args, input, part.weight[1], first, n, up);
    for (int64_t m = 0; m < args.m; ++m) finish_row(args, part, m, first, n, products + m * n, up + m * n);
  }
}

// The work of one of `count` threads: a share of its own, then pieces from the end of the sequence, which go to
// whichever thread is done first, since the memory serves cores unevenly. `taken`: pieces taken so far.
void gemv_share(const Matmul& args, int index, int count, std::atomic<int64_t>& taken) {
  Input input;
  const int64_t length = line_length(args);
  const int64_t piece = std::max<int64_t>(kPieceBytes / std::max<int64_t>(args.k, 1), 1);
  const int64_t shared = count > 1 && length / kSharedPart >= 2 * piece * count ? length / kSharedPart : 0;
  const int64_t own = length - shared;
  const auto cut = [&](int i) { return own / count * i + own % count * i / count; };
  multiply_span(args, input, cut(index), cut(index + 1));
  while (shared > 0) {
    const int64_t begin = own + piece * taken.fetch_add(1, std::memory_order_relaxed);
    if (begin >= length) return;
    multiply_span(args, input, begin, std::min(begin + piece, length));
  }
}

int64_t gemv_row_limit() { return kRowsAtOnce * kMaxPasses; }

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(gemv_share);
AA_CPU_EXPORT(gemv_row_limit);

int64_t gemv_max_rows() { return AA_CPU_DISPATCH(gemv_row_limit)(); }

void gemv(const Matmul& args) {
  std::atomic<int64_t> taken{0};
  if (is_small(args)) return AA_CPU_DISPATCH(gemv_share)(args, 0, 1, taken);
  WorkerPool::instance().run([&](int index, int count) { AA_CPU_DISPATCH(gemv_share)(args, index, count, taken); });
}

}  // namespace anyaccel::cpu
#endif  // HWY_ONCE
