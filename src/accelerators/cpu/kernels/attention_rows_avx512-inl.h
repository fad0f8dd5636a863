// What attention_rows-inl.h declares, for AVX-512: a tile is cut into parts that are walked side by side, so that
// several sequential streams are in flight, and lines are prefetched at two distances. Empty for other instruction
// sets.
#include <algorithm>
#include <type_traits>

#include "accelerators/cpu/kernels/attention_tile.h"
#include "accelerators/cpu/kernels/attention_values-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"
#include "base/simd/cpu_features.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_ROWS_AVX512_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_ROWS_AVX512_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_ROWS_AVX512_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_ROWS_AVX512_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

// Slots of a block.
constexpr int64_t kSlots = 128;
constexpr int64_t kScoreStride = kSlots;  // floats from one row of scores to the next
// Parts of a tile that are walked side by side, for the hardware prefetchers: on two cores of a Zen 4, 4 read a bf16
// cache a tenth faster than 8.
constexpr int64_t kStreams = 4;
// Prefetch distances in bytes for the first- and the second-level cache, as in gemv.cpp.
constexpr int64_t kNearPrefetch = 1024, kFarPrefetch = 3072;
// Whether a block's values are prefetched into the second-level cache while its keys are read, and the next block's keys
// while the values are. On two cores of a Zen 5 a cache of bytes is then read as fast as from the caches: int8 at 33 GB/s
// instead of 27, fp8 at 29 instead of 26. With bf16 it made no difference or was slower.
inline bool fetches_in_turns(const aa_tensor& keys) {
  return cpu_features().zen5 && dtype_size(static_cast<DType>(keys.dtype)) == 1;
}

// Rounds up to whole blocks less one row of each stream, since streams have an odd number of rows (see BlockWalk).
constexpr int64_t part_of_slots(int64_t slots) { return (slots + kStreams + kSlots - 1) / kSlots * kSlots - kStreams; }

// Rows of keys or values of a block. Slot j of the block is row j / kStreams of stream j % kStreams. Strides and the
// prefetch distances of the first- and the second-level cache are in bytes.
struct BlockRows {
  const char* first;
  int64_t stride, stream_stride;
  int64_t slots;
  int64_t near, far;

  HWY_INLINE const char* row(int64_t j) const { return first + j % kStreams * stream_stride + j / kStreams * stride; }

  // Prefetches the same place as `at`, an address in a row, in later rows of its stream.
  HWY_INLINE void prefetch(const char* at) const {
    __builtin_prefetch(at + near, 0, 3);
    __builtin_prefetch(at + far, 0, 2);
  }
};

// Prefetches elements d to d + kPair of later rows of the stream of `row`.
template <class Type>
HWY_INLINE void prefetch_values(const BlockRows& rows, const char* row, int64_t d) {
  const char* at = row + row_offset(Type(), d);
  rows.prefetch(at);
  if constexpr (std::is_same_v<Type, F32Type>) rows.prefetch(at + 64);
}

// Walks streams of equally many rows, then the remaining rows slot by slot. The number of rows is odd: rows are a power
// of two of bytes long, and otherwise the streams' lines would share few sets of the first-level cache. Slopes take the
// position of a slot in its block for its distance, so with slopes all rows are walked slot by slot.
class BlockWalk {
 public:
  BlockWalk(const AttentionCall& call, const AttentionTile& tile)
      : call_(call),
        tile_(tile),
        in_streams_(call.slopes->dtype == AA_DTYPE_NONE && tile.end - tile.begin >= kSlots),
        rows_(in_streams_ ? ((tile.end - tile.begin) / kStreams - 1) / 2 * 2 + 1 : 0) {}

  // Prefetches the first rows of each stream, which no earlier row prefetches.
  void fetch_first(const aa_tensor& t) const {
    if (!in_streams_) return;
    const BlockRows all = rows_of(t, tile_.begin, rows_ * kStreams, rows_, 1);
    const int64_t bytes = t.shape[3] * static_cast<int64_t>(dtype_size(static_cast<DType>(t.dtype)));
    for (int64_t j = 0; j < std::min(all.near / all.stride * kStreams, all.slots); ++j) {
      for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(all.row(j) + at, 0, 3);
    }
  }

  template <class Function>
  HWY_INLINE void for_each_block(Function function) const {
    const bool in_turns = fetches_in_turns(*call_.k) && call_.k->strides[2] == call_.v->strides[2];
    const auto call = [&](int64_t first, int64_t slots, int64_t stream_step, int64_t step) HWY_ATTR {
      BlockRows keys = rows_of(*call_.k, first, slots, stream_step, step);
      BlockRows values = rows_of(*call_.v, first, slots, stream_step, step);
      if (in_turns) {
        keys.far = values.first - keys.first;
        values.far = keys.first + kSlots / kStreams * keys.stride - values.first;
      }
      function(first, keys, values);
    };
    constexpr int64_t kBlockRows = kSlots / kStreams;
    for (int64_t row = 0; row < rows_; row += kBlockRows) {
      call(tile_.begin + row, std::min(kBlockRows, rows_ - row) * kStreams, rows_, 1);
    }
    for (int64_t first = tile_.begin + rows_ * kStreams; first < tile_.end; first += kSlots) {
      call(first, std::min(kSlots, tile_.end - first), 1, kStreams);
    }
  }

 private:
  // `stream_step` and `step` are in slots.
  BlockRows rows_of(const aa_tensor& t, int64_t first, int64_t slots, int64_t stream_step, int64_t step) const {
    const int64_t item = static_cast<int64_t>(dtype_size(static_cast<DType>(t.dtype)));
    const int64_t stride = t.strides[2] * item, row_bytes = t.shape[3] * item;
    return {row_of_slot(t, tile_, first),
            step * stride,
            stream_step * stride,
            slots,
            (kNearPrefetch + row_bytes - 1) / row_bytes * stride,
            (kFarPrefetch + row_bytes - 1) / row_bytes * stride};
  }

  const AttentionCall& call_;
  const AttentionTile& tile_;
  bool in_streams_;
  int64_t rows_;  // of a stream
};

class SlotWalk {
 public:
  SlotWalk(const BlockRows& values, int64_t /*row_bytes*/, int64_t /*walks*/) : values_(values) {}

  template <class Function>
  HWY_INLINE void for_each_row(Function function) const {
    const char* row = values_.first;
    for (int64_t j = 0; j < values_.slots; row += values_.stride) {
      const int64_t end = std::min(j + kStreams, values_.slots);
      for (const char* at = row; j < end; ++j, at += values_.stream_stride) function(j, at);
    }
  }
  template <class Type>
  HWY_INLINE void prefetch(const char* row, int64_t d) const {
    prefetch_values<Type>(values_, row, d);
  }

 private:
  const BlockRows& values_;
};

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
