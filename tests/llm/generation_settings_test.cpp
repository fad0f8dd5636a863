// The settings of generation_config.json: what transformers does with each is done, or a warning names the field.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/text_generation.h"
#include "llm/damaged_model.h"
#include "llm/decoding.h"
#include "llm/generate/log_probabilities.h"
#include "llm/generate/logit_bias.h"
#include "llm/generate/score_filter.h"
#include "llm/model_fixtures.h"
#include "llm/tokenizer/byte_tokenizer.h"

namespace anyaccel::llm {
namespace {

using anyaccel::testing::BackendGuard;
using anyaccel::testing::load_reference_model;
using nlohmann::json;
using Prompts = std::vector<std::vector<int32_t>>;

const json& expected_settings() {
  static const json data = json::parse(std::ifstream(anyaccel::testing::test_data() + "/generation_settings.json"));
  return data;
}

class Settings : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    LoadOptions options;
    options.dtype = DType::F32;
    model_ = Model::load(anyaccel::testing::models_directory() + "/llama_gqa", options);
  }
  static void TearDownTestSuite() { model_.reset(); }

  // With what a generation_config.json of these settings says.
  static TextGenerator generator(json settings) {
    if (!settings.contains("eos_token_id")) settings["eos_token_id"] = nullptr;
    return {model_, nullptr, parse_generation_config(settings.dump(), "generation_config.json")};
  }
  static std::vector<int32_t> answer(const json& settings, const std::vector<int32_t>& prompt) {
    TextGenerator made = generator(settings);
    GenerateOptions options = made.default_options();
    options.max_new_tokens = expected_settings().at("max_new_tokens").get<int64_t>();
    return made.generate_ids(Prompts{prompt}, options).completions[0].token_ids;
  }

  static inline std::shared_ptr<const Model> model_;
};

TEST_F(Settings, AnswersAreThoseOfTransformers) {
  for (const char* backend : {"eager", "graph"}) {
    const BackendGuard guard(backend);
    for (const json& given : expected_settings().at("greedy")) {
      EXPECT_EQ(answer(given.at("settings"), given.at("prompt_ids")), given.at("ids").get<std::vector<int32_t>>())
          << backend << " " << given.at("settings");
    }
  }
}

// Prompts of a batch that ends one by one: rows of biases and counts move with their sequences.
TEST_F(Settings, BatchesGiveWhatSinglePromptsGive) {
  const auto run = load_reference_model("llama_gqa");
  Prompts prompts = {run.run.prompt_ids, {1}};
  for (const auto& other : run.batch) prompts.push_back(other.prompt_ids);
  const json settings = {{"no_repeat_ngram_size", 2},
                         {"sequence_bias", {{{7}, 3.0}, {{9, 11}, 4.0}}},
                         {"bad_words_ids", {{20}, {204, 181}}},
                         {"presence_penalty", 0.5},
                         {"frequency_penalty", 1.5},
                         {"min_new_tokens", 4},
                         {"repetition_penalty", 1.1}};
  TextGenerator plain = generator(settings);
  GenerateOptions options = plain.default_options();
  options.max_new_tokens = 20;
  Prompts single;
  for (const auto& prompt : prompts) {
    single.push_back(plain.generate_ids(Prompts{prompt}, options).completions[0].token_ids);
  }
  // Each prompt ends at a token of its own answer.
  json ending = settings;
  ending["eos_token_id"] = {single[0][5], single[1][9], single[2][14]};
  ending["min_new_tokens"] = 0;
  TextGenerator together = generator(ending);
  const GenerateResult result = together.generate_ids(prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<int32_t> alone = together.generate_ids(Prompts{prompts[i]}, options).completions[0].token_ids;
    EXPECT_EQ(result.completions[i].token_ids, alone) << i;
    EXPECT_LT(alone.size(), i < 3 ? 20u : 21u);
  }
}

// As in transformers, a minimum of the answer takes the place of one of prompt and answer.
TEST_F(Settings, MinNewTokensComesBeforeMinLength) {
  const Prompts prompts = {load_reference_model("llama_gqa").run.prompt_ids};
  const auto answer = [&](const json& settings) {
    TextGenerator made = generator(settings);
    GenerateOptions options = made.default_options();
    options.max_new_tokens = 12;
    return made.generate_ids(prompts, options).completions[0].token_ids;
  };
  const int32_t end = answer({{"repetition_penalty", 1.5}})[5];
  json settings = {{"repetition_penalty", 1.5}, {"eos_token_id", end}, {"min_new_tokens", 2}};
  const std::vector<int32_t> expected = answer(settings);
  ASSERT_LT(expected.size(), 7u);
  settings["min_length"] = 1000;
  EXPECT_EQ(answer(settings), expected);
  settings["min_new_tokens"] = 0;  // is given too
  EXPECT_LT(answer(settings).size(), 7u);
  settings["min_new_tokens"] = nullptr;
  EXPECT_EQ(answer(settings).size(), 12u);
}

// A row of biases that stays the same from token to token is written once, and moves with its sequence.
TEST_F(Settings, BiasesThatDoNotChangeMoveWithTheirSequence) {
  const std::vector<int32_t> prompt = {1, 5, 9, 13};
  Session alone(model_, {.sequences = 1, .context = 32, .chunk = 32}),
      batch(model_, {.sequences = 2, .context = 32, .chunk = 32});
  const std::vector<int32_t> free = anyaccel::testing::decode(alone, Prompts{prompt}, 4)[0];
  // All that it says is forbidden for it, and allowed after the longer prompt, whose row it takes over.
  TokenRules rules;
  rules.min_length = 20;
  rules.eos_token_ids = free;
  const auto tokens_after = [&](Session& session, const Prompts& prompts, size_t kept) {
    session.start(prompts, {}, 0, 0, rules);
    const auto keep = std::make_unique<bool[]>(prompts.size());
    keep[kept] = true;
    session.retain({keep.get(), prompts.size()});
    std::vector<int32_t> tokens;
    for (int i = 0; i < 6; ++i) {
      tokens.push_back(session.tokens()[0]);
      session.step();
    }
    return tokens;
  };
  const std::vector<int32_t> found = tokens_after(batch, {std::vector<int32_t>(20, 3), prompt}, 1);
  EXPECT_EQ(found, tokens_after(alone, {prompt}, 0));
  for (const int32_t token : found) EXPECT_EQ(std::count(free.begin(), free.end(), token), 0) << token;
}

// One session with rules, without, and with them again: what was captured for one is not replayed for the other.
TEST_F(Settings, RulesThatComeAndGoBetweenTexts) {
  const Prompts prompts = {load_reference_model("llama_gqa").run.prompt_ids};
  for (const char* backend : {"eager", "graph"}) {
    const BackendGuard guard(backend);
    TextGenerator plain = generator(json::object()), fresh = generator(json::object()),
                  used = generator(json::object());
    GenerateOptions free = plain.default_options();
    free.max_new_tokens = 12;
    const std::vector<int32_t> without = plain.generate_ids(prompts, free).completions[0].token_ids;
    GenerateOptions ruled = free;
    ruled.rules.suppress_tokens = without;
    const std::vector<int32_t> with = fresh.generate_ids(prompts, ruled).completions[0].token_ids;
    EXPECT_NE(with, without);
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(used.generate_ids(prompts, ruled).completions[0].token_ids, with) << backend << " " << round;
      EXPECT_EQ(used.generate_ids(prompts, free).completions[0].token_ids, without) << backend << " " << round;
    }
  }
}

// The rule for each token by itself: which ids are forbidden or biased in the row for the next one.
TEST(LogitBiases, RulesAtTheBeginningOfTexts) {
  const auto rows = [](const TokenRules& rules, const std::vector<int32_t>& prompt,
                       const std::vector<int32_t>& answer) {
    LogitBias bias(rules, 8);
    bias.start(std::span(&prompt, 1));
    std::vector<std::vector<float>> all;
    const auto add = [&] {
      const std::span<const float> row = bias.next_row(0);
      all.push_back(row.empty() ? all.back() : std::vector<float>(row.begin(), row.end()));
    };
    add();
    for (const int32_t token : answer) {
      bias.push(0, token);
      add();
    }
    return all;
  };
  TokenRules sequences;
  sequences.sequence_bias = {{{3}, 5.0f}, {{1, 2}, 2.0f}, {{3}, -1.0f}};
  const auto biased = rows(sequences, {1}, {2});
  EXPECT_EQ(biased[0][3], -1.0f) << "the later entry of the same ids counts";
  EXPECT_EQ(biased[0][2], 2.0f) << "a prompt that is all but the last of the ids";
  EXPECT_EQ(biased[1][2], 0.0f);
  TokenRules begins;
  begins.begin_suppress_tokens = {4};
  begins.forced_bos_token_id = 6;
  const auto after_forced = rows(begins, {1}, {6, 5});
  EXPECT_EQ(after_forced[0][6], 0.0f);
  EXPECT_EQ(after_forced[0][5], -INFINITY);
  EXPECT_EQ(after_forced[1][4], -INFINITY) << "the first token that is chosen follows the forced one";
  EXPECT_EQ(after_forced[2][4], 0.0f);
  const auto not_forced = rows(begins, {1, 2}, {5});
  EXPECT_EQ(not_forced[0][4], -INFINITY);
  EXPECT_EQ(not_forced[0][5], 0.0f);
  EXPECT_EQ(not_forced[1][4], 0.0f);
  TokenRules ends;
  ends.forced_eos_token_ids = {4, 5};
  ends.begin_suppress_tokens = {4};
  ends.max_new_tokens = 1;
  EXPECT_EQ(rows(ends, {1, 2}, {})[0][5], 0.0f) << "the lowest that is not suppressed";
  EXPECT_EQ(rows(ends, {1, 2}, {})[0][4], -INFINITY);
}

// By the definition of OpenAI's API, computed here from logits without penalties.
TEST_F(Settings, PresenceAndFrequencyPenaltiesFollowTheirDefinition) {
  const auto prompt = load_reference_model("llama_gqa").batch[0].prompt_ids;
  const int64_t vocab = model_->config().vocab_size;
  for (const auto& [presence, frequency] :
       std::vector<std::pair<float, float>>{{1.5f, 0.0f}, {0.0f, 0.8f}, {-1.0f, 0.6f}, {0.4f, -0.1f}, {-2.0f, -2.0f}}) {
    Session forward(model_, {.sequences = 1, .context = 64, .chunk = 32});
    std::vector<int32_t> expected;
    std::map<int32_t, int> counts;
    std::vector<int32_t> ids = prompt;
    for (size_t done = 0; expected.size() < 24;) {
      std::vector<int32_t> newest(ids.begin() + static_cast<ptrdiff_t>(done), ids.end()), positions;
      for (size_t i = done; i < ids.size(); ++i) positions.push_back(static_cast<int32_t>(i));
      const std::vector<int32_t> sequence(newest.size(), 0);
      const int32_t last = static_cast<int32_t>(newest.size()) - 1;
      const Tensor logits = forward.forward({newest, sequence, positions}, {&last, 1}).to(Device{});
      std::vector<float> row(logits.data_as<float>(), logits.data_as<float>() + vocab);
      for (const auto& [id, count] : counts) {
        row[static_cast<size_t>(id)] -= presence + frequency * static_cast<float>(count);
      }
      done = ids.size();
      ids.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
      expected.push_back(ids.back());
      ++counts[ids.back()];
    }
    TextGenerator made = generator({{"presence_penalty", presence}, {"frequency_penalty", frequency}});
    GenerateOptions options = made.default_options();
    options.max_new_tokens = 24;
    EXPECT_EQ(made.generate_ids(Prompts{prompt}, options).completions[0].token_ids, expected)
        << presence << " " << frequency;
  }
}

// tests/llm/grammar_test.cpp tests grammars; this runs on every accelerator.
TEST_F(Settings, AnswersKeepToAGrammar) {
  std::ostringstream text;
  write_made_up_tokenizer(text, model_->config().vocab_size);
  const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::parse_json(text.str(), "made up");
  const Prompts prompts = {load_reference_model("llama_gqa").run.prompt_ids, {5, 6}};
  for (const char* backend : {"eager", "graph"}) {
    const BackendGuard guard(backend);
    TextGenerator made(model_, tokenizer, parse_generation_config("{\"eos_token_id\": 1}", "generation_config.json"));
    GenerateOptions options = made.default_options();
    options.grammar = Grammar::parse_gbnf("root ::= [a-m]{3} (\"-\" [0-9]{2}){1,3} \"é\"", "g");
    for (const float temperature : {0.0f, 1.5f}) {
      options.sampling.temperature = temperature;
      options.seed = 5;
      for (const Completion& completion : made.generate_ids(prompts, options).completions) {
        EXPECT_EQ(completion.finish_reason, FinishReason::Stop);
        EXPECT_TRUE(options.grammar->accepts(completion.text)) << backend << " " << completion.text;
      }
    }
  }
}

TEST_F(Settings, MinPOfOneIsGreedy) {
  TextGenerator made = generator({{"do_sample", true}, {"top_k", 0}, {"min_p", 1.0}});
  GenerateOptions options = made.default_options();
  EXPECT_EQ(options.sampling.min_p, 1.0f);
  options.seed = 5;
  options.max_new_tokens = 12;
  const auto run = load_reference_model("llama_gqa").run;
  EXPECT_EQ(made.generate_ids(Prompts{run.prompt_ids}, options).completions[0].token_ids,
            std::vector<int32_t>(run.greedy_ids.begin(), run.greedy_ids.begin() + 12));
  // Only settings of drawing: a file that does not draw has none.
  EXPECT_EQ(generator({{"min_p", 1.0}}).default_options().sampling.min_p, 0.0f);
}

// Chi-square test of 512 first tokens against the probabilities of the settings, for the op that draws on the device and
// for the settings that the host filters.
TEST_F(Settings, DrawsFollowTheProbabilitiesOfTheSettings) {
  const std::vector<int32_t> prompt = {9};
  const auto vocab = static_cast<size_t>(model_->config().vocab_size);
  constexpr size_t rows = 64, calls = 8;
  TokenRules rules;
  rules.sequence_bias = {{{7}, 1.5f}, {{9, 21}, 2.0f}};
  rules.suppress_tokens = {30, 31};
  Session forward(model_, {.sequences = 1, .context = 8, .chunk = 8});
  const int32_t zero = 0;
  std::vector<float> scores = forward.forward({prompt, {&zero, 1}, {&zero, 1}}, {&zero, 1}).to_vector<float>();
  scores[7] += 1.5f;
  scores[21] += 2.0f;
  for (const size_t id : {30, 31}) scores[id] = -INFINITY;
  for (const int32_t id : prompt) {
    float& score = scores[static_cast<size_t>(id)];
    score = score > 0 ? score / 1.3f : score * 1.3f;
  }
  Session session(model_, {.sequences = rows, .context = 8, .chunk = 8});
  for (const float typical_p : {1.0f, 0.6f}) {
    const Sampling sampling{.temperature = 3.0f,
                            .top_k = 24,
                            .top_p = 0.9f,
                            .repetition_penalty = 1.3f,
                            .min_p = 0.1f,
                            .typical_p = typical_p};
    std::vector<float> left = scores;
    filter_scores(left, sampling);  // score_filter_test compares it with transformers
    std::vector<double> expected(vocab), found(vocab);
    const float largest = *std::max_element(left.begin(), left.end());
    double total = 0;
    for (size_t id = 0; id < vocab; ++id) total += expected[id] = std::exp(left[id] - largest);
    const Prompts prompts(rows, prompt);
    for (size_t call = 0; call < calls; ++call) {
      session.start(prompts, sampling, 1000 + call, 0, rules);
      for (const int32_t token : session.tokens()) ++found[static_cast<size_t>(token)];
    }
    double chi_square = 0;
    int cells = 0;
    for (size_t id = 0; id < vocab; ++id) {
      const double wanted = expected[id] / total * static_cast<double>(rows * calls);
      if (wanted == 0) {
        EXPECT_EQ(found[id], 0) << "token " << id << " was removed, typical_p " << typical_p;
        continue;
      }
      chi_square += (found[id] - wanted) * (found[id] - wanted) / wanted;
      ++cells;
    }
    ASSERT_GT(cells, 5);
    // A tail of one in 100,000 by the approximation of Wilson and Hilferty. The seeds are fixed.
    const double freedom = cells - 1, spread = 2.0 / (9.0 * freedom);
    EXPECT_LT(chi_square, freedom * std::pow(1 - spread + 4.27 * std::sqrt(spread), 3)) << "typical_p " << typical_p;
  }
}

// A model whose tokens are all as likely shows the random numbers: those of a row come in no other row of the next steps.
TEST(Draws, RowsAndStepsHaveNumbersOfTheirOwn) {
  anyaccel::testing::DamagedModel model("llama_gqa");
  model.set("model.norm.weight", 0, 64, 0.0f);
  constexpr size_t rows = 8, steps = 3;
  Session session(Model::load(model.directory()), {.sequences = rows, .context = 8, .chunk = 8});
  session.start(Prompts(rows, {9}), {.temperature = 1.0f}, 5);
  std::vector<std::vector<int32_t>> quads;  // tokens of four rows in a step, which one random number of the op makes
  for (size_t step = 0; step < steps; ++step) {
    const std::span<const int32_t> tokens = session.tokens();
    quads.emplace_back(tokens.begin(), tokens.begin() + 4);
    quads.emplace_back(tokens.begin() + 4, tokens.end());
    session.step();
  }
  std::sort(quads.begin(), quads.end());
  EXPECT_EQ(std::unique(quads.begin(), quads.end()), quads.end());
}

// With typical_p the host takes part in every step: batches that shrink, graphs and penalties give what single prompts
// give in eager mode.
TEST_F(Settings, TypicalSamplingIsTheSameWithGraphsAndInBatches) {
  const auto run = load_reference_model("llama_gqa");
  const Prompts prompts = {run.run.prompt_ids, run.batch[0].prompt_ids, {1, 5}};
  TextGenerator made = generator({{"do_sample", true}, {"typical_p", 0.7}, {"temperature", 1.2}});
  GenerateOptions options = made.default_options();
  EXPECT_EQ(options.sampling.typical_p, 0.7f);
  options.sampling.frequency_penalty = 0.5f;
  options.max_new_tokens = 12;
  options.seed = 11;
  std::vector<Prompts> answers;
  for (const char* backend : {"eager", "graph"}) {
    const BackendGuard guard(backend);
    Prompts ids;
    for (const Completion& completion : made.generate_ids(prompts, options).completions)
      ids.push_back(completion.token_ids);
    answers.push_back(ids);
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_NE(answers[0][0], answers[0][1]);
  // Only one token is left, so the draw is the same for any seed.
  options.sampling.typical_p = 1e-6f;
  options.sampling.top_k = 1;
  options.sampling.frequency_penalty = 0;
  EXPECT_EQ(made.generate_ids(Prompts{run.run.prompt_ids}, options).completions[0].token_ids,
            std::vector<int32_t>(run.run.greedy_ids.begin(), run.run.greedy_ids.begin() + 12));
}

TEST_F(Settings, LogProbabilitiesAreThoseOfTheModelBeforeRulesAndPenalties) {
  const auto run = load_reference_model("llama_gqa");
  const Prompts prompts = {run.run.prompt_ids, run.batch[0].prompt_ids};
  const auto vocab = static_cast<size_t>(model_->config().vocab_size);
  for (const char* backend : {"eager", "graph"}) {
    const BackendGuard guard(backend);
    TextGenerator made = generator({{"repetition_penalty", 1.5}, {"sequence_bias", {{{7}, 30.0}}}});
    GenerateOptions options = made.default_options();
    options.max_new_tokens = 6;
    EXPECT_TRUE(made.generate_ids(prompts, options).completions[0].logprobs.empty());
    options.top_logprobs = 3;
    const GenerateResult result = made.generate_ids(prompts, options);
    for (size_t p = 0; p < prompts.size(); ++p) {
      const Completion& completion = result.completions[p];
      ASSERT_EQ(completion.logprobs.size(), completion.token_ids.size());
      std::vector<int32_t> ids = prompts[p];
      ids.insert(ids.end(), completion.token_ids.begin(), completion.token_ids.end() - 1);
      std::vector<int32_t> positions, rows;
      for (size_t i = 0; i < ids.size(); ++i) positions.push_back(static_cast<int32_t>(i));
      for (size_t i = prompts[p].size() - 1; i < ids.size(); ++i) rows.push_back(static_cast<int32_t>(i));
      Session forward(model_, {.sequences = 1, .context = 64, .chunk = 64});
      const std::vector<float> logits =
          forward.forward({ids, std::vector<int32_t>(ids.size(), 0), positions}, rows).to_vector<float>();
      for (size_t step = 0; step < rows.size(); ++step) {
        const auto row = std::span(logits).subspan(step * vocab, vocab);
        double sum = 0;
        for (const float logit : row) sum += std::exp(static_cast<double>(logit));
        const TokenLogprobs& found = completion.logprobs[step];
        const auto token = static_cast<size_t>(completion.token_ids[step]);
        EXPECT_NEAR(found.logprob, row[token] - std::log(sum), 1e-3);
        ASSERT_EQ(found.top.size(), 3u);
        EXPECT_NEAR(found.top[0].logprob, *std::max_element(row.begin(), row.end()) - std::log(sum), 1e-3);
        for (const auto& [id, logprob] : found.top)
          EXPECT_NEAR(logprob, row[static_cast<size_t>(id)] - std::log(sum), 1e-3);
        EXPECT_GE(found.top[0].logprob, found.top[1].logprob);
        EXPECT_GE(found.top[1].logprob, found.top[2].logprob);
      }
    }
  }
}

TEST(LogProbabilities, OfEqualTokensTheLowerIdsAreListed) {
  const TokenLogprobs found = token_logprobs(std::vector<float>{1.0f, 2.0f, 2.0f, 2.0f}, 0, 2);
  ASSERT_EQ(found.top.size(), 2u);
  EXPECT_EQ(found.top[0].id, 1);
  EXPECT_EQ(found.top[1].id, 2);
}

TEST_F(Settings, LengthsAndStopStringsOfTheFile) {
  EXPECT_EQ(generator(json::object()).default_options().max_new_tokens, 256);
  EXPECT_EQ(generator({{"max_new_tokens", 7}, {"max_length", 9}}).default_options().max_new_tokens, 7);
  EXPECT_EQ(generator({{"stop_strings", "END"}}).default_options().stop, std::vector<std::string>{"END"});
  EXPECT_EQ(generator({{"stop_strings", {"a", "b"}}}).default_options().stop, (std::vector<std::string>{"a", "b"}));
  // max_length counts the prompt, and its last token is what forced_eos_token_id forces.
  TextGenerator made = generator({{"max_length", 9}, {"forced_eos_token_id", 19}});
  const GenerateResult result = made.generate_ids(Prompts{{1, 5, 9}, {1}}, made.default_options());
  EXPECT_EQ(result.completions[0].token_ids.size(), 6u);
  EXPECT_EQ(result.completions[1].token_ids.size(), 8u);
  for (const Completion& completion : result.completions) EXPECT_EQ(completion.token_ids.back(), 19);
}

TEST_F(Settings, RulesThatLeaveNoTokenSaySo) {
  json forbidden = json::array();
  for (int32_t id = 0; id < model_->config().vocab_size; ++id) forbidden.push_back(id);
  TextGenerator made = generator({{"suppress_tokens", forbidden}});
  try {
    made.generate_ids(Prompts{{1, 5}}, made.default_options());
    FAIL() << "no error";
  } catch (const NumericalError& error) {
    EXPECT_NE(std::string(error.what()).find("not allowed (bad words, suppressed tokens, ...) leave none"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(Settings, WrongOptionsAreRefused) {
  const auto refusal = [](auto change) -> std::string {
    TextGenerator made = generator(json::object());
    GenerateOptions options = made.default_options();
    change(options);
    try {
      made.generate_ids(Prompts{{1, 5}}, options);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    ADD_FAILURE() << "no InvalidArgument";
    return {};
  };
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(refusal([](GenerateOptions& o) { o.sampling.min_p = 1.5f; }), "sampling: min_p is 1.5");
  expect(refusal([](GenerateOptions& o) { o.sampling.min_p = NAN; }), "sampling: min_p is ");
  expect(refusal([](GenerateOptions& o) { o.sampling.typical_p = 0; }), "sampling: typical_p is 0");
  expect(refusal([](GenerateOptions& o) { o.sampling.typical_p = NAN; }), "sampling: typical_p is ");
  expect(refusal([](GenerateOptions& o) { o.top_logprobs = 101; }), "top_logprobs is 101");
  expect(refusal([](GenerateOptions& o) { o.top_logprobs = -1; }), "top_logprobs is -1");
  expect(refusal([](GenerateOptions& o) { o.sampling.presence_penalty = 3; }), "sampling: presence_penalty is 3");
  expect(refusal([](GenerateOptions& o) { o.sampling.frequency_penalty = -2.5f; }), "frequency_penalty is -2.5");
  expect(refusal([](GenerateOptions& o) { o.rules.sequence_bias = {{{320}, 1.0f}}; }), "token 320 is out of range");
  expect(refusal([](GenerateOptions& o) { o.rules.sequence_bias = {{{3}, NAN}}; }), "the bias of token 3 is");
  expect(refusal([](GenerateOptions& o) { o.rules.sequence_bias = {{{}, 1.0f}}; }), "a sequence has no tokens");
  expect(refusal([](GenerateOptions& o) { o.rules.bad_words_ids = {{1, -1}}; }), "bad_words_ids: token -1");
  expect(refusal([](GenerateOptions& o) { o.rules.no_repeat_ngram_size = -1; }), "no_repeat_ngram_size is -1");
  expect(refusal([](GenerateOptions& o) { o.rules.min_new_tokens = -1; }), "min_new_tokens is -1");
  expect(refusal([](GenerateOptions& o) { o.rules.forced_bos_token_id = 1000; }), "forced_bos_token_id: token 1000");
  expect(refusal([](GenerateOptions& o) { o.max_length = -1; }), "max_length is -1");
  // A longer context would not help.
  expect(refusal([](GenerateOptions& o) { o.max_length = 2; }),
         "has 2 tokens, which leaves no room for an answer in the max_length of 2 tokens");
  expect(refusal([](GenerateOptions& o) { o.max_length = o.context = 2; }), "give a number of new tokens instead");
  expect(refusal([](GenerateOptions& o) { o.context = 2; }), "choose a longer context");
}

// -- the file --

std::vector<std::string> warnings_of(const json& settings) {
  return parse_generation_config(settings.dump(), "generation_config.json").warnings;
}

TEST(GenerationConfigFile, EveryFieldOfTransformersIsKnown) {
  for (const std::string name : expected_settings().at("fields")) {
    for (const std::string& warning : warnings_of({{name, nullptr}})) ADD_FAILURE() << warning;
  }
  EXPECT_GT(expected_settings().at("fields").size(), 60u);
}

TEST(GenerationConfigFile, FieldsThatAreIgnoredAreWarnedAbout) {
  const json settings = {{"num_beams", 4},
                         {"epsilon_cutoff", 3e-4},
                         {"eta_cutoff", 2e-3},
                         {"top_h", 0.4},
                         {"encoder_repetition_penalty", 1.2},
                         {"penalty_alpha", 0.6},
                         {"guidance_scale", 1.5},
                         {"remove_invalid_values", true},
                         {"num_return_sequences", 2},
                         {"chat_format", "chatml"}};
  const std::vector<std::string> warnings = warnings_of(settings);
  EXPECT_EQ(warnings.size(), settings.size());
  for (const auto& [name, value] : settings.items()) {
    const std::string expected = "generation_config.json: the field \"" + name + "\" is " +
                                 (name == "chat_format" ? "not known and is ignored" : "ignored: ");
    EXPECT_TRUE(std::any_of(warnings.begin(), warnings.end(), [&](const std::string& w) {
      return w.starts_with(expected);
    })) << name;
  }
  // Values that have no effect.
  EXPECT_TRUE(warnings_of({{"num_beams", 1},
                           {"typical_p", 1.0},
                           {"epsilon_cutoff", 0.0},
                           {"encoder_repetition_penalty", 1.0},
                           {"remove_invalid_values", false},
                           {"constraints", nullptr},
                           {"use_cache", false},
                           {"transformers_version", "5.0"},
                           {"pad_token_id", 0}})
                  .empty());
}

TEST(GenerationConfigFile, ValuesThatStandForNone) {
  const auto read = [](const json& settings) {
    return parse_generation_config(settings.dump(), "generation_config.json");
  };
  EXPECT_EQ(read(json::object()).top_k, 50);
  EXPECT_EQ(read({{"top_k", nullptr}}).top_k, 0) << "all tokens, as in transformers";
  EXPECT_GT(read({{"top_p", 0.0}}).top_p, 0.0f) << "the most likely token, as in transformers";
}

TEST(GenerationConfigFile, WrongValuesAreErrorsThatNameTheField) {
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, json>>{{"min_p", 1.5},
                                                 {"min_p", "low"},
                                                 {"typical_p", 1.5},
                                                 {"presence_penalty", 2.5},
                                                 {"frequency_penalty", -3},
                                                 {"sequence_bias", {{"a", 1}}},
                                                 {"sequence_bias", {{{1, 2}}}},
                                                 {"sequence_bias", json::array({json::array({json::array(), 1.0})})},
                                                 {"bad_words_ids", {1, 2}},
                                                 {"bad_words_ids", json::array({json::array()})},
                                                 {"suppress_tokens", 5},
                                                 {"no_repeat_ngram_size", -1},
                                                 {"min_new_tokens", 1.5},
                                                 {"max_new_tokens", 0},
                                                 {"forced_eos_token_id", "end"},
                                                 {"stop_strings", 3}}) {
    try {
      warnings_of({{name, value}});
      ADD_FAILURE() << name << " may be " << value;
    } catch (const CheckpointError& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace anyaccel::llm
