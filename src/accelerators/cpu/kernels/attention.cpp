// The ops "attention" and "quantized_attention": runs the tiles of a call (attention_plan.h) on all threads.
#include <algorithm>
#include <array>
#include <atomic>

#include "accelerators/cpu/kernels/attention_matrix.h"
#include "accelerators/cpu/kernels/attention_plan.h"
#include "accelerators/cpu/kernels/attention_token.h"
#include "accelerators/cpu/kernels/checks.h"
#include "accelerators/cpu/kernels/parallel.h"
#include "accelerators/cpu/ops.h"
#include "accelerators/cpu/worker_pool.h"
#include "base/simd/cpu_features.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::cpu {
namespace {

// The kernels that a call may use: by_token for tiles of one token, by_matrix (on the matrix unit, or with dot products
// in its place) for longer tiles, and token_by_matrix if that kernel takes tiles of one token too. Its groups have 16
// rows, most of which would be computed for nothing there. So dot products take such tiles only in the forms by row,
// which need one arithmetic for all tiles.
struct Kernels {
  bool by_token, by_matrix, token_by_matrix;
};

void run_tile(const AttentionCall& call, AttentionPlan& plan, Kernels kernels, const AttentionTile& tile,
              TileTaker& taker) {
  if (kernels.by_token && tile.tokens == 1) {
    run_attention_token(call, tile, &taker);
  } else if (tile.tokens == 1 ? kernels.token_by_matrix : kernels.by_matrix) {
    run_attention_matrix(call, tile);
  } else {
    run_attention_tile(call, tile);
  }
  if (tile.merge < 0) return;
  AttentionPlan::Merge& merge = plan.merges[tile.merge];
  if (merge.missing.fetch_sub(1, std::memory_order_acq_rel) == 1) merge_attention(call, merge.first, merge.count);
}

// `Params` has scale, softcap and window. The caches are tensors of floats, or U8: rows of blocks of AA_BLOCK_Q8_0.
template <class Params>
void run_attention(const char* op, const aa_op_call& op_call, bool by_row) {
  const aa_tensor* t = op_call.tensors;
  const auto& params = params_of<Params>(op_call);
  const aa_tensor &q = t[1], &k = t[2], &sequence = t[4], &positions = t[5];
  check_indices(op, "sequence", sequence, k.shape[0], "sequences in the cache");
  check_indices(op, "positions", positions, k.shape[2], "slots in the cache");
  if (q.shape[0] == 0 || q.shape[1] == 0 || q.shape[2] == 0) return;

  const AttentionCall call{&t[0],         &q,
                           &t[2],         &t[3],
                           &sequence,     &positions,
                           q.shape[2],    q.shape[1] / k.shape[1],
                           params.scale,  params.softcap,
                           params.window, &t[6],
                           &t[7]};
  // The forms by row need the arithmetic of longer tiles for a token too.
  const bool by_matrix = has_attention_matrix() && fits_attention_matrix(call);
  const Kernels kernels = {!by_row && takes_attention_token(call), by_matrix,
                           by_matrix && (by_row || isa() == Isa::Amx)};
  AttentionPlan plan(call, by_row, kernels.by_matrix ? matrix_tile_rows(call) : kTileRows);
  std::atomic<int64_t> taken{0};
  const auto run_tiles = [&] {
    TileTaker taker(plan.tiles, plan.tile_count, taken);
    while (const AttentionTile* tile = taker.take()) run_tile(call, plan, kernels, *tile, taker);
  };
  constexpr int64_t kParallelWork = 16384;
  if (plan.tile_count > 1 && plan.work > kParallelWork) {
    WorkerPool& pool = WorkerPool::instance();
    if (pool.size() > 1) return pool.run([&](int, int) { run_tiles(); });
  }
  const FlushDenormals flush;
  run_tiles();
}

void run_quantized_attention(const aa_op_call& call, bool by_row) {
  using Params = aa_quantized_attention_params;
  constexpr const char* name = "quantized_attention";
  if (params_of<Params>(call).format == AA_CACHE_Q8_0) return run_attention<Params>(name, call, by_row);
  std::array<aa_tensor, 8> tensors{};
  std::copy_n(call.tensors, tensors.size(), tensors.begin());
  // Bytes of E4M3 are numbers: such a cache is a tensor of floats.
  tensors[2].dtype = tensors[3].dtype = AA_DTYPE_F8_E4M3;
  aa_op_call of_floats = call;
  of_floats.tensors = tensors.data();
  run_attention<Params>(name, of_floats, by_row);
}

}  // namespace

void attention(const aa_op_call& call) { run_attention<aa_attention_params>("attention", call, false); }
void attention_by_row(const aa_op_call& call) { run_attention<aa_attention_params>("attention", call, true); }
void quantized_attention(const aa_op_call& call) { run_quantized_attention(call, false); }
void quantized_attention_by_row(const aa_op_call& call) { run_quantized_attention(call, true); }

}  // namespace anyaccel::cpu
