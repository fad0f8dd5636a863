// The rows of weights of gemv.cpp as streams. Included by it, once per instruction set.
//
// Each thread takes a contiguous span of the weights' rows, cuts it into streams (eight; four for several rows of x and with
// AVX2, two to four on a Zen 5, two for few rows of x on a Granite Rapids, gemv_staggered-inl.h; three to twelve for tiles) and
// walks them side by side, so that several sequential reads are in flight. Lines are prefetched at two distances, into the
// first- and the second-level cache, since Intel's hardware prefetchers alone reach three quarters of the bandwidth;
// find_distances() has those of other processors. With four streams this reached 97 to 100% of the bandwidth of a loop that
// only read the same weights, in turns with it (two cores of a Sapphire Rapids virtual machine).
//
// A pass multiplies one row of weights of each stream with up to six rows of x (three without AVX-512). More rows of x take
// several passes over a stretch of the weights' columns, short enough to stay in the first-level cache; every pass prefetches a
// part of what lies further ahead, so that memory is never idle. On a Zen 5 three streams with more rows of x at once take the
// place of some of these (gemv_blocks-inl.h). The order in which a row of x is summed does not depend on the number of rows.
// With AVX2, which has half of the registers, two or more rows are multiplied in tiles instead (gemv_tiles-inl.h), in the same
// order.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "accelerators/cpu/kernels/gemv_blocks-inl.h"
#include "accelerators/cpu/kernels/gemv_products-inl.h"
#include "accelerators/cpu/kernels/gemv_staggered-inl.h"
#include "accelerators/cpu/kernels/gemv_tiles-inl.h"
#include "accelerators/cpu/kernels/matmul_finish-inl.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/kernels/vector-inl.h"
#include "base/simd/cpu_features.h"

#if defined(ANYACCEL_CPU_KERNELS_GEMV_STREAMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_GEMV_STREAMS_INL_H_
#undef ANYACCEL_CPU_KERNELS_GEMV_STREAMS_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_GEMV_STREAMS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

constexpr int kStreams = 4;
// For one row of x. In turns on two cores of a Sapphire Rapids virtual machine, 8 streams read 3 to 4% more than 4 and up
// to 3% more than 6; 12 and 16 read less. With AVX2, on two threads of a Zen 3, 4 read 5 to 7% more than 8.
constexpr int kStreamsOfOneRow = kLanes >= 16 ? 8 : 4;
// On a Zen 5, while up to so many rows of x stay in the first-level cache: loads of x that miss it wait behind the lines that
// come from memory. With 2,048 columns two streams read, in GB/s (four: in brackets), where a plain read had 51 and 82:
//   rows of x  1        2        3        4        5        6        7        8
//   slow       50 (51)  49 (47)  48 (46)  47 (44)  47 (46)  47 (44)  46 (39)  43 (40)
//   fast       77 (77)  76 (70)  68 (65)  69 (66)  68 (66)  63 (64)  59 (53)  53 (51)
// The last two took two passes of four streams. With 5,632 columns three rows or more read less with two streams.
constexpr int kStreamsOfNearRows = 2, kNearRows = 8;
constexpr int64_t kNearBytes = int64_t{32} << 10;
// Accumulators: kStreams * rows of x, out of 32 registers with AVX-512 and 16 otherwise.
constexpr int kRowsAtOnce = kLanes >= 16 ? 6 : 3;
// Most columns of w (k) for which sum_columns() sums columns instead of multiplying rows.
constexpr int64_t kMostSummed = 64;
// With AVX2, products are computed in tiles from this many rows of x on, unless w has so few columns that these may be
// summed: sum_columns() needs rows of x that are not packed.
constexpr int64_t kFewestTiledRows = 2;
constexpr bool by_tiles(int64_t rows, int64_t k) {
  return HWY_TARGET == HWY_AVX2 && rows >= kFewestTiledRows && k > kMostSummed;
}
// Elements of K that several passes take before the next ones: 8 KiB of 16-bit weights in all streams. The second: where
// the passes share the prefetches into the first-level cache, so that these begin soon enough.
constexpr int64_t kStretch = 1024, kStretchOfShares = 256;

// The best distances of 0.5 to 4 KiB on Emerald Rapids; 1 to 2 and 2 to 4 KiB were within 1%.
constexpr Distances kUsualDistances{1024, 3072};
// For a single pass of several rows of x by 16-bit weights on a Granite Rapids. In turns on two of its cores, two, three and
// four rows of 2,048 columns read 31.0, 31.5 and 31.2 GB/s with this and 31.1, 31.1 and 30.7 with the usual distances, and of
// 5,632 columns 33.8, 34.4 and 34.3 and 33.9, 33.4 and 32.3. Weights of fp32 read 0.97 of what they do with these.
constexpr Distances kDistancesOfRowsOnGraniteRapids{2048, 0};
// For one row of x by dot products of pairs on a Zen 4. On two of its cores, steps of a model of 2.1 GB read 33.8 GB/s
// with these, 31.4 with the above, and 33 with 256 or 384 and 1024 to 2048, in turns with a plain read of the weights at
// 34.2.
constexpr Distances kDistancesOfDots{512, 2048};
// For one row of x with AVX2: two threads of a Zen 3 read 29 GB/s with this and 4 streams, 28 with the usual distances, and
// 27 without prefetches; one thread alone read 23, 18.5 and 23.
constexpr Distances kDistancesOfAvx2{512, 0};
// On a Zen 5: for kStreamsOfNearRows streams (2,048 bytes read up to 0.08 less while the memory was fast, 4,096 up to 0.05 less
// while it was slow); for a single pass of four streams, where four rows read 41 and 55 GB/s with this and 38 and 50 with the
// usual distances.
constexpr Distances kDistancesOfNearRows{3072, 0}, kDistancesOfRowsOnZen5{1536, 0};
// For several passes on a Zen 5. Where a plain read had 73 to 82 GB/s, 7, 8 and 12 rows of x read 53, 50.5 and 43 with this and
// 49.5, 48 and 42 with 1,536 bytes; where it had 51, 40.8, 40.1 and 41.2 and 40.5, 40 and 40.9.
constexpr Distances kDistancesOfPassesOnZen5{1792, 0};

// The distances for `rows` rows of x and so many streams. only: one pass takes all rows.
template <class Type>
Distances find_distances(int64_t rows, int streams, bool only) {
  if (HWY_TARGET == HWY_AVX3 && cpu_features().zen5) {
    if (streams == kStreamsOfNearRows) return kDistancesOfNearRows;
    return only ? kDistancesOfRowsOnZen5 : kDistancesOfPassesOnZen5;
  }
  constexpr bool is_narrow = sizeof(typename Type::Raw) == 2;
  if (rows > 1) {
    return HWY_TARGET == HWY_AVX3 && cpu_features().granite_rapids && is_narrow && only
               ? kDistancesOfRowsOnGraniteRapids
               : kUsualDistances;
  }
  return std::is_same_v<Type, Bf16Dots> ? kDistancesOfDots : kLanes == 8 ? kDistancesOfAvx2 : kUsualDistances;
}

// ---- passes -------------------------------------------------------------------------------------------------------

// The passes over rows of x: as few as there can be, of nearly equal size.
struct Passes {
  int64_t rows, count;
  explicit Passes(int64_t m) : rows(m), count((m + kRowsAtOnce - 1) / kRowsAtOnce) {}
  int64_t begin(int64_t pass) const { return rows * pass / count; }
};

// A stretch of K in one pass.
struct Stretch {
  int64_t begin, end;
  bool near;                   // the weights come from memory or the second level cache
  int share_begin, share_end;  // the streams that this pass prefetches at the longer distance, or at the only one
  int64_t row, gap;            // elements of a row of weights that are read, and from its end to the next row
  Distances ahead;
};

// The distance in bytes from a block to what is read `bytes` later. It grows where the gap between two rows lies in
// between.
template <class Raw>
class Ahead {
 public:
  HWY_INLINE Ahead(int64_t bytes, const Stretch& stretch)
      : bytes_(bytes), row_(stretch.row), gap_(stretch.gap * static_cast<int64_t>(sizeof(Raw))) {
    if (gap_ == 0 || row_ == 0) return;  // an inner size of 0 reads nothing
    column_ = stretch.begin + bytes / static_cast<int64_t>(sizeof(Raw));
    bytes_ += column_ / row_ * gap_;
    column_ %= row_;
  }
  HWY_INLINE int64_t bytes() const { return bytes_; }
  HWY_INLINE void next_block() {
    column_ += kBlock;
    if (column_ < row_) return;
    column_ -= row_;
    bytes_ += gap_;
  }

 private:
  int64_t bytes_, row_, gap_, column_ = 0;
};

// The same for a stretch in the only pass, which prefetches all streams.
template <class Type, int kS, int kM>
HWY_INLINE void add_columns_of_only_pass(Type type, const typename Type::Raw* const (&w)[kS], const ElementOfX<Type>* x,
                                         int64_t x_stride, const Stretch& stretch, FloatVec (&acc)[kS * kM]) {
  const int64_t whole = stretch.end / kBlock * kBlock;
  const bool has_far = stretch.ahead.far != 0;
  // Distances that stay the same leave registers: on a Zen 5 whose memory read 76 to 82 GB/s, one row of x read 75 instead of 70,
  // four 65 instead of 62 and six 64 instead of 60.
  if (!has_far && stretch.gap == 0) {
    const int64_t ahead = stretch.ahead.near;
    for (int64_t k = stretch.begin; k < whole; k += kBlock) {
      AA_UNROLL for (int s = 0; s < kS; ++s) prefetch_near(w[s] + k, ahead);
      add_block_at<Type, kS, kM>(type, w, x, x_stride, k, acc);
    }
  } else {
    Ahead<typename Type::Raw> near(stretch.ahead.near, stretch), far(stretch.ahead.far, stretch);
    for (int64_t k = stretch.begin; k < whole; k += kBlock, near.next_block(), far.next_block()) {
      AA_UNROLL for (int s = 0; s < kS; ++s) {
        prefetch_near(w[s] + k, near.bytes());
        if (has_far) prefetch_far(w[s] + k, far.bytes());
      }
      add_block_at<Type, kS, kM>(type, w, x, x_stride, k, acc);
    }
  }
  add_tails<Type, kS, kM>(type, w, x, x_stride, stretch.end, acc);
}

// The same for one of several passes, which prefetches its share of the streams.
template <class Type, int kS, int kM>
HWY_INLINE void add_columns_of_pass(Type type, const typename Type::Raw* const (&w)[kS], const ElementOfX<Type>* x,
                                    int64_t x_stride, const Stretch& stretch, FloatVec (&acc)[kS * kM]) {
  using Raw = typename Type::Raw;
  const int64_t whole = stretch.end / kBlock * kBlock;
  if (stretch.ahead.far == 0) {
    // One or two streams, or none where there are more passes than streams. Where a row ends within the stretch, the distance
    // stays that of its beginning.
    const int64_t ahead = Ahead<Raw>(stretch.ahead.near, stretch).bytes();
    const int count = stretch.share_end - stretch.share_begin;
    const Raw* first = w[std::min(stretch.share_begin, kS - 1)];
    const Raw* second = w[std::min(stretch.share_begin + 1, kS - 1)];
    for (int64_t k = stretch.begin; k < whole; k += kBlock) {
      if (count > 0) prefetch_near(first + k, ahead);
      if (count > 1) prefetch_near(second + k, ahead);
      add_block_at<Type, kS, kM>(type, w, x, x_stride, k, acc);
    }
  } else {
    Ahead<Raw> near(stretch.ahead.near, stretch), far(stretch.ahead.far, stretch);
    for (int64_t k = stretch.begin; k < whole; k += kBlock, near.next_block(), far.next_block()) {
      if (stretch.near) {
        AA_UNROLL for (int s = 0; s < kS; ++s) prefetch_near(w[s] + k, near.bytes());
      }
      for (int s = stretch.share_begin; s < stretch.share_end; ++s) prefetch_far(w[s] + k, far.bytes());
      add_block_at<Type, kS, kM>(type, w, x, x_stride, k, acc);
    }
  }
  add_tails<Type, kS, kM>(type, w, x, x_stride, stretch.end, acc);
}

// The same for one of several passes: sums[s * kM + m], continued unless the stretch is the first. After the last stretch
// they go to `results` instead.
template <class Type, int kS, int kM>
HWY_NOINLINE void add_stretch(Type type, const typename Type::Raw* const* w, const ElementOfX<Type>* x,
                              int64_t x_stride, const Stretch& stretch, float* sums, float* results) {
  FloatVec acc[kS * kM];
  if (stretch.begin == 0) {
    AA_UNROLL for (int i = 0; i < kS * kM; ++i) acc[i] = hn::Zero(kFloats);
  } else {
    AA_UNROLL for (int i = 0; i < kS * kM; ++i) acc[i] = hn::LoadU(kFloats, sums + i * kLanes);
  }
  const typename Type::Raw* rows[kS];
  AA_UNROLL for (int s = 0; s < kS; ++s) rows[s] = w[s];
  add_columns_of_pass<Type, kS, kM>(type, rows, x, x_stride, stretch, acc);
  if (stretch.end == stretch.row) return sum_accumulators(acc, results, kCollected);
  AA_UNROLL for (int i = 0; i < kS * kM; ++i) hn::StoreU(acc[i], kFloats, sums + i * kLanes);
}

// out[m * out_stride + s * rows + r] = row (s * rows + r) of w times row m of x, for r < rows, s < kS, m < kM.
//
// The rows of the streams are a loop of this function, because nothing is read in between two calls: on a Zen 5, one row of
// x read 48.0 GB/s with a call for each row of weights and 49.7 without, three rows 40.8 and 45.4.
template <class Type, int kS, int kM>
HWY_NOINLINE void multiply_in_one_pass(Type type, const typename Type::Raw* w, int64_t row_stride, int64_t rows,
                                       const Activations<ElementOfX<Type>>& x, Distances ahead, float* out,
                                       int64_t out_stride) {
  const Stretch stretch{0, x.k, true, 0, 0, x.k, row_stride - x.k, ahead};
  alignas(64) float results[kS * kM * kCollected];
  for (int64_t r = 0; r < rows; ++r) {
    const typename Type::Raw* of_row[kS];
    find_rows(w, row_stride, rows, r, of_row);
    FloatVec acc[kS * kM];
    AA_UNROLL for (int i = 0; i < kS * kM; ++i) acc[i] = hn::Zero(kFloats);
    add_columns_of_only_pass<Type, kS, kM>(type, of_row, x.data, x.stride, stretch, acc);
    if constexpr (kM == 1) {
      sum_accumulators(acc, out + r, rows);
      continue;
    }
    sum_accumulators(acc, results + r % kCollected, kCollected);
    if (r % kCollected == kCollected - 1 || r == rows - 1) {
      const int64_t first = r / kCollected * kCollected;
      write_results(results, kS, kM, r + 1 - first, rows, out + first, out_stride);
    }
  }
}

template <class Type>
using MultiplyInOnePass = void (*)(Type, const typename Type::Raw*, int64_t, int64_t,
                                   const Activations<ElementOfX<Type>>&, Distances, float*, int64_t);
// Most rows of x in the only pass over so many streams.
constexpr int most_rows_of_pass(int streams) {
  return streams == kStreams ? kRowsAtOnce : streams == kStreamsOfNearRows ? kNearRows : 1;
}
// multiply_in_one_pass for kS streams and `rows` rows of x.
template <class Type, int kS, int kM = most_rows_of_pass(kS)>
MultiplyInOnePass<Type> find_one_pass(int64_t rows) {
  if constexpr (kM > 1) {
    if (rows < kM) return find_one_pass<Type, kS, kM - 1>(rows);
  }
  return multiply_in_one_pass<Type, kS, kM>;
}

template <class Type>
using AddStretch = void (*)(Type, const typename Type::Raw* const*, const ElementOfX<Type>*, int64_t, const Stretch&,
                            float*, float*);
// add_stretch for kStreams streams and `rows` rows of x, which are at least half of kRowsAtOnce.
template <class Type, int kM = kRowsAtOnce>
AddStretch<Type> find_add_stretch(int64_t rows) {
  if constexpr (kM > (kRowsAtOnce + 1) / 2) {
    if (rows < kM) return find_add_stretch<Type, kM - 1>(rows);
  }
  return add_stretch<Type, kStreams, kM>;
}

// As multiply_in_one_pass(), for any number of rows of x and kStreams streams.
template <class Type>
void multiply_in_passes(Type type, const typename Type::Raw* w, int64_t row_stride, int64_t rows,
                        const Activations<ElementOfX<Type>>& x, Distances ahead, float* out, int64_t out_stride) {
  constexpr int kS = kStreams;
  const Passes passes(x.rows);
  const int64_t width = ahead.far == 0 ? kStretchOfShares : kStretch;
  auto* sums = scratch<float>(Scratch::Row2, static_cast<size_t>(kS * x.rows * (kLanes + kCollected)));
  float* const results = sums + kS * x.rows * kLanes;
  for (int64_t r = 0; r < rows; ++r) {
    const typename Type::Raw* p[kS];
    find_rows(w, row_stride, rows, r, p);
    Stretch stretch{0, 0, false, 0, 0, x.k, row_stride - x.k, ahead};
    do {
      stretch.begin = stretch.end;
      stretch.end = std::min(stretch.begin + width, x.k);
      for (int64_t pass = 0; pass < passes.count; ++pass) {
        const int64_t first = passes.begin(pass), count = passes.begin(pass + 1) - first;
        stretch.near = pass == 0;
        stretch.share_begin = static_cast<int>(kS * pass / passes.count);
        stretch.share_end = static_cast<int>(kS * (pass + 1) / passes.count);
        find_add_stretch<Type>(count)(type, p, x.data + first * x.stride, x.stride, stretch, sums + first * kS * kLanes,
                                      results + first * kS * kCollected + r % kCollected);
      }
    } while (stretch.end < x.k);
    if (r % kCollected != kCollected - 1 && r != rows - 1) continue;
    const int64_t row = r / kCollected * kCollected;
    for (int64_t pass = 0; pass < passes.count; ++pass) {
      const int64_t first = passes.begin(pass), count = passes.begin(pass + 1) - first;
      write_results(results + first * kS * kCollected, kS, count, r + 1 - row, rows, out + first * out_stride + row,
                    out_stride);
    }
  }
}

// Whether multiply_in_blocks() takes so many rows of x of k elements.
template <class Type>
bool takes_blocks(int64_t rows, int64_t k) {
  return HWY_TARGET == HWY_AVX3 && std::is_same_v<Type, Bf16Dots> && cpu_features().zen5 && rows > 2 * kRowsAtOnce &&
         k > 0;
}

// The number of streams for so many rows of x of k elements.
template <class Type>
int choose_streams(int64_t rows, int64_t k) {
  if (HWY_TARGET == HWY_AVX3 && cpu_features().zen5) {
    const auto bytes = rows * k * static_cast<int64_t>(sizeof(ElementOfX<Type>));
    if (rows <= kNearRows && bytes <= kNearBytes) return kStreamsOfNearRows;
    return takes_blocks<Type>(rows, k) ? kStreamsOfManyRows : kStreams;
  }
  return rows == 1 ? kStreamsOfOneRow : kStreams;
}

// As multiply_in_one_pass(), for any number of rows of x if kS is kStreams, for more than kManyRowsAtOnce if it is
// kStreamsOfManyRows, for up to most_rows_of_pass() otherwise.
template <class Type, int kS>
void multiply_streams(Type type, const typename Type::Raw* w, int64_t row_stride, int64_t rows,
                      const Activations<ElementOfX<Type>>& x, float* out, int64_t out_stride) {
  // With AVX2 more rows than one pass takes do not come here together.
  const bool only = HWY_TARGET == HWY_AVX2 || x.rows <= most_rows_of_pass(kS);
  const Distances ahead = find_distances<Type>(x.rows, kS, only);
  prefetch_starts<kS>(w, rows * row_stride * static_cast<int64_t>(sizeof(*w)), ahead);
  if constexpr (kS == kStreamsOfManyRows) {
#if HWY_TARGET == HWY_AVX3
    multiply_in_blocks(w, row_stride, rows, x, out, out_stride);
#endif
  } else {
    if constexpr (kS == kStreams && HWY_TARGET != HWY_AVX2) {
      if (!only) return multiply_in_passes(type, w, row_stride, rows, x, ahead, out, out_stride);
    }
    find_one_pass<Type, kS>(x.rows)(type, w, row_stride, rows, x, ahead, out, out_stride);
  }
}

// multiply_streams<Type, kS> for choose_streams().
template <class Type>
auto find_multiply_streams(int64_t streams) {
  if constexpr (HWY_TARGET == HWY_AVX3) {
    if (streams == kStreamsOfNearRows) return multiply_streams<Type, kStreamsOfNearRows>;
    if constexpr (std::is_same_v<Type, Bf16Dots>) {
      if (streams == kStreamsOfManyRows) return multiply_streams<Type, kStreamsOfManyRows>;
    }
  }
  return streams == kStreams ? multiply_streams<Type, kStreams> : multiply_streams<Type, kStreamsOfOneRow>;
}

// out[m * out_stride + r] = row r of w times row m of x, r < rows. Elements of a row of w must be adjacent.
template <class Type>
void multiply_rows(Type type, const typename Type::Raw* w, int64_t row_stride, int64_t rows,
                   const Activations<ElementOfX<Type>>& x, float* out, int64_t out_stride) {
#if HWY_TARGET == HWY_AVX2
  if (by_tiles(x.rows, x.k)) {
    return multiply_by_tiles(type, w, row_stride, rows, x.data, x.stride, x.rows, x.k, out, out_stride);
  }
  // Otherwise there are few columns, so that the weights of one pass are still near in the next one.
  if (x.rows > kRowsAtOnce) {
    for (int64_t m = 0; m < x.rows; m += kRowsAtOnce) {
      const int64_t count = std::min<int64_t>(x.rows - m, kRowsAtOnce);
      multiply_rows(type, w, row_stride, rows, {x.data + m * x.stride, x.stride, x.k, count}, out + m * out_stride,
                    out_stride);
    }
    return;
  }
#endif
  int64_t done = 0;
  // An odd number: streams whose distance is a multiple of a large power of two, as that of many rows of a power of two
  // of bytes is, share few sets of the second level cache. 31 rows of x took 1.6 times as long with such a distance.
  const auto rows_of_stream = [&](int64_t streams) { return ((rows - done) / streams - 1) | 1; };
#if HWY_TARGET == HWY_AVX3
  if (const int at_once = staggered_rows<typename Type::Raw>(x.rows, x.k, row_stride); at_once > 0) {
    const auto multiply = at_once == 2 ? multiply_staggered<Type, 2> : multiply_staggered<Type, 4>;
    while (rows - done >= kStaggered) {
      const int64_t per_stream = rows_of_stream(kStaggered);
      const auto* const from = w + done * row_stride;
      prefetch_starts<kStaggered>(from, per_stream * x.k * static_cast<int64_t>(sizeof(*w)), kDistancesOfStaggered);
      multiply(type, from, per_stream, x, out + done, out_stride);
      done += per_stream * kStaggered;
    }
  }
#endif
  const int64_t streams = choose_streams<Type>(x.rows, x.k);
  const auto multiply = find_multiply_streams<Type>(streams);
  while (rows - done >= streams) {
    const int64_t per_stream = rows_of_stream(streams);
    multiply(type, w + done * row_stride, row_stride, per_stream, x, out + done, out_stride);
    done += per_stream * streams;
  }
  // Fewer rows than streams are not worth kernels of their own for several rows of x.
  for (int64_t m = 0; m < x.rows; ++m) {
    const Activations<ElementOfX<Type>> one{x.data + m * x.stride, x.stride, x.k, 1};
    for (int64_t r = done; r < rows; ++r) {
      multiply_streams<Type, 1>(type, w + r * row_stride, row_stride, 1, one, out + m * out_stride + r, out_stride);
    }
  }
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
