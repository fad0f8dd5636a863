// Products with bf16 weights by the matrix unit (AMX), for the rows that matmul.cpp leaves to it.
//
// out^T = w * x^T is computed in blocks of 32 rows of weights (a sliver) by 32 columns, in four tiles of sums. The
// weights are the unit's first operand in place and are never rearranged. x is packed once per call into tiles of
// pairs, the second operand, which all threads share. x becomes bf16 without loss: an F32 number is the sum of three
// bf16 numbers, an F16 number of two, each a column of its own. Products of bf16 numbers are exact in F32, so the
// result is that of F32 arithmetic with one rounding at the end. Like all parallel regions of this accelerator, the
// unit flushes denormals to zero: a term of x, or a product, below 2^-126 counts as zero.
//
// Threads take chunks of the weights' rows from a shared counter. Reading the weights bounds products of up to 32
// columns: tiles are loaded directly from the weights, and the next ones are prefetched meanwhile. More columns go
// through stretches of `stretch` steps of k. The tiles of a sliver are copied to consecutive lines as its first panel
// is multiplied; the copies stay in the first-level cache while the other panels pass, and the next sliver is
// prefetched. Between two stretches, sums are kept in F32, which they are anyway, so that the order of an element's
// sums depends on k alone: "linear_by_row" relies on it.
//
// Few tiles are in use at once, at the price of loading tiles of x again. The processor seems to have few physical tile
// registers beyond those that hold data. Cores are often in a state, as if another virtual machine ran on their other
// thread, in which loads from the first-level cache take nearly twice as long. Then two tiles of weights times two of
// x, all in that cache, took 104 ns with eight tiles in use, 71 with six, and 55 with four (two columns, then two
// more). Otherwise all of these took 28 ns, the time of the multiplications alone.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>

#include "accelerators/cpu/kernels/matmul_args.h"
#include "accelerators/cpu/kernels/matmul_inner.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/worker_pool.h"
#include "base/scalar_convert.h"
#include "base/simd/amx.h"
#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/gemm_amx.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/activation-inl.h"
#include "accelerators/cpu/kernels/matmul_finish-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#ifndef ANYACCEL_CPU_KERNELS_GEMM_AMX_PLAN_
#define ANYACCEL_CPU_KERNELS_GEMM_AMX_PLAN_
namespace anyaccel::cpu {

constexpr int64_t kTileRows = 16;   // rows of weights, or of x, of a tile
constexpr int64_t kStepDepth = 32;  // elements of k in a tile
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kTileFloats = 256;

inline int64_t divide_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }

// State that the threads of a product share.
struct AmxPlan {
  const Matmul* args = nullptr;
  int64_t terms = 1;       // columns for a row of x
  int64_t block_rows = 0;  // most rows of a block of x
  int64_t steps = 0;       // tiles along k
  int64_t stretch = 0;     // most steps of a stretch
  // The block of x in work: [stretch][panel][step of the stretch][tile of the panel][pair of k][row of x][2]. A panel is two
  // neighbouring tiles of columns, but for the last of an odd number.
  uint16_t* packed_x = nullptr;
  int64_t chunk_slivers = 0;  // most slivers of a chunk
  int64_t chunks = 0;         // of all parts together

  // Output columns of a sliver. A gated output needs 16 rows of both weights.
  int64_t sliver_columns() const { return args->gated ? kTileRows : 2 * kTileRows; }
  // Tiles of columns for so many rows of x. The tiles of 16 rows, one for each term, follow one another.
  int64_t tiles(int64_t rows) const { return divide_up(rows, kTileRows) * terms; }
};

}  // namespace anyaccel::cpu
#endif  // ANYACCEL_CPU_KERNELS_GEMM_AMX_PLAN_

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// to[i * to_stride + r] = from[r * from_stride + i] for 16 rows of 16 words of 32 bits.
HWY_INLINE void transpose16(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  for (int64_t i = 0; i < kTileRows; i += kLanes) {
    for (int64_t r = 0; r < kTileRows; r += 4) {
      const float* const rows[4] = {from + r * from_stride + i, from + (r + 1) * from_stride + i,
                                    from + (r + 2) * from_stride + i, from + (r + 3) * from_stride + i};
      transpose4(rows, to + i * to_stride + r, to_stride);
    }
  }
}

// Packs this thread's share of rows [m0, m0 + rows) of x.
void pack_columns(const AmxPlan& plan, int64_t m0, int64_t rows, int index, int count) {
  const Matmul& args = *plan.args;
  constexpr int64_t kPieceSteps = 16, kPieceDepth = kPieceSteps * kStepDepth;
  const int64_t pieces = divide_up(plan.steps, kPieceSteps), groups = divide_up(rows, kTileRows);
  const int64_t tiles = plan.tiles(rows);
  auto* terms = scratch<uint16_t>(Scratch::Row3, static_cast<size_t>(plan.terms * kTileRows * kPieceDepth));
  for (int64_t item = groups * pieces * index / count; item < groups * pieces * (index + 1) / count; ++item) {
    const int64_t group = item / pieces, step0 = item % pieces * kPieceSteps;
    const int64_t piece_steps = std::min(kPieceSteps, plan.steps - step0);
    const int64_t k0 = step0 * kStepDepth, depth = std::min(args.k - k0, piece_steps * kStepDepth);
    const int64_t there = std::min(kTileRows, rows - group * kTileRows);
    const uint16_t* from = terms;
    int64_t from_stride = kPieceDepth;
    const auto* x = static_cast<const uint16_t*>(args.x.at(m0 + group * kTileRows, k0));
    const bool dense = plan.terms == 1 && args.x.column_stride == 1;
    // x is transposed in place if its pairs can be read as words, else from a copy.
    if (dense && args.x.row_stride % 2 == 0 && reinterpret_cast<uintptr_t>(x) % sizeof(float) == 0 &&
        there == kTileRows && depth == piece_steps * kStepDepth) {
      from = x;
      from_stride = args.x.row_stride;
    } else {
      if (there < kTileRows || depth < kPieceDepth) {
        std::memset(terms, 0, static_cast<size_t>(plan.terms * kTileRows * kPieceDepth) * sizeof(*terms));
      }
      for (int64_t r = 0; r < there; ++r) {
        if (dense) {
          std::memcpy(terms + r * kPieceDepth, x + r * args.x.row_stride, static_cast<size_t>(depth) * sizeof(*x));
          continue;
        }
        Row row = row_of(args.x, m0 + group * kTileRows + r, depth);
        row.data = static_cast<char*>(args.x.at(m0 + group * kTileRows + r, k0));
        split_row(row, static_cast<int>(plan.terms), kTileRows * kPieceDepth, terms + r * kPieceDepth);
      }
    }
    for (int64_t term = 0; term < plan.terms; ++term, from += kTileRows * kPieceDepth) {
      const int64_t tile = group * plan.terms + term, panel = tile / 2;
      const int64_t in_panel = std::min<int64_t>(2, tiles - panel * 2);
      for (int64_t step = step0; step < step0 + piece_steps; ++step) {
        const int64_t before = step / plan.stretch * plan.stretch;  // the stretch's first step
        const int64_t length = std::min(plan.stretch, plan.steps - before);
        uint16_t* to = plan.packed_x +
                       (before * tiles + panel * 2 * length + (step - before) * in_panel + tile % 2) * (kTileBytes / 2);
        transpose16(reinterpret_cast<const float*>(from + (step - step0) * kStepDepth), from_stride / 2,
                    reinterpret_cast<float*>(to), kTileRows);
      }
    }
  }
}

// to[row of x][row of weights] = the sums of 16 rows of weights with 16 rows of x, which are a tile for each term.
inline void collect_tiles(const float* const* tiles, int64_t terms, float* to) {
  if (terms == 1) return transpose16(tiles[0], kTileRows, to, kFinishColumns);
  alignas(64) float sums[kTileFloats];
  for (int64_t i = 0; i < kTileFloats; i += kLanes) {
    const FloatVec first = hn::LoadU(kFloats, tiles[0] + i);
    FloatVec small = hn::LoadU(kFloats, tiles[terms - 1] + i);
    if (terms == 3) small = hn::Add(small, hn::LoadU(kFloats, tiles[1] + i));
    // Where the first term's sum is not finite, it is the result: the other terms are zeros, perhaps times an infinite
    // weight.
    const auto finite = hn::Eq(hn::Sub(first, first), hn::Zero(kFloats));
    hn::StoreU(hn::IfThenElse(finite, hn::Add(first, small), first), kFloats, sums + i);
  }
  transpose16(sums, kTileRows, to, kFinishColumns);
}

// Finishes and stores the results of a chunk; tiles[sliver][panel][half of the sliver][tile of the panel][row][row of x].
void finish_tiles(const AmxPlan& plan, const MatmulPart& part, int64_t m0, int64_t rows, int64_t column0,
                  int64_t columns, const float* tiles) {
  const Matmul& args = *plan.args;
  const int64_t per_sliver = plan.sliver_columns(), panels = divide_up(plan.tiles(rows), 2);
  auto* values = scratch<float>(Scratch::Row1, static_cast<size_t>(2 * kTileRows * kFinishColumns));
  float* const up = values + kTileRows * kFinishColumns;
  for (int64_t begin = 0; begin < columns; begin += kFinishColumns) {
    const int64_t n = std::min(columns - begin, kFinishColumns);
    for (int64_t group = 0; group * kTileRows < rows; ++group) {
      for (int64_t column = 0; column < n; column += kTileRows) {
        const int64_t sliver = (begin + column) / per_sliver;
        for (int weight = 0; weight < args.weights(); ++weight) {
          const int64_t half = args.gated ? weight : (begin + column) / kTileRows % 2;
          const float* terms[3] = {};
          for (int64_t term = 0; term < plan.terms; ++term) {
            const int64_t tile = group * plan.terms + term;
            terms[term] = tiles + (((sliver * panels + tile / 2) * 2 + half) * 2 + tile % 2) * kTileFloats;
          }
          collect_tiles(terms, plan.terms, (weight == 0 ? values : up) + column);
        }
      }
      const int64_t m = m0 + group * kTileRows;
      for (int64_t i = 0; i < std::min(kTileRows, m0 + rows - m); ++i) {
        prefetch_row(part, m + i + kTileRows, m0 + rows, column0 + begin, n);
        finish_row(args, part, m + i, column0 + begin, n, values + i * kFinishColumns, up + i * kFinishColumns);
      }
    }
  }
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {
namespace {

AA_CPU_EXPORT(pack_columns);
AA_CPU_EXPORT(finish_tiles);

// Most rows of x that are packed at once. Each block of them reads all weights once.
constexpr int64_t kMostBlockRows = 512;
// Elements of x in a stretch of k, over all columns. They stay in the second-level cache.
constexpr int64_t kStretchElements = int64_t{1} << 17;
// Most slivers of a chunk, whose sums for a block of x stay there too.
constexpr int64_t kMostChunkSlivers = 8;

// A piece of a part's output columns.
struct Chunk {
  const MatmulPart* part = nullptr;  // null after the last chunk
  int64_t column0 = 0, columns = 0, slivers = 0;
};

Chunk chunk_at(const AmxPlan& plan, int64_t number) {
  if (number >= plan.chunks) return {};
  const int64_t most = plan.chunk_slivers * plan.sliver_columns();
  const MatmulPart* part = plan.args->parts.data();
  for (int64_t chunks; number >= (chunks = divide_up(part->n, most)); ++part) number -= chunks;
  const int64_t columns = std::min(most, part->n - number * most);
  return {part, number * most, columns, divide_up(columns, plan.sliver_columns())};
}

// The weights of a sliver along a stretch of k: two halves, a tile of rows each.
struct Weights {
  struct Half {
    const char* rows = nullptr;
    int64_t stride = 0;  // bytes
    int64_t count = 0;   // of rows
  };
  std::array<Half, 2> half;
  int64_t bytes = 0;  // of a row; 0: there is no such sliver

  // Returns whether all tiles can be loaded in place.
  bool whole() const {
    return half[0].count == kTileRows && half[1].count == kTileRows && bytes % amx::kMostRowBytes == 0;
  }
};

// The slivers of a chunk are numbered along a stretch of k, then along the next one.
Weights weights_at(const AmxPlan& plan, const Chunk& chunk, int64_t index) {
  Weights found;
  if (chunk.part == nullptr) return found;
  const int64_t k0 = index / chunk.slivers * plan.stretch * kStepDepth;
  if (k0 >= plan.args->k) return found;
  const int64_t column = chunk.column0 + index % chunk.slivers * plan.sliver_columns();
  for (int i = 0; i < 2; ++i) {
    const Matrix& weight = chunk.part->weight[plan.args->gated ? static_cast<size_t>(i) : 0];
    const int64_t first = plan.args->gated ? column : column + i * kTileRows;
    Weights::Half& half = found.half[static_cast<size_t>(i)];
    half.count = std::clamp<int64_t>(chunk.part->n - first, 0, kTileRows);
    if (half.count > 0) half.rows = static_cast<const char*>(weight.at(first, k0));
    half.stride = weight.row_stride * static_cast<int64_t>(sizeof(uint16_t));
  }
  found.bytes = std::min(plan.args->k - k0, plan.stretch * kStepDepth) * static_cast<int64_t>(sizeof(uint16_t));
  return found;
}

// Prefetches a sliver into the second-level cache, row by row, spread evenly over `steps` calls of step().
class Ahead {
 public:
  Ahead(const Weights& weights, int64_t steps) {
    if (weights.bytes == 0) return;
    row_lines_ = divide_up(weights.bytes, kLine);
    for (size_t i = 0; i < 2; ++i) {
      rows_[i] = weights.half[i].rows;
      counts_[i] = weights.half[i].count;
      gaps_[i] = weights.half[i].stride - row_lines_ * kLine;
    }
    each_ = divide_up(row_lines_ * (counts_[0] + counts_[1]), std::max<int64_t>(steps, 1));
    at_ = rows_[0];
    in_row_ = row_lines_;
    rows_left_ = counts_[0];
  }
  void step() {
    for (int64_t i = 0; i < each_; ++i) {
      __builtin_prefetch(at_, 0, 2);
      at_ += kLine;
      if (--in_row_ == 0) next_row();
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  void next_row() {
    in_row_ = row_lines_;
    at_ += gaps_[0];
    if (--rows_left_ > 0) return;
    at_ = rows_[1];
    rows_left_ = counts_[1];
    gaps_[0] = gaps_[1];
    counts_[1] = 0;
    if (rows_left_ == 0) each_ = 0;
  }

  const char* at_ = nullptr;
  int64_t each_ = 0, in_row_ = 0, rows_left_ = 0, row_lines_ = 0;
  std::array<const char*, 2> rows_{};
  std::array<int64_t, 2> counts_{}, gaps_{};
};

// Prefetching for few columns, where reading the weights takes all of the time. Pieces of a sliver are kFewSteps tiles
// long, and each prefetches the next one: eight rows side by side, four of either half, a line of each between tile
// instructions. On two cores of an Emerald Rapids, two columns of tiles took 155 ns for a step (2 KiB of weights), and
// reading these alone takes 143. With a whole sliver prefetched ahead, 128 or 352 KiB, they took 160 and 179.
constexpr int64_t kFewSteps = 8;

class FewAhead {
 public:
  static constexpr int kGroups = 4;  // calls of group() for a step

  // For the piece that begins at tile `step`.
  FewAhead(const Weights& weights, int64_t step) {
    const int64_t begin = step * kLine;
    if (weights.bytes <= begin) return;
    lines_ = lines_left_ = std::min(divide_up(weights.bytes - begin, kLine), kFewSteps);
    rows_left_ = kRows;
    for (int i = 0; i < kStreams; ++i) {
      // Half a sliver may be missing, at the end of a part.
      const Weights::Half& half = weights.half[weights.half[1].count > 0 && i >= kStreams / 2 ? 1 : 0];
      const int64_t row = std::clamp<int64_t>(i % (kStreams / 2) * kRows, 0, half.count - 1);
      at_[static_cast<size_t>(i)] = half.rows + row * half.stride + begin;
    }
    gaps_ = {weights.half[0].stride - lines_ * kLine, weights.half[1].stride - lines_ * kLine};
  }
  void group() {
    if (rows_left_ == 0) return;
#pragma GCC unroll 8
    for (size_t i = 0; i < kStreams; ++i) __builtin_prefetch(at_[i] + line_, 0, 2);
    line_ += kLine;
    if (--lines_left_ == 0) next_row();
  }

 private:
  static constexpr int64_t kLine = 64;
  static constexpr int kStreams = 8;
  static constexpr int64_t kRows = 2 * kTileRows / kStreams;  // of a stream
  void next_row() {
    for (size_t i = 0; i < kStreams; ++i) at_[i] += line_ + gaps_[i / (kStreams / 2)];
    line_ = 0;
    lines_left_ = lines_;
    --rows_left_;
  }

  std::array<const char*, kStreams> at_{};
  std::array<int64_t, 2> gaps_{};
  int64_t line_ = 0, lines_ = 0, lines_left_ = 0, rows_left_ = 0;
};

// Prefetches the lines that a chunk's results are written to, spread evenly over `steps` calls of step(). Most of these
// lines are in another core's caches, and stores would wait for a few at a time.
class ResultsAhead {
 public:
  ResultsAhead() = default;  // nothing
  // Of rows [m0, m0 + rows).
  ResultsAhead(const Chunk& chunk, int64_t m0, int64_t rows, int64_t steps) {
    const Matrix& out = chunk.part->out;
    if (out.column_stride != 1) return;
    const auto item = static_cast<int64_t>(dtype_size(out.dtype));
    at_ = static_cast<const char*>(out.at(m0, chunk.column0));
    row_bytes_ = left_ = chunk.columns * item;
    stride_ = out.row_stride * item;
    rows_left_ = rows;
    each_ = divide_up(rows * divide_up(row_bytes_, kLine), std::max<int64_t>(steps, 1));
  }
  void step() {
    for (int64_t i = 0; i < each_ && rows_left_ > 0; ++i) {
      __builtin_prefetch(at_ + row_bytes_ - left_, 1, 3);
      left_ -= kLine;
      if (left_ > 0) continue;
      left_ = row_bytes_;
      at_ += stride_;
      --rows_left_;
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  const char* at_ = nullptr;  // the row in work
  int64_t row_bytes_ = 0, left_ = 0, stride_ = 0, rows_left_ = 0, each_ = 0;
};

// Copies a sliver's tiles to packed[step][half][row][k], with zeros for missing rows and columns.
void pack_sliver(const Weights& weights, int64_t steps, char* packed) {
  std::memset(packed, 0, static_cast<size_t>(steps * 2 * kTileBytes));
  for (int i = 0; i < 2; ++i) {
    const Weights::Half& half = weights.half[static_cast<size_t>(i)];
    for (int64_t row = 0; row < half.count; ++row) {
      const char* from = half.rows + row * half.stride;
      char* to = packed + i * kTileBytes + row * amx::kMostRowBytes;
      for (int64_t at = 0; at < weights.bytes; at += amx::kMostRowBytes, to += 2 * kTileBytes) {
        std::memcpy(to, from + at, static_cast<size_t>(std::min<int64_t>(weights.bytes - at, amx::kMostRowBytes)));
      }
    }
  }
}

// sums[half][column tile] (+)= a sliver times a panel of kColumns tiles. The halves of the sliver are at a0 and a1,
// with rows `stride0` and `stride1` bytes and tiles a_step bytes apart. If kCopy, copies the tiles of the sliver to
// `packed`.
template <class U, int kColumns, bool kCopy>
void multiply_panel(const char* a0, const char* a1, int64_t stride0, int64_t stride1, int64_t a_step, const char* x,
                    int64_t steps, bool first, char* sums, char* packed, Ahead& shared_ahead) {
  if (first) {
    U::template zero<0>();
    U::template zero<1>();
    U::template zero<2>();
    U::template zero<3>();
  } else {
    U::template load<0>(sums, amx::kMostRowBytes);
    U::template load<2>(sums + 2 * kTileBytes, amx::kMostRowBytes);
    if constexpr (kColumns == 2) {
      U::template load<1>(sums + kTileBytes, amx::kMostRowBytes);
      U::template load<3>(sums + 3 * kTileBytes, amx::kMostRowBytes);
    }
  }
  Ahead ahead = shared_ahead;  // in registers
  for (int64_t step = 0; step < steps; ++step) {
    U::template load<6>(x, amx::kMostRowBytes);
    U::template load<4>(a0, stride0);
    U::template multiply_bf16<0, 4, 6>();
    if constexpr (kColumns == 2) {
      U::template load<6>(x + kTileBytes, amx::kMostRowBytes);
      U::template multiply_bf16<1, 4, 6>();
    }
    if constexpr (kCopy) U::template store<4>(packed, amx::kMostRowBytes);
    ahead.step();
    U::template load<4>(a1, stride1);
    if constexpr (kColumns == 2) {
      U::template multiply_bf16<3, 4, 6>();
      U::template load<6>(x, amx::kMostRowBytes);
    }
    U::template multiply_bf16<2, 4, 6>();
    if constexpr (kCopy) {
      U::template store<4>(packed + kTileBytes, amx::kMostRowBytes);
      packed += 2 * kTileBytes;
    }
    a0 += a_step;
    a1 += a_step;
    x += kColumns * kTileBytes;
  }
  shared_ahead = ahead;
  U::template store<0>(sums, amx::kMostRowBytes);
  U::template store<2>(sums + 2 * kTileBytes, amx::kMostRowBytes);
  if constexpr (kColumns == 2) {
    U::template store<1>(sums + kTileBytes, amx::kMostRowBytes);
    U::template store<3>(sums + 3 * kTileBytes, amx::kMostRowBytes);
  }
}

// The same for all of k, one panel, and a sliver whose tiles are loaded in place. Four tiles are in use at a time (see
// the top of the file): with two columns of tiles, the halves take turns, a piece each.
template <class U, int kColumns>
void multiply_few(const Weights& weights, const char* x, int64_t steps, char* sums, const Weights& next,
                  ResultsAhead results) {
  constexpr int64_t kLine = amx::kMostRowBytes;
  const char *a0 = weights.half[0].rows, *a1 = weights.half[1].rows;
  const int64_t stride0 = weights.half[0].stride, stride1 = weights.half[1].stride;
  if constexpr (kColumns == 1) {
    U::template zero<0>();
    U::template zero<1>();
  }
  for (int64_t begin = 0; begin < steps; begin += kFewSteps) {
    const int64_t count = std::min(kFewSteps, steps - begin);
    const bool last = begin + kFewSteps >= steps;
    FewAhead ahead(last ? next : weights, last ? 0 : begin + kFewSteps);
    if constexpr (kColumns == 1) {
      for (int64_t step = 0; step < count; ++step, a0 += kLine, a1 += kLine, x += kTileBytes) {
        U::template load<2>(x, kLine);
        ahead.group();
        results.step();
        U::template load<3>(a0, stride0);
        U::template multiply_bf16<0, 3, 2>();
        ahead.group();
        ahead.group();
        U::template load<3>(a1, stride1);
        U::template multiply_bf16<1, 3, 2>();
        ahead.group();
      }
    } else {
      for (int half = 0; half < 2; ++half) {
        const char* a = half == 0 ? a0 : a1;
        const int64_t stride = half == 0 ? stride0 : stride1;
        const char* of_x = x;
        char* const to = sums + half * 2 * kTileBytes;
        if (begin == 0) {
          U::template zero<0>();
          U::template zero<1>();
        } else {
          U::template load<0>(to, kLine);
          U::template load<1>(to + kTileBytes, kLine);
        }
        for (int64_t step = 0; step < count; ++step, a += kLine, of_x += 2 * kTileBytes) {
          U::template load<3>(a, stride);
          ahead.group();
          U::template load<2>(of_x, kLine);
          U::template multiply_bf16<0, 3, 2>();
          ahead.group();
          if (half == 0) results.step();
          U::template load<2>(of_x + kTileBytes, kLine);
          U::template multiply_bf16<1, 3, 2>();
        }
        U::template store<0>(to, kLine);
        U::template store<1>(to + kTileBytes, kLine);
      }
      a0 += count * kLine;
      a1 += count * kLine;
      x += count * 2 * kTileBytes;
    }
  }
  if constexpr (kColumns == 1) {
    U::template store<0>(sums, kLine);
    U::template store<1>(sums + 2 * kTileBytes, kLine);
  }
}

// A sliver times all columns along a stretch: sums[panel][half][column tile]. `x`: the stretch of packed x.
template <class U>
void multiply_sliver(const Weights& weights, const char* x, int64_t tiles, int64_t steps, bool first, char* sums,
                     char* packed, Ahead& ahead) {
  const int64_t line = amx::kMostRowBytes;
  int64_t tile = 0;
  if (weights.whole() && tiles >= 2) {
    const Weights::Half &upper = weights.half[0], &lower = weights.half[1];
    multiply_panel<U, 2, true>(upper.rows, lower.rows, upper.stride, lower.stride, line, x, steps, first, sums, packed,
                               ahead);
    tile = 2;
  } else {
    pack_sliver(weights, steps, packed);
  }
  for (; tile < tiles; tile += 2) {
    const auto panel = tiles - tile == 1 ? multiply_panel<U, 1, false> : multiply_panel<U, 2, false>;
    panel(packed, packed + kTileBytes, line, line, 2 * kTileBytes, x + tile * steps * kTileBytes, steps, first,
          sums + tile * 2 * kTileBytes, packed, ahead);
  }
}

// Multiplies a chunk with a block of `rows` rows of x; prefetches the beginning of the next chunk at its end.
template <class U>
void multiply_chunk(const AmxPlan& plan, const Chunk& chunk, const Chunk& next, int64_t m0, int64_t rows, char* sums) {
  const int64_t stretches = divide_up(plan.steps, plan.stretch), tiles = plan.tiles(rows);
  const int64_t sliver_bytes = divide_up(tiles, 2) * 4 * kTileBytes;
  auto* packed = scratch<char>(Scratch::Row2, static_cast<size_t>(plan.stretch * 2 * kTileBytes));
  const auto* x = reinterpret_cast<const char*>(plan.packed_x);
  for (int64_t index = 0; index < stretches * chunk.slivers; ++index) {
    const int64_t stretch = index / chunk.slivers, before = stretch * plan.stretch;
    const int64_t steps = std::min(plan.stretch, plan.steps - before);
    const bool last = index + 1 == stretches * chunk.slivers;
    const Weights weights = weights_at(plan, chunk, index);
    const Weights following = last ? weights_at(plan, next, 0) : weights_at(plan, chunk, index + 1);
    char* const to = sums + index % chunk.slivers * sliver_bytes;
    // The last block of many rows may be this narrow too, but its stretches are as short as those of the other blocks.
    if (tiles <= 2 && stretches == 1 && weights.whole()) {
      const ResultsAhead results = last ? ResultsAhead(chunk, m0, rows, steps) : ResultsAhead();
      (tiles == 1 ? multiply_few<U, 1> : multiply_few<U, 2>)(weights, x, steps, to, following, results);
      continue;
    }
    Ahead ahead(following, steps * divide_up(tiles, 2));
    multiply_sliver<U>(weights, x + before * tiles * kTileBytes, tiles, steps, stretch == 0, to, packed, ahead);
  }
}

template <class U>
void share(const AmxPlan& plan, std::atomic<int64_t>& next_chunk, int index, int count) {
  const Matmul& args = *plan.args;
  WorkerPool& pool = WorkerPool::instance();
  std::array<amx::TileShape, amx::kTiles> shapes;
  shapes.fill({kTileRows, amx::kMostRowBytes});
  for (int64_t m0 = 0; m0 < args.m; m0 += plan.block_rows) {
    const int64_t rows = std::min(plan.block_rows, args.m - m0), tiles = plan.tiles(rows);
    const auto take = [&] { return chunk_at(plan, next_chunk.fetch_add(1, std::memory_order_relaxed)); };
    Chunk chunk, next;
    if (m0 == 0) {  // fetched while x is packed
      chunk = take();
      const Weights weights = weights_at(plan, chunk, 0);
      for (int64_t step = 0; step < std::min(plan.stretch, plan.steps); step += kFewSteps) {
        FewAhead ahead(weights, step);
        for (int64_t i = 0; i < FewAhead::kGroups * kFewSteps; ++i) ahead.group();
      }
    }
    AA_CPU_DISPATCH(pack_columns)(plan, m0, rows, index, count);
    pool.barrier(index);
    if (m0 > 0) chunk = take();
    auto* sums =
        scratch<float>(Scratch::Tile, static_cast<size_t>(plan.chunk_slivers * divide_up(tiles, 2) * 4 * kTileFloats));
    if (args.k == 0)
      std::memset(sums, 0, static_cast<size_t>(plan.chunk_slivers * divide_up(tiles, 2) * 4 * kTileBytes));
    U::set_shapes(shapes);
    for (; chunk.part != nullptr; chunk = next) {
      next = take();
      multiply_chunk<U>(plan, chunk, next, m0, rows, reinterpret_cast<char*>(sums));
      AA_CPU_DISPATCH(finish_tiles)(plan, *chunk.part, m0, rows, chunk.column0, chunk.columns, sums);
    }
    U::release();
    if (m0 + rows >= args.m) break;
    pool.barrier(index);  // nobody reads this block of x any more
    if (index == 0) next_chunk.store(0, std::memory_order_relaxed);
  }
}

AmxPlan make_plan(const Matmul& args, int threads) {
  AmxPlan plan;
  plan.args = &args;
  plan.terms = bf16_terms(args.x.dtype);
  const int64_t most_rows = kMostBlockRows / plan.terms / kTileRows * kTileRows;
  plan.block_rows = divide_up(divide_up(args.m, divide_up(args.m, most_rows)), kTileRows) * kTileRows;
  plan.steps = divide_up(args.k, kStepDepth);
  const int64_t tiles = plan.tiles(std::min(plan.block_rows, args.m));
  // One panel takes all of k in one stretch: multiply_few() expects that.
  plan.stretch = tiles <= 2 ? plan.steps : std::max<int64_t>(kStretchElements / (tiles * kTileRows * kStepDepth), 8);
  plan.stretch = std::max<int64_t>(
      divide_up(plan.steps, divide_up(std::max<int64_t>(plan.steps, 1), std::max<int64_t>(plan.stretch, 1))), 1);
  plan.packed_x = scratch<uint16_t>(Scratch::Partials, static_cast<size_t>(tiles * plan.steps * kTileBytes / 2));

  int64_t slivers = 0;
  for (int i = 0; i < args.part_count; ++i) {
    slivers += divide_up(args.parts[static_cast<size_t>(i)].n, plan.sliver_columns());
  }
  // Fewest chunks for each thread. Where reading the weights takes the time, a thread that waits for another at the end
  // costs more than short rows of results do.
  const int64_t least_chunks = tiles <= 2 ? 16 : 4;
  plan.chunk_slivers = std::clamp<int64_t>(slivers / (least_chunks * threads), 1, kMostChunkSlivers);
  for (int i = 0; i < args.part_count; ++i) {
    plan.chunks += divide_up(args.parts[static_cast<size_t>(i)].n, plan.chunk_slivers * plan.sliver_columns());
  }
  return plan;
}

template <class U>
void run(const Matmul& args) {
  if (args.m == 0) return;
  WorkerPool& pool = WorkerPool::instance();
  const bool small = is_small(args);
  const AmxPlan plan = make_plan(args, small ? 1 : pool.size());
  std::atomic<int64_t> next_chunk{0};
  if (small) return share<U>(plan, next_chunk, 0, 1);
  pool.run([&](int index, int count) { share<U>(plan, next_chunk, index, count); });
}

}  // namespace

void gemm_amx(const Matmul& args) { run<amx::Unit>(args); }
void gemm_amx_emulated(const Matmul& args) { run<amx::EmulatedUnit>(args); }

}  // namespace anyaccel::cpu
#endif  // HWY_ONCE
