// Keys and values of a session's sequences: rows that continue each other's sequences, and contents that are taken to another
// session.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anyaccel/error.h"
#include "anyaccel/llm/session.h"
#include "llm/model_fixtures.h"

namespace anyaccel::llm {
namespace {

using Prompts = std::vector<std::vector<int32_t>>;

std::shared_ptr<const Model> load(const std::string& name) {
  LoadOptions options;
  options.dtype = DType::F32;
  return Model::load(anyaccel::testing::models_directory() + "/" + name, options);
}

// Rows that were rearranged give what the same texts give from the start.
TEST(SessionCache, RowsContinueEachOthersSequences) {
  const auto model = load("llama_gqa");
  const auto vocabulary = static_cast<size_t>(model->config().vocab_size);
  for (const CacheType cache : {CacheType::Model, CacheType::Int8}) {
    SessionOptions options;
    options.sequences = 4;
    options.context = 32;
    options.keep_logits = true;
    options.cache = cache;
    std::optional<Session> session;
    try {
      session.emplace(model, options);
    } catch (const Error&) {
      continue;  // heads that no quantized cache takes, or an accelerator without one
    }
    Prompts texts = {{5, 6, 7}, {8, 9}};
    session->start(texts, {}, 0);
    EXPECT_EQ(session->length(0), 4);
    EXPECT_EQ(session->length(1), 3);
    EXPECT_THROW(static_cast<void>(session->length(2)), InvalidArgument);
    const std::vector<std::vector<int32_t>> parents = {{0, 1, 0}, {2, 2, 1, 0}, {3, 1, 1, 1}, {0, 2}, {1, 0, 1}};
    int32_t token = 20;
    for (const auto& step : parents) {
      session->tokens();
      Prompts next;
      std::vector<int32_t> tokens;
      for (const int32_t parent : step) {
        next.push_back(texts[static_cast<size_t>(parent)]);
        next.back().push_back(token);
        tokens.push_back(token++);
      }
      texts = next;
      session->continue_as(step, tokens);
      session->step();
    }
    session->tokens();
    const std::vector<float> found = session->step_logits().to_vector<float>();
    Session fresh(model, options);
    fresh.start(texts, {}, 0);
    fresh.tokens();
    const std::vector<float> expected = fresh.step_logits().to_vector<float>();
    ASSERT_EQ(found.size(), texts.size() * vocabulary);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-4f) << i / vocabulary;
    EXPECT_THROW(session->continue_as(std::vector<int32_t>{3}, std::vector<int32_t>{1}), InvalidArgument);
    EXPECT_THROW(session->continue_as(std::vector<int32_t>{0}, std::vector<int32_t>{-1}), InvalidArgument);
    EXPECT_THROW(session->continue_as(std::vector<int32_t>(5, 0), std::vector<int32_t>(5, 1)), InvalidArgument);
  }
}

TEST(SessionCache, ContentsAreTakenToAnotherSession) {
  const auto model = load("llama_gqa");
  SessionOptions options;
  options.sequences = 2;
  options.context = 32;
  options.keep_logits = true;
  const Prompts texts = {{1, 2}, {5, 6, 7, 8, 9, 10}};
  Session first(model, options);
  first.start(texts, {}, 0);
  first.tokens();
  const std::string contents = first.cache_contents(1, 5);
  EXPECT_EQ(contents.size(), 5 * first.token_cache_bytes());
  const std::vector<float> expected = first.step_logits().to_vector<float>();
  options.context = 20;  // the cache's memory has other strides
  for (const int64_t used : {5, 2}) {
    Session second(model, options);
    second.restore_cache(1, used, contents, 5);
    second.start(texts, {}, 0, 0, {}, std::vector<int64_t>{0, used});
    second.tokens();
    const std::vector<float> found = second.step_logits().to_vector<float>();
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-4f);
    EXPECT_EQ(second.cache_contents(1, used).size(), static_cast<size_t>(used) * second.token_cache_bytes());
    EXPECT_THROW(second.restore_cache(1, 6, contents, 5), InvalidArgument);
    EXPECT_THROW(second.restore_cache(1, 0, contents, 5), InvalidArgument);
    EXPECT_THROW(second.restore_cache(2, 5, contents, 5), InvalidArgument);
    EXPECT_THROW(second.restore_cache(1, 5, contents.substr(1), 5), InvalidArgument);
    EXPECT_THROW(second.cache_contents(1, 21), InvalidArgument);
  }
}

}  // namespace
}  // namespace anyaccel::llm
