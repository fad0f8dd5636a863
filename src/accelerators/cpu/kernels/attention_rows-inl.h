// The keys and values that attention of one token reads, block by block, and how they are fetched ahead. Included after
// base/simd/highway.h, once per instruction set. attention_rows_avx2-inl.h and attention_rows_avx512-inl.h define the same names:
//
//   kSlots, kScoreStride
//       Slots of a block, and floats from one row of scores to the next.
//   part_of_slots(slots)
//       The fewest slots, at least so many, of which a tile walks whole blocks.
//   struct BlockRows
//       Rows of keys or values of a block: `slots` of them, row(j), and prefetch(at), which fetches what has the place of an address
//       in a row, in rows that are read later.
//   class BlockWalk(call, tile)
//       The blocks of a tile: for_each_block(function) calls function(first slot, keys, values). fetch_first(keys) and then
//       fetch_first(values) may be called before it, as early as can be.
//   class SlotWalk(values, row_bytes, walks)
//       The rows of a block of values, which are walked `walks` times for a part of their elements each: for_each_row(function) calls
//       function(slot, row), which calls prefetch<Type>(row, d) for what it loads.
#include "accelerators/cpu/kernels/attention_rows_avx2-inl.h"
#include "accelerators/cpu/kernels/attention_rows_avx512-inl.h"
