// See quantized_unit.h.
//
// The weights are the unit's first operand and need no reordering: a row of a tile holds 32 consecutive values of one
// row of weights as bf16. Values of 4 and 5 bits are looked up in a table of the 16 or 32 numbers that they can be with
// the scale of their group: one permutation decodes 32 values. While the unit multiplies one piece of the weights, 32
// rows by 1024 columns, with those columns of all rows of x, the vector units decode the next piece. Pieces, these
// columns of x, and the sums, which wait for the next columns, stay in the second-level cache. With up to 32 rows of x a piece
// has 256 columns, and the sums stay in tiles from the first column to the last. x is packed once, in the order of the second
// operand.
#include "accelerators/cpu/kernels/quantized_unit.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "accelerators/cpu/kernels/matmul_inner.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/worker_pool.h"
#include "base/scalar_convert.h"
#include "base/simd/amx.h"
#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/quantized_unit.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/activation-inl.h"
#include "accelerators/cpu/kernels/matmul_finish-inl.h"
#include "accelerators/cpu/kernels/quantized_unit_weights-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// Transposes 16 x 16 words: to[i][r] = from[r][i]. Strides are in words.
HWY_INLINE void transpose_words(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
#if HWY_TARGET == HWY_AVX3
  __m512i a[16], b[16];
  AA_UNROLL for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(from + i * from_stride);
  AA_UNROLL for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  AA_UNROLL for (int i = 0; i < 16; i += 4) {  // a[i + j]: column j of each four, of the rows i to i + 3
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  AA_UNROLL for (int j = 0; j < 4; ++j) {
    const __m512i low = _mm512_shuffle_i32x4(a[j], a[j + 4], 0x88),
                  high = _mm512_shuffle_i32x4(a[j + 8], a[j + 12], 0x88);
    const __m512i low_odd = _mm512_shuffle_i32x4(a[j], a[j + 4], 0xdd);
    const __m512i high_odd = _mm512_shuffle_i32x4(a[j + 8], a[j + 12], 0xdd);
    _mm512_storeu_si512(to + j * to_stride, _mm512_shuffle_i32x4(low, high, 0x88));
    _mm512_storeu_si512(to + (j + 4) * to_stride, _mm512_shuffle_i32x4(low_odd, high_odd, 0x88));
    _mm512_storeu_si512(to + (j + 8) * to_stride, _mm512_shuffle_i32x4(low, high, 0xdd));
    _mm512_storeu_si512(to + (j + 12) * to_stride, _mm512_shuffle_i32x4(low_odd, high_odd, 0xdd));
  }
#else
  for (int64_t i = 0; i < 16; ++i) {
    for (int64_t r = 0; r < 16; ++r) to[i * to_stride + r] = from[r * from_stride + i];
  }
#endif
}

// ---- x ---------------------------------------------------------------------------------------------------------------

// Where the pair of tiles of x begins that multiplies step `step` of the weights: [piece][pair of 32 rows][step of the piece][2].
inline uint16_t* tiles_of_x(const UnitPlan& plan, int64_t pair, int64_t step) {
  const int64_t pairs = ceil_of(plan.rows, kPair);
  return plan.x + ((step / kSteps * pairs + pair) * kSteps + step % kSteps) * (2 * kTile);
}

// Rounds a row of x to bf16; if evens_first, the even values of each 32 come before the odd ones.
template <class U>
void round_row(const float* x, int64_t k, [[maybe_unused]] bool evens_first, uint16_t* to) {
#if HWY_TARGET == HWY_AVX3
  const __m512i order = evens_first ? _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30,
                                                       28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0)
                                    : _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16,
                                                       15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  for (int64_t g = 0; g < k; g += kDepth) {
    const __m512i both = as_bf16<U>(_mm512_loadu_ps(x + g), _mm512_loadu_ps(x + g + 16));
    _mm512_storeu_si512(to + g, _mm512_permutexvar_epi16(order, both));
  }
#else
  narrow(Bf16Type(), x, to, k);
#endif
}

// Rounds and packs this thread's share of the rows of x as tiles, in which the pairs of columns of 16 rows lie side by
// side.
template <class U>
void pack_rows_for(const UnitPlan& plan, int64_t index, int64_t count) {
  const Matmul& args = plan.product->args;
  const int64_t k = args.k, pairs = ceil_of(plan.rows, kPair);
  const bool evens_first = has_evens_first(plan.product->format->number);
  auto* wide = scratch<float>(Scratch::Row3, static_cast<size_t>(k));
  auto* rounded = scratch<uint16_t>(Scratch::Row1, static_cast<size_t>(kTileRows * k));
  for (int64_t tile = 2 * pairs * index / count; tile < 2 * pairs * (index + 1) / count; ++tile) {
    if (tile * kTileRows >= plan.rows) return;
    for (int64_t r = 0; r < kTileRows; ++r) {
      const int64_t m = tile * kTileRows + r;
      uint16_t* to = rounded + r * k;
      if (m >= plan.rows) {
        std::memset(to, 0, static_cast<size_t>(k) * sizeof(uint16_t));
        continue;
      }
      const Row row = row_of(args.x, plan.first_row + m, k);
      const float* from = wide;
      if (row.dtype == DType::F32 && row.stride == 1) {
        from = reinterpret_cast<const float*>(row.data);
      } else {
        read_floats(row, 0, k, wide);
      }
      round_row<U>(from, k, evens_first, to);
    }
    for (int64_t step = 0; step < k / kDepth; ++step) {
      transpose_words(reinterpret_cast<const uint32_t*>(rounded + step * kDepth), k / 2,
                      reinterpret_cast<uint32_t*>(tiles_of_x(plan, tile / 2, step) + tile % 2 * kTile), kTileRows);
    }
  }
}

void pack_rows(const UnitPlan& plan, int64_t index, int64_t count) {
  if (plan.emulated) return pack_rows_for<amx::EmulatedUnit>(plan, index, count);
#if HWY_TARGET == HWY_AVX3
  pack_rows_for<amx::Unit>(plan, index, count);
#endif
}

// ---- products --------------------------------------------------------------------------------------------------------

// Adds the products of 32 rows of weights with up to 32 rows of x, or 16 unless kBoth, to the four tiles of sums.
template <class U, bool kBoth>
HWY_INLINE void multiply_step(const uint16_t* of_w, const uint16_t* of_x) {
  // With few tiles in use, for the reason in gemm_amx.cpp.
  U::template load<4>(of_w, kUnitRowBytes);
  U::template load<6>(of_x, kUnitRowBytes);
  U::template multiply_bf16<0, 4, 6>();
  if constexpr (kBoth) {
    U::template load<6>(of_x + kTile, kUnitRowBytes);
    U::template multiply_bf16<2, 4, 6>();
  }
  U::template load<4>(of_w + kTile, kUnitRowBytes);
  if constexpr (kBoth) {
    U::template multiply_bf16<3, 4, 6>();
    U::template load<6>(of_x, kUnitRowBytes);
  }
  U::template multiply_bf16<1, 4, 6>();
}

// The sums of up to 32 rows of x, or 16 unless kBoth, with `spans` times 32 rows of weights from `begin` on. They stay in tiles from
// the first column to the last. Two pieces of kFewSteps steps are 32 KiB, which the first-level cache holds, and a part of the next
// piece is decoded after each step, since the processor looks only some hundred instructions ahead.
template <class U, bool kBoth>
void sum_few_rows(const UnitPlan& plan, DecodeRows decode, int64_t begin, int64_t spans, uint16_t* weights,
                  float* sums) {
  const QuantizedProduct& product = *plan.product;
  const int64_t steps = product.args.k / kDepth, in_span = ceil_of(steps, kFewSteps), pieces = in_span * spans;
  constexpr int64_t kPieceElements = kFewSteps * 2 * kTile;
  const auto piece_of = [&](int64_t number) {
    const int64_t step = number % in_span * kFewSteps;
    return Piece{begin + number / in_span * kPair, step * kDepth, std::min(kFewSteps, steps - step) * kDepth};
  };
  if (pieces > 0) decode(product, piece_of(0), 0, kPair, weights);
  for (int64_t number = 0; number < pieces; ++number) {
    const Piece piece = piece_of(number), next = piece_of(number + 1);
    const int64_t to_decode = number + 1 < pieces ? kPair : 0, count = piece.count / kDepth;
    const uint16_t* w = weights + number % 2 * kPieceElements;
    const uint16_t* x = tiles_of_x(plan, 0, piece.begin / kDepth);
    if (piece.begin == 0) {
      U::template zero<0>();
      U::template zero<1>();
      U::template zero<2>();
      U::template zero<3>();
    }
    for (int64_t s = 0, done = 0; s < count; ++s) {
      multiply_step<U, kBoth>(w + s * 2 * kTile, x + s * 2 * kTile);
      const int64_t until = to_decode * (s + 1) / count;
      decode(product, next, done, until, weights + (number + 1) % 2 * kPieceElements);
      done = until;
    }
    if (piece.begin / kDepth + count < steps) continue;
    float* to = sums + number / in_span * 4 * kSums;
    U::template store<0>(to, kUnitRowBytes);
    U::template store<1>(to + kSums, kUnitRowBytes);
    if constexpr (kBoth) {
      U::template store<2>(to + 2 * kSums, kUnitRowBytes);
      U::template store<3>(to + 3 * kSums, kUnitRowBytes);
    }
  }
}

// For each pair of tiles of x (32 rows), adds the products with `steps` pairs of tiles of 32 rows of weights to the
// pair's four tiles of sums, or begins these with them if `first`. After each pair it calls between(rows of x that are
// done).
template <class U, class Between>
HWY_INLINE void multiply_steps(const uint16_t* w, const uint16_t* x, int64_t steps, int64_t rows, bool first,
                               float* sums, Between between) {
  for (int64_t m = 0; m < rows; m += kPair, x += kSteps * 2 * kTile, sums += 4 * kSums) {
    const bool both = rows - m > kTileRows;
    // All four are cleared, since they hold the sums of the previous pair.
    U::template zero<0>();
    U::template zero<1>();
    U::template zero<2>();
    U::template zero<3>();
    if (!first) {
      U::template load<0>(sums, kUnitRowBytes);
      U::template load<1>(sums + kSums, kUnitRowBytes);
      if (both) {
        U::template load<2>(sums + 2 * kSums, kUnitRowBytes);
        U::template load<3>(sums + 3 * kSums, kUnitRowBytes);
      }
    }
    for (int64_t s = 0; s < steps; ++s) {
      if (both) {
        multiply_step<U, true>(w + s * 2 * kTile, x + s * 2 * kTile);
      } else {
        multiply_step<U, false>(w + s * 2 * kTile, x + s * 2 * kTile);
      }
    }
    U::template store<0>(sums, kUnitRowBytes);
    U::template store<1>(sums + kSums, kUnitRowBytes);
    if (both) {
      U::template store<2>(sums + 2 * kSums, kUnitRowBytes);
      U::template store<3>(sums + 3 * kSums, kUnitRowBytes);
    }
    between(std::min(m + kPair, rows));
  }
}

// The same for any number of rows of x, in stretches of kSteps steps. `sums`: [span][pair of 32 rows of x][4 tiles].
template <class U>
void sum_rows(const UnitPlan& plan, DecodeRows decode, int64_t begin, int64_t spans, uint16_t* weights, float* sums) {
  const QuantizedProduct& product = *plan.product;
  const int64_t steps = product.args.k / kDepth, pairs = ceil_of(plan.rows, kPair),
                pieces = ceil_of(steps, kSteps) * spans;
  constexpr int64_t kPieceElements = kSteps * 2 * kTile;
  const auto piece_of = [&](int64_t number) {
    const int64_t step = number / spans * kSteps;
    return Piece{begin + number % spans * kPair, step * kDepth, std::min(kSteps, steps - step) * kDepth};
  };
  if (pieces > 0) decode(product, piece_of(0), 0, kPair, weights);
  for (int64_t number = 0; number < pieces; ++number) {
    const Piece piece = piece_of(number), next = piece_of(number + 1);
    const bool is_last = number + 1 == pieces;
    uint16_t* decoded = weights + (number + 1) % 2 * kPieceElements;
    int64_t done = 0;
    // While the unit multiplies these weights, the next ones are decoded.
    const auto between = [&](int64_t rows) HWY_ATTR {
      const int64_t until = is_last ? 0 : kPair * rows / plan.rows;
      decode(product, next, done, until, decoded);
      done = until;
    };
    multiply_steps<U>(weights + number % 2 * kPieceElements, tiles_of_x(plan, 0, piece.begin / kDepth),
                      piece.count / kDepth, plan.rows, piece.begin == 0, sums + number % spans * pairs * 4 * kSums,
                      between);
  }
}

template <class U>
void multiply_unit_span(const UnitPlan& plan, int64_t begin, int64_t n) {
  const Matmul& args = plan.product->args;
  const int64_t pairs = ceil_of(plan.rows, kPair), spans = ceil_of(n, kPair);
  const DecodeRows decode = find_decoder<U>(plan.product->format->number);
  auto* weights = scratch<uint16_t>(Scratch::Partials, static_cast<size_t>(2 * kSteps * 2 * kTile));
  auto* sums = scratch<float>(Scratch::Tile, static_cast<size_t>(spans * pairs * 4 * kSums));
  if (args.k < kDepth) std::memset(sums, 0, static_cast<size_t>(spans * pairs * 4 * kSums) * sizeof(float));
  std::array<amx::TileShape, amx::kTiles> shapes;
  shapes.fill({static_cast<uint8_t>(kTileRows), static_cast<uint16_t>(kUnitRowBytes)});
  U::set_shapes(shapes);
  if (plan.rows <= kTileRows) {
    sum_few_rows<U, false>(plan, decode, begin, spans, weights, sums);
  } else if (plan.rows <= kPair) {
    sum_few_rows<U, true>(plan, decode, begin, spans, weights, sums);
  } else {
    sum_rows<U>(plan, decode, begin, spans, weights, sums);
  }
  U::release();
  // Tiles of sums have a row for each row of weights: transposed, they have the rows of the result.
  const int64_t stride = spans * kPair;
  auto* products = scratch<float>(Scratch::Row0, static_cast<size_t>(kTileRows * stride));
  for (int64_t m = 0; m < plan.rows; m += kTileRows) {
    for (int64_t tile = 0; tile < 2 * spans; ++tile) {
      const float* from = sums + ((tile / 2 * pairs + m / kPair) * 4 + m / kTileRows % 2 * 2 + tile % 2) * kSums;
      transpose_words(reinterpret_cast<const uint32_t*>(from), kTileRows,
                      reinterpret_cast<uint32_t*>(products + tile * kTileRows), stride);
    }
    for (int64_t r = 0; r < std::min(kTileRows, plan.rows - m); ++r) {
      finish_row(args, args.parts[0], plan.first_row + m + r, begin, n, products + r * stride, nullptr);
    }
  }
}

// Columns [begin, begin + n) of the result, for the plan's rows.
void multiply_span_of_plan(const UnitPlan& plan, int64_t begin, int64_t n) {
  if (plan.emulated) return multiply_unit_span<amx::EmulatedUnit>(plan, begin, n);
#if HWY_TARGET == HWY_AVX3
  multiply_unit_span<amx::Unit>(plan, begin, n);
#endif
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(pack_rows);
AA_CPU_EXPORT(multiply_span_of_plan);

namespace {

std::atomic<bool> emulating{false};

// Fewest rows for which decoding to bf16 is faster than products of integers (quantized_tiles.cpp; with Q8_0 quantized_bytes.cpp,
// which has those of up to 16 rows). Two cores of a Granite Rapids with 16, 20, 24 and 32 rows, GB/s of the weights from memory:
//
//   Q4_0     9.5 : 7.8   8.7 : 6.7   8.5 : 6.1   8.3 : 4.9
//   Q4_K     7.1 : 7.6   6.7 : 6.4   6.6 : 5.8   6.4 : 4.8
//   Q6_K     8.2 : 7.7   7.5 : 7.4   7.4 : 7.0   6.9 : 5.7
//   Q2_K     3.6 : 4.2   3.2 : 3.6   3.3 : 3.2   3.2 : 2.5
//   TQ1_0    1.9 : 3.2   1.8 : 2.7   1.8 : 2.4   1.8 : 2.0
//
// Q4_1, Q5_1, IQ4_NL, IQ4_XS and MXFP4 are like Q4_0, Q5_0 is like Q4_K, and Q3_K, Q5_K and TQ2_0 are like Q2_K. 48 rows of TQ1_0
// were not measured.
int64_t fewest_rows(uint32_t format) {
  switch (format) {
    case AA_BLOCK_Q4_0:
    case AA_BLOCK_Q4_1:
    case AA_BLOCK_Q5_1:
    case AA_BLOCK_IQ4_NL:
    case AA_BLOCK_IQ4_XS:
    case AA_BLOCK_MXFP4: return 16;
    case AA_BLOCK_Q8_0: return 17;
    case AA_BLOCK_Q5_0:
    case AA_BLOCK_Q4_K:
    case AA_BLOCK_Q6_K: return 20;
    case AA_BLOCK_TQ1_0: return 48;
    default: return 24;
  }
}
// Rows of x whose sums and packed columns fit into a second-level cache.
constexpr int64_t kMostRows = 512;
// Most rows of the weights that a thread takes at once.
constexpr int64_t kMostSpan = 256;
constexpr int64_t kUnit = 32;
constexpr int64_t kPieceColumns = 1024;  // kSteps * kDepth

int64_t ceil_div(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }

}  // namespace

bool takes_unit(const QuantizedProduct& product) {
  if (!product.rounded) return false;
  if (emulating.load(std::memory_order_relaxed)) return true;
  return product.args.m >= fewest_rows(product.format->number) && isa() == Isa::Amx && cpu_features().amx_bf16 &&
         cpu_features().avx512_bf16;
}

void emulate_unit(bool emulate) { emulating = emulate; }

void multiply_on_unit(const QuantizedProduct& product) {
  const Matmul& args = product.args;
  WorkerPool& pool = WorkerPool::instance();
  const bool alone = is_small(args);
  const int64_t n = args.parts[0].n, threads = alone ? 1 : pool.size();
  const int64_t block = ceil_div(ceil_div(args.m, ceil_div(args.m, kMostRows)), kUnit) * kUnit;
  const int64_t pieces = ceil_div(n, kMostSpan * threads) * threads;
  const int64_t piece = ceil_div(ceil_div(n, pieces), kUnit) * kUnit;
  UnitPlan plan;
  plan.product = &product;
  plan.emulated = emulating.load(std::memory_order_relaxed);
  plan.x =
      scratch<uint16_t>(Scratch::Rounded, static_cast<size_t>(block * ceil_div(args.k, kPieceColumns) * kPieceColumns));
  for (plan.first_row = 0; plan.first_row < args.m; plan.first_row += block) {
    plan.rows = std::min(block, args.m - plan.first_row);
    if (alone) {
      AA_CPU_DISPATCH(pack_rows)(plan, 0, 1);
      for (int64_t begin = 0; begin < n; begin += piece) {
        AA_CPU_DISPATCH(multiply_span_of_plan)(plan, begin, std::min(piece, n - begin));
      }
      continue;
    }
    if (plan.rows * args.k < 32768) {
      AA_CPU_DISPATCH(pack_rows)(plan, 0, 1);
    } else {
      pool.run([&](int index, int count) { AA_CPU_DISPATCH(pack_rows)(plan, index, count); });
    }
    std::atomic<int64_t> next{0};
    pool.run([&](int /*index*/, int /*count*/) {
      for (int64_t begin = next.fetch_add(piece); begin < n; begin = next.fetch_add(piece)) {
        AA_CPU_DISPATCH(multiply_span_of_plan)(plan, begin, std::min(piece, n - begin));
      }
    });
  }
}

}  // namespace anyaccel::cpu
#endif  // HWY_ONCE
