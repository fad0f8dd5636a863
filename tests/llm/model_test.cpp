// Models against the logits and tokens that transformers computed (tests/data/models), in both compile backends, and
// the errors of damaged checkpoints.
#include "anyaccel/llm/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/session.h"
#include "llm/decoding.h"
#include "llm/model_fixtures.h"

namespace anyaccel::llm {
namespace {

using anyaccel::testing::BackendGuard;
using anyaccel::testing::decode;
using anyaccel::testing::load_reference_model;
using anyaccel::testing::ReferenceModel;
using anyaccel::testing::ReferenceRun;
using anyaccel::testing::TemporaryDirectory;

std::shared_ptr<const Model> load_model(const std::string& directory, DType dtype) {
  LoadOptions options;
  options.dtype = dtype;
  return Model::load(directory, options);
}

std::unique_ptr<Session> make_session(std::shared_ptr<const Model> model, int64_t sequences, int64_t context,
                                      int64_t chunk = 512) {
  SessionOptions options;
  options.sequences = sequences;
  options.context = context;
  options.chunk = chunk;
  return std::make_unique<Session>(std::move(model), options);
}

// Logits after every one of `ids`, which go to positions from `first` on of sequence 0.
std::vector<float> all_logits(Session& session, std::span<const int32_t> ids, int32_t first) {
  std::vector<int32_t> sequence(ids.size(), 0), positions(ids.size()), rows(ids.size());
  std::iota(positions.begin(), positions.end(), first);
  std::iota(rows.begin(), rows.end(), 0);
  return session.forward({ids, sequence, positions}, rows).to_vector<float>();
}

// Largest difference over largest logit, the worst position.
double worst_error(std::span<const float> found, std::span<const float> expected, int64_t vocab) {
  EXPECT_EQ(found.size(), expected.size());
  if (found.size() != expected.size()) return INFINITY;
  double worst = 0;
  for (size_t row = 0; row < found.size(); row += static_cast<size_t>(vocab)) {
    double difference = 0;
    double largest = 0;
    for (size_t i = row; i < row + static_cast<size_t>(vocab); ++i) {
      const double gap = std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
      difference = std::isnan(gap) ? INFINITY : std::max(difference, gap);
      largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

class ReferenceModels : public ::testing::TestWithParam<std::string> {};

TEST_P(ReferenceModels, LogitsOfThePromptAgree) {
  const ReferenceModel reference = load_reference_model(GetParam());
  const auto session = make_session(load_model(reference.directory, DType::F32), 1, 64);
  const std::vector<float> logits = all_logits(*session, reference.run.prompt_ids, 0);
  EXPECT_LE(worst_error(logits, reference.prompt_logits, reference.vocab), 1e-4);
}

TEST_P(ReferenceModels, LogitsOfThePromptAgreeInSmallChunks) {
  const ReferenceModel reference = load_reference_model(GetParam());
  const auto session = make_session(load_model(reference.directory, DType::F32), 1, 64, 7);
  const std::vector<float> logits = all_logits(*session, reference.run.prompt_ids, 0);
  EXPECT_LE(worst_error(logits, reference.prompt_logits, reference.vocab), 1e-4);
}

TEST_P(ReferenceModels, LogitsOfEveryStepAgree) {
  const ReferenceModel reference = load_reference_model(GetParam());
  const auto session = make_session(load_model(reference.directory, DType::F32), 1, 64);
  std::vector<float> logits = all_logits(*session, reference.run.prompt_ids, 0);
  logits.erase(logits.begin(), logits.end() - reference.vocab);
  auto position = static_cast<int32_t>(reference.run.prompt_ids.size());
  for (size_t i = 0; i + 1 < reference.run.greedy_ids.size(); ++i) {
    const std::vector<float> step = all_logits(*session, std::span(reference.run.greedy_ids).subspan(i, 1), position++);
    logits.insert(logits.end(), step.begin(), step.end());
  }
  EXPECT_LE(worst_error(logits, reference.step_logits, reference.vocab), 1e-4);
}

TEST_P(ReferenceModels, GreedyTokensAgreeInBothBackends) {
  const ReferenceModel reference = load_reference_model(GetParam());
  const auto model = load_model(reference.directory, DType::F32);
  for (const char* backend : {"eager", "graph"}) {
    const BackendGuard guard(backend);
    const auto session = make_session(model, 1, 64);
    const std::vector<std::vector<int32_t>> prompts = {reference.run.prompt_ids};
    EXPECT_EQ(decode(*session, prompts, reference.run.greedy_ids.size())[0], reference.run.greedy_ids) << backend;
    const bool graphs = std::string(backend) == "graph" && get_accelerator()->supports_graphs();
    EXPECT_EQ(session->replayed_steps() > 0, graphs) << backend;
  }
}

class ReferenceBatches : public ::testing::TestWithParam<std::string> {};

TEST_P(ReferenceBatches, GiveTheTokensOfSingleRuns) {
  const ReferenceModel reference = load_reference_model(GetParam());
  ASSERT_FALSE(reference.batch.empty());
  std::vector<std::vector<int32_t>> prompts = {reference.run.prompt_ids};
  std::vector<std::vector<int32_t>> expected = {reference.run.greedy_ids};
  for (const ReferenceRun& run : reference.batch) {
    prompts.push_back(run.prompt_ids);
    expected.push_back(run.greedy_ids);
  }
  const auto model = load_model(reference.directory, DType::F32);
  for (const char* backend : {"eager", "graph"}) {
    const BackendGuard guard(backend);
    for (const int64_t chunk : {512, 9}) {
      const auto session = make_session(model, static_cast<int64_t>(prompts.size()), 96, chunk);
      EXPECT_EQ(decode(*session, prompts, expected[0].size()), expected) << backend << ", chunk " << chunk;
      // Once more in the same session, so that what the first run left behind does not matter.
      EXPECT_EQ(decode(*session, prompts, expected[0].size()), expected) << backend << ", chunk " << chunk;
    }
  }
}

// Frequencies that follow the length of a sequence stay with it when it takes over the row of another, also where a step of one row
// was captured for another sequence before.
TEST(DynamicRope, FrequenciesMoveWithTheirSequence) {
  const ReferenceModel reference = load_reference_model("llama_dynamic");
  const auto model = load_model(reference.directory, DType::F32);
  const std::vector<std::vector<int32_t>> prompts = {reference.batch[0].prompt_ids, reference.run.prompt_ids};
  ASSERT_NE(prompts[0].size(), prompts[1].size());
  const std::vector<int32_t>& expected = reference.run.greedy_ids;
  for (const char* backend : {"eager", "graph"}) {
    const BackendGuard guard(backend);
    const auto session = make_session(model, 2, 96);
    for (int round = 0; round < 2; ++round) {
      session->start(prompts, {}, 1);
      const std::array<bool, 2> keep = {false, true};
      session->retain(keep);
      for (const int32_t token : expected) {
        ASSERT_EQ(session->tokens()[0], token) << backend << " " << round;
        session->step();
      }
      const std::vector<std::vector<int32_t>> alone = {reference.run.prompt_ids};
      EXPECT_EQ(decode(*session, alone, expected.size())[0], expected) << backend;
    }
  }
}

TEST(Sessions, AStepBeyondTheContextIsRefused) {
  const auto session = make_session(load_model(anyaccel::testing::models_directory() + "/llama_gqa", DType::F32), 1, 5);
  session->start(std::vector<std::vector<int32_t>>{{1, 2, 3}}, {}, 1);
  session->step();
  session->step();
  try {
    session->step();
    ADD_FAILURE() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "step: sequence 0 has filled the context of 5 tokens");
  }
}

// The reference in bf16 (transformers) differs from fp32 by at most 0.26 on these models, whose logits reach about 8.
TEST_P(ReferenceModels, HalfPrecisionComesClose) {
  const ReferenceModel reference = load_reference_model(GetParam());
  for (const DType dtype : {DType::BF16, DType::F16}) {
    const std::vector<DType> supported = get_accelerator()->supported_dtypes();
    if (std::find(supported.begin(), supported.end(), dtype) == supported.end()) continue;
    const auto session = make_session(load_model(reference.directory, dtype), 1, 64);
    EXPECT_EQ(session->model().dtype(), dtype);
    const std::vector<float> logits = all_logits(*session, reference.run.prompt_ids, 0);
    EXPECT_LE(worst_error(logits, reference.prompt_logits, reference.vocab), 0.05) << dtype_name(dtype);
  }
}

// A prompt long enough for products to be made of bf16 activations, where the accelerator has units for that.
TEST_P(ReferenceModels, LongPromptsInBf16ComeClose) {
  const ReferenceModel reference = load_reference_model(GetParam());
  std::vector<int32_t> prompt;
  for (size_t i = 0; i < 60; ++i) prompt.push_back(reference.run.prompt_ids[i % reference.run.prompt_ids.size()]);
  const auto exact = make_session(load_model(reference.directory, DType::F32), 1, 64);
  const auto half = make_session(load_model(reference.directory, DType::BF16), 1, 64);
  EXPECT_LE(worst_error(all_logits(*half, prompt, 0), all_logits(*exact, prompt, 0), reference.vocab), 0.05);
}

INSTANTIATE_TEST_SUITE_P(All, ReferenceBatches, ::testing::Values("llama_gqa", "llama_dynamic", "mistral_window"),
                         [](const auto& test_info) { return test_info.param; });
INSTANTIATE_TEST_SUITE_P(All, ReferenceModels, ::testing::ValuesIn(anyaccel::testing::reference_model_names()),
                         [](const auto& test_info) { return test_info.param; });

const std::string gqa_directory = anyaccel::testing::models_directory() + "/llama_gqa";

TEST(ModelLoad, AutoKeepsTheDtypeOfTheFileAndTheMapping) {
  const auto model = load_model(gqa_directory, DType::None);
  if (!get_accelerator()->is_bf16_supported()) GTEST_SKIP() << "bf16 is not supported here";
  EXPECT_EQ(model->dtype(), DType::BF16);
  if (get_accelerator()->is_host_coherent()) {
    // All but the norms.
    EXPECT_GT(model->mapped_bytes(), model->weight_bytes() * 9 / 10);
  }
  const auto converted = load_model(gqa_directory, DType::F32);
  EXPECT_EQ(converted->mapped_bytes(), 0u);
}

TEST(ModelLoad, ReportsProgress) {
  uint64_t last = 0;
  uint64_t total = 0;
  int calls = 0;
  LoadOptions options;
  options.progress = [&](const LoadProgress& progress) {
    EXPECT_GT(progress.bytes_done, last);
    EXPECT_LE(progress.bytes_done, progress.bytes_total);
    EXPECT_FALSE(progress.tensor.empty());
    last = progress.bytes_done;
    total = progress.bytes_total;
    ++calls;
  };
  Model::load(gqa_directory, options);
  EXPECT_EQ(last, total);
  EXPECT_GT(calls, 10);
}

TEST(ModelLoad, ErrorsInProgressEndTheLoad) {
  LoadOptions options;
  options.progress = [](const LoadProgress&) { throw std::runtime_error("enough"); };
  EXPECT_THROW(Model::load(gqa_directory, options), std::runtime_error);
}

TEST(ModelLoad, RefusesOtherDtypes) {
  EXPECT_THROW(load_model(gqa_directory, DType::I32), InvalidArgument);
  EXPECT_THROW(load_model(gqa_directory, DType::F64), InvalidArgument);
}

TEST(ModelLoad, MissingDirectory) { EXPECT_THROW(load_model("/nonexistent/model", DType::None), CheckpointError); }

// Copies a fixture, changes its config.json by replacing text, and returns what the load says.
std::string load_error(const std::string& from, const std::string& to) {
  const TemporaryDirectory directory;
  const std::filesystem::path source = gqa_directory;
  std::filesystem::copy_file(source / "model.safetensors", directory.path() + "/model.safetensors");
  std::ifstream in(source / "config.json");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const size_t at = text.find(from);
  if (at == std::string::npos) return "no '" + from + "' in config.json";
  text.replace(at, from.size(), to);
  std::ofstream(directory.path() + "/config.json") << text;
  try {
    load_model(directory.path(), DType::None);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "loaded";
}

TEST(ModelLoad, WrongShapesNameTensorFoundAndExpected) {
  const std::string message = load_error("\"intermediate_size\": 96", "\"intermediate_size\": 104");
  EXPECT_NE(message.find("model.layers.0.mlp.gate_proj.weight"), std::string::npos) << message;
  EXPECT_NE(message.find("[96, 64]"), std::string::npos) << message;
  EXPECT_NE(message.find("[104, 64]"), std::string::npos) << message;
}

TEST(ModelLoad, MissingTensorsAreNamed) {
  const std::string message = load_error("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4");
  EXPECT_NE(message.find("model.layers.3.input_layernorm.weight"), std::string::npos) << message;
}

TEST(ModelLoad, TensorsThatAreTooManyAreNoted) {
  const TemporaryDirectory directory;
  const std::filesystem::path source = gqa_directory;
  std::filesystem::copy_file(source / "model.safetensors", directory.path() + "/model.safetensors");
  std::ifstream in(source / "config.json");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::string from = "\"num_hidden_layers\": 3";
  text.replace(text.find(from), from.size(), "\"num_hidden_layers\": 2");
  std::ofstream(directory.path() + "/config.json") << text;
  const auto model = load_model(directory.path(), DType::None);
  ASSERT_EQ(model->notes().size(), 1u);
  EXPECT_NE(model->notes()[0].find("model.layers.2."), std::string::npos) << model->notes()[0];
}

TEST(Session, RefusesWrongInput) {
  const auto model = load_model(gqa_directory, DType::F32);
  EXPECT_THROW(make_session(model, 0, 16), InvalidArgument);
  EXPECT_THROW(make_session(model, 1, -1), InvalidArgument);
  EXPECT_THROW(make_session(model, 1, 16, 0), InvalidArgument);
  const auto session = make_session(model, 1, 16);
  const std::vector<int32_t> zero = {0}, one = {1}, minus = {-1}, id_320 = {320}, sixteen = {16}, none;
  EXPECT_NO_THROW(session->forward({zero, zero, zero}, zero));
  EXPECT_NO_THROW(session->forward({zero, zero, zero}, none));
  EXPECT_THROW(session->forward({none, none, none}, none), InvalidArgument);
  EXPECT_THROW(session->forward({zero, zero, none}, none), InvalidArgument);
  EXPECT_THROW(session->forward({id_320, zero, zero}, none), InvalidArgument);
  EXPECT_THROW(session->forward({minus, zero, zero}, none), InvalidArgument);
  EXPECT_THROW(session->forward({zero, one, zero}, none), InvalidArgument);
  EXPECT_THROW(session->forward({zero, zero, sixteen}, none), InvalidArgument);
  EXPECT_THROW(session->forward({zero, zero, zero}, one), InvalidArgument);

  const std::vector<std::vector<int32_t>> empty = {{}}, two = {{1}, {2}}, long_prompt = {std::vector<int32_t>(17, 1)};
  EXPECT_THROW(session->start(empty, {}, 0), InvalidArgument);
  EXPECT_THROW(session->start(two, {}, 0), InvalidArgument);
  EXPECT_THROW(session->start(long_prompt, {}, 0), InvalidArgument);
  const std::vector<std::vector<int32_t>> fine = {{1, 2}};
  for (const Sampling& wrong :
       {Sampling{-1.0f, 0, 1.0f, 1.0f}, Sampling{NAN, 0, 1.0f, 1.0f}, Sampling{1.0f, -1, 1.0f, 1.0f},
        Sampling{1.0f, 0, 0.0f, 1.0f}, Sampling{1.0f, 0, 1.5f, 1.0f}, Sampling{1.0f, 0, 1.0f, 0.0f}}) {
    EXPECT_THROW(session->start(fine, wrong, 0), InvalidArgument);
  }
}

TEST(Session, AFullContextIsAnError) {
  const auto session = make_session(load_model(gqa_directory, DType::F32), 1, 3);
  const std::vector<std::vector<int32_t>> prompts = {{1, 5}};
  session->start(prompts, {}, 0);
  EXPECT_NO_THROW(session->step());
  EXPECT_THROW(session->step(), InvalidArgument);
}

}  // namespace
}  // namespace anyaccel::llm
