// One row of x and weights of 16 bits on a Granite Rapids, for gemv_streams-inl.h: two streams of weights, of which the second
// begins its rows later than the first. Included by it, once per instruction set.
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

// Whether so many rows of x of k elements are multiplied this way by rows of weights that begin row_stride elements apart.
// Two to four rows of x read less with it, and fp32 weights 0.8 of what they do with the other loops. Other Intel processors with
// AVX-512 were not measured.
template <class Raw>
bool takes_staggered(int64_t rows, int64_t k, int64_t row_stride) {
  return sizeof(Raw) == 2 && cpu_features().granite_rapids && rows == 1 && row_stride == k && k > 0 && k % kBlock == 0;
}

// How many bytes later the second stream should begin its rows, if it lies `distance` bytes after the first: so many that what
// both read is about a quarter of a page apart, or three quarters.
inline int64_t find_lag(int64_t distance) {
  constexpr int64_t kHalf = 2048, kQuarter = 1024, kNear = kQuarter / 2;
  const int64_t apart = distance % kHalf;
  if (apart >= kQuarter - kNear && apart <= kQuarter + kNear) return 0;
  return (distance + kQuarter) % kHalf;
}

// The sum of columns [begin, end) of a row of w times x, after `sum`.
template <class Type>
HWY_NOINLINE FloatVec add_columns_of_one(Type type, const typename Type::Raw* w, const ElementOfX<Type>* x,
                                         int64_t begin, int64_t end, FloatVec sum) {
  FloatVec acc[1] = {sum};
  for (int64_t c = begin; c < end; c += kBlock) {
    const typename Type::Raw* const at[1] = {w + c};
    prefetch_near(at[0], kDistancesOfStaggered.near);
    add_block<Type, 1, 1>(type, at, x + c, 0, acc);
  }
  return acc[0];
}

// out[s * rows + r] = row (s * rows + r) of w times x, for r < rows, s < kStaggered. Rows of k weights follow each other without
// gaps; k is a multiple of kBlock.
template <class Type>
HWY_NOINLINE void multiply_staggered(Type type, const typename Type::Raw* w, int64_t rows, const ElementOfX<Type>* x,
                                     int64_t k, float* out) {
  using Raw = typename Type::Raw;
  constexpr int64_t kSize = sizeof(Raw);
  const int64_t wanted = find_lag(rows * k * kSize) / kSize / kBlock * kBlock;
  const int64_t lag = wanted < k ? wanted : 0;  // in columns
  FloatVec first[1] = {hn::Zero(kFloats)}, second[1] = {hn::Zero(kFloats)};
  // Columns are those of the first stream; the second one is `lag` behind.
  const Raw *of_first = w, *of_second = w + rows * k - lag;
  // behind: how many columns of x; negative where the second stream is in the row before.
  const auto add = [&](const Raw* from_first, const Raw* from_second, int64_t behind, int64_t begin, int64_t end)
                       HWY_ATTR {
                         for (int64_t c = begin; c < end; c += kBlock) {
                           const Raw *const at_first[1] = {from_first + c}, *const at_second[1] = {from_second + c};
                           prefetch_near(at_first[0], kDistancesOfStaggered.near);
                           prefetch_near(at_second[0], kDistancesOfStaggered.near);
                           add_block<Type, 1, 1>(type, at_first, x + c, 0, first);
                           add_block<Type, 1, 1>(type, at_second, x + (c - behind), 0, second);
                         }
                       };
  constexpr int64_t kGroup = 4;
  FloatVec ended[kStaggered][kGroup];
  for (auto& of_stream : ended) std::fill_n(of_stream, kGroup, hn::Zero(kFloats));

  first[0] = add_columns_of_one(type, of_first, x, 0, lag, first[0]);
  for (int64_t r = 0; r < rows; ++r, of_first += k, of_second += k) {
    add(of_first, of_second, lag, lag, k);
    ended[0][r % kGroup] = first[0];
    first[0] = hn::Zero(kFloats);
    if (r < rows - 1) {
      add(of_first + k, of_second + k, lag - k, 0, lag);
    } else {
      second[0] = add_columns_of_one(type, of_second + lag, x, k - lag, k, second[0]);
    }
    ended[1][r % kGroup] = second[0];
    second[0] = hn::Zero(kFloats);
    if (r % kGroup != kGroup - 1 && r != rows - 1) continue;
    const int64_t begin = r / kGroup * kGroup;
    AA_UNROLL for (int s = 0; s < kStaggered; ++s) {
      float sums[kGroup];
      sum_four(ended[s], sums);
      std::copy_n(sums, r + 1 - begin, out + s * rows + begin);
    }
  }
}
#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
