// One to four rows of x and weights of 16 bits on a Granite Rapids, for gemv_streams-inl.h: two streams of weights, of which the
// second begins its rows later than the first. Included by it, once per instruction set.
//
// What lets this processor read fast, in loops that multiply one row of x by rows of 2,048 bf16 weights (two cores of a virtual
// machine, GB/s, medians of 15 turns in one window):
// - Few streams, prefetched into the first-level cache: two had 41 to 42, three 38 to 40, four 38 to 39.
// - Streams that do not enter pages together. The hardware prefetchers work within a page, and would probably begin anew for
//   both at once. Rows of 2,048 bf16 weights are whole pages. A second stream that is a quarter or three quarters of a page
//   behind had 41 to 42, one at the same place 39, one that is half a page behind 38; prefetches are half a page ahead.
// - No sums that wait for what was read last: a loop of four streams that only reads had 43 where it stored its vectors at the
//   end of each row, and 40 where it added up their lanes there. So these are added up for four rows at once.
//
// Each row of weights is still summed from its first column to its last, so results are those of the other loops.
#include <algorithm>
#include <cstdint>

#include "accelerators/cpu/kernels/gemv_products-inl.h"
#include "accelerators/cpu/kernels/matmul_finish-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"
#include "base/simd/cpu_features.h"

#if defined(ANYACCEL_CPU_KERNELS_GEMV_STAGGERED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_GEMV_STAGGERED_INL_H_
#undef ANYACCEL_CPU_KERNELS_GEMV_STAGGERED_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_GEMV_STAGGERED_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

constexpr int kStaggered = 2;  // streams
// 1,024 to 2,048 bytes ahead read as much, 2,560 and 3,072 less.
constexpr Distances kDistancesOfStaggered{2048, 0};

// The rows of x that are multiplied at once, at least as many as there are: others follow in memory, zeros whose results are
// dropped. 0: rows of x are not multiplied this way. Rows of weights begin row_stride elements apart.
//
// A loop reads more where it also loads some 16 to 32 KiB of x again and again, up to 48 GB/s instead of 44 in a loop that only
// reads; why is not known. The same loads from one line of x, other instructions and less or more of x do not help. GB/s with
// two threads, one row of x (two rows differ by 1.2 at most), and four rows, which may also go through four streams:
//   columns                     896   1,024  1,536  2,048  2,560  3,072  4,096  5,632  8,192
//   one row at once             39.9  39.2   40.0   37.1   37.0   36.1   34.8   40.1   39.9
//   two rows                    41.2  40.6   38.2   34.7   41.4   41.8   39.8   41.1   40.9
//   four rows                   36.9  34.3   39.9   39.4   37.8   38.3   37.5   34.6   37.3
//   four rows of x              38.6  36.5   37.3   38.7   35.9   36.5   36.7   34.6   36.6
//   the same, four streams      41.9  34.6   45.1   36.1   44.2   36.3   36.3   41.6   37.0
// (bf16 weights; medians in windows in which the best loop that only reads, without loads of x, had 41 to 45. The last two lines are
// of four rows of x, the others of one.) fp16 weights, three rows of x and other Intel processors with AVX-512 were not measured
// with this; fp32 weights read 0.8 of what they do with the other loops.
template <class Raw>
int staggered_rows(int64_t rows, int64_t k, int64_t row_stride) {
  constexpr int64_t kPageColumns = 4096 / static_cast<int64_t>(sizeof(Raw));
  if (sizeof(Raw) != 2 || !cpu_features().granite_rapids || rows < 1 || row_stride != k || k == 0 || k % kBlock != 0)
    return 0;
  if (rows > 2) return rows <= 4 && k == kPageColumns ? 4 : 0;
  return k >= kPageColumns * 3 / 4 && k <= kPageColumns ? 4 : 2;
}

// How many bytes later the second stream should begin its rows, if it lies `distance` bytes after the first: so many that what
// both read is about a quarter of a page apart, or three quarters.
inline int64_t find_lag(int64_t distance) {
  constexpr int64_t kHalf = 2048, kQuarter = 1024, kNear = kQuarter / 2;
  const int64_t apart = distance % kHalf;
  if (apart >= kQuarter - kNear && apart <= kQuarter + kNear) return 0;
  return (distance + kQuarter) % kHalf;
}

// Results of one stream. The lanes of the sums of kGroup rows of weights are added up at once, with one row of x at a time between
// two blocks of columns, so that memory is read meanwhile.
template <int kM>
class StreamResults {
 public:
  StreamResults(int64_t x_rows, float* out, int64_t out_stride) : x_rows_(x_rows), out_(out), out_stride_(out_stride) {}
  // The stream's next row of weights has ended.
  HWY_INLINE void end_row(FloatVec (&sums)[kM]) {
    AA_UNROLL for (int m = 0; m < kM; ++m) {
      hn::StoreU(sums[m], kFloats, sums_[row_ / kGroup % 2][m][row_ % kGroup]);
      sums[m] = hn::Zero(kFloats);
    }
    if (++row_ % kGroup == 0) pending_ = x_rows_;
  }
  // Writes results of one row of x, if any are due.
  HWY_INLINE void write_some() {
    if (HWY_LIKELY(pending_ == 0)) return;
    --pending_;
    const int64_t group = row_ / kGroup - 1;
    write(group, pending_, kGroup);
  }
  // Writes what is left.
  void finish() {
    while (pending_ > 0) write_some();
    for (int64_t m = 0; m < x_rows_ && row_ % kGroup > 0; ++m) write(row_ / kGroup, m, row_ % kGroup);
  }

 private:
  static constexpr int kGroup = 4;
  HWY_INLINE void write(int64_t group, int64_t m, int64_t count) {
    FloatVec of_rows[kGroup];
    float results[kGroup];
    AA_UNROLL for (int i = 0; i < kGroup; ++i) of_rows[i] = hn::LoadU(kFloats, sums_[group % 2][m][i]);
    sum_four(of_rows, results);
    float* const to = out_ + m * out_stride_ + group * kGroup;
    if (count == kGroup) {
      std::memcpy(to, results, sizeof(results));
    } else {
      std::copy_n(results, count, to);
    }
  }
  float sums_[2][kM][kGroup][kLanes] = {};  // of the group in work and of the one before
  int64_t x_rows_, row_ = 0, pending_ = 0;
  float* out_;
  int64_t out_stride_;
};

// out[m * out_stride + s * rows + r] = row (s * rows + r) of w times row m of x, for r < rows, s < kStaggered, m < x.rows. Rows of
// x.k weights follow each other without gaps; x.k is a multiple of kBlock. x has kM rows in memory.
template <class Type, int kM>
HWY_NOINLINE void multiply_staggered(Type type, const typename Type::Raw* w, int64_t rows,
                                     const Activations<ElementOfX<Type>>& x, float* out, int64_t out_stride) {
  using Raw = typename Type::Raw;
  constexpr int64_t kSize = sizeof(Raw);
  const int64_t k = x.k, x_stride = x.stride;
  const int64_t wanted = find_lag(rows * k * kSize) / kSize / kBlock * kBlock;
  const int64_t lag = wanted < k ? wanted : 0;  // in columns
  StreamResults<kM> of_first(x.rows, out, out_stride), of_second(x.rows, out + rows, out_stride);
  FloatVec first[kM], second[kM];
  AA_UNROLL for (int m = 0; m < kM; ++m) first[m] = second[m] = hn::Zero(kFloats);
  // Columns are those of the first stream; the second one is `lag` behind. What it reads before its first row, the end of the
  // row before, is dropped.
  const Raw *first_row = w, *second_row = w + rows * k - lag;
  for (int64_t r = 0; r < rows; ++r, first_row += k, second_row += k) {
    int64_t behind = lag - k;  // columns of x
    for (int64_t c = 0; c < k; c += kBlock) {
      if (c == lag) {
        if (r > 0) {
          of_second.end_row(second);
        } else {
          AA_UNROLL for (int m = 0; m < kM; ++m) second[m] = hn::Zero(kFloats);
        }
        behind = lag;
      }
      const Raw *const at_first[1] = {first_row + c}, *const at_second[1] = {second_row + c};
      prefetch_near(at_first[0], kDistancesOfStaggered.near);
      prefetch_near(at_second[0], kDistancesOfStaggered.near);
      add_block<Type, 1, kM>(type, at_first, x.data + c, x_stride, first);
      add_block<Type, 1, kM>(type, at_second, x.data + (c - behind), x_stride, second);
      of_first.write_some();
      of_second.write_some();
    }
    of_first.end_row(first);
  }
  for (int64_t c = k - lag; c < k; c += kBlock) {
    const Raw* const at[1] = {second_row - k + lag + c};
    add_block<Type, 1, kM>(type, at, x.data + c, x_stride, second);
  }
  of_second.end_row(second);
  of_first.finish();
  of_second.finish();
}
#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
