// Products for few rows of x (decoding of one or some sequences): bound by how fast the weights come from memory, or by
// multiply-adds from about six rows of x on. gemv_streams-inl.h multiplies a span of rows of weights; this file reads x and
// shares out the rows among threads.
//
// bf16 weights times bf16 rows are summed by the processor's dot product of bf16 pairs where it is fast (AMD), everything
// else by F32 multiply-adds. Both are exact products and sums rounded to F32.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "accelerators/cpu/kernels/matmul_args.h"
#include "accelerators/cpu/kernels/matmul_inner.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/worker_pool.h"
#include "base/scalar_convert.h"
#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/gemv.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/activation-inl.h"
#include "accelerators/cpu/kernels/gemv_streams-inl.h"
#include "accelerators/cpu/kernels/matmul_finish-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3
inline bool takes_dots(const Matmul& args, DType weights) {
  return weights == DType::BF16 && args.x.dtype == DType::BF16 && cpu_features().fast_bf16_dot;
}
#endif

// Most rows of x for which gemv() is faster than gemm(). On a Zen 3 with weights of has_bf16_rows(), gemm() took 1.5
// times as long as tiles for 31 and 32 rows, and 1.2 times for 48 and 64; with other weights, no more than 31 rows were
// measured. On a Zen 5 it took 1.16, 1.22, 1.03, 1.1 and 0.99 times as long for 32, 40, 48, 56 and 64 rows of bf16. Without
// tiles, gemv() took less time for 12 rows and 1.3 times as long as gemm() for 16.
inline int64_t most_rows(const Matmul& args) {
  if (by_tiles(kFewestTiledRows, args.k)) return has_bf16_rows(args) ? 64 : 31;
#if HWY_TARGET == HWY_AVX3
  if (cpu_features().zen5 && has_bf16_rows(args) && takes_dots(args, DType::BF16)) return 63;
#endif
  return kLanes == 1 ? 6 : kLanes == 8 ? 12 : 31;
}
// The number of rows of weights, or a multiple of it, that is best multiplied at once with so many rows of x.
inline int64_t unit_of([[maybe_unused]] const Matmul& args) {
#if HWY_TARGET == HWY_AVX2
  if (by_tiles(args.m, args.k)) return kMostTileStreams;
#elif HWY_TARGET == HWY_AVX3
  if (takes_dots(args, DType::BF16) && takes_blocks<Bf16Dots>(args.m, args.k)) return 8 * kStreamsOfManyRows;
#endif
  return kStreamsOfOneRow;
}

// The part of the weights that threads take dynamically instead of in fixed shares (one in so many), and the bytes of a
// piece. With fixed shares only, one of two threads waited 6 to 10% of the time for the other (1 to 2% with this);
// smaller pieces cost more in starting their streams than they save, and a larger part gains nothing.
constexpr int64_t kSharedPart = 8;
constexpr int64_t kPieceBytes = int64_t{256} << 10;
// Most products that wait to be finished: 256 KiB, which stay in the second level cache.
constexpr int64_t kMostProducts = int64_t{1} << 16;
// Bytes of weights after which products are finished on a Granite Rapids. Later, the lines of products of the span before have
// left the second-level cache, and each line that is fetched for results there takes as long as some 35 lines of weights: the
// hardware prefetcher probably begins a stream for it. One, four and six rows of x by 2,048 columns, two threads: 37.7, 33.5 and
// 32.7 GB/s with 256 KiB of products, 41.3, 39.9 and 38.0 with spans of 2 MiB (and the loops of gemv_staggered-inl.h for up to
// four rows); 36.9 and 34.2 for six rows with 1 and 4 MiB. These were bf16 weights of one matrix; fp32 weights, two gated
// matrices alone, seven rows and more, and other processors were not measured.
constexpr int64_t kMostBytesOnGraniteRapids = int64_t{2} << 20;

// ---- the input ----------------------------------------------------------------------------------------------------

// x as read by one thread, in the form that weights of one type need.
struct Input {
  DType weights = DType::None;
  const void* data = nullptr;  // of Activations
  int64_t stride = 0;
};

template <class Type>
void read_x_row(Type type, const Row& row, int64_t padded, float* to) {
  if (row.length > 0) read_floats(row, 0, row.length, to);
  std::memset(to + row.length, 0, static_cast<size_t>(padded - row.length) * sizeof(float));
  order_like(type, to, padded);
}
inline void read_x_row(Bf16Dots /*type*/, const Row& row, int64_t padded, uint16_t* to) {
  const auto* from = reinterpret_cast<const uint16_t*>(row.data);
  if (row.stride == 1 && row.length > 0) {  // without elements x may be null
    std::memcpy(to, from, static_cast<size_t>(row.length) * sizeof(*to));
  } else {
    for (int64_t k = 0; k < row.length; ++k) to[k] = from[k * row.stride];
  }
  std::memset(to + row.length, 0, static_cast<size_t>(padded - row.length) * sizeof(*to));
}

// Reads all rows of x, in the form that a type of weights needs, into scratch memory of this thread.
template <class Type>
Input read_x(Type type, const Matmul& args, DType weights) {
  using X = ElementOfX<Type>;
  // An odd number of lines beyond a whole number of pages, so that rows of x and of the weights, whose length is often a
  // power of two, do not all meet in the same sets of the first level cache.
  constexpr int64_t kPage = 4096, kSkew = 11 * 64;
  const int64_t padded = (args.k + kBlock - 1) / kBlock * kBlock;
  const int64_t bytes = (padded * static_cast<int64_t>(sizeof(X)) + kPage - 1) / kPage * kPage + kSkew;
#if HWY_TARGET == HWY_AVX2
  if (by_tiles(args.m, args.k)) {
    auto* row = scratch<X>(Scratch::Row1, static_cast<size_t>(padded));
    X* packed = scratch<X>(Scratch::Row0, static_cast<size_t>(args.m * padded));
    const TileGroups groups(args.m);
    for (int64_t m = 0; m < args.m; ++m) {
      read_x_row(type, row_of(args.x, m, args.k), padded, row);
      pack_row_of_group(row, padded, m, groups, packed);
    }
    return {weights, packed, padded};
  }
#endif
  int64_t rows = args.m;
#if HWY_TARGET == HWY_AVX3
  rows = std::max<int64_t>(rows, staggered_rows<typename Type::Raw>(args.m, args.k, args.k));
#endif
  const int64_t stride = rows == 1 ? padded : bytes / static_cast<int64_t>(sizeof(X));
  X* data = scratch<X>(Scratch::Row0, static_cast<size_t>(rows * stride));
  for (int64_t m = 0; m < args.m; ++m) read_x_row(type, row_of(args.x, m, args.k), padded, data + m * stride);
  for (int64_t m = args.m; m < rows; ++m) std::fill_n(data + m * stride, padded, X{0});
  return {weights, data, stride};
}

// multiply_rows() for a w whose columns are contiguous: sums the columns, each times a number of x. The results of a
// token's experts, of which there are few, are summed this way.
inline void sum_columns(const float* w, int64_t column_stride, int64_t rows, const Activations<float>& x, float* out,
                        int64_t out_stride) {
  constexpr int kVectors = 4;
  for (int64_t m = 0; m < x.rows; ++m) {
    const float* const factors = x.data + m * x.stride;
    float* const to = out + m * out_stride;
    int64_t r = 0;
    for (; r + kVectors * kLanes <= rows; r += kVectors * kLanes) {
      FloatVec acc[kVectors];
      AA_UNROLL for (int i = 0; i < kVectors; ++i) acc[i] = hn::Zero(kFloats);
      for (int64_t k = 0; k < x.k; ++k) {
        const FloatVec factor = hn::Set(kFloats, factors[k]);
        const float* const column = w + k * column_stride + r;
        AA_UNROLL for (int i = 0; i < kVectors; ++i) {
          acc[i] = hn::MulAdd(factor, hn::LoadU(kFloats, column + i * kLanes), acc[i]);
        }
      }
      AA_UNROLL for (int i = 0; i < kVectors; ++i) hn::StoreU(acc[i], kFloats, to + r + i * kLanes);
    }
    for (; r < rows; r += kLanes) {
      const int64_t count = std::min<int64_t>(rows - r, kLanes);
      FloatVec acc = hn::Zero(kFloats);
      for (int64_t k = 0; k < x.k; ++k) {
        acc = hn::MulAdd(hn::Set(kFloats, factors[k]), load_part(w + k * column_stride + r, count), acc);
      }
      store_part(acc, to + r, count);
    }
  }
}

// multiply_rows() for rows [begin, begin + rows) of a w with any strides. Where the elements of a row are not adjacent,
// rows are gathered first.
template <class Type>
void multiply(Type type, const Matmul& args, Input& input, const Matrix& w, int64_t begin, int64_t rows, float* out) {
  using Raw = typename Type::Raw;
  if (input.weights != w.dtype) input = read_x(type, args, w.dtype);
  const Activations<ElementOfX<Type>> x{static_cast<const ElementOfX<Type>*>(input.data), input.stride, args.k, args.m};
  const auto* first = static_cast<const Raw*>(w.at(begin, 0));
  if (w.column_stride == 1 || args.k <= 1) {
    return multiply_rows(type, first, w.row_stride, rows, x, out, rows);
  }
  if constexpr (std::is_same_v<Type, F32Type>) {
    if (w.row_stride == 1 && args.k <= kMostSummed) return sum_columns(first, w.column_stride, rows, x, out, rows);
  }
  const int64_t unit = unit_of(args);
  auto* gathered = scratch<Raw>(Scratch::Row1, static_cast<size_t>(unit * args.k));
  for (int64_t r = 0; r < rows; r += unit) {
    const int64_t count = rows - r < unit ? rows - r : unit;
    for (int64_t k = 0; k < args.k; ++k) {
      for (int64_t s = 0; s < count; ++s) {
        gathered[s * args.k + k] = first[(r + s) * w.row_stride + k * w.column_stride];
      }
    }
    multiply_rows(type, gathered, args.k, count, x, out + r, rows);
  }
}

void multiply_any(const Matmul& args, Input& input, const Matrix& w, int64_t begin, int64_t rows, float* out) {
#if HWY_TARGET == HWY_AVX3
  if (takes_dots(args, w.dtype)) {
    return multiply(Bf16Dots(), args, input, w, begin, rows, out);
  }
#endif
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

// The length of the line that the threads divide among themselves: the columns of all parts one after another, each as
// long as its cost.
int64_t line_length(const Matmul& args) {
  int64_t length = 0;
  for (int i = 0; i < args.part_count; ++i) {
    const MatmulPart& part = args.parts[static_cast<size_t>(i)];
    length += part.n * column_cost(args, part);
  }
  return length;
}

// The most columns of a part whose products wait to be finished.
int64_t most_columns(const Matmul& args, const MatmulPart& part) {
  const int64_t most = kMostProducts / std::max<int64_t>(args.m, 1);
  if (!cpu_features().granite_rapids) return most;
  return std::min(most, kMostBytesOnGraniteRapids / std::max<int64_t>(args.k * column_cost(args, part), 1));
}

// Computes the columns of [begin, end) of the line. Cuts fall between groups of columns that are multiplied at once.
void multiply_span(const Matmul& args, Input& input, int64_t begin, int64_t end) {
  const int64_t unit = unit_of(args);
  int64_t part_begin = 0;
  for (int i = 0; i < args.part_count; ++i) {
    const MatmulPart& part = args.parts[static_cast<size_t>(i)];
    const int64_t cost = column_cost(args, part);
    const auto column = [&](int64_t position) {
      const int64_t at = (position - part_begin) / cost;
      return position <= part_begin ? 0 : at >= part.n ? part.n : at / unit * unit;
    };
    const int64_t last = column(end);
    int64_t first = column(begin);
    const int64_t most = std::max(most_columns(args, part) / unit, int64_t{1}) * unit;
    part_begin += part.n * cost;
    for (int64_t n; first < last; first += n) {
      n = std::min(last - first, most);
      const int64_t size = args.m * n;
      auto* products = scratch<float>(Scratch::Tile, static_cast<size_t>(args.weights() * size));
      float* up = products + (args.gated ? size : 0);
      multiply_any(args, input, part.weight[0], first, n, products);
      if (args.gated) multiply_any(args, input, part.weight[1], first, n, up);
      for (int64_t m = 0; m < args.m; ++m) finish_row(args, part, m, first, n, products + m * n, up + m * n);
    }
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

bool few_rows(const Matmul& args) { return args.m <= most_rows(args); }

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(gemv_share);
AA_CPU_EXPORT(few_rows);

bool are_few_rows(const Matmul& args) { return AA_CPU_DISPATCH(few_rows)(args); }

void gemv(const Matmul& args) {
  std::atomic<int64_t> taken{0};
  if (is_small(args)) return AA_CPU_DISPATCH(gemv_share)(args, 0, 1, taken);
  WorkerPool::instance().run([&](int index, int count) { AA_CPU_DISPATCH(gemv_share)(args, index, count, taken); });
}

}  // namespace anyaccel::cpu
#endif  // HWY_ONCE
