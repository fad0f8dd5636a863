// Models whose cache of keys and values is in int8 or fp8: text, logits, perplexity and memory beside those of the model's own
// dtype, in batches, with quantized weights, deterministically, and over several ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/make_model.h"
#include "anyaccel/llm/perplexity.h"
#include "anyaccel/llm/session.h"
#include "anyaccel/llm/text_generation.h"
#include "llm/decoding.h"
#include "llm/model_fixtures.h"
#include "llm/thread_ranks.h"
#include "test_paths.h"

namespace anyaccel::llm {
namespace {

using anyaccel::testing::decode;
using anyaccel::testing::run_ranks;
using Tokens = std::vector<std::vector<int32_t>>;

const std::string stories = std::string(ANYACCEL_SOURCE_DIR) + "/models/stories";

SessionOptions options_for(size_t sequences, CacheType cache) {
  SessionOptions options;
  options.sequences = static_cast<int64_t>(sequences);
  options.context = 128;
  options.cache = cache;
  return options;
}

ModelShape shape_of(int64_t heads, int64_t kv_heads, int64_t head_dim) {
  ModelShape shape = find_model_shape("tiny");
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  return shape;
}

// The logits after each of 60 tokens, in steps of one token from the 40th on.
std::vector<float> logits_of(const std::shared_ptr<const Model>& model, CacheType cache) {
  std::vector<int32_t> ids(60);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>((i * i * 7 + 3) % static_cast<size_t>(model->config().vocab_size));
  }
  Session session(model, options_for(1, cache));
  std::vector<float> all;
  for (size_t first = 0; first < ids.size();) {
    const size_t count = first == 0 ? 40 : 1;
    std::vector<int32_t> sequence(count, 0), positions(count), rows(count);
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first));
    std::iota(rows.begin(), rows.end(), 0);
    const auto some = session.forward({std::span(ids).subspan(first, count), sequence, positions}, rows);
    const std::vector<float> values = some.to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
    first += count;
  }
  return all;
}

double relative_difference(const std::vector<float>& expected, const std::vector<float>& found) {
  float largest = 0;
  float difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    difference = std::max(difference, std::abs(expected[i] - found[i]));
  }
  return static_cast<double>(difference) / static_cast<double>(largest);
}

TEST(QuantizedCacheModel, LogitsAreNearThoseOfTheModelsDtype) {
  for (const auto& [heads, kv_heads, size] : {std::array<int64_t, 3>{4, 2, 32}, {4, 1, 64}, {2, 2, 96}}) {
    const auto model = Model::random(*get_accelerator(), shape_of(heads, kv_heads, size), DType::F32, 3);
    const std::vector<float> expected = logits_of(model, CacheType::Model);
    for (const auto& [cache, limit] : {std::pair{CacheType::Int8, 0.02}, {CacheType::Fp8, 0.1}}) {
      const double difference = relative_difference(expected, logits_of(model, cache));
      EXPECT_LT(difference, limit) << size;
      EXPECT_GT(difference, 0.0) << size << ": nothing was rounded";
    }
  }
}

TEST(QuantizedCacheModel, GreedyTextOfTheBundledModelIsTheSameInHalfTheMemory) {
  TextGenerator generator = TextGenerator::load(stories);
  GenerateOptions options = generator.default_options();
  options.sampling = {};
  options.max_new_tokens = 60;
  const std::vector<std::string> prompts = {"Once upon a time", "The little dog"};
  const GenerateResult plain = generator.generate(prompts, options);
  options.cache = CacheType::Int8;
  const GenerateResult quantized = generator.generate(prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(quantized.completions[i].text, plain.completions[i].text);

  const auto model = Model::load(stories);
  const auto bytes = [&](CacheType cache) {
    return static_cast<double>(Session(model, options_for(3, cache)).cache_bytes());
  };
  const double bits = 8.0 * static_cast<double>(dtype_size(model->dtype()));
  EXPECT_DOUBLE_EQ(bytes(CacheType::Int8) / bytes(CacheType::Model), 8.5 / bits);
  EXPECT_DOUBLE_EQ(bytes(CacheType::Fp8) / bytes(CacheType::Model), 8 / bits);
}

TEST(QuantizedCacheModel, PerplexityHardlyChanges) {
  const auto data = nlohmann::json::parse(std::ifstream(anyaccel::testing::test_data() + "/perplexity.json"));
  const auto ids = data.at("ids").get<std::vector<int32_t>>();
  LoadOptions load;
  load.dtype = DType::F32;
  const auto model = Model::load(stories, load);
  PerplexityOptions options;
  options.window = 256;
  options.stride = 128;
  const double before = perplexity(model, ids, options).value;
  for (const auto& [cache, limit] : {std::pair{CacheType::Int8, 2e-3}, {CacheType::Fp8, 2e-2}}) {
    options.cache = cache;
    const double after = perplexity(model, ids, options).value;
    EXPECT_NEAR(after / before, 1.0, limit) << before << " and " << after;
    EXPECT_NE(after, before) << "nothing was rounded";
  }
}

TEST(QuantizedCacheModel, DeterministicTextDependsOnThePromptAlone) {
  const auto model = Model::random(*get_accelerator(), shape_of(4, 2, 32), DType::F32, 5);
  const Tokens prompts = {{1, 2, 3}, {9, 8, 7, 6, 5, 4, 3, 2, 1, 11, 12}, {40}};
  for (const CacheType cache : {CacheType::Int8, CacheType::Fp8}) {
    const auto run = [&](const Tokens& some) {
      SessionOptions options = options_for(some.size(), cache);
      options.deterministic = true;
      Session session(model, options);
      return decode(session, some, 12);
    };
    const Tokens together = run(prompts);
    for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(run({prompts[i]})[0], together[i]);
  }
}

TEST(QuantizedCacheModel, GraphsReplayIt) {
  if (!get_accelerator()->supports_graphs()) GTEST_SKIP() << get_accelerator()->name() << " has no graphs";
  const auto model = Model::random(*get_accelerator(), shape_of(4, 2, 32), DType::F32, 5);
  const auto run = [&](const char* backend) {
    const anyaccel::testing::BackendGuard guard(backend);
    Session session(model, options_for(2, CacheType::Fp8));
    const Tokens tokens = decode(session, Tokens{{1, 2, 3}, {5}}, 12);
    EXPECT_EQ(session.replayed_steps() > 0, std::string_view(backend) == "graph");
    return tokens;
  };
  EXPECT_EQ(run("graph"), run("eager"));
}

TEST(QuantizedCacheModel, RanksShareTheHeads) {
  if (!get_accelerator()->is_host_coherent()) GTEST_SKIP() << "ranks as threads need host memory";
  const ModelShape shape = shape_of(4, 2, 32);
  const Tokens prompts = {{1, 2, 3}, {9, 8, 7, 6}};
  const auto run = [&](const std::shared_ptr<comm::ProcessGroup>& group) {
    const auto model = Model::random(*get_accelerator(), shape, DType::F32, 5, group);
    Session session(model, options_for(prompts.size(), CacheType::Int8));
    return decode(session, prompts, 10);
  };
  const Tokens expected = run(nullptr);
  for (const int ranks : {2, 3}) {
    const auto body = [&](const auto& group) { EXPECT_EQ(run(group), expected) << ranks << " ranks"; };
    run_ranks(ranks, body);
    run_ranks(ranks, body, anyaccel::testing::Between::Messages);
  }
}

TEST(QuantizedCacheModel, HeadsThatAreNoWholeBlocksAreRefused) {
  const auto model = Model::random(*get_accelerator(), shape_of(4, 2, 16), DType::F32);
  try {
    Session session(model, options_for(1, CacheType::Int8));
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("have 16 elements; expected a multiple of 32"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace anyaccel::llm
