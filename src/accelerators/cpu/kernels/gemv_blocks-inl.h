// More than twelve rows of x by dot products of bf16 pairs on a Zen 5, for gemv_streams-inl.h. Included by it, once per
// instruction set.
//
// A tile of weights, some rows of each stream, is taken a block of columns at a time, by several passes of up to nine rows of x
// each: the block of x stays in the first-level cache, and that of the weights in the second. Loads of x that miss the first-level
// cache wait behind the lines that come from memory, so that reading and multiplying do not overlap. A pass over a whole row
// of weights, or over a short stretch of one row only (multiply_in_passes() of gemv_streams-inl.h), loads more of them.
#include <algorithm>
#include <cstdint>

#include "accelerators/cpu/kernels/gemv_products-inl.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_GEMV_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_GEMV_BLOCKS_INL_H_
#undef ANYACCEL_CPU_KERNELS_GEMV_BLOCKS_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_GEMV_BLOCKS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// The sums of a pass stay in registers: 27, beside three vectors of weights and one of x.
constexpr int kStreamsOfManyRows = 3, kManyRowsAtOnce = 9;

#if HWY_TARGET == HWY_AVX3
// Rows of weights of each stream in a tile, and columns of a block. On a Zen 5 whose memory read 82 to 84 GB/s, 16, 18, 24 and
// 31 rows of x of 2,048 columns read 41, 36, 29.5 and 23 GB/s with these, 40, 36, 29 and 22.5 with 8 rows, and 36, 32, 27 and 21.6
// with 704 columns.
constexpr int64_t kTileRows = 16, kBlockColumns = 1024;

// A block of columns, [begin, end) of `row`, of a row of weights of each stream.
struct Piece {
  int64_t begin, end, row;
  int first, second;  // the streams of which lines are prefetched, `ahead` bytes further on
  int64_t ahead;
};

// Adds the products of a piece with kM rows of x to sums[s * kM + m], which count as zero where the piece begins the row. Where it
// ends the row they go to results[(s * kM + m) * kCollected] instead.
template <int kM>
HWY_NOINLINE void add_piece(const uint16_t* const (&w)[kStreamsOfManyRows], const uint16_t* x, int64_t x_stride,
                            const Piece& piece, float* sums, float* results) {
  constexpr int kS = kStreamsOfManyRows;
  FloatVec acc[kS * kM];
  if (piece.begin == 0) {
    AA_UNROLL for (int i = 0; i < kS * kM; ++i) acc[i] = hn::Zero(kFloats);
  } else {
    AA_UNROLL for (int i = 0; i < kS * kM; ++i) acc[i] = hn::LoadU(kFloats, sums + i * kLanes);
  }
  const uint16_t* rows[kS];
  AA_UNROLL for (int s = 0; s < kS; ++s) rows[s] = w[s];
  const char* const first = reinterpret_cast<const char*>(w[piece.first]) + piece.ahead;
  const char* const second = reinterpret_cast<const char*>(w[piece.second]) + piece.ahead;
  const int64_t whole = piece.end / kBlock * kBlock;
  for (int64_t k = piece.begin; k < whole; k += kBlock) {
    __builtin_prefetch(first + k * 2, 0, 3);
    __builtin_prefetch(second + k * 2, 0, 3);
    add_block_at<Bf16Dots, kS, kM>({}, rows, x, x_stride, k, acc);
  }
  add_tails<Bf16Dots, kS, kM>({}, rows, x, x_stride, piece.end, acc);
  if (piece.end == piece.row) return sum_accumulators(acc, results, kCollected);
  AA_UNROLL for (int i = 0; i < kS * kM; ++i) hn::StoreU(acc[i], kFloats, sums + i * kLanes);
}

using AddPiece = void (*)(const uint16_t* const (&)[kStreamsOfManyRows], const uint16_t*, int64_t, const Piece&, float*,
                          float*);
// add_piece for `rows` rows of x, more than half of kManyRowsAtOnce.
template <int kM = kManyRowsAtOnce>
AddPiece find_add_piece(int64_t rows) {
  if constexpr (kM > kManyRowsAtOnce / 2 + 1) {
    if (rows < kM) return find_add_piece<kM - 1>(rows);
  }
  return add_piece<kM>;
}

// As multiply_in_one_pass(), for more rows of x than one pass takes and kStreamsOfManyRows streams. k is at least 1.
inline void multiply_in_blocks(const uint16_t* w, int64_t row_stride, int64_t rows, const Activations<uint16_t>& x,
                               float* out, int64_t out_stride) {
  constexpr int kS = kStreamsOfManyRows;
  const int64_t passes = (x.rows + kManyRowsAtOnce - 1) / kManyRowsAtOnce;
  const auto begin_of = [&](int64_t pass) { return x.rows * pass / passes; };
  const int64_t blocks = (x.k + kBlockColumns - 1) / kBlockColumns;
  const int64_t width = ((x.k + blocks - 1) / blocks + kBlock - 1) / kBlock * kBlock;
  const auto sums_of_all = static_cast<size_t>(kS * x.rows * kTileRows * kLanes);
  auto* const sums = scratch<float>(Scratch::Row2, sums_of_all + static_cast<size_t>(kS * x.rows * kCollected));
  float* const results = sums + sums_of_all;
  static_assert(kTileRows == kCollected);
  for (int64_t first = 0; first < rows; first += kTileRows) {
    const int64_t height = std::min(kTileRows, rows - first);
    for (int64_t begin = 0; begin < x.k; begin += width) {
      const int64_t end = std::min(begin + width, x.k);
      // The same place of the next block, or in the first block of the next tile.
      const int64_t ahead = (end < x.k ? width : height * row_stride - begin) * static_cast<int64_t>(sizeof(*w));
      for (int64_t pass = 0; pass < passes; ++pass) {
        const int64_t m = begin_of(pass), count = begin_of(pass + 1) - m;
        const Piece piece{
            begin, end, x.k, static_cast<int>(kS * pass / passes), static_cast<int>((kS * (pass + 1) - 1) / passes),
            ahead};
        for (int64_t r = 0; r < height; ++r) {
          const uint16_t* of_row[kS];
          find_rows(w, row_stride, rows, first + r, of_row);
          find_add_piece(count)(of_row, x.data + m * x.stride, x.stride, piece,
                                sums + kS * (m * kTileRows + r * count) * kLanes, results + m * kS * kCollected + r);
        }
      }
    }
    for (int64_t pass = 0; pass < passes; ++pass) {
      const int64_t m = begin_of(pass);
      write_results(results + m * kS * kCollected, kS, begin_of(pass + 1) - m, height, rows,
                    out + m * out_stride + first, out_stride);
    }
  }
}
#endif  // HWY_AVX3

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
