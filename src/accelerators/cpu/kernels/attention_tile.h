// One piece of work of the op "attention": the queries of one key/value head for a few consecutive tokens of a
// sequence, against a range of cache slots. attention_plan.cpp cuts a call into tiles and attention_tile.cpp runs them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "accelerators/cpu/kernels/checks.h"
#include "accelerators/cpu/kernels/rows.h"
#include "anyaccel/abi/ops.h"

namespace anyaccel::cpu {

// Slots [begin, end) of a sequence.
struct SlotRange {
  int64_t begin, end;
};

// State that all tiles of a call share.
struct AttentionCall {
  const aa_tensor* out;
  const aa_tensor* q;
  const aa_tensor* k;  // k and v: floats, F8_E4M3 too, or U8: rows of blocks of AA_BLOCK_Q8_0
  const aa_tensor* v;
  const aa_tensor* sequence;
  const aa_tensor* positions;
  int64_t head_size;  // D
  int64_t group;      // query heads of one key/value head, Hq / Hk
  float scale;
  float softcap;
  int64_t window;           // 0: none
  const aa_tensor* slopes;  // F32 [Hq]; dtype AA_DTYPE_NONE: none
  const aa_tensor* sinks;   // likewise

  SlotRange seen_by(int64_t token) const noexcept {
    const int64_t position = index_at(*positions, token);
    return {window > 0 ? std::max<int64_t>(0, position - window + 1) : 0, position + 1};
  }
  // The row of q or of out of a token's query head.
  Row head_row(const aa_tensor& t, int64_t token, int64_t head) const noexcept {
    const auto dtype = static_cast<DType>(t.dtype);
    const int64_t offset = token * t.strides[0] + head * t.strides[1];
    return {static_cast<char*>(t.data) + offset * static_cast<int64_t>(dtype_size(dtype)), dtype, t.strides[2],
            head_size};
  }
  // What a score, in units of log2(e), loses for each slot of distance.
  float slope(int64_t head) const noexcept {
    return slopes->dtype == AA_DTYPE_NONE ? 0.0f : of_head(*slopes, head) * std::numbers::log2e_v<float>;
  }
  // The weight of a head's sink beside weights that were made with this maximum.
  float sink_weight(int64_t head, float maximum) const noexcept {
    if (sinks->dtype == AA_DTYPE_NONE) return 0.0f;
    return std::exp2(of_head(*sinks, head) * std::numbers::log2e_v<float> - (maximum == -INFINITY ? 0.0f : maximum));
  }

 private:
  static float of_head(const aa_tensor& values, int64_t head) noexcept {
    return static_cast<const float*>(values.data)[head * values.strides[0]];
  }
};

// Rows of a tile are (token, query head of the group), token-major: row r is token r / group.
struct AttentionTile {
  int64_t token;  // first of `tokens` tokens, at any positions
  int64_t tokens;
  int64_t sequence;
  int64_t kv_head;
  int64_t begin, end;  // slots to look at
  float* partial;      // null: the tile sees all slots and writes `out`; else the partial result for merge_attention()
  int32_t merge;       // number of the merge that the partial result belongs to, or -1
};

// One thread's way through the tiles of a call, of which each thread takes the next one.
class TileTaker {
 public:
  // taken: the number of tiles that all threads took so far.
  TileTaker(const AttentionTile* tiles, int64_t count, std::atomic<int64_t>& taken)
      : tiles_(tiles), count_(count), taken_(taken) {}

  // Claims the tile that take() returns next, so that the thread may prefetch it while it ends the present one. Null if
  // there are no more.
  const AttentionTile* claim() {
    if (claimed_ < 0) claimed_ = taken_.fetch_add(1, std::memory_order_relaxed);
    return claimed_ < count_ ? tiles_ + claimed_ : nullptr;
  }
  // The tile to run now, or null.
  const AttentionTile* take() {
    const AttentionTile* tile = claim();
    claimed_ = -1;
    return tile;
  }

 private:
  const AttentionTile* tiles_;
  int64_t count_;
  std::atomic<int64_t>& taken_;
  int64_t claimed_ = -1;
};

// Slots of a block. A tile is computed in blocks from `begin` on.
constexpr int64_t kAttentionBlock = 64;

// Floats of a partial result: for each row the unnormalised sum (D of them), the maximum and the sum of weights.
constexpr int64_t partial_row_floats(int64_t head_size) { return head_size + 2; }

// Runs one tile on the calling thread.
void run_attention_tile(const AttentionCall& call, const AttentionTile& tile);

// Merges `count` partial results of the same rows, in their order, and writes `out`. The partial results lie one after
// another from tile.partial on.
void merge_attention(const AttentionCall& call, const AttentionTile& tile, int64_t count);

}  // namespace anyaccel::cpu
