// Tests how models are sharded over ranks: DeepSpeed's results for the same questions, what must hold for every
// split, and layouts of fused query, key and value against the views that transformers takes of them.
#include "llm/model/tensor_parallel.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "anyaccel/error.h"

namespace anyaccel::llm {
namespace {

using Sizes = std::vector<int64_t>;

constexpr ShardPolicy deepspeed = {.grain = 64, .tail = Tail::LastRank, .replicate_kv_heads = false};

Sizes sizes(const std::vector<Slice>& slices) {
  Sizes result;
  for (const Slice& slice : slices) result.push_back(slice.size());
  return result;
}

Sizes by_grain(int64_t total, int ranks, const ShardPolicy& policy) {
  return sizes(split_by_grain(total, ranks, policy));
}

// Rows of a projection of `total` rows.
Sizes query_rows(int64_t total, int64_t heads, int64_t kv_heads, int ranks) {
  Sizes result;
  for (const HeadShard& shard : split_heads(heads, kv_heads, ranks, deepspeed.replicate_kv_heads)) {
    result.push_back(shard.query.size() * total / heads);
  }
  return result;
}

Sizes kv_rows(int64_t total, int64_t heads, int64_t kv_heads, int ranks, bool replicate) {
  Sizes result;
  for (const HeadShard& shard : split_heads(heads, kv_heads, ranks, replicate)) {
    result.push_back(shard.kv.size() * total / kv_heads);
  }
  return result;
}

// get_shard_size of DeepSpeed 0.17 for these arguments.
TEST(TensorParallel, DeepSpeedsShardSizes) {
  EXPECT_EQ(query_rows(4096, 32, 8, 3), (Sizes{1536, 1536, 1024}));
  EXPECT_EQ(kv_rows(1024, 32, 8, 3, false), (Sizes{384, 384, 256}));
  EXPECT_EQ(query_rows(4096, 32, 32, 3), (Sizes{1408, 1408, 1280}));
  EXPECT_EQ(by_grain(11008, 3, deepspeed), (Sizes{3712, 3648, 3648}));
  EXPECT_EQ(by_grain(11008, 3, {.grain = 1, .tail = Tail::LastRank}), (Sizes{3670, 3669, 3669}));
  EXPECT_EQ(by_grain(32000, 3, deepspeed), (Sizes{10688, 10688, 10624}));
  EXPECT_EQ(by_grain(50257, 8, deepspeed), (Sizes{6336, 6272, 6272, 6272, 6272, 6272, 6272, 6289}));
  EXPECT_EQ(kv_rows(256, 16, 2, 4, false), (Sizes{128, 128, 0, 0}));
  EXPECT_EQ(by_grain(40, 3, deepspeed), (Sizes{14, 13, 13}));
  EXPECT_EQ(kv_rows(384, 6, 6, 4, false), (Sizes{128, 128, 64, 64}));
  EXPECT_EQ(by_grain(130, 3, deepspeed), (Sizes{64, 64, 2}));
}

// DeepSpeed leaves some ranks without work in these cases; this implementation gives every rank a part.
TEST(TensorParallel, OurOwnShardSizes) {
  EXPECT_EQ(by_grain(11008, 3, {}), (Sizes{3712, 3648, 3648}));
  EXPECT_EQ(by_grain(130, 3, {}), (Sizes{64, 32, 34}));
  EXPECT_EQ(by_grain(96, 4, {}), (Sizes{32, 32, 16, 16}));
  EXPECT_EQ(by_grain(3, 4, {}), (Sizes{1, 1, 1, 0}));
  EXPECT_EQ(kv_rows(256, 16, 2, 4, true), (Sizes{128, 128, 128, 128}));
  EXPECT_EQ(kv_rows(128, 16, 1, 3, true), (Sizes{128, 128, 128}));
}

TEST(TensorParallel, RanksThatShareAKeyValueHeadShareItsQueryHeads) {
  const std::vector<HeadShard> expected = {
      {{0, 2}, {0, 1}}, {{2, 4}, {0, 1}}, {{4, 6}, {1, 2}}, {{6, 8}, {1, 2}}, {{8, 12}, {2, 3}}};
  EXPECT_EQ(split_heads(12, 3, 5), expected);
  // One query head a key/value head: nothing is left to share.
  const std::vector<HeadShard> lonely = {{{0, 1}, {0, 1}}, {{1, 1}, {0, 0}}, {{1, 2}, {1, 2}}};
  EXPECT_EQ(split_heads(2, 2, 3), lonely);
}

TEST(TensorParallel, SplitsCoverEverythingOnce) {
  std::mt19937 random(1);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
  for (int round = 0; round < 2000; ++round) {
    const int ranks = pick(1, 9);
    const int64_t total = pick(0, 700);
    for (const Tail tail : {Tail::SmallerGrain, Tail::LastRank}) {
      const ShardPolicy policy = {.grain = pick(1, 70), .tail = tail};
      const std::vector<Slice> slices = split_by_grain(total, ranks, policy);
      ASSERT_EQ(slices.size(), static_cast<size_t>(ranks));
      int64_t end = 0;
      for (const Slice& slice : slices) {
        EXPECT_EQ(slice.begin, end);
        EXPECT_GE(slice.size(), 0);
        end = slice.end;
      }
      EXPECT_EQ(end, total);
      if (tail == Tail::SmallerGrain && total >= ranks) {
        for (const Slice& slice : slices) EXPECT_GT(slice.size(), 0) << total << " over " << ranks;
      }
    }

    const int64_t kv_heads = pick(1, 6);
    const int64_t group = pick(1, 5);
    for (const bool replicate : {true, false}) {
      const std::vector<HeadShard> shards = split_heads(kv_heads * group, kv_heads, ranks, replicate);
      ASSERT_EQ(shards.size(), static_cast<size_t>(ranks));
      int64_t end = 0;
      int64_t kv_count = 0;
      for (const HeadShard& shard : shards) {
        EXPECT_EQ(shard.query.begin, end);
        end = shard.query.end;
        kv_count += shard.kv.size();
        EXPECT_EQ(shard.query.size() == 0, shard.kv.size() == 0);
        if (shard.kv.size() == 0) continue;
        // Attention requires: local query head h reads local key/value head h / (queries / keys).
        ASSERT_EQ(shard.query.size() % shard.kv.size(), 0);
        const int64_t local_group = shard.query.size() / shard.kv.size();
        for (int64_t h = 0; h < shard.query.size(); ++h) {
          EXPECT_EQ(shard.kv.begin + h / local_group, (shard.query.begin + h) / group);
        }
      }
      EXPECT_EQ(end, kv_heads * group);
      if (ranks <= kv_heads || !replicate) {
        EXPECT_EQ(kv_count, kv_heads);
      }
    }
  }
}

ModelConfig config_of(int64_t heads, int64_t kv_heads, int64_t head_dim) {
  ModelConfig config;
  config.num_attention_heads = heads;
  config.num_key_value_heads = kv_heads;
  config.head_dim = head_dim;
  config.intermediate_size = 96;
  config.vocab_size = 320;
  return config;
}

TEST(TensorParallel, PlansNameRanksThatHoldNothing) {
  EXPECT_TRUE(empty_shard_notes(plan_shards(config_of(8, 2, 8), 4)).empty());
  const std::vector<ModelShard> plan = plan_shards(config_of(2, 2, 8), 4);
  const ModelShard third = {2, 4, {1, 2}, {1, 2}, {64, 80}, {192, 256}};
  EXPECT_EQ(plan[2], third);
  const std::vector<std::string> notes = empty_shard_notes(plan);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0], "the model is too small for 4 ranks: rank 1, 3 holds no attention heads");
}

// The row of a fused matrix that each element of the three parts comes from, taken by the views that transformers'
// models take of the product: [part][head * head_dim + i].
std::vector<Sizes> reference_rows(const std::string& layout, const ModelConfig& config) {
  const int64_t heads = config.num_attention_heads, kv = config.num_key_value_heads, dim = config.head_dim;
  std::vector<Sizes> rows(3);
  if (layout == "codegen") {
    // view(4, -1), then query, value, key of local_dim each, then heads.
    const int64_t local = dim * heads / 4;
    for (int64_t block = 0; block < 4; ++block) {
      for (const int part : {0, 2, 1}) {
        const int64_t at = part == 0 ? 0 : part == 2 ? 1 : 2;
        for (int64_t i = 0; i < local; ++i) rows[static_cast<size_t>(part)].push_back((block * 3 + at) * local + i);
      }
    }
  } else if (layout == "bloom") {
    // view(kv, heads / kv + 2, dim); [:, :-2] are queries, [:, -2] keys, [:, -1] values.
    const int64_t group = heads / kv;
    for (int64_t k = 0; k < kv; ++k) {
      for (int64_t j = 0; j < group + 2; ++j) {
        Sizes& part = rows[j < group ? 0 : static_cast<size_t>(j - group + 1)];
        for (int64_t i = 0; i < dim; ++i) part.push_back((k * (group + 2) + j) * dim + i);
      }
    }
  } else {
    // split([heads * dim, kv * dim, kv * dim]).
    int64_t row = 0;
    for (size_t part = 0; part < 3; ++part) {
      for (int64_t i = 0; i < (part == 0 ? heads : kv) * dim; ++i) rows[part].push_back(row++);
    }
  }
  return rows;
}

TEST(TensorParallel, FusedLayouts) {
  struct Case {
    const char* layout;
    int64_t heads, kv;
  };
  const Case cases[] = {{"codegen", 8, 8}, {"bloom", 6, 6}, {"bloom", 8, 2}, {"glm", 8, 8},
                        {"glm", 8, 2},     {"qwen", 6, 6},  {"phi3", 8, 4},  {"bigcode", 8, 1}};
  for (const Case& c : cases) {
    const ModelConfig config = config_of(c.heads, c.kv, 4);
    const FusedQkv layout = fused_qkv_layout(c.layout);
    const std::vector<Sizes> expected = reference_rows(c.layout, config);
    for (const int ranks : {1, 2, 3, 4, 5}) {
      std::vector<Sizes> found(3);
      std::set<int64_t> all;
      for (const HeadShard& shard : split_heads(c.heads, c.kv, ranks, false)) {
        for (const QkvPart part : {QkvPart::Query, QkvPart::Key, QkvPart::Value}) {
          for (const Slice& rows :
               fused_qkv_rows(layout, config, part, part == QkvPart::Query ? shard.query : shard.kv)) {
            for (int64_t row = rows.begin; row < rows.end; ++row) {
              found[static_cast<size_t>(part)].push_back(row);
              EXPECT_TRUE(all.insert(row).second) << c.layout << ": row " << row << " twice";
            }
          }
        }
      }
      EXPECT_EQ(found, expected) << c.layout << " over " << ranks;
      EXPECT_EQ(all.size(), static_cast<size_t>((c.heads + 2 * c.kv) * 4));
    }
  }
  // Neighbours are one range.
  const std::vector<Slice> merged = {{8, 24}};
  EXPECT_EQ(fused_qkv_rows(FusedQkv::Stacked, config_of(8, 8, 4), QkvPart::Query, {2, 6}), merged);
}

TEST(TensorParallel, RefusesWhatCannotBe) {
  EXPECT_THROW(split_by_grain(10, 0), InvalidArgument);
  EXPECT_THROW(split_by_grain(-1, 2), InvalidArgument);
  EXPECT_THROW(split_by_grain(10, 2, {.grain = 0}), InvalidArgument);
  EXPECT_THROW(split_heads(5, 2, 2), InvalidArgument);
  EXPECT_THROW(split_heads(4, 0, 2), InvalidArgument);
  EXPECT_THROW(fused_qkv_layout("gpt2"), InvalidArgument);
  EXPECT_THROW(fused_qkv_rows(FusedQkv::FourBlocks, config_of(6, 6, 4), QkvPart::Query, {0, 6}), InvalidArgument);
  EXPECT_THROW(fused_qkv_rows(FusedQkv::FourBlocks, config_of(8, 4, 4), QkvPart::Query, {0, 8}), InvalidArgument);
  EXPECT_THROW(fused_qkv_rows(FusedQkv::Stacked, config_of(8, 4, 4), QkvPart::Key, {0, 5}), InvalidArgument);
}

}  // namespace
}  // namespace anyaccel::llm
