// What attention_rows-inl.h declares, for AVX2: the keys of a block are read, then its values, then the keys of the
// next block. While one of these is computed with, the rows that follow are prefetched. Empty for other instruction
// sets.
#include <algorithm>

#include "accelerators/cpu/kernels/attention_tile.h"
#include "accelerators/cpu/kernels/attention_values-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_ROWS_AVX2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_ROWS_AVX2_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_ROWS_AVX2_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_ROWS_AVX2_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2

// Slots of a block: whole groups of kTwelveSlots and whole vectors. On a Zen 3, 48 were some 5% slower.
constexpr int64_t kSlots = 96;
// Floats from one row of scores to the next: store_twelve() writes behind the scores of a row.
constexpr int64_t kScoreStride = kSlots + kLanes;

constexpr int64_t part_of_slots(int64_t slots) { return (slots + kSlots - 1) / kSlots * kSlots; }

// Rows of keys or values of a block, and the rows that are read after it: the values of the block are prefetched while
// scores are computed from its keys, and the next keys while its values are summed. On a Zen 3, only this overlaps
// computing with reading. With the hardware prefetchers alone, or with prefetches 1,024 and 3,072 bytes ahead, the two
// together take nearly the sum of their times. The stride is in bytes.
struct BlockRows {
  const char* first;
  int64_t stride, slots;
  const char* next;  // the first of the rows that are read next, with the same stride
  int64_t next_slots;

  HWY_INLINE const char* row(int64_t j) const { return first + j * stride; }

  // Prefetches the place in the next rows that corresponds to `at`, an address in these rows.
  HWY_INLINE void prefetch(const char* at) const { __builtin_prefetch(next + (at - first), 0, 2); }
  // The same into the first-level cache, which has room for blocks of bytes.
  HWY_INLINE void prefetch_near(const char* at) const { __builtin_prefetch(next + (at - first), 0, 3); }
};

// Prefetches elements d to d + kPair of the row of values that belongs to a row of keys.
template <class Type>
HWY_INLINE void prefetch_values(const BlockRows& rows, int64_t /*j*/, const char* row, int64_t d) {
  rows.prefetch(row + row_offset(Type(), d));
}

class BlockWalk {
 public:
  BlockWalk(const AttentionCall& call, const AttentionTile& tile, TileTaker* /*taker*/) : call_(call), tile_(tile) {}

  void fetch_first(const aa_tensor& /*t*/) const {}

  template <class Function>
  HWY_INLINE void for_each_block(Function function) const {
    for (int64_t first = tile_.begin; first < tile_.end; first += kSlots) {
      const int64_t slots = std::min(kSlots, tile_.end - first);
      function(first, rows_of(*call_.k, first, slots, *call_.v, first),
               rows_of(*call_.v, first, slots, *call_.k, first + slots));
    }
  }

 private:
  BlockRows rows_of(const aa_tensor& t, int64_t first, int64_t slots, const aa_tensor& next,
                    int64_t first_of_next) const {
    const char* const row = row_of_slot(t, tile_, first);
    return {row, row_of_slot(t, tile_, first + 1) - row, slots, row_of_slot(next, tile_, first_of_next),
            std::min(kSlots, tile_.end - first_of_next)};
  }

  const AttentionCall& call_;
  const AttentionTile& tile_;
};

// Prefetches one of the next rows before every `walks` slots, so that all of them are fetched at the end of the last
// walk.
class SlotWalk {
 public:
  enum Into { kFar, kNear };  // the second-level cache, or the first

  SlotWalk(const BlockRows& values, int64_t row_bytes, int64_t walks, Into into = kFar)
      : values_(values),
        at_(values.next),
        left_(values.next_slots),
        bytes_(row_bytes),
        slots_a_row_(walks),
        into_(into) {}

  template <class Function>
  HWY_INLINE void for_each_row(Function function) {
    for_each_row(values_.first, values_.stride, function);
  }
  // The same, but passes other rows than these to the function.
  template <class Function>
  HWY_INLINE void for_each_row(const char* row, int64_t stride, Function function) {
    for (int64_t j = 0; j < values_.slots;) {
      fetch();
      for (const int64_t end = std::min(j + slots_a_row_, values_.slots); j < end; ++j, row += stride) function(j, row);
    }
  }
  template <class Type>
  HWY_INLINE void prefetch(int64_t /*j*/, const char* /*row*/, int64_t /*d*/) const {}

 private:
  HWY_INLINE void fetch() {
    if (left_ == 0) return;
    if (into_ == kNear) {
      for (int64_t i = 0; i < bytes_; i += 64) __builtin_prefetch(at_ + i, 0, 3);
    } else {
      for (int64_t i = 0; i < bytes_; i += 64) __builtin_prefetch(at_ + i, 0, 2);
    }
    at_ += values_.stride;
    --left_;
  }

  const BlockRows& values_;
  const char* at_;
  int64_t left_, bytes_, slots_a_row_;
  Into into_;
};

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
