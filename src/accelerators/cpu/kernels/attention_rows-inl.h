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

// Slots of a block.
constexpr int64_t kSlots = 128;
// Parts of a tile that are walked side by side, for the processor's own prefetchers: on two cores of a Zen 4, 4 read a bf16 cache a
// tenth faster than 8. attention_plan.cpp cuts tiles to fit them.
constexpr int64_t kStreams = 4;
// Bytes ahead of the loads, for the first and the second level cache, as in gemv.cpp.
constexpr int64_t kNearPrefetch = 1024, kFarPrefetch = 3072;
constexpr int64_t kPair = 2 * kLanes;
// Query heads that share a widened key or value, as many as leave registers for both.
constexpr int kMostRows = kLanes / 2;

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

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
