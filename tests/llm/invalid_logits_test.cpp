// Logits that hold a NaN or an infinity end the generation with an error that names the sequence and the position, and what
// was generated before is kept.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/text_generation.h"
#include "llm/damaged_model.h"
#include "llm/decoding.h"
#include "llm/test_directory.h"

namespace anyaccel::llm {
namespace {

using anyaccel::testing::BackendGuard;
using anyaccel::testing::DamagedModel;
using anyaccel::testing::load_reference_model;
using anyaccel::testing::ReferenceModel;
using Prompts = std::vector<std::vector<int32_t>>;

TextGenerator load(const std::string& directory, DType dtype) {
  LoadOptions options;
  options.dtype = dtype;
  return TextGenerator::load(directory, options);
}

GenerateOptions options(float temperature = 0.0f, int64_t max_new_tokens = 12) {
  GenerateOptions options;
  options.max_new_tokens = max_new_tokens;
  options.seed = 1;
  options.ignore_eos = true;
  options.sampling.temperature = temperature;
  return options;
}

// The message of the NumericalError that generating must end in; empty when there is none.
std::string numerical_error(TextGenerator& generator, const Prompts& prompts, const GenerateOptions& options) {
  try {
    generator.generate_ids(prompts, options);
  } catch (const NumericalError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no NumericalError";
  return {};
}

using testing::expect_contains;

bool has_fp16() { return get_accelerator()->is_fp16_supported(); }

TEST(InvalidLogits, ANanInTheFinalNormEndsTheFirstToken) {
  const ReferenceModel reference = load_reference_model("llama_gqa");
  DamagedModel model("llama_gqa");
  model.set("model.norm.weight", 5, 6, NAN);
  TextGenerator generator = load(model.directory(), DType::F32);
  const Prompts prompts = {reference.run.prompt_ids};
  for (const float temperature : {0.0f, 0.8f}) {
    const std::string message = numerical_error(generator, prompts, options(temperature));
    expect_contains(message, "generation stopped: the model's logits");
    expect_contains(message, "sequence 0, position " + std::to_string(reference.run.prompt_ids.size()) +
                                 " (token 1 of the answer)");
    expect_contains(message, "of 320, 320 are NaN");
    EXPECT_EQ(generator.interrupted(), nullptr);
  }
}

// One token's logit, which the host's choices notice as the device's do.
TEST(InvalidLogits, ANanOfOneTokenEndsEveryKindOfSearch) {
  DamagedModel model("llama_gqa");
  model.set("lm_head.weight", 7 * 64, 7 * 64 + 1, NAN);
  TextGenerator generator = load(model.directory(), DType::F32);
  GenerateOptions plain = options(), drafted = options(), beams = options();
  drafted.speculation = Speculation{.model = nullptr, .ngrams = 2};
  beams.beams = BeamSettings{2, 1.0f, EarlyStopping::No};
  for (const GenerateOptions& each : {plain, drafted, beams}) {
    expect_contains(numerical_error(generator, {{1, 5, 9}}, each), "generation stopped: the model's logits");
  }
}

TEST(InvalidLogits, AFileOfNans) {
  DamagedModel model("llama_gqa");
  model.set_all(NAN);
  TextGenerator generator = load(model.directory(), DType::F32);
  expect_contains(numerical_error(generator, {{1, 5, 9}}, options()), "position 3 (token 1 of the answer)");
}

TEST(InvalidLogits, AWeightTooLargeForFp16) {
  if (!has_fp16()) GTEST_SKIP() << "no fp16 here";
  DamagedModel model("llama_gqa");
  model.set("model.layers.0.mlp.down_proj.weight", 70, 71, 1e6f);
  const Prompts prompts = {{1, 5, 9}};
  TextGenerator narrow = load(model.directory(), DType::F16);
  expect_contains(numerical_error(narrow, prompts, options()), "Numbers may have grown too large for fp16");
  // It is a number like any other in fp32.
  TextGenerator wide = load(model.directory(), DType::F32);
  EXPECT_EQ(wide.generate_ids(prompts, options()).completions[0].token_ids.size(), 12u);
}

// The embedding of a token that the answer comes to is damaged: the token itself is still chosen, the one after it cannot be.
class InTheMiddle : public ::testing::TestWithParam<const char*> {};

TEST_P(InTheMiddle, EndsAtTheTokenAndKeepsWhatThereWas) {
  const BackendGuard backend(GetParam());
  const ReferenceModel reference = load_reference_model("llama_gqa");
  const std::vector<int32_t>& whole = reference.run.greedy_ids;
  constexpr size_t at = 6;  // a token that neither the prompts nor the other answer have before
  const auto bad = static_cast<size_t>(whole[at]);
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    DamagedModel model("llama_gqa");
    model.set("model.embed_tokens.weight", bad * 64 + 3, bad * 64 + 4, value);
    TextGenerator generator = load(model.directory(), DType::F32);
    const Prompts prompts = {reference.batch[0].prompt_ids, reference.run.prompt_ids};
    const std::string message = numerical_error(generator, prompts, options());
    expect_contains(message, "sequence 1, position " + std::to_string(reference.run.prompt_ids.size() + at + 1) +
                                 " (token " + std::to_string(at + 2) + " of the answer)");
    // Both answers end there, with the tokens that they had.
    ASSERT_NE(generator.interrupted(), nullptr);
    const std::vector<int32_t>* expected[] = {&reference.batch[0].greedy_ids, &whole};
    for (size_t i = 0; i < 2; ++i) {
      const Completion& part = generator.interrupted()->completions[i];
      EXPECT_EQ(part.finish_reason, FinishReason::Error);
      EXPECT_EQ(part.token_ids, std::vector<int32_t>(expected[i]->begin(), expected[i]->begin() + at + 1));
    }
    // The next call starts anew, and a sequence that never meets the token is as it was.
    const auto other = generator.generate_ids(Prompts{prompts[0]}, options());
    EXPECT_EQ(other.completions[0].token_ids, std::vector<int32_t>(expected[0]->begin(), expected[0]->begin() + 12));
    EXPECT_EQ(generator.interrupted(), nullptr);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, InTheMiddle, ::testing::Values("eager", "graph"));

// A step that runs although the tokens before it are not there, here a captured one: it stays within its memory, and the
// session can be started anew.
TEST(InvalidLogits, AStepWithoutATokenIsHarmless) {
  const ReferenceModel reference = load_reference_model("llama_gqa");
  DamagedModel model("llama_gqa");
  const auto bad = static_cast<size_t>(reference.run.greedy_ids[6]);
  model.set("model.embed_tokens.weight", bad * 64, bad * 64 + 64, NAN);
  LoadOptions load_options;
  load_options.dtype = DType::F32;
  Session session(Model::load(model.directory(), load_options), {.sequences = 2, .context = 64, .chunk = 16});
  const Prompts prompts = {reference.run.prompt_ids, reference.batch[0].prompt_ids};
  for (int round = 0; round < 2; ++round) {
    session.start(prompts, {}, 1);
    for (int step = 0; step < 6; ++step) {
      EXPECT_EQ(session.tokens()[0], reference.run.greedy_ids[static_cast<size_t>(step)]);
      session.step();
    }
    session.step();
    for (int step = 0; step < 3; ++step) {
      EXPECT_THROW(session.tokens(), NumericalError);
      try {
        session.step();  // -1 goes through the embedding
      } catch (const Error&) {
        break;  // accelerators on host memory check ids
      }
    }
  }
  session.start(Prompts{prompts[1]}, {}, 1);
  EXPECT_EQ(session.tokens()[0], reference.batch[0].greedy_ids[0]);
}

}  // namespace
}  // namespace anyaccel::llm
