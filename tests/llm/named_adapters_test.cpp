// LoRA adapters that are kept apart: rows of a batch with different adapters against PEFT's logits (tests/data/adapters, made
// by tools/adapter_fixtures.py), over ranks, with quantized matrices, and in generation; and adapters that are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/embed.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/perplexity.h"
#include "anyaccel/llm/quantize.h"
#include "anyaccel/llm/session.h"
#include "anyaccel/llm/text_generation.h"
#include "llm/decoding.h"
#include "llm/model_fixtures.h"
#include "llm/thread_ranks.h"

namespace anyaccel::llm {
namespace {

using anyaccel::testing::BackendGuard;
using nlohmann::json;
using Prompts = std::vector<std::vector<int32_t>>;

const std::string data = ANYACCEL_TEST_DATA;

std::string adapter_directory(const std::string& name) { return data + "/adapters/" + name; }

json expected_of_adapters(const std::string& name) {
  return json::parse(std::ifstream(adapter_directory(name) + "/expected.json"));
}

std::shared_ptr<const Model> load_with(const std::string& model, const std::vector<std::string>& adapters,
                                       LoadOptions options = {}) {
  if (options.quantize.empty() && options.dtype == DType::None && !model.ends_with(".gguf")) options.dtype = DType::F32;
  for (const std::string& name : adapters) options.adapters.push_back({name, adapter_directory(name)});
  return Model::load(model.starts_with('/') ? model : data + "/" + model, options);
}

// Returns the logits of the last three tokens of a prompt in each sequence.
std::vector<std::vector<float>> logits_of_rows(const std::shared_ptr<const Model>& model,
                                               const std::vector<int32_t>& prompt,
                                               const std::vector<int32_t>& adapters) {
  Session session(model, {.sequences = static_cast<int64_t>(adapters.size()), .context = 16, .chunk = 64});
  session.set_adapters(adapters);
  std::vector<int32_t> ids, sequence, positions, rows;
  for (size_t i = 0; i < adapters.size(); ++i) {
    for (size_t p = 0; p < prompt.size(); ++p) {
      ids.push_back(prompt[p]);
      sequence.push_back(static_cast<int32_t>(i));
      positions.push_back(static_cast<int32_t>(p));
      if (p + 3 >= prompt.size()) rows.push_back(static_cast<int32_t>(ids.size()) - 1);
    }
  }
  const std::vector<float> all = session.forward({ids, sequence, positions}, rows).to_vector<float>();
  const auto each = static_cast<ptrdiff_t>(all.size() / adapters.size());
  std::vector<std::vector<float>> result;
  for (auto at = all.begin(); at != all.end(); at += each) result.emplace_back(at, at + each);
  return result;
}

float difference(const std::vector<float>& found, const std::vector<float>& wanted) {
  EXPECT_EQ(found.size(), wanted.size());
  float largest = 0, worst = 0;
  for (size_t i = 0; i < std::min(found.size(), wanted.size()); ++i) {
    largest = std::max(largest, std::abs(wanted[i]));
    worst = std::max(worst, std::abs(found[i] - wanted[i]));
  }
  return worst / largest;
}

std::vector<float> wanted_logits(const std::string& adapter) {
  return expected_of_adapters(adapter).at("logits").get<std::vector<float>>();
}

std::vector<int32_t> prompt_of(const std::string& adapter) {
  return expected_of_adapters(adapter).at("prompt_ids").get<std::vector<int32_t>>();
}

// Sequences with one adapter, none and the other.
void expect_mixed(const std::shared_ptr<const Model>& model, float tolerance, const std::string& what) {
  const std::vector<int32_t> prompt = prompt_of("llama_patterns");
  const auto plain = logits_of_rows(load_with("models/llama_gqa", {}), prompt, {-1})[0];
  const auto found = logits_of_rows(model, prompt, {0, -1, 1, 0});
  EXPECT_GT(difference(plain, wanted_logits("llama_patterns")), 1.5f * tolerance) << "the adapter changes nothing";
  EXPECT_GT(difference(plain, wanted_logits("llama_other")), 1.5f * tolerance) << "the adapter changes nothing";
  EXPECT_LT(difference(found[0], wanted_logits("llama_patterns")), tolerance) << what;
  EXPECT_LT(difference(found[1], plain), tolerance) << what;
  EXPECT_LT(difference(found[2], wanted_logits("llama_other")), tolerance) << what;
  EXPECT_LT(difference(found[3], wanted_logits("llama_patterns")), tolerance) << what;
  EXPECT_LT(difference(logits_of_rows(model, prompt, {-1})[0], plain), tolerance) << what << ", none";
}

const std::vector<std::string> both = {"llama_patterns", "llama_other"};

TEST(NamedAdapters, RowsOfABatchHaveTheLogitsOfPeft) {
  expect_mixed(load_with("models/llama_gqa", both), 1e-4f, "fp32");
  LoadOptions rounded;
  rounded.dtype = DType::BF16;
  expect_mixed(load_with("models/llama_gqa", both, rounded), 0.04f, "bf16");
  for (const char* name : {"gpt2", "phi3"}) {
    const json expected = expected_of_adapters(name);
    const auto model = load_with(expected.at("model").get<std::string>(), {name});
    const auto found = logits_of_rows(model, prompt_of(name), {-1, 0});
    EXPECT_LT(difference(found[1], wanted_logits(name)), 1e-4f) << name;
    EXPECT_GT(difference(found[0], wanted_logits(name)), 0.01f) << name;
  }
}

TEST(NamedAdapters, RanksHoldTheirParts) {
  if (!get_accelerator()->is_host_coherent()) GTEST_SKIP() << "ranks as threads need host memory";
  for (const int ranks : {2, 3}) {
    const auto body = [&](const std::shared_ptr<comm::ProcessGroup>& group) {
      LoadOptions options;
      options.group = group;
      const auto model = load_with("models/llama_gqa", both, options);
      const auto found = logits_of_rows(model, prompt_of("llama_patterns"), {1, 0});
      EXPECT_LT(difference(found[0], wanted_logits("llama_other")), 1e-4f) << ranks << " ranks";
      EXPECT_LT(difference(found[1], wanted_logits("llama_patterns")), 1e-4f) << ranks << " ranks";
      for (const char* name : {"gpt2", "phi3"}) {
        const auto other = load_with(expected_of_adapters(name).at("model").get<std::string>(), {name}, options);
        EXPECT_LT(difference(logits_of_rows(other, prompt_of(name), {0})[0], wanted_logits(name)), 1e-4f) << name;
      }
    };
    anyaccel::testing::run_ranks(ranks, body);
    anyaccel::testing::run_ranks(ranks, body, anyaccel::testing::Between::Messages);
  }
}

// The matrices stay quantized (whose rounding is most of the difference here, with and without adapters), and in a GGUF file rows of queries and keys are stored as pairs.
TEST(NamedAdapters, MatricesMayBeQuantized) {
  LoadOptions options;
  options.quantize = "q8_0";
  options.activations = Activations::F32;
  try {
    expect_mixed(load_with("models/llama_gqa", both, options), 0.09f, "quantized while loading");
  } catch (const InvalidArgument& error) {
    GTEST_SKIP() << error.what();  // an accelerator without ops for quantized weights
  }
  const anyaccel::testing::TemporaryDirectory folder;
  const std::string file = folder.path() + "/model.gguf";
  QuantizeOptions to;
  to.type = "q8_0";
  quantize_model(data + "/models/llama_gqa", file, to);
  options.quantize.clear();
  const auto model = load_with(file, both, options);
  EXPECT_FALSE(model->quantized_formats().empty());
  expect_mixed(model, 0.09f, "GGUF");
}

TEST(NamedAdapters, GenerationChoosesThemForEachPrompt) {
  const auto model = load_with("models/llama_gqa", both);
  const Prompts prompts = {{5, 6, 7}, {5, 6, 7}, {5, 6, 7}, {8, 9}};
  const std::vector<std::string> names = {"llama_other", "", "llama_patterns", "llama_other"};
  for (const char* backend : {"eager", "graph"}) {
    const BackendGuard guard(backend);
    TextGenerator generator(model, nullptr, {});
    GenerateOptions options;
    options.max_new_tokens = 8;
    options.adapters = names;
    const GenerateResult together = generator.generate_ids(prompts, options);
    std::vector<std::vector<int32_t>> alone;
    // The same generator switches between them, with and without.
    for (size_t i = 0; i < prompts.size(); ++i) {
      options.adapters = {names[i]};
      const GenerateResult one = generator.generate_ids(Prompts{prompts[i]}, options);
      EXPECT_EQ(one.completions[0].token_ids, together.completions[i].token_ids) << backend << " " << i;
      alone.push_back(one.completions[0].token_ids);
    }
    EXPECT_NE(alone[0], alone[1]);
    EXPECT_NE(alone[1], alone[2]);
    // A conversation that goes on with another adapter does not use what the first one has computed.
    options.reuse_cache = true;
    for (const size_t i : {0, 1, 2, 2, 0}) {
      options.adapters = {names[i]};
      EXPECT_EQ(generator.generate_ids(Prompts{prompts[i]}, options).completions[0].token_ids, alone[i]) << backend;
    }
    options.reuse_cache = false;
    options.speculation = Speculation{nullptr, 2, 4};
    options.adapters = names;
    const GenerateResult drafted = generator.generate_ids(prompts, options);
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(drafted.completions[i].token_ids, together.completions[i].token_ids) << backend << " " << i;
    }
    options.speculation.reset();
    options.beams = BeamSettings{3, 1.0f, EarlyStopping::No};
    const GenerateResult searched = generator.generate_ids(prompts, options);
    for (size_t i = 0; i < prompts.size(); ++i) {
      options.adapters = {names[i]};
      EXPECT_EQ(generator.generate_ids(Prompts{prompts[i]}, options).completions[0].token_ids,
                searched.completions[i].token_ids)
          << backend << " " << i;
    }
    // What is copied from beam to beam has the adapter too: the search is that of a model to which it was added.
    LoadOptions merged;
    merged.adapter = adapter_directory(names[0]);
    TextGenerator added(load_with("models/llama_gqa", {}, merged), nullptr, {});
    options.adapters = {};
    const GenerateResult wanted = added.generate_ids(Prompts{prompts[0]}, options);
    ASSERT_EQ(searched.completions[0].beams.size(), wanted.completions[0].beams.size());
    for (size_t i = 0; i < wanted.completions[0].beams.size(); ++i) {
      EXPECT_NEAR(searched.completions[0].beams[i].score, wanted.completions[0].beams[i].score, 1e-4f) << backend;
    }
    // A step that was captured without adapters is not replayed with one.
    TextGenerator switching(model, nullptr, {});
    options.beams.reset();
    for (const size_t i : {1, 0, 1, 2}) {
      options.adapters = {names[i]};
      EXPECT_EQ(switching.generate_ids(Prompts{prompts[i]}, options).completions[0].token_ids, alone[i]) << backend;
    }
  }
}

TEST(NamedAdapters, PerplexityAndEmbeddingsAreThoseOfPeft) {
  const auto expect_those_of = [](const std::string& name, const std::shared_ptr<const Model>& model,
                                  const std::string& chosen) {
    const json expected = expected_of_adapters(name);
    PerplexityOptions options;
    options.adapter = chosen;
    const Perplexity found = perplexity(model, prompt_of(name), options);
    EXPECT_NEAR(std::log(found.value), expected.at("mean_loss").get<double>(), 1e-4) << name;
    const std::vector<float> state = embed(model, prompt_of(name), Pooling::Mean, chosen);
    EXPECT_LT(difference(state, expected.at("mean_state").get<std::vector<float>>()), 1e-4f) << name;
  };
  const auto model = load_with("models/llama_gqa", both);
  for (const std::string& name : both) {
    expect_those_of(name, model, name);
    EXPECT_GT(std::abs(std::log(perplexity(model, prompt_of(name)).value) -
                       expected_of_adapters(name).at("mean_loss").get<double>()),
              1e-2)
        << "without the adapter";
    LoadOptions options;
    options.adapter = adapter_directory(name);  // added to the matrices
    expect_those_of(name, load_with("models/llama_gqa", {}, options), "");
  }
  for (const char* name : {"gpt2", "phi3"}) {
    expect_those_of(name, load_with(expected_of_adapters(name).at("model").get<std::string>(), {name}), name);
  }
  PerplexityOptions options;
  options.adapter = "other";
  EXPECT_THROW(perplexity(model, std::vector<int32_t>{1, 2, 3}, options), InvalidArgument);
  EXPECT_THROW(embed(model, std::vector<int32_t>{1, 2, 3}, Pooling::Last, "other"), InvalidArgument);
}

TEST(NamedAdapters, WhatCannotBeKeptApartIsRefused) {
  EXPECT_THROW(load_with("models/llama_gqa", {"llama_rslora"}), NotImplementedError);  // changes lm_head
  EXPECT_THROW(load_with("models/llama_gqa", {"llama_other", "llama_other"}), InvalidArgument);
  EXPECT_THROW(load_with("models/llama_gqa", {"phi3"}), CheckpointError);
  EXPECT_THROW(load_with("models/qwen2", {"llama_patterns"}), CheckpointError);
  LoadOptions unnamed;
  unnamed.adapters = {{"", adapter_directory("llama_other")}};
  EXPECT_THROW(load_with("models/llama_gqa", {}, unnamed), InvalidArgument);

  const auto model = load_with("models/llama_gqa", both);
  EXPECT_EQ(model->adapters(), both);
  EXPECT_EQ(model->find_adapter("llama_other"), 1);
  EXPECT_EQ(model->find_adapter(""), -1);
  Session session(model, {.sequences = 2, .context = 16});
  EXPECT_THROW(session.set_adapters(std::vector<int32_t>{2}), InvalidArgument);
  EXPECT_THROW(session.set_adapters(std::vector<int32_t>{-2}), InvalidArgument);
  EXPECT_THROW(session.set_adapters(std::vector<int32_t>{0, 0, 0}), InvalidArgument);
  TextGenerator generator(model, nullptr, {});
  GenerateOptions options;
  options.max_new_tokens = 1;
  options.adapters = {"other"};
  try {
    generator.generate_ids(Prompts{{1}}, options);
    ADD_FAILURE() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("expected one of llama_patterns, llama_other"), std::string::npos);
  }
  options.adapters = {"llama_other", ""};
  EXPECT_THROW(generator.generate_ids(Prompts{{1}, {2}, {3}}, options), InvalidArgument);
}

}  // namespace
}  // namespace anyaccel::llm
