// Text generation: reference texts, stop strings, ends, seeds, batches, streaming and refused options.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/text_generation.h"
#include "llm/generate/stop_filter.h"
#include "llm/model_fixtures.h"

namespace anyaccel::llm {
namespace {

using anyaccel::testing::load_reference_model;
using anyaccel::testing::ReferenceModel;

// -- stop strings --

// The text that comes out when `pieces` arrive one by one, with '|' where the end was called.
std::string filtered(std::vector<std::string> stops, const std::vector<std::string>& pieces) {
  StopFilter filter(std::move(stops));
  std::string text;
  for (const std::string& piece : pieces) text += filter.push(piece);
  text += '|';
  return text + filter.finish();
}

TEST(StopFilter, PassesTextWithoutStops) { EXPECT_EQ(filtered({}, {"one ", "two"}), "one two|"); }

TEST(StopFilter, CutsAtAStopInOnePiece) { EXPECT_EQ(filtered({"END"}, {"a END b", "c"}), "a |"); }

TEST(StopFilter, FindsAStopAcrossPieces) {
  EXPECT_EQ(filtered({"END"}, {"aE", "N", "D", "b"}), "a|");
  EXPECT_EQ(filtered({"END"}, {"E", "E", "ND"}), "E|");
  EXPECT_EQ(filtered({"aab"}, {"a", "a", "a", "b"}), "a|");
}

TEST(StopFilter, HoldsBackOnlyWhatMayBeAStop) {
  StopFilter filter({"END"});
  EXPECT_EQ(filter.push("xE"), "x");
  EXPECT_EQ(filter.push("y"), "Ey");
  EXPECT_EQ(filter.push("EN"), "");
  EXPECT_FALSE(filter.stopped());
  EXPECT_EQ(filter.finish(), "EN");
}

TEST(StopFilter, TheFirstOfSeveralCounts) {
  EXPECT_EQ(filtered({"two", "one"}, {"zero one two"}), "zero |");
  EXPECT_EQ(filtered({"xyz", "y"}, {"x", "y"}), "x|");
}

// Which tokens a text is made of must not decide where it ends.
TEST(StopFilter, PiecesDoNotMatterWhereStopsOverlap) {
  const std::vector<std::vector<std::string>> cuts = {
      {"wxyzw"}, {"wxy", "zw"}, {"wx", "yzw"}, {"w", "x", "y", "z", "w"}};
  for (const std::vector<std::string>& pieces : cuts) {
    EXPECT_EQ(filtered({"xyz", "y"}, pieces), "wx|");
    EXPECT_EQ(filtered({"y", "xy", "wxyz"}, pieces), "w|");
    EXPECT_EQ(filtered({"yzw", "wxyzw", "zw"}, pieces), "|");
  }
}

TEST(StopFilter, EmptyStopsStopNothing) { EXPECT_EQ(filtered({""}, {"a", "b"}), "ab|"); }

// -- generation --

class Generation : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    reference_ = std::make_unique<ReferenceModel>(load_reference_model("llama_gqa"));
    LoadOptions options;
    options.dtype = DType::F32;
    generator_ = std::make_unique<TextGenerator>(TextGenerator::load(reference_->directory, options));
    const auto json = nlohmann::json::parse(std::ifstream(reference_->directory + "/expected.json"));
    prompt_ = json.at("text").at("prompt").get<std::string>();
    prompt_ids_ = json.at("text").at("prompt_ids").get<std::vector<int32_t>>();
    greedy_ids_ = json.at("text").at("greedy_ids").get<std::vector<int32_t>>();
    greedy_text_ = json.at("text").at("greedy_text").get<std::string>();
  }
  static void TearDownTestSuite() {
    generator_.reset();
    reference_.reset();
  }

  static GenerateOptions options(int64_t max_new_tokens = 32) {
    GenerateOptions options;
    options.max_new_tokens = max_new_tokens;
    options.seed = 1;
    return options;
  }
  static GenerateOptions sampled(uint64_t seed) {
    GenerateOptions options = Generation::options();
    options.sampling.temperature = 1.5f;
    options.seed = seed;
    options.ignore_eos = true;
    return options;
  }
  static GenerateResult generate(const GenerateOptions& options, const TextCallback& callback = {}) {
    return generator_->generate(std::vector<std::string>{prompt_}, options, callback);
  }
  static GenerateResult generate_ids(const std::vector<std::vector<int32_t>>& prompts, const GenerateOptions& options) {
    return generator_->generate_ids(prompts, options);
  }

  static inline std::unique_ptr<ReferenceModel> reference_;
  static inline std::unique_ptr<TextGenerator> generator_;
  static inline std::string prompt_;
  static inline std::vector<int32_t> prompt_ids_;
  static inline std::vector<int32_t> greedy_ids_;
  static inline std::string greedy_text_;
};

TEST_F(Generation, TheReferenceText) {
  std::string streamed;
  const GenerateResult result = generate(options(), [&](size_t prompt, std::string_view piece) {
    EXPECT_EQ(prompt, 0u);
    EXPECT_FALSE(piece.empty());
    streamed += piece;
    return true;
  });
  ASSERT_EQ(result.completions.size(), 1u);
  const Completion& completion = result.completions[0];
  EXPECT_EQ(completion.prompt_ids, prompt_ids_);
  EXPECT_EQ(completion.token_ids, greedy_ids_);
  EXPECT_EQ(completion.text, greedy_text_);
  EXPECT_EQ(streamed, greedy_text_);
  EXPECT_EQ(completion.finish_reason, FinishReason::Length);
  const GenerateTimings& timings = result.timings;
  EXPECT_EQ(timings.prompt_tokens, static_cast<int64_t>(prompt_ids_.size()));
  EXPECT_EQ(timings.decode_steps, 31);
  EXPECT_EQ(timings.decoded_tokens, 31);
  EXPECT_GT(timings.prefill_rate(), 0.0);
  EXPECT_GT(timings.decode_rate(), 0.0);
  EXPECT_GT(timings.host_share(), 0.0);
  EXPECT_LT(timings.host_share(), 1.0);
}

TEST_F(Generation, OneTokenOnly) {
  const GenerateResult result = generate(options(1));
  EXPECT_EQ(result.completions[0].token_ids, std::vector<int32_t>{greedy_ids_[0]});
  EXPECT_EQ(result.timings.decode_steps, 0);
  EXPECT_EQ(result.timings.decode_rate(), 0.0);
}

TEST_F(Generation, StopStringsAreFoundAcrossTokens) {
  // Every piece of the text of a few characters, wherever the borders of the tokens are.
  for (size_t begin = 1; begin + 4 < greedy_text_.size(); begin += 3) {
    if ((static_cast<unsigned char>(greedy_text_[begin]) & 0xc0) == 0x80) continue;  // inside a character
    GenerateOptions stopping = options();
    stopping.stop = {greedy_text_.substr(begin, 4)};
    std::string streamed;
    const Completion completion = generate(stopping, [&](size_t, std::string_view piece) {
                                    streamed += piece;
                                    return true;
                                  }).completions[0];
    EXPECT_EQ(completion.text, greedy_text_.substr(0, greedy_text_.find(stopping.stop[0]))) << stopping.stop[0];
    EXPECT_EQ(streamed, completion.text);
    EXPECT_EQ(completion.finish_reason, FinishReason::Stop);
  }
}

TEST_F(Generation, TextHeldBackForAStopStringComesInTheEnd) {
  GenerateOptions stopping = options();
  stopping.stop = {greedy_text_ + "!"};
  const Completion completion = generate(stopping).completions[0];
  EXPECT_EQ(completion.text, greedy_text_);
  EXPECT_EQ(completion.finish_reason, FinishReason::Length);
}

TEST_F(Generation, ACallbackCanEndAPrompt) {
  int calls = 0;
  const GenerateResult result = generate(options(), [&](size_t, std::string_view) { return ++calls < 3; });
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(result.completions[0].finish_reason, FinishReason::Stop);
  EXPECT_LT(result.completions[0].token_ids.size(), 32u);
}

TEST_F(Generation, ErrorsInACallbackPass) {
  EXPECT_THROW(generate(options(), [](size_t, std::string_view) -> bool { throw std::runtime_error("enough"); }),
               std::runtime_error);
  EXPECT_EQ(generate(options()).completions[0].text, greedy_text_);
}

// The cache of a conversation: its next turn repeats what was said, of which the answer's last token was never run.
TEST_F(Generation, AConversationGivesWhatItsTextGivesFromTheStart) {
  GenerateOptions turn = options(4);
  turn.reuse_cache = true;
  turn.ignore_eos = true;
  TextGenerator talking = TextGenerator::load(reference_->directory),
                fresh = TextGenerator::load(reference_->directory);
  std::vector<std::vector<int32_t>> text = {prompt_ids_};
  for (int i = 0; i < 3; ++i) {
    GenerateOptions anew = turn;
    anew.reuse_cache = false;
    const GenerateResult result = talking.generate_ids(text, turn);
    const std::vector<int32_t>& answer = result.completions[0].token_ids;
    EXPECT_EQ(answer, fresh.generate_ids(text, anew).completions[0].token_ids) << "turn " << i;
    const int64_t read =
        i == 0 ? static_cast<int64_t>(prompt_ids_.size()) : 3;  // the answer's last token and two new ones
    EXPECT_EQ(result.timings.prompt_tokens, read) << "turn " << i;
    text[0].insert(text[0].end(), answer.begin(), answer.end());
    text[0].insert(text[0].end(), {7, 8});
  }
}

// What a callback interrupts has written to the cache, of which nothing is used afterwards.
TEST_F(Generation, AnInterruptedTurnLeavesNothingInTheConversation) {
  GenerateOptions turn = options(4);
  turn.reuse_cache = true;
  TextGenerator talking = TextGenerator::load(reference_->directory);
  const std::vector<std::vector<int32_t>> text = {prompt_ids_}, other = {std::vector<int32_t>(prompt_ids_.size(), 5)};
  const std::vector<int32_t> expected = talking.generate_ids(text, turn).completions[0].token_ids;
  EXPECT_THROW(
      talking.generate_ids(other, turn, [](size_t, std::string_view) -> bool { throw std::runtime_error("enough"); }),
      std::runtime_error);
  EXPECT_EQ(talking.generate_ids(text, turn).completions[0].token_ids, expected);
}

TEST_F(Generation, AGeneratorMayBecomeDeterministic) {
  if (get_accelerator()->name() != "cpu") GTEST_SKIP() << "only cpu promises it";
  GenerateOptions drawing = sampled(7);
  const std::vector<std::vector<int32_t>> twice = {prompt_ids_, prompt_ids_};
  const GenerateResult apart = generate_ids(twice, drawing);
  EXPECT_NE(apart.completions[0].token_ids, apart.completions[1].token_ids);
  drawing.deterministic = true;
  const GenerateResult same = generate_ids(twice, drawing);
  EXPECT_EQ(same.completions[0].token_ids, same.completions[1].token_ids);
}

TEST_F(Generation, EndsAtAnEndOfSequenceToken) {
  GenerationConfig config = generator_->generation_config();
  config.eos_token_ids = {greedy_ids_[5]};
  const auto model = std::shared_ptr<const Model>(&generator_->model(), [](const Model*) {});
  TextGenerator generator(model, nullptr, config);
  const std::vector<std::vector<int32_t>> prompts = {prompt_ids_};
  GenerateOptions ending = options();
  const Completion completion = generator.generate_ids(prompts, ending).completions[0];
  const auto first = std::find(greedy_ids_.begin(), greedy_ids_.end(), greedy_ids_[5]);
  EXPECT_EQ(completion.token_ids, std::vector<int32_t>(greedy_ids_.begin(), first + 1));
  EXPECT_EQ(completion.finish_reason, FinishReason::Eos);
  ending.ignore_eos = true;
  EXPECT_EQ(generator.generate_ids(prompts, ending).completions[0].token_ids, greedy_ids_);
}

TEST_F(Generation, TheSameSeedGivesTheSameText) {
  const Completion first = generate(sampled(7)).completions[0];
  EXPECT_EQ(generate(sampled(7)).completions[0].token_ids, first.token_ids);
  EXPECT_EQ(generate(sampled(7)).completions[0].text, first.text);
  EXPECT_NE(generate(sampled(8)).completions[0].token_ids, first.token_ids);
  EXPECT_NE(greedy_ids_, first.token_ids);
}

TEST_F(Generation, BothBackendsDrawTheSame) {
  const std::string before = get_accelerator()->get_compile_backend();
  get_accelerator()->set_compile_backend("eager");
  const Completion eager = generate(sampled(7)).completions[0];
  get_accelerator()->set_compile_backend("graph");
  const Completion graph = generate(sampled(7)).completions[0];
  get_accelerator()->set_compile_backend(before);
  EXPECT_EQ(eager.token_ids, graph.token_ids);
}

TEST_F(Generation, WithoutASeedTheAcceleratorsGeneratorDecides) {
  GenerateOptions unseeded = sampled(0);
  unseeded.seed.reset();
  get_accelerator()->manual_seed(5);
  const GenerateResult first = generate(unseeded), second = generate(unseeded);
  EXPECT_NE(first.completions[0].token_ids, second.completions[0].token_ids);
  for (const GenerateResult& result : {first, second}) {
    EXPECT_EQ(generate(sampled(result.seed)).completions[0].token_ids, result.completions[0].token_ids);
    EXPECT_LT(result.seed, uint64_t{1} << 53) << "a double would not hold it";
  }
  get_accelerator()->manual_seed(5);
  EXPECT_EQ(generate(unseeded).completions[0].token_ids, first.completions[0].token_ids);
}

TEST_F(Generation, TopKOneIsGreedy) {
  GenerateOptions narrow = sampled(3);
  narrow.sampling.top_k = 1;
  EXPECT_EQ(generate(narrow).completions[0].token_ids, greedy_ids_);
  narrow = sampled(3);
  narrow.sampling.top_p = 1e-6f;
  EXPECT_EQ(generate(narrow).completions[0].token_ids, greedy_ids_);
}

TEST_F(Generation, ALargeRepetitionPenaltyNeverRepeats) {
  GenerateOptions penalized = options();
  penalized.sampling.repetition_penalty = 1000.0f;
  penalized.ignore_eos = true;
  const Completion completion = generate(penalized).completions[0];
  std::vector<int32_t> all = completion.prompt_ids;
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  const size_t of_prompt = all.size();
  all.insert(all.end(), completion.token_ids.begin(), completion.token_ids.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  EXPECT_EQ(all.size(), of_prompt + completion.token_ids.size());
}

// Batches whose prompts differ in length and end at different times.
TEST_F(Generation, BatchesEqualSingleRuns) {
  std::vector<std::vector<int32_t>> prompts = {reference_->run.prompt_ids, {1}, prompt_ids_, {1, 5, 9}};
  for (const auto& run : reference_->batch) prompts.push_back(run.prompt_ids);
  for (const float penalty : {1.0f, 1.3f}) {
    GenerateOptions batch_options = options();
    batch_options.sampling.repetition_penalty = penalty;
    batch_options.ignore_eos = true;
    std::vector<std::vector<int32_t>> single;
    for (const auto& prompt : prompts) single.push_back(generate_ids({prompt}, batch_options).completions[0].token_ids);
    batch_options.ignore_eos = false;
    // Ends spread over the steps: each prompt has its own as one of its own tokens.
    GenerationConfig config = generator_->generation_config();
    config.eos_token_ids = {single[0][3], single[2][11], single[3][20]};
    const auto model = std::shared_ptr<const Model>(&generator_->model(), [](const Model*) {});
    TextGenerator generator(model, nullptr, config);
    const GenerateResult result = generator.generate_ids(prompts, batch_options);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const Completion& completion = result.completions[i];
      size_t end = 0;
      while (end < single[i].size() && std::find(config.eos_token_ids.begin(), config.eos_token_ids.end(),
                                                 single[i][end]) == config.eos_token_ids.end()) {
        ++end;
      }
      const size_t length = std::min(end + 1, single[i].size());
      EXPECT_EQ(completion.token_ids,
                std::vector<int32_t>(single[i].begin(), single[i].begin() + static_cast<ptrdiff_t>(length)))
          << "prompt " << i << ", penalty " << penalty;
      EXPECT_EQ(completion.finish_reason, end < single[i].size() ? FinishReason::Eos : FinishReason::Length);
    }
  }
}

TEST_F(Generation, TheContextEndsTheText) {
  GenerateOptions narrow = options();
  narrow.context = static_cast<int64_t>(prompt_ids_.size()) + 4;
  const Completion completion = generate(narrow).completions[0];
  EXPECT_EQ(completion.token_ids.size(), 4u);
  EXPECT_EQ(completion.finish_reason, FinishReason::Length);
}

TEST_F(Generation, HugeLimitsAreCutToTheContext) {
  GenerateOptions huge = options(std::numeric_limits<int64_t>::max());
  huge.ignore_eos = true;
  const Completion completion = generate(huge).completions[0];
  EXPECT_EQ(completion.token_ids.size(), 256 - prompt_ids_.size());
}

TEST_F(Generation, PromptsLongerThanTheContextAreRefusedWithBothNumbers) {
  GenerateOptions narrow = options();
  narrow.context = 5;
  try {
    generate_ids({std::vector<int32_t>(9, 1)}, narrow);
    FAIL() << "no exception";
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("9 tokens"), std::string::npos) << message;
    EXPECT_NE(message.find("5 tokens"), std::string::npos) << message;
  }
  EXPECT_THROW(generate_ids({std::vector<int32_t>(300, 1)}, options()), InvalidArgument);
}

TEST_F(Generation, RefusesWrongOptions) {
  const auto refused = [](auto change) {
    GenerateOptions wrong = options();
    change(wrong);
    EXPECT_THROW(generate(wrong), InvalidArgument);
  };
  refused([](GenerateOptions& o) { o.max_new_tokens = 0; });
  refused([](GenerateOptions& o) { o.max_new_tokens = -3; });
  refused([](GenerateOptions& o) { o.context = -1; });
  refused([](GenerateOptions& o) { o.sampling.temperature = -0.5f; });
  refused([](GenerateOptions& o) { o.sampling.temperature = std::numeric_limits<float>::infinity(); });
  refused([](GenerateOptions& o) { o.sampling.top_k = -1; });
  refused([](GenerateOptions& o) { o.sampling.top_p = 0.0f; });
  refused([](GenerateOptions& o) { o.sampling.top_p = NAN; });
  refused([](GenerateOptions& o) { o.sampling.repetition_penalty = -1.0f; });
  EXPECT_THROW(generator_->generate({}, options()), InvalidArgument);
  EXPECT_THROW(generate_ids({}, options()), InvalidArgument);
  EXPECT_THROW(generate_ids({{}}, options()), InvalidArgument);
  EXPECT_THROW(generate_ids({{1, 320}}, options()), InvalidArgument);
  EXPECT_THROW(generate_ids({{1, -1}}, options()), InvalidArgument);
  // More cache than any machine has.
  GenerateOptions enormous = options(std::numeric_limits<int64_t>::max());
  enormous.context = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(generate(enormous), InvalidArgument);
}

}  // namespace
}  // namespace anyaccel::llm
