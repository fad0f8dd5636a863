// Beam search against transformers' (tests/data/beam_search.json, made by tools/beam_fixtures.py): answers and scores, in
// steps and in graphs, in batches and over ranks.
#include "llm/generate/beam_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/text_generation.h"
#include "llm/decoding.h"
#include "llm/model_fixtures.h"
#include "llm/thread_ranks.h"

namespace anyaccel::llm {
namespace {

using anyaccel::testing::BackendGuard;
using nlohmann::json;
using Prompts = std::vector<std::vector<int32_t>>;

const json& reference() {
  static const json data = json::parse(std::ifstream(anyaccel::testing::test_data() + "/beam_search.json"));
  return data;
}

std::shared_ptr<const Model> load(const std::string& name, std::shared_ptr<comm::ProcessGroup> group = nullptr) {
  LoadOptions options;
  options.dtype = DType::F32;
  options.group = std::move(group);
  return Model::load(anyaccel::testing::models_directory() + "/" + name, options);
}

TextGenerator generator(const std::shared_ptr<const Model>& model, json settings) {
  if (!settings.contains("eos_token_id")) settings["eos_token_id"] = nullptr;
  return {model, nullptr, parse_generation_config(settings.dump(), "generation_config.json")};
}

GenerateOptions options_of(const TextGenerator& generator, const json& settings) {
  GenerateOptions options = generator.default_options();
  options.max_new_tokens = settings.value("max_new_tokens", reference().at("max_new_tokens").get<int64_t>());
  options.context = 64;  // more than some of the models were trained for
  options.beams = generator.generation_config().beams;
  options.beams->beams = settings.at("num_beams").get<int32_t>();
  return options;
}

void expect_answers(const Completion& found, const json& expected, const std::string& what) {
  ASSERT_EQ(found.beams.size(), expected.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found.beams[i].token_ids, expected[i].at("ids").get<std::vector<int32_t>>()) << what << ", answer " << i;
    const auto score = expected[i].at("score").get<double>();
    EXPECT_NEAR(found.beams[i].score, score, 1e-4 * std::max(1.0, std::abs(score))) << what << ", answer " << i;
  }
  EXPECT_EQ(found.token_ids, found.beams[0].token_ids) << what;
}

TEST(Beams, AnswersAndScoresAreThoseOfTransformers) {
  std::map<std::string, std::shared_ptr<const Model>> models;
  for (const char* backend : {"eager", "graph"}) {
    const BackendGuard guard(backend);
    for (const json& given : reference().at("cases")) {
      const auto name = given.at("model").get<std::string>();
      if (!models[name]) models[name] = load(name);
      TextGenerator made = generator(models[name], given.at("settings"));
      const GenerateOptions options = options_of(made, given.at("settings"));
      const Prompts prompts = {given.at("prompt_ids").get<std::vector<int32_t>>()};
      const GenerateResult result = made.generate_ids(prompts, options);
      expect_answers(result.completions[0], given.at("answers"),
                     name + " " + backend + " " + given.at("settings").dump());
    }
  }
}

// Prompts of different lengths whose searches end one by one.
TEST(Beams, BatchesAndRanksGiveWhatSinglePromptsGive) {
  const auto model = load("llama_gqa");
  const auto run = anyaccel::testing::load_reference_model("llama_gqa");
  Prompts prompts = {run.run.prompt_ids, {1}, {7, 9}};
  for (const auto& other : run.batch) prompts.push_back(other.prompt_ids);
  const json settings = {{"num_beams", 3}, {"eos_token_id", {run.run.greedy_ids[3], run.batch[0].greedy_ids[1]}}};
  TextGenerator made = generator(model, settings);
  const GenerateOptions options = options_of(made, settings);
  std::vector<json> alone;
  for (const auto& prompt : prompts) {
    json answers = json::array();
    const GenerateResult result = made.generate_ids(Prompts{prompt}, options);
    for (const ScoredAnswer& answer : result.completions[0].beams) {
      answers.push_back({{"ids", answer.token_ids}, {"score", answer.score}});
    }
    alone.push_back(std::move(answers));
  }
  const GenerateResult together = made.generate_ids(prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i) {
    expect_answers(together.completions[i], alone[i], "prompt " + std::to_string(i));
  }
  if (!get_accelerator()->is_host_coherent()) return;
  anyaccel::testing::run_ranks(2, [&](const std::shared_ptr<comm::ProcessGroup>& group) {
    TextGenerator shard = generator(load("llama_gqa", group), settings);
    const GenerateResult result = shard.generate_ids(prompts, options);
    for (size_t i = 0; i < prompts.size(); ++i) {
      expect_answers(result.completions[i], alone[i], "prompt " + std::to_string(i) + " over ranks");
    }
  });
}

TEST(BeamSteps, OfEqualCandidatesTheFirstStay) {
  BestCandidates best(2);
  best.add(0, std::vector<float>{1.0f, 2.0f, 2.0f}, 0.0f);
  best.add(1, std::vector<float>{2.0f, 1.0f}, 0.0f);
  const std::vector<BeamCandidate> found = std::move(best).sorted();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].token, 1);
  EXPECT_EQ(found[1].token, 2);
}

// If each beam may end with each of three tokens, so many candidates are needed that two go on.
TEST(BeamSteps, CandidatesAreEnoughForSeveralEnds) {
  const auto never = [](std::span<const int32_t>) { return false; };
  EXPECT_EQ(BeamSearch(BeamSettings{2, 1.0f, EarlyStopping::No}, 3, 9, never).candidates(), 8u);
  EXPECT_EQ(BeamSearch(BeamSettings{2, 1.0f, EarlyStopping::No}, 0, 9, never).candidates(), 4u);
}

// More candidates may end than there are ends of sequences, by stop strings: those that have ended do not go on.
TEST(BeamSteps, EndedAnswersDoNotGoOn) {
  BeamSearch search(BeamSettings{2, 1.0f, EarlyStopping::Never}, 1, 9,
                    [](std::span<const int32_t> tokens) { return tokens.back() < 3; });
  EXPECT_TRUE(search.advance(std::vector<BeamCandidate>{{0, 0, -1.0f}, {0, 1, -2.0f}, {0, 2, -3.0f}, {0, 3, -4.0f}}));
  EXPECT_EQ(search.running()[0].tokens, std::vector<int32_t>{3});
  EXPECT_EQ(search.running()[0].score, -4.0f);
  EXPECT_LT(search.running()[1].score, -1e8f);
  EXPECT_EQ(search.finished().size(), 2u);
}

// Without a reward for length, "never" compares at the length so far, as transformers does.
TEST(BeamSteps, NeverLooksAheadOnlyWhereLengthIsRewarded) {
  for (const float penalty : {-1.0f, 1.0f}) {
    BeamSearch search(BeamSettings{2, penalty, EarlyStopping::Never}, 1, 10,
                      [](std::span<const int32_t> tokens) { return tokens.back() == 0; });
    EXPECT_TRUE(search.advance(std::vector<BeamCandidate>{{0, 0, -1.0f}, {0, 1, -1.2f}, {0, 2, -9.0f}, {0, 3, -9.0f}}));
    EXPECT_TRUE(search.advance(std::vector<BeamCandidate>{{0, 1, -1.3f}, {0, 0, -2.0f}, {0, 2, -9.0f}, {1, 3, -19.0f}}))
        << penalty;
  }
}

TEST(Beams, PenaltiesAloneAreApplied) {
  TextGenerator made = generator(load("llama_gqa"), json::object());
  GenerateOptions options = made.default_options();
  options.max_new_tokens = 12;
  options.beams = BeamSettings{2, 1.0f, EarlyStopping::No};
  const Prompts prompts = {anyaccel::testing::load_reference_model("llama_gqa").run.prompt_ids};
  const std::vector<int32_t> plain = made.generate_ids(prompts, options).completions[0].token_ids;
  // Each makes tokens that there are already more likely.
  for (const Sampling& sampling : {Sampling{.frequency_penalty = -2.0f}, Sampling{.presence_penalty = -2.0f},
                                   Sampling{.repetition_penalty = 0.2f}}) {
    options.sampling = sampling;
    EXPECT_NE(made.generate_ids(prompts, options).completions[0].token_ids, plain);
  }
}

TEST(Beams, SettingsWithoutAMeaningAreRefused) {
  const auto model = load("llama_gqa");
  TextGenerator made = generator(model, json::object());
  GenerateOptions good = made.default_options();
  good.max_new_tokens = 2;
  good.beams = BeamSettings{2, 1.0f, EarlyStopping::No};
  const auto refused = [&](const auto& change) {
    GenerateOptions options = good;
    change(options);
    EXPECT_THROW(made.generate_ids(Prompts{{5}}, options), InvalidArgument);
  };
  EXPECT_EQ(made.generate_ids(Prompts{{5}}, good).completions[0].beams.size(), 2u);
  refused([](GenerateOptions& options) { options.beams->beams = 1; });
  refused([](GenerateOptions& options) { options.beams->beams = max_beams + 1; });
  refused([](GenerateOptions& options) { options.beams->length_penalty = std::nanf(""); });
  refused([](GenerateOptions& options) { options.sampling.temperature = 1.0f; });
  refused([](GenerateOptions& options) { options.reuse_cache = true; });
  refused([](GenerateOptions& options) { options.prompt_cache = "file"; });
  refused([](GenerateOptions& options) { options.top_logprobs = 1; });
  refused([](GenerateOptions& options) { options.speculation = Speculation{nullptr, 2, 4}; });
  EXPECT_THROW(parse_generation_config(R"({"early_stopping": "no"})", "file"), CheckpointError);
  EXPECT_THROW(parse_generation_config(R"({"length_penalty": "x"})", "file"), CheckpointError);
}

}  // namespace
}  // namespace anyaccel::llm
