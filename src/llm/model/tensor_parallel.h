// Computes how one decoder is sharded over the ranks of a job: which attention heads, which part of the feed-forward
// block and which part of the vocabulary each rank holds.
//
// These are pure functions of sizes: every rank computes the whole plan and gets the same result. A layer's first
// products (query, key, value, gate, up) are split by outputs and need no communication, its second ones (o, down) by
// inputs, so that the ranks' results are summands, or by outputs too, if the ranks can gather the inputs in shared memory.
// Embedding and output matrix are split by the vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/llm/model.h"

namespace anyaccel::llm {

// The rule for elements that do not fill a grain.
enum class Tail {
  // The grain is halved until every rank gets one; the remainder goes to the last rank. No rank is empty unless there
  // are fewer elements than ranks.
  SmallerGrain,
  // They are given to the last rank, and ranks may be empty; fewer elements than one grain are divided evenly. This is
  // DeepSpeed's rule.
  LastRank,
};

struct ShardPolicy {
  // Parts of the feed-forward block and the vocabulary are multiples of this many elements: whole cache lines and tiles
  // of the products' kernels.
  int64_t grain = 64;
  Tail tail = Tail::SmallerGrain;
  // If true, and there are more ranks than key/value heads, several ranks hold the same key/value head and share its
  // query heads. If false, the surplus ranks have no heads, as in DeepSpeed.
  bool replicate_kv_heads = true;
  // If true, o and down are split by outputs (ModelShard::hidden). Those of experts are split by inputs all the same.
  bool whole_rows = false;
};

// Splits [0, total) into `ranks` pieces, in order, that are multiples of the grain except at the tail; lower ranks get
// more. InvalidArgument for a negative total, or ranks or a grain below 1; this is true of the functions below too.
std::vector<Slice> split_by_grain(int64_t total, int ranks, const ShardPolicy& policy = {});

struct HeadShard {
  Slice query;
  Slice kv;  // those that the query heads read

  friend bool operator==(const HeadShard&, const HeadShard&) = default;
};

// Assigns whole key/value heads with their query heads; lower ranks get any extra ones. See ShardPolicy for more ranks
// than key/value heads. Every query head is on exactly one rank. kv_heads must divide query_heads.
std::vector<HeadShard> split_heads(int64_t query_heads, int64_t kv_heads, int ranks, bool replicate_kv_heads = true);

// Returns one element for each rank. Every head has a rank; with a small model, some ranks may hold nothing.
std::vector<ModelShard> plan_shards(const ModelConfig& config, int ranks, const ShardPolicy& policy = {});
// Returns notes for the user about a plan: ranks that hold no heads or nothing of the feed-forward block. Empty if
// there are none.
std::vector<std::string> empty_shard_notes(const std::vector<ModelShard>& plan);

// The layouts of query, key and value heads in the rows of one matrix. The rows of a head are contiguous.
enum class FusedQkv {
  Stacked,     // all query heads, all key heads, all value heads: glm, qwen, bigcode, phi3
  Grouped,     // for each key/value head: its query heads, the key head, the value head: bloom, falcon
  FourBlocks,  // four blocks of a quarter of the heads each: queries, values, keys: codegen
};
// Finds a layout by DeepSpeed's names: "codegen", "bloom", "glm", "qwen", "bigcode", "phi3". InvalidArgument lists
// them.
FusedQkv fused_qkv_layout(std::string_view name);

enum class QkvPart { Query, Key, Value };
// Returns the rows of the fused matrix that hold the heads `heads` of a part, in the order of the heads; adjacent
// ranges are merged. `heads` counts query heads for Query, and key/value heads for the others. InvalidArgument for
// heads out of range, and for FourBlocks with a number of heads that is not a multiple of 4 or with fewer key/value
// heads than query heads.
std::vector<Slice> fused_qkv_rows(FusedQkv layout, const ModelConfig& config, QkvPart part, Slice heads);

}  // namespace anyaccel::llm
