// Products for several rows of x with AVX2. Included by gemv.cpp, once per instruction set; empty for others than AVX2.
//
// The rows of weights are cut into three to twelve streams that are walked side by side, in stretches of columns. In a
// stretch, one group of up to six rows of x follows another, and a group stays in the first-level cache while the
// streams pass it in tiles, whose sums fill 8 to 12 of the 16 registers. So a vector of weights is widened once for a
// group, and a line of x that comes from the second-level cache serves all streams. Meanwhile the next stretch of each
// stream is prefetched in even steps: a Zen 3 drops prefetches that come faster than the memory answers. It also cannot
// have enough of these instructions in flight to read at the speed of memory. So streams go through whole rows and from
// one row to the next, and the hardware prefetchers run ahead of them.
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

// Most streams: a multiple of the rows of every tile.
constexpr int kMostTileStreams = 12;
// Columns of a tile. Six rows of x are then 12 KiB, and twelve streams of 16-bit weights as much, in a first-level
// cache of 32 KiB. 768 and 1,024 columns took no less time.
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

// Puts row m of x, whose `padded` elements are in the order that the weights need, into its group: [group][vector][row
// of the group][lane].
inline void pack_row_of_group(const float* row, int64_t padded, int64_t m, const TileGroups& groups, float* packed) {
  int64_t group = 0;
  while (groups.begin(group + 1) <= m) ++group;
  const int64_t distance = groups.size(group) * kLanes;
  float* to = packed + groups.begin(group) * padded + (m - groups.begin(group)) * kLanes;
  for (int64_t k = 0; k < padded; k += kLanes, to += distance) hn::StoreU(hn::LoadU(kFloats, row + k), kFloats, to);
}

// sum += a * b. In assembly, because the compiler otherwise adds to a copy of the sum, for which the tile leaves no
// register.
HWY_INLINE void add_product(FloatVec a, FloatVec b, FloatVec& sum) {
  asm("vfmadd231ps %[b], %[a], %[sum]"  // NOLINT(hicpp-no-assembler)
      : [sum] "+x"(sum.raw)
      : [a] "x"(a.raw), [b] "x"(b.raw));
}

// What is prefetched while a tile is computed: as many columns as the tile has, of `count` streams, which are at most
// the rows of the tile.
template <class Raw>
struct StreamsAhead {
  const Raw* first;
  int64_t count, apart;  // apart: from one to the next
};

// Multiplies kS rows of weights with a group of kM rows of x: sums[s][m][lane], added to what is there unless `first`.
// Rows are given by their distance: the compiler would store an array of addresses by vectors and then read single
// ones, which waits for the stores.
template <class Type, int kS, int kM>
HWY_NOINLINE void multiply_tile(Type type, const typename Type::Raw* w, int64_t row_stride, const float* x,
                                int64_t columns, bool first, StreamsAhead<typename Type::Raw> ahead, float* sums) {
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
      const char* bytes = reinterpret_cast<const char*>(ahead.first + s * ahead.apart);
      AA_UNROLL for (size_t line = 0; line < kColumnUnit * sizeof(Raw); line += 64)
          __builtin_prefetch(bytes + line, 0, 2);
    }
    ahead.first += kColumnUnit;
    AA_UNROLL for (int64_t half = 0; half < kColumnUnit / kLanes; ++half) {
      const auto weights = [&](int s) HWY_ATTR {
        const Raw* at = w + s * row_stride + half / 2 * 2 * kLanes;
        return half % 2 == 0 ? load_first(type, at) : load_second(type, at);
      };
      // The compiler must not keep earlier loads in registers, since none are left.
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
  void (*multiply)(Type, const typename Type::Raw*, int64_t, const float*, int64_t, bool,
                   StreamsAhead<typename Type::Raw>, float*);
};
// The tile for a group of so many rows of x.
template <class Type>
Tile<Type> tile_of(int64_t group) {
  switch (group) {
    case 2: return {4, multiply_tile<Type, 4, 2>};
    case 3: return {3, multiply_tile<Type, 3, 3>};
    case 4: return {3, multiply_tile<Type, 3, 4>};
    case 5: return {2, multiply_tile<Type, 2, 5>};
    default: return {2, multiply_tile<Type, 2, 6>};
  }
}

// The number of streams for so many rows of x. More streams read x from the second-level cache less often; fewer read
// the memory faster. Groups of up to eight rows have one kind of tile; with more rows there may be two kinds.
template <class Type>
int64_t tile_streams(int64_t x_rows) {
  constexpr int64_t kMostOfOneTile = 4, kMostOfTwoTiles = 8;
  const int64_t of_tile = tile_of<Type>(TileGroups(x_rows).size(0)).rows;
  return x_rows <= kMostOfOneTile ? of_tile : x_rows <= kMostOfTwoTiles ? 2 * of_tile : kMostTileStreams;
}

// Weights in `streams` streams of `rows` rows each, of which the first `present` exist. Row r of stream s is row s *
// rows + r of w.
template <class Type>
struct TileWeights {
  const typename Type::Raw* w;
  int64_t row_stride, rows, streams, present, columns;
};

// The sums of row r of each stream: sums[group][stream][row of the group][lane].
template <class Type>
void multiply_row_of_streams(Type type, const TileWeights<Type>& weights, int64_t r, const TileGroups& groups,
                             const float* x, int64_t x_stride, float* sums) {
  using Raw = typename Type::Raw;
  const int64_t apart = weights.rows * weights.row_stride, columns = weights.columns;
  const Raw* const row = weights.w + r * weights.row_stride;
  int64_t begin = 0;
  do {
    int64_t n = std::min(kTileColumns, (columns - begin) / kColumnUnit * kColumnUnit), stride = apart;
    const Raw* at = row + begin;
    Raw last[kMostTileStreams][kColumnUnit];
    if (columns - begin < kColumnUnit || weights.present < weights.streams) {
      // Too few columns or rows for the tiles: copied and filled up with zeros.
      n = columns > begin ? kColumnUnit : 0;
      std::memset(last, 0, sizeof(last));
      for (int64_t s = 0; s < weights.present; ++s) {
        std::memcpy(last[s], at + s * apart, static_cast<size_t>(std::min(columns - begin, n)) * sizeof(Raw));
      }
      at = last[0];
      stride = kColumnUnit;
    }
    // The same columns of the next stretch, which may be in the next row.
    const int64_t gap = begin + kTileColumns < columns ? 0 : weights.row_stride - columns;
    const Raw* const ahead = row + begin + kTileColumns + gap;
    int64_t fetched = 0;
    for (int64_t group = 0; group < groups.count; ++group) {
      const int64_t m = groups.begin(group), group_rows = groups.size(group);
      const Tile<Type> tile = tile_of<Type>(group_rows);
      for (int64_t s = 0; s < weights.streams; s += tile.rows) {
        // Prefetches streams in proportion to the work that is done with this tile.
        const int64_t work = group * weights.streams + s + tile.rows;
        const int64_t fetch = std::min(work / groups.count - fetched, tile.rows);
        tile.multiply(type, at + s * stride, stride, x + m * x_stride + begin * group_rows, n, begin == 0,
                      {ahead + fetched * apart, fetch, apart}, sums + (m * weights.streams + s * group_rows) * kLanes);
        fetched += fetch;
      }
    }
    begin += n;
  } while (begin < columns);
}

// out[m * out_stride + row of w] = that row times row m of x.
template <class Type>
void multiply_streams_by_tiles(Type type, const TileWeights<Type>& weights, const float* x, int64_t x_stride,
                               int64_t x_rows, float* out, int64_t out_stride) {
  constexpr int64_t kRowsSummed = 4;  // of a stream, by sum_four()
  const TileGroups groups(x_rows);
  const int64_t of_row = weights.streams * x_rows * kLanes;
  float* const sums = scratch<float>(Scratch::Row2, static_cast<size_t>(kRowsSummed * of_row));
  for (int64_t k = 0; k < std::min(kTileColumns, weights.columns); k += kColumnUnit) {
    for (int64_t s = 0; s < weights.present; ++s) {
      __builtin_prefetch(weights.w + s * weights.rows * weights.row_stride + k, 0, 2);
    }
  }
  for (int64_t r = 0; r < weights.rows; r += kRowsSummed) {
    const int64_t count = std::min(weights.rows - r, kRowsSummed);
    for (int64_t i = 0; i < count; ++i) {
      multiply_row_of_streams(type, weights, r + i, groups, x, x_stride, sums + i * of_row);
    }
    for (int64_t group = 0; group < groups.count; ++group) {
      const int64_t first = groups.begin(group), group_rows = groups.size(group);
      const float* at = sums + first * weights.streams * kLanes;
      for (int64_t s = 0; s < weights.present; ++s) {
        for (int64_t m = first; m < first + group_rows; ++m, at += kLanes) {
          FloatVec four[kRowsSummed];
          AA_UNROLL for (int64_t i = 0; i < kRowsSummed; ++i) {
            four[i] = hn::LoadU(kFloats, at + std::min(i, count - 1) * of_row);
          }
          float* const to = out + m * out_stride + s * weights.rows + r;
          if (count == kRowsSummed) {
            sum_four(four, to);
          } else {
            float results[kRowsSummed];
            sum_four(four, results);
            std::copy_n(results, count, to);
          }
        }
      }
    }
  }
}

// out[m * out_stride + r] = row r of w times row m of x, r < rows. There are at least two rows of x, packed by
// pack_row_of_group(), so that every group has at least two.
template <class Type>
void multiply_by_tiles(Type type, const typename Type::Raw* w, int64_t row_stride, int64_t rows, const float* x,
                       int64_t x_stride, int64_t x_rows, int64_t columns, float* out, int64_t out_stride) {
  const int64_t streams = tile_streams<Type>(x_rows), present = std::min(rows, streams);
  for (int64_t done = 0; done < rows;) {
    // An odd number, so that not all streams share few sets of the second-level cache.
    const int64_t left = rows - done, of_stream = left < streams ? 1 : (left / streams - 1) | 1;
    // The last step also takes as many rows as there are streams, so some rows may be computed twice.
    done = std::min(done, rows - present);
    multiply_streams_by_tiles<Type>(type, {w + done * row_stride, row_stride, of_stream, streams, present, columns}, x,
                                    x_stride, x_rows, out + done, out_stride);
    done += of_stream * present;
  }
}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
