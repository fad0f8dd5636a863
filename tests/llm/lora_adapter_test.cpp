// LoRA adapters against PEFT's logits (tests/data/adapters, made by tools/adapter_fixtures.py): matrices of their own, fused
// and transposed ones, on one rank and several; and adapters that are damaged, of another kind or another model's.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "anyaccel/llm/model.h"
#include "anyaccel/llm/safetensors.h"
#include "anyaccel/llm/session.h"
#include "llm/config/lora_config.h"
#include "llm/test_directory.h"
#include "llm/thread_ranks.h"

namespace anyaccel::llm {
namespace {

using namespace testing;
using nlohmann::json;

const std::filesystem::path adapter_data = std::filesystem::path(ANYACCEL_TEST_DATA) / "adapters";

json expected_of(const std::string& name) { return json::parse(std::ifstream(adapter_data / name / "expected.json")); }

LoadOptions with_adapter(const std::filesystem::path& adapter, std::shared_ptr<comm::ProcessGroup> group = nullptr) {
  LoadOptions options;
  options.dtype = DType::F32;
  options.adapter = adapter.string();
  options.group = std::move(group);
  return options;
}

std::string model_of(const json& expected) {
  return std::string(ANYACCEL_TEST_DATA) + "/" + expected.at("model").get<std::string>();
}

// Returns the logits of the prompt's last three tokens.
std::vector<float> logits_of(const std::shared_ptr<const Model>& model, const json& expected) {
  const auto ids = expected.at("prompt_ids").get<std::vector<int32_t>>();
  const auto count = static_cast<int32_t>(ids.size());
  std::vector<int32_t> positions(ids.size()), sequence(ids.size(), 0);
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<int32_t> rows = {count - 3, count - 2, count - 1};
  Session session(model, {.sequences = 1, .context = 16, .chunk = 16});
  return session.forward({ids, sequence, positions}, rows).to_vector<float>();
}

float largest_difference(const std::vector<float>& found, const json& expected) {
  const auto wanted = expected.at("logits").get<std::vector<float>>();
  EXPECT_EQ(found.size(), wanted.size());
  float largest = 0, difference = 0;
  for (size_t i = 0; i < std::min(found.size(), wanted.size()); ++i) {
    largest = std::max(largest, std::abs(wanted[i]));
    difference = std::max(difference, std::abs(found[i] - wanted[i]));
  }
  return difference / largest;
}

class Adapters : public ::testing::TestWithParam<const char*> {};

TEST_P(Adapters, LogitsAreThoseOfPeft) {
  const json expected = expected_of(GetParam());
  const auto plain = Model::load(model_of(expected), with_adapter(""));
  EXPECT_GT(largest_difference(logits_of(plain, expected), expected), 0.01f) << "the adapter changes nothing";
  const auto model = Model::load(model_of(expected), with_adapter(adapter_data / GetParam()));
  EXPECT_LT(largest_difference(logits_of(model, expected), expected), 1e-4f);
  for (const int ranks : {2, 3}) {
    const auto body = [&](const std::shared_ptr<comm::ProcessGroup>& group) {
      const auto shard = Model::load(model_of(expected), with_adapter(adapter_data / GetParam(), group));
      EXPECT_LT(largest_difference(logits_of(shard, expected), expected), 1e-4f) << ranks << " ranks";
    };
    anyaccel::testing::run_ranks(ranks, body);
    anyaccel::testing::run_ranks(ranks, body, anyaccel::testing::Between::Messages);
  }
  // Rounded to the dtype after the sum.
  LoadOptions rounded = with_adapter(adapter_data / GetParam());
  rounded.dtype = DType::BF16;
  EXPECT_LT(largest_difference(logits_of(Model::load(model_of(expected), rounded), expected), expected), 0.05f);
}

INSTANTIATE_TEST_SUITE_P(Lora, Adapters, ::testing::Values("llama_patterns", "llama_rslora", "gpt2", "phi3"));

// What adapter_config.json says about scales, as PEFT reads it.
TEST(AdapterScales, FollowTheConfiguration) {
  const auto scale = [](const json& config) {
    const TensorInfo a{.name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
                       .dtype = DType::F32,
                       .shape = {2, 64}};
    const TensorInfo b{.name = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight",
                       .dtype = DType::F32,
                       .shape = {64, 2}};
    json all = {{"peft_type", "LORA"}, {"r", 2}};
    all.update(config);
    const std::vector<TensorInfo> tensors = {a, b};
    return read_lora_factors(JsonDocument::parse(all.dump(), "adapter_config.json"), tensors, "file")
        .pairs.at("model.layers.0.self_attn.q_proj.weight")
        .scale;
  };
  EXPECT_EQ(scale(json::object()), 4.0f) << "lora_alpha is 8";
  EXPECT_EQ(scale({{"lora_alpha", 6}}), 3.0f);
  EXPECT_FLOAT_EQ(scale({{"lora_alpha", 6}, {"use_rslora", true}}), 6.0f / std::sqrt(2.0f));
  // A name is that of a whole module, or of the last parts of its path.
  EXPECT_EQ(scale({{"lora_alpha", 6}, {"alpha_pattern", {{"q_proj", 10}}}}), 5.0f);
  EXPECT_EQ(scale({{"lora_alpha", 6}, {"alpha_pattern", {{"self_attn.q_proj", 10}}}}), 5.0f);
  EXPECT_EQ(scale({{"lora_alpha", 6}, {"alpha_pattern", {{"proj", 10}}}}), 3.0f);
  EXPECT_EQ(scale({{"r", 4}, {"rank_pattern", {{"q_proj", 2}}}, {"lora_alpha", 6}}), 3.0f);
}

class BadAdapters : public ::testing::Test {
 protected:
  std::string refusal(const std::function<void(json&)>& change, const std::string& name = "llama_patterns",
                      const std::string& model = "models/llama_gqa") {
    const TestDirectory dir;
    json config = json::parse(std::ifstream(adapter_data / name / "adapter_config.json"));
    change(config);
    dir.write("adapter_config.json", config.dump());
    dir.write("adapter_model.safetensors", read_text(adapter_data / name / "adapter_model.safetensors"));
    return checkpoint_error(
        [&] { Model::load(std::string(ANYACCEL_TEST_DATA) + "/" + model, with_adapter(dir.path())); });
  }
  // With other tensors than the adapter's.
  std::string refusal_of(const std::vector<TensorSpec>& tensors) {
    const TestDirectory dir;
    dir.write("adapter_config.json", R"({"peft_type": "LORA", "r": 2})");
    SafetensorsWriter writer(dir.path() / "adapter_model.safetensors", tensors);
    const std::vector<std::byte> zeros(writer.total());
    writer.append(zeros);
    writer.finish();
    return checkpoint_error(
        [&] { Model::load(std::string(ANYACCEL_TEST_DATA) + "/models/llama_gqa", with_adapter(dir.path())); });
  }
};

TEST_F(BadAdapters, KindsThatAreNotSupportedAreNamed) {
  expect_contains(refusal([](json& c) { c["use_dora"] = true; }), "\"use_dora\": the adapter has DoRA");
  expect_contains(refusal([](json& c) { c["peft_type"] = "IA3"; }),
                  "the adapter is of the kind \"IA3\"; expected LORA");
  expect_contains(refusal([](json& c) { c["modules_to_save"] = {"lm_head"}; }), "whole modules");
  expect_contains(refusal([](json& c) { c["bias"] = "all"; }), "changed biases");
  expect_contains(refusal([](json& c) { c["init_lora_weights"] = "pissa"; }), "training began with \"pissa\"");
  expect_contains(refusal([](json& c) { c["alpha_pattern"] = {{"layers.[0-9].*", 3}}; }), "is a regular expression");
  expect_contains(refusal([](json& c) { c["r"] = 3; }), "expected the rank 3 of adapter_config.json");
  expect_contains(refusal([](json& c) { c["r"] = "x"; }), "\"r\"");
  expect_contains(refusal([](json& c) { c.erase("peft_type"); }), "peft_type");
  expect_contains(refusal([](json&) {}, "gpt2"), "which this model does not have as a matrix of its own");
  expect_contains(refusal([](json&) {}, "llama_patterns", "models/qwen2"), "expected the adapter of this model");
  const TestDirectory empty;
  expect_contains(checkpoint_error([&] {
                    Model::load(std::string(ANYACCEL_TEST_DATA) + "/models/llama_gqa", with_adapter(empty.path()));
                  }),
                  "adapter_config.json");
}

TEST_F(BadAdapters, TensorsThatDoNotBelongAreNamed) {
  const std::string q = "base_model.model.model.layers.0.self_attn.q_proj";
  const TensorSpec a = {q + ".lora_A.weight", DType::F32, {2, 64}}, b = {q + ".lora_B.weight", DType::F32, {64, 2}};
  expect_contains(refusal_of({a}), "\"model.layers.0.self_attn.q_proj\" has no lora_B; expected both factors");
  expect_contains(refusal_of({b}), "has no lora_A");
  expect_contains(refusal_of({a, b, {q + ".lora_magnitude_vector", DType::F32, {64}}}),
                  "is not supported; expected base_model.model.<module>.lora_A.weight");
  expect_contains(refusal_of({a, b, {"base_model.model.lm_head.base_layer.weight", DType::F32, {2, 2}}}),
                  "save_embedding_layers=False");
  expect_contains(refusal_of({a, {q + ".lora_B.weight", DType::F32, {64, 3}}}),
                  "[2, 64] and [64, 3]; expected the rank 2");
  expect_contains(refusal_of({a, {q + ".lora_B.weight", DType::F32, {32, 2}}}),
                  "are for a matrix of 32 outputs and 64 inputs, and the model's has 64 and 64");
  expect_contains(refusal_of({a, {q + ".lora_B.weight", DType::I32, {64, 2}}}),
                  "expected a matrix in fp32, bf16 or fp16");
  expect_contains(refusal_of({}), "has no tensors");
  const std::string norm = "base_model.model.model.layers.0.input_layernorm";
  expect_contains(
      refusal_of({{norm + ".lora_A.weight", DType::F32, {2, 64}}, {norm + ".lora_B.weight", DType::F32, {64, 2}}}),
      "which is not a matrix of this model");
}

TEST_F(BadAdapters, QuantizedMatricesAreRefused) {
  LoadOptions options = with_adapter(adapter_data / "llama_patterns");
  options.dtype = DType::None;
  options.quantize = "q8_0";
  try {
    Model::load(std::string(ANYACCEL_TEST_DATA) + "/models/llama_gqa", options);
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    expect_contains(error.what(), "which is quantized or in a GGUF file");
  }
}

}  // namespace
}  // namespace anyaccel::llm
