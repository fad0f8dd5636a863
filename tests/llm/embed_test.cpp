// Embeddings of texts against transformers' last hidden states (tests/data/embeddings.json, made by
// tools/embed_fixtures.py).
#include "anyaccel/llm/embed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/make_model.h"
#include "anyaccel/llm/session.h"
#include "llm/thread_ranks.h"
#include "test_paths.h"

namespace anyaccel::llm {
namespace {

std::shared_ptr<const Model> load_for_embedding(const std::string& name,
                                                std::shared_ptr<comm::ProcessGroup> group = nullptr) {
  LoadOptions options;
  options.dtype = DType::F32;
  options.group = std::move(group);
  return Model::load(anyaccel::testing::test_data() + "/" + name, options);
}

void expect_near(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  float largest = 0, difference = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    difference = std::max(difference, std::abs(found[i] - expected[i]));
  }
  EXPECT_LT(difference, 1e-4f * largest);
}

TEST(Embed, IsThatOfTransformers) {
  for (const auto& given : nlohmann::json::parse(std::ifstream(anyaccel::testing::test_data() + "/embeddings.json"))) {
    SCOPED_TRACE(given.at("model").get<std::string>());
    const auto ids = given.at("ids").get<std::vector<int32_t>>();
    const auto mean = given.at("mean").get<std::vector<float>>(), last = given.at("last").get<std::vector<float>>();
    const auto model = load_for_embedding(given.at("model"));
    expect_near(embed(model, ids, Pooling::Mean), mean);
    expect_near(embed(model, ids, Pooling::Last), last);
    anyaccel::testing::run_ranks(2, [&](const std::shared_ptr<comm::ProcessGroup>& group) {
      const auto shard = load_for_embedding(given.at("model"), group);
      expect_near(embed(shard, ids, Pooling::Mean), mean);
    });
  }
}

// A text of two chunks: the mean is that of the states of all tokens.
TEST(Embed, LongTextsRunInChunks) {
  ModelShape shape = find_model_shape("tiny");
  shape.max_positions = 600;
  const auto model = Model::random(*get_accelerator(), shape, DType::F32, 1);
  const auto width = static_cast<size_t>(shape.hidden_size);
  std::vector<int32_t> ids(600), rows(ids.size()), sequence(ids.size(), 0);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>((i * 37 + 11) % static_cast<size_t>(shape.vocab_size));
    rows[i] = static_cast<int32_t>(i);
  }
  Session session(model, {.sequences = 1, .context = 600, .chunk = 64});
  const std::vector<float> states = session.hidden_states({ids, sequence, rows}, rows).to_vector<float>();
  std::vector<float> mean(width, 0.0f);
  for (size_t i = 0; i < states.size(); ++i) mean[i % width] += states[i] / 600.0f;
  expect_near(embed(model, ids, Pooling::Mean), mean);
  expect_near(embed(model, ids, Pooling::Last),
              std::vector<float>(states.end() - static_cast<ptrdiff_t>(width), states.end()));
}

TEST(Embed, WrongIdsAreRefused) {
  const auto model = load_for_embedding("models/llama_gqa");
  EXPECT_THROW(embed(model, {}, Pooling::Mean), InvalidArgument);
  EXPECT_THROW(embed(model, std::vector<int32_t>{1, 320}, Pooling::Mean), InvalidArgument);
  EXPECT_THROW(embed(model, std::vector<int32_t>(257, 1), Pooling::Last), InvalidArgument);
}

}  // namespace
}  // namespace anyaccel::llm
