// Products for many rows of x (prompts): bound by the rate of F32 multiply-adds, or of dot products of bf16 pairs.
//
// out^T = w * x^T is computed in tiles of kSliver rows of weights by up to kMaxVectors vectors of rows of x, held in
// registers. The vector lanes run over rows of x, so weights are needed as single numbers: they are only widened to
// F32, never transposed. x, the smaller operand, is transposed once per call into panels [k][rows] shared by all
// threads. Threads take chunks of weight rows from a common counter and widen stretches of kDepth of them at a time.
//
// x and the weights may change places (exchanged()): then the lanes run over columns of the output, which is stored as
// the tiles have it. Both ways add up the products of an output element in the same order.
//
// bf16 weights times bf16 x are multiplied by dot products of bf16 pairs where these are fast (AMD), at twice the rate.
// Two consecutive elements along k then form a 32-bit word in the place of a float, and words of weights are copied
// instead of widened.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "accelerators/cpu/kernels/gemm_plan.h"
#include "accelerators/cpu/kernels/matmul_args.h"
#include "accelerators/cpu/kernels/matmul_inner.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/worker_pool.h"
#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/gemm.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/activation-inl.h"
#include "accelerators/cpu/kernels/bf16_dots-inl.h"
#include "accelerators/cpu/kernels/gemm_pack-inl.h"
#include "accelerators/cpu/kernels/gemm_tile-inl.h"
#include "accelerators/cpu/kernels/matmul_finish-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// Bytes of results of a chunk. With AVX-512 these, a chunk's widened weights (256 KiB) and the panels for kDepth
// (512 KiB) fit into a second-level cache of 2 MiB; with AVX2 all of it fits into one of 512 KiB.
constexpr int64_t kChunkBytes = kLanes == 8 ? 1 << 17 : 1 << 19;
// A chunk reads all of packed x once: fewer rows than this would make that the bottleneck.
constexpr int64_t kMinChunkSlivers = 4;

// ---- the tile ---------------------------------------------------------------------------------------------------

// The data prefetched while a tile is computed: `bytes` from one address for each row of weights of the tile.
struct Ahead {
  const char* at[2 * kSliver];
  int64_t bytes;
};

#if HWY_TARGET == HWY_AVX2
// Lists kSteps lines to prefetch, the first ones of each of the kRows rows of `ahead`. If these are not all lines, or
// only some of the `steps` are used, prefetches all lines at once as well.
template <int kRows, int64_t kSteps>
HWY_INLINE void list_lines(const Ahead& ahead, int64_t steps, const char** lines) {
  constexpr int64_t kLine = 64, kOfRow = kSteps / kRows;
  int64_t offsets[kOfRow];
  AA_UNROLL for (int64_t i = 0; i < kOfRow; ++i) offsets[i] = i * kLine < ahead.bytes ? i * kLine : 0;
  AA_UNROLL for (int64_t i = 0; i < kSteps; ++i) lines[i] = ahead.at[i / kOfRow] + offsets[i % kOfRow];
  if (ahead.bytes <= kOfRow * kLine && steps == kSteps) [[likely]]
    return;
  for (int r = 0; r < kRows; ++r) {
    for (int64_t line = 0; line < ahead.bytes; line += kLine) __builtin_prefetch(ahead.at[r] + line, 0, 3);
  }
}
#endif

// Adds the products of the words of two vectors, floats or pairs of bf16, to `sum`.
template <bool kPairs>
HWY_INLINE FloatVec add_words(FloatVec a, FloatVec b, FloatVec sum) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (kPairs) return dot_pairs(_mm512_castps_si512(a.raw), _mm512_castps_si512(b.raw), sum);
#endif
  return hn::MulAdd(a, b, sum);
}

// What a sliver holds: floats or pairs of bf16, [row][k] or, interleaved, [k][row].
enum class Words { Floats, Interleaved, Pairs, InterleavedPairs };
constexpr bool are_pairs(Words words) { return words == Words::Pairs || words == Words::InterleavedPairs; }

// tile[r][lane] (+)= sum over k of w[r][k] * x[k][lane]; rows of x and tile are kV vectors apart.
template <Words kWords, int kRows, int kV>
void multiply_tile(const float* HWY_RESTRICT w, const float* HWY_RESTRICT x, int64_t depth, bool first,
                   float* HWY_RESTRICT tile, const Ahead& ahead) {
  constexpr bool kPairs = are_pairs(kWords);
  constexpr bool kInterleaved = kWords == Words::Interleaved || kWords == Words::InterleavedPairs;
  constexpr int64_t kWordStep = kInterleaved ? kSliver : 1, kRowStep = kInterleaved ? 1 : kStride<kPairs>;
#if HWY_TARGET == HWY_AVX2
  if constexpr (kRows == kGemmTileRows && kV == kGemmTileVectors) {
    alignas(32) static constexpr float nothing[kRows * kV * kLanes] = {};
    constexpr int64_t kSteps = kDepth<kPairs> / kGemmTileStep;
    const char* lines[kSteps];
    list_lines<kRows, kSteps>(ahead, depth / kGemmTileStep, lines);
    return multiply_twelve<kRowStep, kWordStep>(w, x, depth, first ? nothing : tile, tile, lines);
  }
#endif
  FloatVec acc[kRows * kV];
  if (first) {
    AA_UNROLL for (int i = 0; i < kRows * kV; ++i) acc[i] = hn::Zero(kFloats);
  } else {
    AA_UNROLL for (int i = 0; i < kRows * kV; ++i) acc[i] = hn::LoadU(kFloats, tile + i * kLanes);
  }
  int64_t k = 0;
  for (int64_t part = 0; part < kRows; ++part) {
    // One prefetch for each k spreads them evenly; neighbours often hit the same line.
    const int64_t end = depth * (part + 1) / kRows;
    const int64_t stride = ahead.bytes / (kDepth<kPairs> / kRows);
    for (const char* next = ahead.at[part]; k < end; ++k, next += stride) {
      FloatVec lanes[kV];
      AA_UNROLL for (int v = 0; v < kV; ++v) lanes[v] = hn::LoadU(kFloats, x + v * kLanes);
      __builtin_prefetch(next, 0, 3);
      AA_UNROLL for (int r = 0; r < kRows; ++r) {
        const int64_t row = r / kSliver * kSliver * kStride<kPairs> + r % kSliver * kRowStep;
        const auto weight = hn::Set(kFloats, w[row + k * kWordStep]);
        AA_UNROLL for (int v = 0; v < kV; ++v) acc[r * kV + v] = add_words<kPairs>(weight, lanes[v], acc[r * kV + v]);
      }
      x += kV * kLanes;
    }
  }
  AA_UNROLL for (int i = 0; i < kRows * kV; ++i) hn::StoreU(acc[i], kFloats, tile + i * kLanes);
}

// Where x and the weights changed places, a tile is a part of the output as it lies.
struct Place {
  int64_t m, rows;     // of the output
  int64_t n, columns;  // of the output
};

// Lets a tile prefetch what the next one, below it, adds to or overwrites. Spread over the tile like this the lines
// arrive: of 24 prefetches in a row an AMD Zen 5 ignores most.
void prefetch_below(const Matmul& asked, const Place& place, Ahead& ahead) {
  const MatmulPart& part = asked.parts[0];
  const Matrix& matrix = part.residual ? part.residual : part.out;
  if (matrix.column_stride != 1) return;
  ahead.bytes = place.columns * static_cast<int64_t>(dtype_size(matrix.dtype));
  for (int64_t r = 0; r < place.rows; ++r) {
    ahead.at[r] = static_cast<const char*>(matrix.at(std::min(place.m + place.rows + r, asked.m - 1), place.n));
  }
}

// Finishes and stores a tile whose rows are `width` apart.
void store_tile(const Matmul& asked, const Place& place, int64_t width, float* HWY_RESTRICT tile) {
  const MatmulPart& part = asked.parts[0];
  const auto plain = [](const Matrix& matrix) { return matrix.dtype == DType::F32 && matrix.column_stride == 1; };
  if (!plain(part.out) || (part.residual && !plain(part.residual)) || (part.bias[0] && !plain(part.bias[0]))) {
    for (int64_t row = 0; row < place.rows; ++row) {
      finish_row(asked, part, place.m + row, place.n, place.columns, tile + row * width, nullptr);
    }
    return;
  }
  const auto* bias = part.bias[0] ? static_cast<const float*>(part.bias[0].at(0, place.n)) : nullptr;
  for (int64_t row = 0; row < place.rows; ++row, tile += width) {
    auto* out = static_cast<float*>(part.out.at(place.m + row, place.n));
    const auto* residual =
        part.residual ? static_cast<const float*>(part.residual.at(place.m + row, place.n)) : nullptr;
    for (int64_t i = 0; i < place.columns; i += kLanes) {
      const int64_t there = place.columns - i;
      const auto read = [&](const float* from) HWY_ATTR {
        return there < kLanes ? load_part(from + i, there) : hn::LoadU(kFloats, from + i);
      };
      FloatVec sum = hn::LoadU(kFloats, tile + i);
      if (bias != nullptr) sum = hn::Add(sum, read(bias));
      if (residual != nullptr) sum = hn::Add(sum, read(residual));
      there < kLanes ? store_part(sum, out + i, there) : hn::StoreU(sum, kFloats, out + i);
    }
  }
}

// A group of slivers of a chunk and a stretch of words along k, which are widened at once.
struct Step {
  int64_t sliver;   // first of the group
  int64_t slivers;  // in the group; 0 after the last step
  int64_t k0;
  int64_t depth;
};

// With at most this many panels, the weights come straight from memory most of the time.
constexpr int64_t kFewPanels = 2;

// Multiplies the widened slivers of a step with all panels. tiles: per sliver of the chunk, per panel, kSliver rows.
// Meanwhile prefetches the weights of the next step and, if there are many panels, the next panel.
template <Words kWords>
void multiply_step(const GemmPlan& plan, const MatmulPart& part, int64_t m0, int64_t rows_of_x, int64_t column0,
                   const Step& step, const Step& next, const float* wide, const Panels& panels, float* tiles) {
  constexpr bool kPairs = are_pairs(kWords);
  const Matmul& args = *plan.args;
  const float* const packed_x = plan.packed_x;
  const int64_t tile_step = kSliver * panels.lanes();
  const int64_t per_sliver = sliver_columns(args);
  const bool few = panels.count <= kFewPanels;
  const bool first = step.k0 == 0, stores = plan.asked != nullptr && step.k0 + step.depth == plan.words;
  // The next weights are prefetched during the last few panels only: earlier, they might be evicted before they are
  // used.
  const int64_t loud = std::min<int64_t>(panels.count, 4), quiet = panels.count - loud;
  Ahead ahead;
  for (int64_t panel = 0; panel < panels.count; ++panel) {
    const int64_t lane0 = panels.begin(panel) * kLanes;
    const int64_t vectors = panels.begin(panel + 1) - panels.begin(panel);
    const float* x = packed_x + lane0 * plan.words + step.k0 * vectors * kLanes;
    const bool last = panel + 1 == panels.count;
    const int64_t next_panel = last ? 0 : panel + 1;
    const int64_t next_vectors = panels.begin(next_panel + 1) - panels.begin(next_panel);
    const char* next_x = reinterpret_cast<const char*>(packed_x + panels.begin(next_panel) * kLanes * plan.words +
                                                       (last ? next.k0 : step.k0) * next_vectors * kLanes);
    const int64_t next_bytes = step.depth * next_vectors * kLanes * static_cast<int64_t>(sizeof(float));
    for (int64_t i = 0; i < step.slivers;) {
      // With one vector of x, one sliver alone does not keep the multipliers busy. Tiles of one panel are adjacent.
      const int64_t taken = panels.vectors == 1 && i + 1 < step.slivers ? 2 : 1;
      const int64_t rows = taken * kSliver;
      if (few) {
        ahead.bytes = 0;
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t sliver = next.sliver + i + r / kSliver;
          const SliverRow at(part, per_sliver, column0 + sliver * per_sliver, r % kSliver);
          ahead.at[r] = reinterpret_cast<const char*>(x);
          if (panel > 0 || at.weight == nullptr || at.weight->column_stride != 1) continue;
          ahead.at[r] = static_cast<const char*>(at.weight->at(at.row, plan.elements(next.k0)));
          ahead.bytes = plan.elements(kDepth<kPairs>) * static_cast<int64_t>(dtype_size(at.weight->dtype));
        }
      } else {
        if (i < next.slivers && panel >= quiet) {
          prefetch_sliver(plan, part, column0 + (next.sliver + i) * per_sliver, next.k0, next.depth,
                          (panel - quiet) * kSliver / loud, (panel - quiet + 1) * kSliver / loud);
        }
        ahead.bytes = ceil_div(next_bytes, step.slivers * rows);
        for (int64_t r = 0; r < rows; ++r) ahead.at[r] = next_x + (i * rows + r) * ahead.bytes;
      }
      const float* w = wide + i * kSliver * kStride<kPairs>;
      // A tile that is stored after its only stretch needs no place of its own.
      float* tile = first && stores ? tiles : tiles + (step.sliver + i) * tile_step + lane0 * kSliver;
      const int64_t row0 = column0 + (step.sliver + i) * kSliver;
      const Place place = {row0, std::min(rows, part.n - row0), m0 + lane0,
                           std::min(vectors * kLanes, rows_of_x - lane0)};
      if (stores && !few && i + taken < step.slivers) prefetch_below(*plan.asked, place, ahead);
      if (taken == 2) {
        multiply_tile<kWords, 2 * kSliver, 1>(w, x, step.depth, first, tile, ahead);
      } else if (vectors == 1) {
        multiply_tile<kWords, kSliver, 1>(w, x, step.depth, first, tile, ahead);
      } else if (vectors == 2) {
        multiply_tile<kWords, kSliver, 2>(w, x, step.depth, first, tile, ahead);
      } else {
        multiply_tile<kWords, kSliver, 3>(w, x, step.depth, first, tile, ahead);
      }
      if (stores) store_tile(*plan.asked, place, vectors * kLanes, tile);
      i += taken;
    }
  }
}

// ---- results ----------------------------------------------------------------------------------------------------

// Brings `columns` results of one weight and the kLanes rows of x of one vector into rows[lane][column], kFinishColumns
// apart. tiles points at the vector's lanes in the first sliver; rows of a tile are `width` apart, slivers `step`.
void transpose_results(const float* tiles, int64_t width, int64_t step, int64_t per_sliver, int64_t columns,
                       float* rows) {
  const auto at = [&](int64_t column) { return tiles + column / per_sliver * step + column % per_sliver * width; };
  int64_t column = 0;
  for (; column + 4 <= columns; column += 4) {
    const float* const from[4] = {at(column), at(column + 1), at(column + 2), at(column + 3)};
    transpose4(from, rows + column, kFinishColumns);
  }
  for (; column < columns; ++column) {
    for (int64_t lane = 0; lane < kLanes; ++lane) rows[lane * kFinishColumns + column] = at(column)[lane];
  }
}

void finish_chunk(const Matmul& args, const MatmulPart& part, const Panels& panels, int64_t m0, int64_t rows,
                  int64_t column0, int64_t columns, const float* tiles) {
  const int64_t per_sliver = sliver_columns(args);
  const int64_t step = kSliver * panels.lanes();
  auto* values = scratch<float>(Scratch::Row1, static_cast<size_t>(2 * kLanes * kFinishColumns));
  float* up = values + kLanes * kFinishColumns;
  for (int64_t begin = 0; begin < columns; begin += kFinishColumns) {
    const int64_t n = std::min(columns - begin, kFinishColumns);
    for (int64_t panel = 0; panel < panels.count; ++panel) {
      const int64_t width = (panels.begin(panel + 1) - panels.begin(panel)) * kLanes;
      for (int64_t lane = 0; lane < width; lane += kLanes) {
        const int64_t m = panels.begin(panel) * kLanes + lane;
        const float* from = tiles + begin / per_sliver * step + panels.begin(panel) * kLanes * kSliver + lane;
        transpose_results(from, width, step, per_sliver, n, values);
        if (args.gated) transpose_results(from + per_sliver * width, width, step, per_sliver, n, up);
        for (int64_t i = 0; i < std::min(kLanes, rows - m); ++i) {
          prefetch_row(part, m0 + m + i + kLanes, m0 + rows, column0 + begin, n);
          finish_row(args, part, m0 + m + i, column0 + begin, n, values + i * kFinishColumns, up + i * kFinishColumns);
        }
      }
    }
  }
}

// ---- chunks -----------------------------------------------------------------------------------------------------

void run_chunk(const GemmPlan& plan, const MatmulPart& part, int64_t m0, int64_t rows, int64_t column0,
               int64_t columns) {
  const Matmul& args = *plan.args;
  const Panels panels(rows);
  const int64_t per_sliver = sliver_columns(args);
  const int64_t slivers = ceil_div(columns, per_sliver);
  const int64_t step = kSliver * panels.lanes();
  auto* tiles = scratch<float>(Scratch::Tile, static_cast<size_t>(slivers * step));
  if (plan.words == 0) std::memset(tiles, 0, static_cast<size_t>(slivers * step) * sizeof(float));
  // With few rows of x, the weights come straight from memory most of the time, so a step follows their rows. With
  // many, all slivers of the chunk pass one stretch of k together, so that they use a panel of x while it is near.
  const int64_t group = std::min<int64_t>(slivers, panels.count > kFewPanels ? slivers : panels.vectors == 1 ? 2 : 1);
  auto* wide = scratch<float>(Scratch::Row2, static_cast<size_t>(group * kSliver * plan.stride));
  const auto after = [&](Step at) {
    at.k0 += at.depth;
    if (at.k0 >= plan.words) {
      at.k0 = 0;
      at.sliver += at.slivers;
      at.slivers = std::min(group, slivers - at.sliver);
    }
    at.depth = std::min(plan.depth, plan.words - at.k0);
    return at;
  };
  const bool interleaved = is_interleaved(args, part);
#if HWY_TARGET == HWY_AVX3
  const auto multiply = !plan.pairs   ? interleaved ? multiply_step<Words::Interleaved> : multiply_step<Words::Floats>
                          : interleaved ? multiply_step<Words::InterleavedPairs>
                                      : multiply_step<Words::Pairs>;
#else
  const auto multiply = interleaved ? multiply_step<Words::Interleaved> : multiply_step<Words::Floats>;
#endif
  Step at = {0, plan.words == 0 ? 0 : group, 0, std::min(plan.depth, plan.words)};
  while (at.slivers > 0) {
    const Step next = after(at);
    if (interleaved) {
      widen_interleaved(plan, part, column0 + at.sliver * kSliver, at.slivers, at.k0, at.depth, wide);
    } else {
      for (int64_t i = 0; i < at.slivers; ++i) {
        widen_sliver(plan, part, column0 + (at.sliver + i) * per_sliver, at.k0, at.depth,
                     wide + i * kSliver * plan.stride);
      }
    }
    multiply(plan, part, m0, rows, column0, at, next, wide, panels, tiles);
    at = next;
  }
  if (plan.asked == nullptr) finish_chunk(args, part, panels, m0, rows, column0, columns, tiles);
}

void gemm_share(GemmPlan& plan, int index, int count) {
  const Matmul& args = *plan.args;
  WorkerPool& pool = WorkerPool::instance();
  const int64_t chunk_columns = plan.chunk_slivers * sliver_columns(args);
  for (int64_t m0 = 0; m0 < args.m; m0 += plan.block_rows) {
    const int64_t rows = std::min(plan.block_rows, args.m - m0);
    pack_x(plan, m0, rows, index, count);
    pool.barrier(index);
    for (int64_t chunk; (chunk = plan.next_chunk.fetch_add(1, std::memory_order_relaxed)) < plan.chunks;) {
      int part = 0;
      for (int64_t chunks; chunk >= (chunks = ceil_div(args.parts[static_cast<size_t>(part)].n, chunk_columns));) {
        chunk -= chunks;
        ++part;
      }
      const MatmulPart& target = args.parts[static_cast<size_t>(part)];
      const int64_t column0 = chunk * chunk_columns;
      run_chunk(plan, target, m0, rows, column0, std::min(chunk_columns, target.n - column0));
    }
    if (m0 + rows >= args.m) break;
    pool.barrier(index);  // nobody reads this block of x any more
    if (index == 0) plan.next_chunk.store(0, std::memory_order_relaxed);
  }
}

// Whether x and the weights are bf16, and the elements of their rows or, of some, of their columns are adjacent.
bool multiplies_pairs(const Matmul& args) {
#if HWY_TARGET == HWY_AVX3
  const bool x_is = args.x.dtype == DType::BF16 && (args.x.column_stride == 1 || args.x.row_stride == 1);
  const bool one = args.part_count == 1 && args.parts[0].weight[0].dtype == DType::BF16;
  return cpu_features().fast_bf16_dot && x_is && (has_bf16_rows(args) || (one && is_interleaved(args, args.parts[0])));
#else
  static_cast<void>(args);
  return false;
#endif
}

void gemm_plan(const Matmul& args, int threads, GemmPlan& plan) {
  plan.args = &args;
  plan.pairs = multiplies_pairs(args);
  plan.words = plan.pairs ? ceil_div(args.k, 2) : args.k;
  plan.depth = plan.pairs ? kDepth<true> : kDepth<false>;
  plan.stride = plan.pairs ? kStride<true> : kStride<false>;
  plan.block_rows = round_up(ceil_div(args.m, ceil_div(args.m, kMaxBlockRows)), kLanes);
  const int64_t lanes = Panels(std::min(plan.block_rows, args.m)).lanes();
  plan.packed_x = scratch<float>(Scratch::Partials, static_cast<size_t>(lanes * plan.words));

  int64_t slivers = 0;
  for (int i = 0; i < args.part_count; ++i) {
    slivers += ceil_div(args.parts[static_cast<size_t>(i)].n, sliver_columns(args));
  }
  const int64_t largest =
      std::max<int64_t>(kChunkBytes / (kSliver * lanes * static_cast<int64_t>(sizeof(float))), kMinChunkSlivers);
  const int64_t per_thread = ceil_div(slivers, threads * std::min(largest, kFinishColumns / kSliver));
  plan.chunk_slivers = std::max(ceil_div(slivers, threads * std::max<int64_t>(per_thread, 1)), kMinChunkSlivers);
  for (int i = 0; i < args.part_count; ++i) {
    plan.chunks += ceil_div(args.parts[static_cast<size_t>(i)].n, plan.chunk_slivers * sliver_columns(args));
  }
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(gemm_plan);
AA_CPU_EXPORT(multiplies_pairs);
AA_CPU_EXPORT(gemm_share);

namespace {

void run(const Matmul& args, const Matmul* asked) {
  WorkerPool& pool = WorkerPool::instance();
  const bool small = is_small(args);
  GemmPlan plan;
  plan.asked = asked;
  AA_CPU_DISPATCH(gemm_plan)(args, small ? 1 : pool.size(), plan);
  if (small) return AA_CPU_DISPATCH(gemm_share)(plan, 0, 1);
  pool.run([&](int index, int count) { AA_CPU_DISPATCH(gemm_share)(plan, index, count); });
}

// Returns out^T = w * x^T for out = x * w^T, without anything that comes after the product.
Matmul exchanged(const Matmul& args) {
  Matmul other;
  other.x = args.parts[0].weight[0];
  other.m = args.parts[0].n;
  other.k = args.k;
  other.part_count = 1;
  other.parts[0].n = args.m;
  other.parts[0].weight[0] = args.x;
  return other;
}

// An estimate of a call's time, in copied elements. An element of x or of the results that is transposed counts as two,
// and 32 multiply-adds, which rows of x that fill up a vector take as well, as one.
double cost(const Matmul& args, bool transposes_results) {
  constexpr double kTransposed = 2, kMultiplyAdds = 32;
  constexpr int64_t kMostLanes = 16;
  const MatmulPart& part = args.parts[0];
  const auto m = static_cast<double>(args.m), n = static_cast<double>(part.n), k = static_cast<double>(args.k);
  const int64_t blocks = (args.m + kMaxBlockRows - 1) / kMaxBlockRows;
  const auto lanes = static_cast<double>((args.m + kMostLanes - 1) / kMostLanes * kMostLanes);
  const double packing = (args.x.row_stride == 1 ? 1 : kTransposed) * m * k;
  const double widening = static_cast<double>(blocks) * n * k;
  return packing + widening + (transposes_results ? kTransposed * m * n : 0) + lanes * n * k / kMultiplyAdds;
}

bool exchange_pays(const Matmul& args) {
  const MatmulPart& part = args.parts[0];
  if (args.k == 0 || part.n == 0 || part.out.column_stride != 1) return false;
  return cost(exchanged(args), false) < cost(args, true);
}

}  // namespace

void gemm(const Matmul& args) {
  // Pairs of rows are read as they lie.
  if (args.gated || (args.x.column_stride == 1 && AA_CPU_DISPATCH(multiplies_pairs)(args) && has_bf16_rows(args))) {
    return run(args, nullptr);
  }
  Matmul one = args;
  one.part_count = 1;
  for (int i = 0; i < args.part_count; ++i) {
    one.parts[0] = args.parts[static_cast<size_t>(i)];
    exchange_pays(one) ? run(exchanged(one), &one) : run(one, nullptr);
  }
}

}  // namespace anyaccel::cpu
#endif  // HWY_ONCE
