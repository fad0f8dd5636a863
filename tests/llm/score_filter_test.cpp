// Scores that the host filters: the probabilities that transformers' processors leave, with typical_p among them.
#include "llm/generate/score_filter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "test_paths.h"

namespace anyaccel::llm {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<double> softmax(const std::vector<float>& scores) {
  std::vector<double> result;
  double total = 0;
  for (const float score : scores) {
    result.push_back(std::exp(static_cast<double>(score)));
    total += result.back();
  }
  for (double& value : result) value /= total;
  return result;
}

TEST(ScoreFilter, LeavesTheProbabilitiesOfTransformers) {
  const auto data = nlohmann::json::parse(std::ifstream(anyaccel::testing::test_data() + "/generation_settings.json"));
  size_t cases = 0;
  for (const char* list : {"distributions", "typical"}) {
    for (const auto& given : data.at(list)) {
      const auto& settings = given.at("settings");
      const Sampling sampling{.temperature = settings.value("temperature", 1.0f),
                              .top_k = settings.value("top_k", 0),
                              .top_p = settings.value("top_p", 1.0f),
                              .min_p = settings.value("min_p", 0.0f),
                              .typical_p = settings.value("typical_p", 1.0f)};
      EXPECT_EQ(needs_score_filter(sampling), settings.contains("typical_p"));
      std::vector<float> scores;
      for (const auto& logit : given.at("logits")) scores.push_back(logit.is_null() ? -infinity : logit.get<float>());
      filter_scores(scores, sampling);
      const std::vector<double> found = softmax(scores);
      for (size_t token = 0; token < found.size(); ++token) {
        EXPECT_NEAR(found[token], given.at("probabilities")[token].get<double>(), 1e-6)
            << settings << " token " << token;
      }
      ++cases;
    }
  }
  EXPECT_GT(cases, 30u);
}

// As in transformers: top_p ends with the token that reaches it exactly, min_p and typical_p keep tokens that are exactly at the limit.
TEST(ScoreFilter, KeepsTokensAtTheLimit) {
  const auto left = [](std::vector<float> scores, const Sampling& sampling) {
    filter_scores(scores, sampling);
    std::vector<size_t> kept;
    for (size_t i = 0; i < scores.size(); ++i) {
      if (std::isfinite(scores[i])) kept.push_back(i);
    }
    return kept;
  };
  const std::vector<float> equal(4, 1.0f);
  EXPECT_EQ(left(equal, {.temperature = 1.0f, .top_p = 0.5f}), (std::vector<size_t>{0, 1}));
  EXPECT_EQ(left(equal, {.temperature = 1.0f, .min_p = 1.0f}), (std::vector<size_t>{0, 1, 2, 3}));
  EXPECT_EQ(left(equal, {.temperature = 1.0f, .typical_p = 0.5f}), (std::vector<size_t>{0, 1, 2, 3}));
}

TEST(ScoreFilter, LeavesOneTokenAndRowsWithoutAFiniteMaximum) {
  const Sampling narrow{.temperature = 1e-3f, .top_k = 5, .top_p = 1e-6f, .min_p = 1.0f, .typical_p = 1e-6f};
  std::vector<float> scores = {-infinity, 3.0f, 2.0f, 4.0f, -1e30f};
  filter_scores(scores, narrow);
  EXPECT_EQ(scores, (std::vector<float>{-infinity, -infinity, -infinity, scores[3], -infinity}));
  EXPECT_TRUE(std::isfinite(scores[3]));
  for (const std::vector<float>& row :
       {std::vector<float>{-infinity, -infinity}, std::vector<float>{infinity, 1.0f}, std::vector<float>{}}) {
    std::vector<float> same = row;
    filter_scores(same, narrow);
    EXPECT_EQ(same, row);
  }
  std::vector<float> invalid = {1.0f, std::nanf(""), 2.0f};
  filter_scores(invalid, narrow);
  EXPECT_TRUE(std::isnan(invalid[1]) && invalid[0] == 1.0f);
  EXPECT_FALSE(needs_score_filter({.temperature = 0.0f, .typical_p = 0.5f}));
}

}  // namespace
}  // namespace anyaccel::llm
