// Cuts a call of the op "attention" into tiles.
//
// Consecutive tokens of one sequence form a run: a prompt is one run, a decode step one run per sequence. A tile takes
// as many tokens of a run as give kTileRows rows with all query heads of a key/value head, so that each block of keys
// and values is read once for all of them; it takes fewer where the tokens see so different slots that most of what
// the tile looks at would be hidden from some of them. When a run has a single tile the context is cut too, and the
// partial results are merged. The cutting depends on the call alone, not on the number of threads, and so do the
// results.
//
// The forms "by_row" want results that do not depend on the other tokens of the call either: tiles then begin at whole
// blocks of slots, counted from the first slot of the cache, and the context is not cut. The slots that a row sees are
// then in the same blocks whatever tile the row is in, and slots that it does not see add exact zeros.
#pragma once

#include <atomic>
#include <cstdint>

#include "accelerators/cpu/kernels/attention_tile.h"

namespace anyaccel::cpu {

// Rows of a tile for the kernel in fp32.
constexpr int64_t kTileRows = 128;
// Rows of a tile for the kernel on the matrix unit. It transposes a block of values once for each tile, so that larger
// tiles are better; but a prompt of 512 tokens still gives enough tiles to keep 32 threads busy.
inline int64_t matrix_tile_rows(const AttentionCall& call) {
  return std::clamp<int64_t>(call.q->shape[0] * call.group / 8, kTileRows, 4 * kTileRows);
}

// Lives in the calling thread's scratch memory: at most one plan per thread at a time.
class AttentionPlan {
 public:
  // The partial results of `count` tiles from `first` on, of which `missing` have not been computed yet.
  struct Merge {
    AttentionTile first;
    int64_t count;
    std::atomic<int64_t> missing;
  };

  // A tile has at most `tile_rows` rows, unless the query heads of one token are more.
  AttentionPlan(const AttentionCall& call, bool by_row, int64_t tile_rows = kTileRows);

  AttentionTile* tiles = nullptr;  // in the order in which threads should begin them
  Merge* merges = nullptr;
  int64_t tile_count = 0;
  int64_t merge_count = 0;
  int64_t work = 0;  // multiply-adds of the scores plus 4 for each element of keys, divided by 8

 private:
  struct Span;

  int64_t cut_run(int64_t first, int64_t end, int64_t span_count);
  void add(const Span& span, int64_t head, bool fill);

  const AttentionCall& call_;
  bool by_row_;
  int64_t tokens_per_tile_;
  Span* spans_ = nullptr;
  float* partials_ = nullptr;
  int64_t partial_floats_ = 0;
};

}  // namespace anyaccel::cpu
