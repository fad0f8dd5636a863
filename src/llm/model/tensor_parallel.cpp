// Computes how one decoder is sharded over the ranks of a job.
#include "llm/model/tensor_parallel.h"

#include <algorithm>
#include <array>
#include <utility>

#include "anyaccel/error.h"

namespace anyaccel::llm {

namespace {

// Returns the end of part `index` when `total` elements are divided evenly into `count` parts, of which the first get
// any extra elements.
int64_t even_end(int64_t total, int64_t count, int64_t index) {
  return total / count * (index + 1) + std::min(index + 1, total % count);
}

std::vector<Slice> split_evenly(int64_t total, int64_t count) {
  std::vector<Slice> slices;
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t end = even_end(total, count, i);
    slices.push_back({begin, end});
    begin = end;
  }
  return slices;
}

void check_ranks(int ranks) {
  if (ranks < 1) {
    throw InvalidArgument("tensor parallelism: " + std::to_string(ranks) + " ranks; expected at least 1");
  }
}

constexpr std::pair<std::string_view, FusedQkv> fused_layouts[] = {
    {"codegen", FusedQkv::FourBlocks}, {"bloom", FusedQkv::Grouped},   {"glm", FusedQkv::Stacked},
    {"qwen", FusedQkv::Stacked},       {"bigcode", FusedQkv::Stacked}, {"phi3", FusedQkv::Stacked},
};

// Returns the position of a head in the fused matrix, in heads.
int64_t fused_place(FusedQkv layout, const ModelConfig& config, QkvPart part, int64_t head) {
  const int64_t queries = config.num_attention_heads;
  const int64_t kv = config.num_key_value_heads;
  switch (layout) {
    case FusedQkv::Stacked: return part == QkvPart::Query ? head : queries + (part == QkvPart::Key ? 0 : kv) + head;
    case FusedQkv::Grouped: {
      const int64_t group = queries / kv;
      if (part == QkvPart::Query) return head / group * (group + 2) + head % group;
      return head * (group + 2) + group + (part == QkvPart::Key ? 0 : 1);
    }
    case FusedQkv::FourBlocks: {
      const int64_t quarter = queries / 4;
      const int64_t order = part == QkvPart::Query ? 0 : part == QkvPart::Value ? 1 : 2;
      return (head / quarter * 3 + order) * quarter + head % quarter;
    }
  }
  return 0;
}

}  // namespace

std::vector<Slice> split_by_grain(int64_t total, int ranks, const ShardPolicy& policy) {
  check_ranks(ranks);
  if (total < 0 || policy.grain < 1) {
    throw InvalidArgument("tensor parallelism: cannot split " + std::to_string(total) + " elements by grains of " +
                          std::to_string(policy.grain));
  }
  int64_t grain = policy.grain;
  if (policy.tail == Tail::LastRank) {
    if (total < grain) grain = 1;
  } else {
    while (grain > 1 && total / grain < ranks) grain /= 2;
  }
  std::vector<Slice> slices = split_evenly(total / grain, ranks);
  for (Slice& slice : slices) slice = {slice.begin * grain, slice.end * grain};
  slices.back().end = total;
  return slices;
}

std::vector<HeadShard> split_heads(int64_t query_heads, int64_t kv_heads, int ranks, bool replicate_kv_heads) {
  check_ranks(ranks);
  if (kv_heads < 1 || query_heads < kv_heads || query_heads % kv_heads != 0) {
    throw InvalidArgument("tensor parallelism: " + std::to_string(query_heads) + " query heads and " +
                          std::to_string(kv_heads) + " key/value heads; expected a multiple of the latter");
  }
  const int64_t group = query_heads / kv_heads;
  std::vector<HeadShard> shards;
  if (ranks <= kv_heads || !replicate_kv_heads) {
    for (const Slice& kv : split_evenly(kv_heads, ranks)) {
      shards.push_back({{kv.begin * group, kv.end * group}, kv});
    }
    return shards;
  }
  const std::vector<Slice> sharers = split_evenly(ranks, kv_heads);
  for (int64_t head = 0; head < kv_heads; ++head) {
    for (const Slice& part : split_evenly(group, sharers[static_cast<size_t>(head)].size())) {
      const int64_t first = head * group;
      shards.push_back({{first + part.begin, first + part.end}, {head, part.size() > 0 ? head + 1 : head}});
    }
  }
  return shards;
}

std::vector<ModelShard> plan_shards(const ModelConfig& config, int ranks, const ShardPolicy& policy) {
  const auto heads =
      split_heads(config.num_attention_heads, config.num_key_value_heads, ranks, policy.replicate_kv_heads);
  const auto intermediate = split_by_grain(config.intermediate_size, ranks, policy);
  const auto hidden = split_by_grain(policy.whole_rows ? config.hidden_size : 0, ranks, policy);
  const auto vocabulary = split_by_grain(config.vocab_size, ranks, policy);
  const auto expert = split_by_grain(config.experts.inner, ranks, policy);
  const auto shared = split_by_grain(config.experts.shared_inner, ranks, policy);
  std::vector<ModelShard> plan;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto i = static_cast<size_t>(rank);
    plan.push_back(
        {rank, ranks, heads[i].query, heads[i].kv, intermediate[i], vocabulary[i], expert[i], shared[i], hidden[i]});
  }
  return plan;
}

std::vector<std::string> empty_shard_notes(const std::vector<ModelShard>& plan) {
  std::vector<std::string> notes;
  const auto note = [&](Slice ModelShard::*part, const char* what) {
    std::string ranks;
    for (const ModelShard& shard : plan) {
      if ((shard.*part).size() == 0) ranks += (ranks.empty() ? "" : ", ") + std::to_string(shard.rank);
    }
    if (!ranks.empty()) {
      notes.push_back("the model is too small for " + std::to_string(plan.size()) + " ranks: rank " + ranks +
                      " holds " + what);
    }
  };
  const bool has_experts = plan.front().expert.size() > 0;
  note(&ModelShard::query_heads, "no attention heads");
  note(&ModelShard::intermediate, "nothing of the feed-forward blocks");
  if (has_experts) note(&ModelShard::expert, "nothing of the experts");
  note(&ModelShard::vocabulary, "nothing of the vocabulary");
  return notes;
}

FusedQkv fused_qkv_layout(std::string_view name) {
  std::string known;
  for (const auto& [layout_name, layout] : fused_layouts) {
    if (layout_name == name) return layout;
    known += (known.empty() ? "" : ", ") + std::string(layout_name);
  }
  throw InvalidArgument("tensor parallelism: no layout '" + std::string(name) +
                        "' of fused query, key and value; known: " + known);
}

std::vector<Slice> fused_qkv_rows(FusedQkv layout, const ModelConfig& config, QkvPart part, Slice heads) {
  const int64_t count = part == QkvPart::Query ? config.num_attention_heads : config.num_key_value_heads;
  if (heads.begin < 0 || heads.end > count || heads.size() < 0) {
    throw InvalidArgument("tensor parallelism: heads " + std::to_string(heads.begin) + " to " +
                          std::to_string(heads.end) + " of " + std::to_string(count));
  }
  if (layout == FusedQkv::FourBlocks &&
      (config.num_attention_heads % 4 != 0 || config.num_key_value_heads != config.num_attention_heads)) {
    throw InvalidArgument("tensor parallelism: " + std::to_string(config.num_attention_heads) + " query and " +
                          std::to_string(config.num_key_value_heads) +
                          " key/value heads in four blocks; expected a multiple of 4 and as many of each");
  }
  std::vector<Slice> rows;
  for (int64_t head = heads.begin; head < heads.end; ++head) {
    const int64_t begin = fused_place(layout, config, part, head) * config.head_dim;
    if (!rows.empty() && rows.back().end == begin) {
      rows.back().end += config.head_dim;
    } else {
      rows.push_back({begin, begin + config.head_dim});
    }
  }
  return rows;
}

}  // namespace anyaccel::llm
