// The ops "attention" and "quantized_attention": cuts a call into tiles and runs them on all threads.
//
// Consecutive tokens of a step that belong to one sequence and follow each other in position form a run: a prompt is
// one run, a decode step one run per sequence. A tile takes as many tokens of a run as give kTileRows rows with all
// query heads of a key/value head, so that each block of keys and values is read once for all of them. When a run has a
// single tile the context is cut too, and the partial results are merged. The cutting depends on the call alone, not on
// the number of threads, and so do the results.
//
// The forms "by_row" want results that do not depend on the other tokens of the call either: tiles then begin at whole
// blocks of slots, counted from the first slot of the cache, and the context is not cut. The slots that a row sees are
// then in the same blocks whatever tile the row is in, and slots that it does not see add exact zeros.
#include <algorithm>
#include <atomic>
#include <new>

#include "accelerators/cpu/kernels/attention_tile.h"
#include "accelerators/cpu/kernels/checks.h"
#include "accelerators/cpu/kernels/parallel.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/ops.h"
#include "accelerators/cpu/worker_pool.h"

namespace anyaccel::cpu {
namespace {

constexpr int64_t kTileRows = 128;
constexpr int64_t kSplitSlots = 256;

struct Run {
  int64_t token, tokens, sequence, position;
};

// The run that begins at `token`.
Run run_at(const aa_tensor& sequence, const aa_tensor& positions, int64_t token, int64_t count) {
  Run run{token, 1, index_at(sequence, token), index_at(positions, token)};
  while (token + run.tokens < count && index_at(sequence, token + run.tokens) == run.sequence &&
         index_at(positions, token + run.tokens) == run.position + run.tokens) {
    ++run.tokens;
  }
  return run;
}

class Plan {
 public:
  Plan(const AttentionCall& call, const aa_tensor& sequence, const aa_tensor& positions, bool by_row)
      : call_(call), by_row_(by_row), tokens_per_tile_(std::max<int64_t>(1, kTileRows / call.group)) {
    const int64_t count = call.q->shape[0];
    // Twice over the same cutting: first to count, then to fill in.
    for (const bool fill : {false, true}) {
      if (fill) {
        tiles = scratch<AttentionTile>(Scratch::Tasks, static_cast<size_t>(tile_count));
        merges = scratch<Merge>(Scratch::Candidates, static_cast<size_t>(merge_count));
        partials_ = scratch<float>(Scratch::Partials, static_cast<size_t>(partial_floats_));
        tile_count = merge_count = partial_floats_ = 0;
      }
      for (int64_t token = 0; token < count;) {
        const Run run = run_at(sequence, positions, token, count);
        // The last tiles of a run see the most slots: begin with them, so that the threads end together.
        const int64_t blocks = (run.tokens + tokens_per_tile_ - 1) / tokens_per_tile_;
        for (int64_t block = blocks - 1; block >= 0; --block) {
          for (int64_t head = 0; head < call.k->shape[1]; ++head) add(run, block, head, blocks == 1 && !by_row, fill);
        }
        token += run.tokens;
      }
    }
  }

  struct Merge {
    AttentionTile first;
    int64_t count;
    std::atomic<int64_t> missing;
  };

  AttentionTile* tiles = nullptr;
  Merge* merges = nullptr;
  int64_t tile_count = 0;
  int64_t merge_count = 0;
  int64_t work = 0;  // multiply-adds, and elements read at the rate of several of them

 private:
  void add(const Run& run, int64_t block, int64_t head, bool may_split, bool fill) {
    const int64_t first = block * tokens_per_tile_;
    const int64_t tokens = std::min(tokens_per_tile_, run.tokens - first);
    const int64_t position = run.position + first;
    int64_t begin = call_.window > 0 ? std::max<int64_t>(0, position - call_.window + 1) : 0;
    if (by_row_) begin -= begin % kAttentionBlock;
    const int64_t end = position + tokens;
    const int64_t splits = may_split ? (end - begin + kSplitSlots - 1) / kSplitSlots : 1;
    const int64_t slots = ((end - begin + splits - 1) / splits + 15) / 16 * 16;
    const int64_t room = tokens * call_.group * partial_row_floats(call_.head_size);
    int64_t parts = 0;
    float* partial = nullptr;
    if (fill && splits > 1) partial = partials_ + partial_floats_;
    for (int64_t from = begin; from < end; from += slots, ++parts) {
      if (!fill) continue;
      const int64_t to = std::min(end, from + slots);
      tiles[tile_count + parts] = {run.token + first,
                                   tokens,
                                   run.sequence,
                                   position,
                                   head,
                                   from,
                                   to,
                                   partial ? partial + parts * room : nullptr,
                                   splits > 1 ? static_cast<int32_t>(merge_count) : -1};
      work += (to - from) * call_.head_size * (tokens * call_.group + 4) / 8;
    }
    if (splits > 1) {
      if (fill) {
        Merge* merge = new (&merges[merge_count]) Merge{tiles[tile_count], parts, {}};
        merge->missing.store(parts, std::memory_order_relaxed);
      }
      ++merge_count;
      partial_floats_ += parts * room;
    }
    tile_count += parts;
  }

  const AttentionCall& call_;
  bool by_row_;
  int64_t tokens_per_tile_;
  float* partials_ = nullptr;
  int64_t partial_floats_ = 0;
};

void run_tile(const AttentionCall& call, Plan& plan, int64_t i) {
  const AttentionTile& tile = plan.tiles[i];
  run_attention_tile(call, tile);
  if (tile.merge < 0) return;
  Plan::Merge& merge = plan.merges[tile.merge];
  if (merge.missing.fetch_sub(1, std::memory_order_acq_rel) == 1) merge_attention(call, merge.first, merge.count);
}

// `Params` has scale, softcap and window.
template <class Params>
void run_attention(const char* op, const aa_op_call& op_call, bool by_row) {
  const aa_tensor* t = op_call.tensors;
  const auto& params = *static_cast<const Params*>(op_call.params);
  const aa_tensor &q = t[1], &k = t[2], &sequence = t[4], &positions = t[5];
  check_indices(op, "sequence", sequence, k.shape[0], "sequences in the cache");
  check_indices(op, "positions", positions, k.shape[2], "slots in the cache");
  if (q.shape[0] == 0 || q.shape[1] == 0 || q.shape[2] == 0) return;

  const AttentionCall call{
      &t[0], &q, &t[2], &t[3], q.shape[2], q.shape[1] / k.shape[1], params.scale, params.softcap, params.window};
  Plan plan(call, sequence, positions, by_row);
  constexpr int64_t kParallelWork = 16384;
  if (plan.tile_count > 1 && plan.work > kParallelWork) {
    WorkerPool& pool = WorkerPool::instance();
    if (pool.size() > 1) {
      std::atomic<int64_t> next{0};
      pool.run([&](int, int) {
        for (;;) {
          const int64_t i = next.fetch_add(1, std::memory_order_relaxed);
          if (i >= plan.tile_count) return;
          run_tile(call, plan, i);
        }
      });
      return;
    }
  }
  const FlushDenormals flush;
  for (int64_t i = 0; i < plan.tile_count; ++i) run_tile(call, plan, i);
}

}  // namespace

void attention(const aa_op_call& call) { run_attention<aa_attention_params>("attention", call, false); }
void attention_by_row(const aa_op_call& call) { run_attention<aa_attention_params>("attention", call, true); }
void quantized_attention(const aa_op_call& call) {
  run_attention<aa_quantized_attention_params>("quantized_attention", call, false);
}
void quantized_attention_by_row(const aa_op_call& call) {
  run_attention<aa_quantized_attention_params>("quantized_attention", call, true);
}

}  // namespace anyaccel::cpu
