// Products for several rows of x with AVX2. Included by gemv.cpp, once per instruction set; empty for others than AVX2.
//
// Twelve rows of weights at a time are multiplied with all rows of x, in stretches of columns. In a stretch, groups of up to six rows of
// x come one after the other, and each group stays in the first-level cache while all rows of weights pass it in tiles, whose sums fill
// 9 to 12 of the 16 registers. So every vector of weights is widened once for a group, and every line of x that comes from the
// second-level cache serves twelve rows of weights. Meanwhile the next twelve rows of weights are prefetched in even steps, so that the
// memory is not idle while later groups multiply. A Zen 3 drops prefetches that come faster than the memory answers.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_GEMV_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_GEMV_TILES_INL_H_
#undef ANYACCEL_CPU_KERNELS_GEMV_TILES_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_GEMV_TILES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2

// Rows of weights that are in work at once, a multiple of those of every tile.
constexpr int kTileRows = 12;
// Columns of a tile: six rows of x are then 12 KiB and twelve rows of 16-bit weights as much, of 32 in the first-level cache. 768 and
// 1,024 columns took no less time.
constexpr int64_t kTileColumns = 512;
constexpr int kMostGroupRows = 6;
// Columns between two prefetches: a cache line of 16-bit weights.
constexpr int64_t kColumnUnit = 32;
static_assert(kTileColumns % kColumnUnit == 0);

// The groups of rows of x: as few as there can be, the first ones one row larger where they cannot be equal.
struct TileGroups {
  int64_t count, rows, larger;  // groups, rows of one, and how many have one more
  explicit TileGroups(int64_t m)
      : count((m + kMostGroupRows - 1) / kMostGroupRows), rows(m / count), larger(m % count) {}
  int64_t size(int64_t group) const { return rows + (group < larger ? 1 : 0); }
  int64_t begin(int64_t group) const { return group * rows + std::min(group, larger); }
};

// Puts row m of x, whose `padded` elements are in the order that the weights need, to its group: [group][vector][row of the group][lane].
inline void pack_row_of_group(const float* row, int64_t padded, int64_t m, const TileGroups& groups, float* packed) {
  int64_t group = 0;
  while (groups.begin(group + 1) <= m) ++group;
  const int64_t distance = groups.size(group) * kLanes;
  float* to = packed + groups.begin(group) * padded + (m - groups.begin(group)) * kLanes;
  for (int64_t k = 0; k < padded; k += kLanes, to += distance) hn::StoreU(hn::LoadU(kFloats, row + k), kFloats, to);
}

// sum += a * b. Written out because the compiler otherwise adds to a copy of the sum, and has too few registers for the tile.
HWY_INLINE void add_product(FloatVec a, FloatVec b, FloatVec& sum) {
  asm("vfmadd231ps %[b], %[a], %[sum]"  // NOLINT(hicpp-no-assembler)
      : [sum] "+x"(sum.raw)
      : [a] "x"(a.raw), [b] "x"(b.raw));
}

// Neighbouring rows of weights that are prefetched while a tile is computed, from its first column on; at most as many as it multiplies.
template <class Raw>
struct RowsAhead {
  const Raw* first;
  int64_t count;
};

// Multiplies kS rows of weights with a group of kM rows of x: sums[s][m][lane], continued unless these are the first columns. Rows are
// given by their distance: an array of addresses would be stored by vectors and read one by one at once, which waits for the stores.
template <class Type, int kS, int kM>
HWY_NOINLINE void multiply_tile(Type type, const typename Type::Raw* w, int64_t row_stride, const float* x,
                                int64_t columns, bool first, RowsAhead<typename Type::Raw> ahead, int64_t ahead_stride,
                                float* sums) {
  using Raw = typename Type::Raw;
  FloatVec acc[kS * kM];
  if (first) {
    AA_UNROLL for (int i = 0; i < kS * kM; ++i) acc[i] = hn::Zero(kFloats);
  } else {
    AA_UNROLL for (int i = 0; i < kS * kM; ++i) acc[i] = hn::LoadU(kFloats, sums + i * kLanes);
  }
  for (int64_t k = 0; k < columns; k += kColumnUnit) {
    AA_UNROLL for (int s = 0; s < kS; ++s) {
      if (s >= ahead.count) break;
      const char* bytes = reinterpret_cast<const char*>(ahead.first + s * ahead_stride);
      AA_UNROLL for (size_t line = 0; line < kColumnUnit * sizeof(Raw); line += 64)
          __builtin_prefetch(bytes + line, 0, 2);
    }
    ahead.first += kColumnUnit;
    AA_UNROLL for (int64_t half = 0; half < kColumnUnit / kLanes; ++half) {
      const auto weights = [&](int s) HWY_ATTR {
        const Raw* at = w + s * row_stride + half / 2 * 2 * kLanes;
        return half % 2 == 0 ? load_first(type, at) : load_second(type, at);
      };
      // What was loaded before is not kept, since there are no registers for it.
      asm volatile("" ::: "memory");  // NOLINT(hicpp-no-assembler)
      FloatVec wide[kS];
      AA_UNROLL for (int s = 0; s < kS; ++s) wide[s] = weights(s);
      AA_UNROLL for (int m = 0; m < kM; ++m) {
        const FloatVec row = hn::LoadU(kFloats, x + m * kLanes);
        AA_UNROLL for (int s = 0; s < kS; ++s) add_product(wide[s], row, acc[s * kM + m]);
      }
      x += kM * kLanes;
    }
    w += kColumnUnit;
  }
  AA_UNROLL for (int i = 0; i < kS * kM; ++i) hn::StoreU(acc[i], kFloats, sums + i * kLanes);
}

template <class Type>
struct Tile {
  int64_t rows;  // of weights
  void (*multiply)(Type, const typename Type::Raw*, int64_t, const float*, int64_t, bool, RowsAhead<typename Type::Raw>,
                   int64_t, float*);
};
// The tile for a group of so many rows of x.
template <class Type>
Tile<Type> tile_of(int64_t group) {
  switch (group) {
    case 3: return {3, multiply_tile<Type, 3, 3>};
    case 4: return {3, multiply_tile<Type, 3, 4>};
    case 5: return {2, multiply_tile<Type, 2, 5>};
    default: return {2, multiply_tile<Type, 2, 6>};
  }
}

// out[m * out_stride + r] = row r of w times row m of x, r < rows. At least 4 rows of x, packed by pack_row_of_group(), so that no group
// has fewer than three.
template <class Type>
void multiply_by_tiles(Type type, const typename Type::Raw* w, int64_t row_stride, int64_t rows, const float* x,
                       int64_t x_stride, int64_t x_rows, int64_t columns, float* out, int64_t out_stride) {
  using Raw = typename Type::Raw;
  const TileGroups groups(x_rows);
  float* const sums = scratch<float>(Scratch::Row2, static_cast<size_t>(kTileRows * x_rows * kLanes));
  for (int64_t r = 0; r < rows; r += kTileRows) {
    // The last rows are a whole block, too, with some of the rows before.
    const int64_t count = std::min<int64_t>(rows, kTileRows);
    r = std::min(r, rows - count);
    const int64_t following = std::clamp<int64_t>(rows - r - count, 0, kTileRows);
    int64_t begin = 0;
    do {
      int64_t n = std::min(kTileColumns, (columns - begin) / kColumnUnit * kColumnUnit), stride = row_stride;
      const Raw* at = w + r * row_stride + begin;
      Raw last[kTileRows][kColumnUnit];
      if (columns - begin < kColumnUnit || count < kTileRows) {
        // Too few columns or rows for the tiles: copied and filled up with zeros.
        n = columns > begin ? kColumnUnit : 0;
        std::memset(last, 0, sizeof(last));
        for (int64_t i = 0; i < count; ++i) {
          std::memcpy(last[i], at + i * row_stride, static_cast<size_t>(std::min(columns - begin, n)) * sizeof(Raw));
        }
        at = last[0];
        stride = kColumnUnit;
      }
      int64_t fetched = 0;
      for (int64_t group = 0; group < groups.count; ++group) {
        const int64_t m = groups.begin(group), group_rows = groups.size(group);
        const Tile<Type> tile = tile_of<Type>(group_rows);
        for (int64_t i = 0; i < kTileRows; i += tile.rows) {
          // As large a part of the following rows of weights as this tile and those before are of the work.
          const int64_t work = group * kTileRows + i + tile.rows, all_work = groups.count * kTileRows;
          RowsAhead<Raw> ahead{w + (r + count + fetched) * row_stride + begin, 0};
          while ((fetched + ahead.count) * all_work < following * work && ahead.count < tile.rows) ++ahead.count;
          fetched += ahead.count;
          tile.multiply(type, at + i * stride, stride, x + m * x_stride + begin * group_rows, n, begin == 0, ahead,
                        row_stride, sums + (m * kTileRows + i * group_rows) * kLanes);
        }
      }
      begin += n;
    } while (begin < columns);
    for (int64_t group = 0; group < groups.count; ++group) {
      const int64_t first = groups.begin(group), group_rows = groups.size(group);
      for (int64_t m = 0; m < group_rows; ++m) {
        const float* of_row = sums + (first * kTileRows + m) * kLanes;
        float* const to = out + (first + m) * out_stride + r;
        for (int64_t i = 0; i < count; i += 4, of_row += 4 * group_rows * kLanes) {
          FloatVec four[4];
          AA_UNROLL for (int j = 0; j < 4; ++j) four[j] = hn::LoadU(kFloats, of_row + j * group_rows * kLanes);
          if (count - i >= 4) {
            sum_four(four, to + i);
          } else {
            float results[4];
            sum_four(four, results);
            std::copy_n(results, count - i, to + i);
          }
        }
      }
    }
  }
}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
