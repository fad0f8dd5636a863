// The keys and values that attention of one token reads, block by block, and how they are prefetched. Included after
// base/simd/highway.h, once per instruction set. attention_rows_avx2-inl.h and attention_rows_avx512-inl.h define the
// same names:
//
//   kSlots, kScoreStride
//       The most slots of a block, and floats from one row of scores to the next.
//   part_of_slots(slots)
//       Rounds up to a number of slots that suits the walk.
//   struct BlockRows
//       Rows of keys or values of a block: `slots` of them, and row(j).
//   prefetch_values<Type>(rows, j, row, d)
//       Prefetches what is read later in the place of elements d to d + kPair of `row`, that of slot j.
//   class BlockWalk(call, tile, taker)
//       The blocks of a tile: for_each_block(function) calls function(first slot, keys, values). fetch_first(keys) and then
//       fetch_first(values) may be called before it, as early as possible. Unless `taker` is null, the walk may claim the
//       thread's next tile from it and prefetch its beginning.
//   class SlotWalk(values, row_bytes, walks)
//       The rows of a block of values, which are walked `walks` times, each time for a part of their elements.
//       for_each_row(function) calls function(slot, row), which calls prefetch<Type>(slot, row, d) for what it loads.
#include "accelerators/cpu/kernels/attention_rows_avx2-inl.h"
#include "accelerators/cpu/kernels/attention_rows_avx512-inl.h"
