// The choice of experts on the host, against sums written out here.
#include "llm/generate/expert_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>

namespace anyaccel::llm {
namespace {

ExpertsConfig experts_of(int64_t count, int64_t per_token, bool normalizes, int64_t shared_inner = 0) {
  ExpertsConfig config;
  config.count = count;
  config.per_token = per_token;
  config.normalizes = normalizes;
  config.shared_inner = shared_inner;
  return config;
}

TEST(ExpertChoice, TakesTheLargestAndOfEqualOnesTheFirst) {
  const std::vector<float> logits = {1, 3, 3, 0, /**/ 2, 2, 2, 2};
  ExpertChoice choice;
  choose_experts(experts_of(4, 2, true), logits, {}, {}, choice);
  EXPECT_EQ(choice.rows, (std::vector<Slice>{{0, 1}, {1, 3}, {3, 4}, {4, 4}}));
  EXPECT_EQ(choice.row_tokens, (std::vector<int32_t>{1, 0, 1, 0}));
  EXPECT_EQ(choice.choice_rows, (std::vector<int32_t>{1, 3, 0, 2}));
  EXPECT_EQ(choice.weights, (std::vector<float>{0.5f, 0.5f, 0.5f, 0.5f}));
}

TEST(ExpertChoice, HasEachTokensExpertsOnce) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const bool normalizes : {true, false}) {
    for (const int64_t shared : {0, 1}) {
      constexpr int64_t tokens = 17, count = 9, per_token = 4;
      std::vector<float> logits(tokens * count), gates(tokens);
      for (float& value : logits) value = 3 * normal(random);
      for (float& value : gates) value = normal(random);
      ExpertChoice choice;
      choose_experts(experts_of(count, per_token, normalizes, shared), logits,
                     shared != 0 ? gates : std::vector<float>{}, {}, choice);
      ASSERT_EQ(choice.choices, per_token + shared);
      for (int64_t token = 0; token < tokens; ++token) {
        const float* const of = &logits[static_cast<size_t>(token * count)];
        std::vector<int64_t> order(count);
        std::iota(order.begin(), order.end(), 0);
        std::ranges::sort(order, [&](int64_t a, int64_t b) { return of[a] > of[b]; });
        std::sort(order.begin(), order.begin() + per_token);
        double all = 0, chosen = 0;
        for (int64_t i = 0; i < count; ++i) all += std::exp(static_cast<double>(of[i]));
        for (int64_t i = 0; i < per_token; ++i)
          chosen += std::exp(static_cast<double>(of[order[static_cast<size_t>(i)]]));
        for (int64_t i = 0; i < choice.choices; ++i) {
          const auto at = static_cast<size_t>(token * choice.choices + i);
          const bool is_shared = i == per_token;
          const int64_t expert = is_shared ? count : order[static_cast<size_t>(i)];
          const int64_t row = choice.choice_rows[at];
          EXPECT_EQ(choice.row_tokens[static_cast<size_t>(row)], token);
          EXPECT_GE(row, choice.rows[static_cast<size_t>(expert)].begin);
          EXPECT_LT(row, choice.rows[static_cast<size_t>(expert)].end);
          const double weight = is_shared ? 1 / (1 + std::exp(-static_cast<double>(gates[static_cast<size_t>(token)])))
                                          : std::exp(static_cast<double>(of[expert])) / (normalizes ? chosen : all);
          EXPECT_NEAR(choice.weights[at], weight, 1e-6);
        }
      }
    }
  }
}

// DeepSeek V3: the scores are sigmoids, the choice is by them plus a bias among the best groups, a group is as good as
// its best two, and the weights are the scores alone.
TEST(ExpertChoice, ByGroupsAndABias) {
  ExpertsConfig config = experts_of(6, 2, true);
  config.uses_sigmoid = config.groups_by_two = true;
  config.scale = 2.0f;
  config.groups = 3;
  const auto logit = [](float score) { return std::log(score / (1 - score)); };
  // With the bias: 0.9 0.1 | 0.6 0.5 | 0.8 0.35. The best groups are the third (1.15) and the second (1.1).
  const std::vector<float> logits = {logit(0.9f), logit(0.1f), logit(0.6f), logit(0.3f), logit(0.5f), logit(0.35f)};
  const std::vector<float> bias = {0, 0, 0, 0.2f, 0.3f, 0};
  ExpertChoice choice;
  for (const auto& [groups, first, second] : {std::tuple(1, 4, 5), {2, 2, 4}, {3, 0, 4}}) {
    config.groups_per_token = groups;
    choose_experts(config, logits, {}, bias, choice);
    std::vector<Slice> rows(6);
    for (int i = 0; i < 6; ++i) rows[static_cast<size_t>(i)] = {i > first ? 1 : 0, i > first ? 1 : 0};
    for (int i = second; i < 6; ++i) rows[static_cast<size_t>(i)] = {2, 2};
    rows[static_cast<size_t>(first)] = {0, 1};
    rows[static_cast<size_t>(second)] = {1, 2};
    EXPECT_EQ(choice.rows, rows) << groups;
    const std::vector<float> scores = {0.9f, 0.1f, 0.6f, 0.3f, 0.5f, 0.35f};
    const float sum = scores[static_cast<size_t>(first)] + scores[static_cast<size_t>(second)];
    EXPECT_NEAR(choice.weights[0], 2 * scores[static_cast<size_t>(first)] / sum, 1e-6) << groups;
    EXPECT_NEAR(choice.weights[1], 2 * scores[static_cast<size_t>(second)] / sum, 1e-6) << groups;
  }
}

TEST(ExpertChoice, PassesOnWhatIsNoNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ExpertChoice choice;
  choose_experts(experts_of(3, 2, true), std::vector<float>{nan, 1, 2, /**/ nan, nan, nan}, {}, {}, choice);
  EXPECT_EQ(choice.rows.back().end, 4);
  for (const float weight : choice.weights) EXPECT_TRUE(std::isnan(weight));
}

}  // namespace
}  // namespace anyaccel::llm
