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

// The most slots of a block.
constexpr int64_t kSlots = 512;
constexpr int64_t kScoreStride = kSlots + kLanes;  // floats from one row of scores to the next, no power of two
// Parts of a tile that are walked side by side, for the hardware prefetchers: on two cores of a Zen 4, 4 read a bf16
// cache a tenth faster than 8.
constexpr int64_t kStreams = 4;
// Fewest slots of a tile that is walked in streams.
constexpr int64_t kFewestStreamed = 128;

// Prefetch distances in bytes for the first- and the second-level cache, 0 for none, whether a block's values are prefetched
// into the second-level cache while its keys are read, and the next block's keys while the values are, and the slots of a
// block.
struct Fetching {
  int64_t near, far;
  bool in_turns;
  int64_t block;
};
constexpr Fetching kUsualFetching{1024, 3072, false, 256};  // as in gemv_streams-inl.h
// On two cores of a Zen 5 a cache of bytes is read as fast as from the caches in turns: int8 at 33 GB/s instead of 27, fp8 at
// 29 instead of 26. With bf16 that made no difference or was slower.
constexpr Fetching kFetchingOfBytesOnZen5{1024, 3072, true, 256};
// With bf16 on a Zen 5 whose memory read 69 GB/s, eight queries of 64 elements read 57 GB/s with this and 52 with the usual
// distances; where it read 48 they were equal.
constexpr Fetching kFetchingOnZen5{2048, 0, false, kSlots};
inline Fetching find_fetching(const aa_tensor& keys) {
  if (!cpu_features().zen5) return kUsualFetching;
  return dtype_size(static_cast<DType>(keys.dtype)) == 1 ? kFetchingOfBytesOnZen5 : kFetchingOnZen5;
}

// Rounds up to an odd number of slots for each stream (see BlockWalk), or to whole blocks of the matrix unit.
inline int64_t part_of_slots(int64_t slots) {
  constexpr int64_t kUnitBlock = 64;
  if (isa() == Isa::Amx) return (slots + kUnitBlock - 1) / kUnitBlock * kUnitBlock;
  return ((slots + kStreams - 1) / kStreams | 1) * kStreams;
}

// Rows of keys or values of a block. Slot j of the block is row j / kStreams of stream j % kStreams. Strides and the
// prefetch distances of the first- and the second-level cache are in bytes; far may be 0.
struct BlockRows {
  const char* first;
  int64_t stride, stream_stride;
  int64_t slots;
  int64_t near, far;
  // The first slot whose prefetch into the first-level cache goes to the thread's next tile, and the distance to that.
  int64_t turn, near_after_turn;

  HWY_INLINE const char* row(int64_t j) const { return first + j % kStreams * stream_stride + j / kStreams * stride; }
  // At most `count` slots from slot j on, a multiple of kStreams.
  HWY_INLINE BlockRows part(int64_t j, int64_t count) const {
    return {row(j), stride, stream_stride, std::min(count, slots - j), near, far, turn - j, near_after_turn};
  }
  HWY_INLINE int64_t near_of(int64_t j) const { return j < turn ? near : near_after_turn; }

  // The levels of caches that rows are prefetched into.
  HWY_INLINE int levels() const { return far != 0 ? 2 : 1; }
  // Prefetches what is read later in the place of `at`, an address in the row of slot j.
  HWY_INLINE void prefetch(int64_t j, const char* at) const {
    if (levels() == 2) return prefetch<2>(j, at);
    prefetch<1>(j, at);
  }
  template <int kLevels>
  HWY_INLINE void prefetch(int64_t j, const char* at) const {
    if (kLevels > 0) __builtin_prefetch(at + near_of(j), 0, 3);
    if (kLevels > 1) __builtin_prefetch(at + far, 0, 2);
  }
};

// Prefetches what is read later in the place of elements d to d + kPair of `row`, that of slot j.
template <class Type>
HWY_INLINE void prefetch_values(const BlockRows& rows, int64_t j, const char* row, int64_t d) {
  const char* at = row + row_offset(Type(), d);
  rows.prefetch(j, at);
  if constexpr (std::is_same_v<Type, F32Type>) rows.prefetch(j, at + 64);
}

// Walks streams of equally many rows, then the remaining rows slot by slot. The number of rows is odd: rows are a power
// of two of bytes long, and otherwise the streams' lines would share few sets of the first-level cache. Slopes take the
// position of a slot in its block for its distance, so with slopes all rows are walked slot by slot.
//
// While the last rows of the streams are read, as many as the prefetches are ahead, the first rows of the thread's next tile
// are prefetched in the place of what follows them.
class BlockWalk {
 public:
  BlockWalk(const AttentionCall& call, const AttentionTile& tile, TileTaker* taker)
      : call_(call),
        tile_(tile),
        taker_(taker),
        fetching_(find_fetching(*call.k)),
        rows_(rows_of_stream(call, tile)),
        ahead_(std::min(rows_, rows_ahead(*call.k, fetching_.near))) {}

  // Prefetches the first rows of each stream, which no earlier row prefetches.
  void fetch_first(const aa_tensor& t) const {
    const BlockRows all = rows_of(t, tile_.begin, ahead_ * kStreams, rows_, 1);
    for (int64_t j = 0; j < all.slots; ++j) {
      for (int64_t at = 0; at < row_bytes(t); at += 64) __builtin_prefetch(all.row(j) + at, 0, 3);
    }
  }

  template <class Function>
  HWY_INLINE void for_each_block(Function function) const {
    const bool in_turns = fetching_.in_turns && call_.k->strides[2] == call_.v->strides[2];
    const int64_t block_rows = fetching_.block / kStreams;
    const int64_t turn = rows_ - ahead_;
    for (int64_t row = 0; row < rows_; row += block_rows) {
      const int64_t rows = std::min(block_rows, rows_ - row);
      BlockRows keys = rows_of(*call_.k, tile_.begin + row, rows * kStreams, rows_, 1);
      BlockRows values = rows_of(*call_.v, tile_.begin + row, rows * kStreams, rows_, 1);
      if (in_turns) {
        keys.far = values.first - keys.first;
        values.far = keys.first + rows * keys.stride - values.first;
      }
      if (turn < row + rows) turn_to_next(turn, row, keys, values);
      function(tile_.begin + row, keys, values);
    }
    for (int64_t first = tile_.begin + rows_ * kStreams; first < tile_.end; first += fetching_.block) {
      const int64_t slots = std::min(fetching_.block, tile_.end - first);
      function(first, rows_of(*call_.k, first, slots, 1, kStreams), rows_of(*call_.v, first, slots, 1, kStreams));
    }
  }

 private:
  static int64_t rows_of_stream(const AttentionCall& call, const AttentionTile& tile) {
    const int64_t slots = tile.end - tile.begin;
    return call.slopes->dtype == AA_DTYPE_NONE && slots >= kFewestStreamed ? (slots / kStreams - 1) / 2 * 2 + 1 : 0;
  }
  static int64_t item_size(const aa_tensor& t) { return static_cast<int64_t>(dtype_size(static_cast<DType>(t.dtype))); }
  static int64_t row_bytes(const aa_tensor& t) { return t.shape[3] * item_size(t); }
  static int64_t rows_ahead(const aa_tensor& t, int64_t bytes) { return (bytes + row_bytes(t) - 1) / row_bytes(t); }

  // Turns the prefetches from this row of the streams on, which is in the block or before it, to the thread's next tile. The
  // block begins with `first_row`.
  void turn_to_next(int64_t row, int64_t first_row, BlockRows& keys, BlockRows& values) const {
    const AttentionTile* next = taker_ ? taker_->claim() : nullptr;
    if (!next || rows_of_stream(call_, *next) != rows_) return;
    const auto turn = [&](const aa_tensor& t, BlockRows& rows) {
      const char* from = row_of_slot(t, tile_, tile_.begin + row);
      rows.turn = (row - first_row) * kStreams;
      rows.near_after_turn = row_of_slot(t, *next, next->begin) - from;
    };
    turn(*call_.k, keys);
    turn(*call_.v, values);
  }

  // `stream_step` and `step` are in slots.
  BlockRows rows_of(const aa_tensor& t, int64_t first, int64_t slots, int64_t stream_step, int64_t step) const {
    const int64_t stride = t.strides[2] * item_size(t);
    return {row_of_slot(t, tile_, first),
            step * stride,
            stream_step * stride,
            slots,
            rows_ahead(t, fetching_.near) * stride,
            rows_ahead(t, fetching_.far) * stride,
            slots,
            0};
  }

  const AttentionCall& call_;
  const AttentionTile& tile_;
  TileTaker* taker_;
  Fetching fetching_;
  int64_t rows_;   // of a stream
  int64_t ahead_;  // of these, the rows that are prefetched before they are reached
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
  HWY_INLINE void prefetch(int64_t j, const char* row, int64_t d) const {
    prefetch_values<Type>(values_, j, row, d);
  }

 private:
  const BlockRows& values_;
};

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
