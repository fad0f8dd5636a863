// Defines what attention_rows-inl.h says with AVX2: a block of keys is followed by the values of its slots, those by the next keys, and
// what is read next is fetched a row at a time. Empty for other instruction sets.
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
// Floats from one row of scores to the next: store_twelve() needs some behind each.
constexpr int64_t kScoreStride = kSlots + kLanes;

constexpr int64_t part_of_slots(int64_t slots) { return (slots + kSlots - 1) / kSlots * kSlots; }

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
  // The same into the first-level cache, where blocks of bytes have room.
  HWY_INLINE void prefetch_near(const char* at) const { __builtin_prefetch(next + (at - first), 0, 3); }
};

// Fetches, for elements d to d + kPair of a row of keys, those of a row of values.
template <class Type>
HWY_INLINE void prefetch_values(const BlockRows& rows, const char* row, int64_t d) {
  rows.prefetch(row + row_offset(Type(), d));
}

class BlockWalk {
 public:
  BlockWalk(const AttentionCall& call, const AttentionTile& tile) : call_(call), tile_(tile) {}

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

// Fetches one of the next rows before each `walks` slots, so that all of them are fetched by the last walk.
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
  // The same with other rows in place of these.
  template <class Function>
  HWY_INLINE void for_each_row(const char* row, int64_t stride, Function function) {
    for (int64_t j = 0; j < values_.slots;) {
      fetch();
      for (const int64_t end = std::min(j + slots_a_row_, values_.slots); j < end; ++j, row += stride) function(j, row);
    }
  }
  template <class Type>
  HWY_INLINE void prefetch(const char* /*row*/, int64_t /*d*/) const {}

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
