// The rows of keys or values that attention of one token reads together, and how far ahead of the loads they are prefetched.
// Included after base/simd/highway.h, once per instruction set.
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_ROWS_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_ROWS_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_ROWS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

constexpr int64_t kPair = 2 * kLanes;
// Query heads that share a widened key or value, as many as leave registers for both.
constexpr int kMostRows = kLanes / 2;

#if HWY_TARGET == HWY_AVX2
// Slots of a block: whole groups of kTwelveSlots and whole vectors. On a Zen 3, 48 were some 5% slower.
constexpr int64_t kSlots = 96;
// Floats from one row of scores to the next: store_twelve() needs some behind each.
constexpr int64_t kScoreStride = kSlots + kLanes;

// Rows of keys or values of a block, and those that are read after it. While scores are computed from keys, the values of the block are
// fetched, and while values are added up, the next keys. On a Zen 3 computing and reading overlap only so: with the processor's own
// prefetchers alone, or with fetches 1,024 and 3,072 bytes ahead, both together take nearly the sum of their times. The stride is in bytes.
struct BlockRows {
  const char* first;
  int64_t stride, slots;
  const char* next;  // as far apart
  int64_t next_slots;

  HWY_INLINE const char* row(int64_t j) const { return first + j * stride; }

  // Fetches what has the place of an address in a row, in the rows that are read next.
  HWY_INLINE void prefetch(const char* at) const { __builtin_prefetch(next + (at - first), 0, 2); }
};
#else
// Slots of a block.
constexpr int64_t kSlots = 128;
constexpr int64_t kScoreStride = kSlots;  // floats from one row of scores to the next
// Parts of a tile that are walked side by side, for the processor's own prefetchers: on two cores of a Zen 4, 4 read a bf16 cache a
// tenth faster than 8. attention_plan.cpp cuts tiles to fit them.
constexpr int64_t kStreams = 4;
// Bytes ahead of the loads, for the first and the second level cache, as in gemv.cpp.
constexpr int64_t kNearPrefetch = 1024, kFarPrefetch = 3072;

// Rows of keys or values of a block. Slot j of the block is row j / kStreams of stream j % kStreams. Strides, and the
// distances at which the first and the second level cache are filled, are in bytes.
struct BlockRows {
  const char* first;
  int64_t stride, stream_stride;
  int64_t slots;
  int64_t near, far;

  HWY_INLINE const char* row(int64_t j) const { return first + j % kStreams * stream_stride + j / kStreams * stride; }

  // Prefetches, for an address in a row, the same one in later rows of its stream.
  HWY_INLINE void prefetch(const char* at) const {
    __builtin_prefetch(at + near, 0, 3);
    __builtin_prefetch(at + far, 0, 2);
  }
};
#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
