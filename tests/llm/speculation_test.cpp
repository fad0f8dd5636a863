// Speculative decoding: the tokens are the model's own, whoever puts them forward, and follow its distribution.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/text_generation.h"
#include "llm/generate/token_chooser.h"
#include "llm/model_fixtures.h"

namespace anyaccel::llm {
namespace {

using anyaccel::testing::load_reference_model;
using anyaccel::testing::models_directory;

std::shared_ptr<const Model> load_model(const std::string& name) {
  LoadOptions options;
  options.dtype = DType::F32;
  return Model::load(models_directory() + "/" + name, options);
}

// The value that chi-square with this many degrees of freedom exceeds once in a million times, by the approximation of
// Wilson and Hilferty.
double chi_square_limit(double freedom) {
  const double z = 4.75;
  return freedom * std::pow(1 - 2 / (9 * freedom) + z * std::sqrt(2 / (9 * freedom)), 3);
}

class Speculations : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = load_model("llama_gqa");
    other_ = load_model(other_name);
    ASSERT_EQ(model_->config().vocab_size, other_->config().vocab_size);
  }
  static void TearDownTestSuite() {
    model_.reset();
    other_.reset();
  }
  static TextGenerator generator(const std::vector<int32_t>& eos = {}) {
    GenerationConfig config;
    config.eos_token_ids = eos;
    return {model_, nullptr, config};
  }
  static std::vector<Speculation> all() {
    return {{.model = model_, .ngrams = 0, .tokens = 5},
            {.model = other_, .ngrams = 0, .tokens = 3},
            {.model = nullptr, .ngrams = 3, .tokens = 6},
            {.model = nullptr, .ngrams = 1, .tokens = 1},
            // More than any text has.
            {.model = nullptr, .ngrams = INT32_MAX, .tokens = 2}};
  }

  static constexpr const char* other_name = "qwen3";
  static inline std::shared_ptr<const Model> model_, other_;
};

// Greedy: with penalties and rules, which change from token to token, ends and stops.
TEST_F(Speculations, GreedyTokensAreThoseOfTheModelAlone) {
  std::vector<std::vector<int32_t>> prompts = {load_reference_model("llama_gqa").run.prompt_ids, {5, 6, 7, 5, 6}};
  const bool deterministic = get_accelerator()->name() == "cpu";
  for (const bool ruled : {false, true}) {
    TextGenerator made = generator();
    GenerateOptions options = made.default_options();
    options.max_new_tokens = 40;
    options.deterministic = deterministic;
    if (ruled) {
      const GenerateResult plain = made.generate_ids(prompts, options);
      options.sampling.repetition_penalty = 1.1f;
      options.sampling.frequency_penalty = 0.4f;
      options.rules.no_repeat_ngram_size = 3;
      options.rules.min_new_tokens = 3;
      options.rules.begin_suppress_tokens = {plain.completions[0].token_ids[0], plain.completions[1].token_ids[0]};
      options.top_logprobs = 1;
    }
    const GenerateResult alone = made.generate_ids(prompts, options);
    // It ends at a token of the answer.
    TextGenerator ending = generator({alone.completions[0].token_ids[20]});
    const GenerateResult ended = ending.generate_ids(prompts, options);
    for (const Speculation& speculation : all()) {
      options.speculation = speculation;
      const GenerateResult result = made.generate_ids(prompts, options);
      const GenerateResult other_end = ending.generate_ids(prompts, options);
      for (size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_EQ(result.completions[i].token_ids, alone.completions[i].token_ids) << i;
        EXPECT_EQ(other_end.completions[i].token_ids, ended.completions[i].token_ids) << i;
        EXPECT_EQ(other_end.completions[i].finish_reason, ended.completions[i].finish_reason) << i;
        ASSERT_EQ(result.completions[i].logprobs.size(), alone.completions[i].logprobs.size());
        for (size_t t = 0; t < result.completions[i].logprobs.size(); ++t) {
          EXPECT_NEAR(result.completions[i].logprobs[t].logprob, alone.completions[i].logprobs[t].logprob, 1e-4);
        }
      }
      EXPECT_GT(result.timings.draft_tokens, 0);
      EXPECT_LE(result.timings.accepted_tokens, result.timings.draft_tokens);
      // The model agrees with itself, so that far fewer steps are needed.
      if (speculation.model == model_ && !ruled) {
        EXPECT_LT(result.timings.decode_steps, 20);
      }
    }
    options.speculation.reset();
  }
}

// A seed's tokens depend neither on the size of the session, which an earlier call may have made, nor on other prompts.
TEST_F(Speculations, DrawnTokensDependOnThePromptAndTheSeedAlone) {
  const bool deterministic = get_accelerator()->name() == "cpu";
  if (!deterministic) GTEST_SKIP() << "only cpu promises logits that do not depend on the session";
  const std::vector<std::vector<int32_t>> prompts = {{5, 6, 7, 5, 6}, load_reference_model("llama_gqa").run.prompt_ids};
  for (const Speculation& speculation : all()) {
    GenerateOptions options;
    options.deterministic = true;
    options.speculation = speculation;
    options.sampling.temperature = 1.0f;
    for (uint64_t seed = 0; seed < 8; ++seed) {
      options.seed = seed;
      options.max_new_tokens = 6;
      TextGenerator fresh = generator(), used = generator();
      const std::vector<int32_t> alone =
          fresh.generate_ids(std::span(prompts).first(1), options).completions[0].token_ids;
      const GenerateResult both = used.generate_ids(prompts, options);
      EXPECT_EQ(both.completions[0].token_ids, alone) << "beside another prompt, seed " << seed;
      EXPECT_EQ(used.generate_ids(std::span(prompts).first(1), options).completions[0].token_ids, alone)
          << "in a larger session, seed " << seed;
    }
  }
}

// The model is its own draft, so that the draft's tokens are those of the answer: each is drawn anew, whatever was drawn before it.
TEST_F(Speculations, NeighbouringTokensAreDrawnIndependently) {
  const std::vector<std::vector<int32_t>> prompts = {{5, 6, 7, 5, 6}};
  TextGenerator made = generator();
  GenerateOptions options = made.default_options();
  options.max_new_tokens = 2;
  options.sampling.temperature = 1000;  // two tokens of equal probability
  options.sampling.top_k = 2;
  options.speculation = Speculation{.model = model_, .ngrams = 0, .tokens = 1};
  std::map<std::vector<int32_t>, int> pairs;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    options.seed = seed;
    ++pairs[made.generate_ids(prompts, options).completions[0].token_ids];
  }
  // Each of the four comes 15 times on average; 3 or fewer have a chance of one in ten thousand.
  EXPECT_EQ(pairs.size(), 4u);
  for (const auto& [tokens, count] : pairs) EXPECT_GT(count, 3);
}

// Without drafts the same holds: the rows of a batch draw different numbers, and so do calls without a seed.
TEST_F(Speculations, AnswersAreDrawnIndependently) {
  const std::vector<std::vector<int32_t>> prompts(3, {5, 6, 7, 5, 6});
  for (const Speculation& speculation : all()) {
    TextGenerator made = generator();
    GenerateOptions options = made.default_options();
    options.max_new_tokens = 12;
    options.sampling.temperature = 1;
    options.speculation = speculation;
    const auto answers = [&] {
      std::vector<std::vector<int32_t>> tokens;
      for (const Completion& completion : made.generate_ids(prompts, options).completions) {
        tokens.push_back(completion.token_ids);
      }
      return tokens;
    };
    const auto one = answers(), other = answers();
    EXPECT_NE(one[0], one[1]);
    EXPECT_NE(one[1], one[2]);
    EXPECT_NE(one[0], other[0]);
    options.seed = 1;
    EXPECT_EQ(answers(), answers());
    options.seed.reset();
    options.deterministic = get_accelerator()->name() == "cpu";
    if (!options.deterministic) continue;
    const auto later = answers();
    EXPECT_EQ(later[0], later[1]) << "the same prompt has the same text";
    EXPECT_NE(later[0], answers()[0]);
  }
}

// The same logits, bit for bit, for tokens that are checked together and one by one: what equality of greedy texts relies on.
TEST_F(Speculations, TokensCheckedTogetherHaveTheLogitsOfSingleOnes) {
  if (get_accelerator()->name() != "cpu") GTEST_SKIP() << "only cpu promises it";
  const std::vector<int32_t> tokens = load_reference_model("llama_gqa").run.prompt_ids;
  const std::vector<int32_t> sequence(tokens.size(), 0);
  std::vector<int32_t> positions;
  for (size_t i = 0; i < tokens.size(); ++i) positions.push_back(static_cast<int32_t>(i));
  const SessionOptions options{.sequences = 1, .context = 64, .deterministic = true};
  Session together(model_, options), single(model_, options);
  const std::vector<float> all = together.forward({tokens, sequence, positions}, positions).to_vector<float>();
  const size_t vocabulary = all.size() / tokens.size();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto one = [&](const std::vector<int32_t>& values) { return std::span(values).subspan(i, 1); };
    const int32_t row = 0;
    const std::vector<float> logits =
        single.forward({one(tokens), one(sequence), one(positions)}, {&row, 1}).to_vector<float>();
    EXPECT_TRUE(std::equal(logits.begin(), logits.end(), all.begin() + static_cast<ptrdiff_t>(i * vocabulary))) << i;
  }
}

// Draws with drafts of several distributions follow the model's.
TEST(TokenChoosers, DraftsDoNotChangeTheDistribution) {
  const Sampling sampling{.temperature = 1.0f};
  const std::vector<float> logits = {0.0f, 1.0f, -1.0f, 2.0f, 0.5f, -30.0f};
  const std::vector<double> p = token_probabilities(logits, sampling);
  for (const std::vector<double>& q : std::vector<std::vector<double>>{
           {0.1, 0.2, 0.3, 0.1, 0.1, 0.2}, {0.0, 1.0, 0.0, 0.0, 0.0, 0.0}, {0.5, 0.5}, {}, p}) {
    TokenChooser chooser(sampling, {}, 6), drafts(sampling, {}, 6);
    chooser.start({0}, 3);
    drafts.start({0}, 4);
    constexpr int draws = 40000;
    std::vector<int> counts(p.size());
    int accepted = 0;
    for (int i = 0; i < draws; ++i) {
      // Without probabilities the token is certain: the last likely one.
      const TokenChooser::Draft draft{q.empty() ? 4 : drafts.draw(q), q};
      const TokenChooser::Choice choice = chooser.choose(logits, draft);
      ++counts[static_cast<size_t>(choice.token)];
      accepted += choice.accepted ? 1 : 0;
      EXPECT_TRUE(!choice.accepted || choice.token == draft.token);
    }
    double chi_square = 0;
    for (size_t id = 0; id + 1 < p.size(); ++id) {
      const double expected = p[id] * draws;
      chi_square += (counts[id] - expected) * (counts[id] - expected) / expected;
    }
    EXPECT_LT(chi_square, chi_square_limit(4)) << q.size();
    // The share of drafts that are taken is the overlap of the distributions.
    double overlap = 0;
    for (size_t id = 0; id < p.size(); ++id) {
      overlap += std::min(p[id], q.empty() ? (id == 4 ? 1.0 : 0.0) : id < q.size() ? q[id] : 0.0);
    }
    EXPECT_NEAR(static_cast<double>(accepted) / draws, overlap, 0.02);
  }
}

TEST_F(Speculations, RefuseWhatTheyCannotDo) {
  TextGenerator made = generator();
  const auto refused = [&](const Speculation& speculation) {
    GenerateOptions options = made.default_options();
    options.max_new_tokens = 2;
    options.speculation = speculation;
    EXPECT_THROW(made.generate_ids(std::vector<std::vector<int32_t>>{{5}}, options), InvalidArgument);
  };
  refused({});
  refused({.model = other_, .ngrams = 2});
  refused({.model = nullptr, .ngrams = -1});
  refused({.model = nullptr, .ngrams = 2, .tokens = 0});
  refused({.model = nullptr, .ngrams = 2, .tokens = max_draft_tokens + 1});
  GenerateOptions options = made.default_options();
  options.speculation = Speculation{.model = nullptr, .ngrams = 2};
  options.reuse_cache = true;
  EXPECT_THROW(made.generate_ids(std::vector<std::vector<int32_t>>{{5}}, options), InvalidArgument);
}

}  // namespace
}  // namespace anyaccel::llm
