// Every family against what transformers computed (tests/data/families.json, made by tools/family_fixtures.py): logits of a
// prompt and of cached steps, tokens in both compile backends, a batch, 16-bit dtypes, two ranks; and what is refused.
//
// ANYACCEL_WRITE_FAMILIES=FILE has the table of docs/models.md written there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/safetensors.h"
#include "anyaccel/llm/session.h"
#include "llm/decoding.h"
#include "llm/family_cases.h"
#include "llm/model_fixtures.h"
#include "llm/thread_ranks.h"
#include "test_paths.h"

namespace anyaccel::llm {
namespace {

using anyaccel::testing::BackendGuard;
using anyaccel::testing::Between;
using anyaccel::testing::decode;
using anyaccel::testing::run_ranks;
using anyaccel::testing::TemporaryDirectory;
using namespace testing;
bool norms_all_heads(const FamilyCase& reference) {
  return reference.data.at("family") == "olmo2" || reference.data.at("family") == "olmoe";
}

class Families : public ::testing::TestWithParam<std::string> {};

TEST_P(Families, LogitsAndTokensAreThoseOfTransformers) {
  const FamilyCase reference(GetParam());
  const auto model = reference.load();
  EXPECT_LE(worst_difference(found_logits(reference, model), reference), 1e-4);
  EXPECT_LE(worst_difference(found_logits(reference, model, 5), reference), 1e-4) << "in chunks";
  for (const char* backend : {"eager", "graph"}) {
    const BackendGuard guard(backend);
    // The second prompt of the batch is the beginning of the first, and must not change it.
    Session session(model, {.sequences = 2, .context = 64, .chunk = 9});
    const std::vector<std::vector<int32_t>> prompts = {reference.prompt,
                                                       {reference.prompt.begin(), reference.prompt.begin() + 3}};
    EXPECT_EQ(decode(session, prompts, reference.generated.size())[0], reference.generated) << backend;
    const bool graphs = std::string(backend) == "graph" && get_accelerator()->supports_graphs();
    EXPECT_EQ(session.replayed_steps() > 0, graphs) << backend;
  }
}

// config.json as transformers 4.57 writes it, with rope in other fields and without a flag of tied embeddings.
TEST_P(Families, OlderConfigurationsMeanTheSame) {
  const FamilyCase reference(GetParam());
  if (!reference.data.contains("older_config")) GTEST_SKIP() << "transformers 4.57 computes something else, or nothing";
  reference.write_config(reference.data.at("older_config"));
  EXPECT_LE(worst_difference(found_logits(reference, reference.load()), reference), 1e-4);
}

TEST_P(Families, HalfPrecisionComesClose) {
  const FamilyCase reference(GetParam());
  for (const DType dtype : {DType::BF16, DType::F16}) {
    const std::vector<DType> supported = get_accelerator()->supported_dtypes();
    if (std::find(supported.begin(), supported.end(), dtype) == supported.end()) continue;
    const auto model = reference.load(dtype);
    const std::vector<double> found = differences(found_logits(reference, model), reference);
    // Where two experts are nearly as good, rounding may choose the other one, whose result is another number.
    const bool has_experts = model->config().experts.count > 0;
    EXPECT_LE(has_experts ? found[found.size() / 2] : found.back(), 0.1) << dtype_name(dtype);
  }
}

TEST_P(Families, TwoRanksGiveTheTokensOfOne) {
  if (!get_accelerator()->is_host_coherent()) GTEST_SKIP() << "ranks as threads need the host's memory";
  const FamilyCase reference(GetParam());
  for (const auto& [ranks, between] :
       {std::pair{2, Between::Messages}, {3, Between::Messages}, {3, Between::SharedMemory}}) {
    const auto body = [&, ranks = ranks](const std::shared_ptr<comm::ProcessGroup>& group) {
      Session session(reference.load(DType::F32, group), {.sequences = 1, .context = 64});
      const std::vector<std::vector<int32_t>> prompts = {reference.prompt};
      EXPECT_EQ(decode(session, prompts, reference.generated.size())[0], reference.generated) << ranks;
    };
    const auto run = [&, ranks = ranks, between = between] { run_ranks(ranks, body, between); };
    if (norms_all_heads(reference)) {
      EXPECT_THROW(run(), InvalidArgument);
    } else {
      run();
    }
  }
}

// All on the CPU, one of each family over OpenCL, and on simulated devices, which are slow, as many as have every part once.
std::vector<std::string> case_names() {
  const char* accelerator = std::getenv("ANYACCEL_TEST_ACCELERATOR");
  const char* runtime = std::getenv("ANYACCEL_XPU_RUNTIME");
  if (accelerator != nullptr && (runtime == nullptr || std::string_view(runtime) != "opencl")) {
    return {"gemma2_1", "phi3_3", "stablelm_2",  "olmo2_2",       "granite_1", "cohere2_2", "cohere_2",
            "gpt2_1",   "gptj_1", "qwen2_moe_3", "deepseek_v3_3", "bloom_2",   "gpt_oss_1"};
  }
  std::vector<std::string> names;
  for (const Json& each : family_cases()) {
    const std::string name = each.at("name");
    if (accelerator == nullptr || name.ends_with("_1")) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Families, ::testing::ValuesIn(case_names()),
                         [](const auto& test_info) { return test_info.param; });

// Layers with windows have a rope of their own, of which nothing comes from that of the others.
TEST(FamilyRules, RopeOfWindowsIsApart) {
  const FamilyCase reference("gemma3_text_1");
  Json config = reference.data.at("config");
  for (Json& type : config.at("layer_types")) type = "sliding_attention";
  reference.write_config(config);
  const std::vector<float> expected = found_logits(reference, reference.load());
  config.at("rope_parameters")["full_attention"] = {
      {"rope_type", "yarn"}, {"rope_theta", 10000.0}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  reference.write_config(config);
  const auto scaled = reference.load();
  EXPECT_GT(scaled->config().rope.attention_factor, 1.1f);
  EXPECT_EQ(found_logits(reference, scaled), expected);
}

// The norm of the latent vector has an epsilon of its own: whatever that of the others is, the vector's length does not matter.
TEST(FamilyRules, LatentNormsHaveTheirOwnEpsilon) {
  FamilyCase reference("deepseek_v3_1");
  Json config = reference.data.at("config");
  config["rms_norm_eps"] = 0.5;
  reference.write_config(config);
  const std::vector<float> before = found_logits(reference, reference.load());
  for (Json& tensor : reference.data.at("tensors")) {
    if (tensor.at(0).get<std::string>().ends_with("q_a_proj.weight")) tensor.at(2) = 8 * tensor.at(2).get<float>();
  }
  reference.write_weights();
  const std::vector<float> after = found_logits(reference, reference.load());
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) ASSERT_NEAR(after[i], before[i], 1e-3f * std::abs(before[i]) + 1e-3f) << i;
}

// A tensor that the configuration does not ask for would mean another computation.
TEST(FamilyFiles, WithAnUnknownTensorAreRefused) {
  FamilyCase reference("gpt2_1");
  reference.data["tensors"].push_back({"transformer.h.0.attn.extra_norm.weight", {4}, 1.0, 0.0});
  std::vector<TensorSpec> specs;
  for (const Json& tensor : reference.data.at("tensors")) {
    specs.push_back({tensor.at(0), DType::F32, tensor.at(1).get<std::vector<int64_t>>()});
  }
  SafetensorsWriter writer(reference.directory.path() + "/model.safetensors", specs, {});
  const std::vector<std::byte> zeros(static_cast<size_t>(writer.total()));
  writer.append(zeros);
  writer.finish();
  try {
    reference.load();
    FAIL() << "was loaded";
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find("transformer.h.0.attn.extra_norm.weight"), std::string::npos)
        << error.what();
  }
}

TEST(FamilyFiles, OfOtherArchitecturesAreRefusedByName) {
  for (const char* type : {"bert", "roberta", "t5", "mamba", "jais"}) {
    try {
      parse_model_config(R"({"model_type": ")" + std::string(type) + R"("})", "config.json");
      FAIL() << type;
    } catch (const CheckpointError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find('"' + std::string(type) + '"'), std::string::npos) << message;
      EXPECT_NE(message.find("gemma2"), std::string::npos) << message;
    }
  }
}

// Fields that change what a family computes, with values that are not implemented.
TEST(FamilyFields, ThatChangeTheComputationAreRefused) {
  const Json rope = {{"rope_type", "default"}};
  const Json two_lists = {{"rope_type", "longrope"},
                          {"short_factor", std::vector<double>(6, 1.0)},
                          {"long_factor", std::vector<double>(6, 2.0)}};
  const std::map<std::string, std::vector<std::pair<std::string, Json>>> refused = {
      {"olmo2_1", {{"sliding_window", 6}}},
      {"gpt2_2", {{"sliding_window", 6}}},
      {"deepseek_v3_2", {{"sliding_window", 6}, {"norm_topk_prob", nullptr}, {"rope_interleave", nullptr}}},
      {"gpt_neox_1", {{"head_dim", 8}, {"sliding_window", 6}}},
      {"gemma3_text_4",
       {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 3.0}}},
        {"rope_parameters",
         {{"full_attention", rope}, {"sliding_attention", {{"rope_type", "dynamic"}, {"factor", 3.0}}}}},
        {"rope_parameters", {{"full_attention", rope}, {"sliding_attention", two_lists}}}}},
      {"phi3_3", {{"original_max_position_embeddings", nullptr}}},
      {"gemma_1",
       {{"use_bidirectional_attention", true},
        {"hidden_activation", "mish"},
        {"hidden_activation", "relu"},
        {"is_encoder_decoder", true}}},
      {"gemma3_text_1", {{"use_bidirectional_attention", true}, {"layer_types", {"full_attention"}}}},
      {"phi3_1", {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 2.0}}}}},
      {"stablelm_1", {{"qk_layernorm", true}}},
      {"cohere_1", {{"rope_parameters", {{"rope_type", "default"}}}}},
      {"cohere2_1", {{"sliding_window", nullptr}}},
      {"internlm3_1", {{"qkv_bias", true}}},
      {"gptj_1", {{"rotary_dim", nullptr}, {"rotary_dim", 3}}},
      {"gpt2_1", {{"add_cross_attention", true}, {"scale_attn_weights", nullptr}}},
      {"gpt_neox_1", {{"use_parallel_residual", nullptr}, {"attention_bias", nullptr}}},
      {"opt_1",
       {{"word_embed_proj_dim", 24},
        {"layer_norm_elementwise_affine", false},
        {"enable_bias", nullptr},
        {"do_layer_norm_before", nullptr}}},
      {"falcon_1", {{"num_ln_in_parallel_attn", 2}, {"parallel_attn", nullptr}, {"multi_query", nullptr}}},
      {"gpt_oss_1",
       {{"sliding_window", nullptr},
        {"attention_bias", nullptr},
        {"rope_parameters", nullptr},
        {"rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 15000.0}, {"factor", 4.0}, {"truncate", nullptr}}},
        {"swiglu_limit", 0},
        {"num_experts_per_tok", 9},
        {"quantization_config", {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}}}}},
      {"mpt_1",
       {{"no_bias", false},
        {"expansion_ratio", 3},
        {"logit_scale", 0.5},
        {"attn_config", {{"alibi", false}}},
        {"attn_config", {{"alibi_bias_max", 16}}},
        {"attn_config", {{"clip_qkv", 6.0}}},
        {"attn_config", {{"qk_ln", true}}},
        {"attn_config", {{"prefix_lm", true}}},
        {"attn_config", {{"kv_n_heads", 1}}},
        {"attn_config", {{"sliding_window_size", 5}}},
        {"embedding_fraction", 0.5},
        {"norm_type", "rmsnorm"},
        {"ffn_config", {{"ffn_type", "mptmlp"}}},
        {"attn_config", {{"attn_type", "multiquery_attention"}}}}},
      {"falcon_2", {{"parallel_attn", false}, {"num_kv_heads", 3}}},
      {"mixtral_1",
       {{"attention_bias", true}, {"num_local_experts", 0}, {"num_experts_per_tok", 5}, {"num_experts", 3}}},
      {"qwen2_moe_1",
       {{"use_sliding_window", true}, {"shared_expert_intermediate_size", 0}, {"mlp_only_layers", {-1}}}},
      {"qwen2_moe_3", {{"use_sliding_window", false}, {"sliding_window", 0}}},
      {"qwen3_moe_1", {{"decoder_sparse_step", 0}, {"norm_topk_prob", 1}}},
      {"olmoe_1", {{"clip_qkv", 8.0}}},
      {"deepseek_v2_1",
       {{"topk_method", "noaux_tc"},
        {"scoring_func", "sigmoid"},
        {"mlp_bias", true},
        {"norm_topk_prob", true},
        {"moe_layer_freq", 2},
        {"n_shared_experts", nullptr},
        {"num_key_value_heads", 2},
        {"qk_rope_head_dim", 5}}},
      {"deepseek_v2_2", {{"n_group", 4}, {"topk_group", 4}, {"topk_method", "best"}}},
      {"deepseek_v3_1", {{"scoring_func", "softmax"}, {"n_group", 6}, {"num_experts_per_tok", 5}, {"v_head_dim", 18}}},
      {"glm_1", {{"partial_rotary_factor", 0.05}, {"rope_parameters", {{"rope_type", "mrope"}}}}}};
  for (const auto& [name, fields] : refused) {
    const FamilyCase reference(name);
    for (const auto& [field, value] : fields) {
      Json config = reference.data.at("config");
      parse_model_config(config.dump(), "config.json");
      if (field == "partial_rotary_factor") config.erase("rope_parameters");
      if (field == "use_sliding_window" && value == true) config.erase("layer_types");
      config[field] = value;
      EXPECT_THROW(parse_model_config(config.dump(), "config.json"), CheckpointError) << name << " " << field;
    }
  }
}

TEST(FamilyFields, OfGptNeoXHaveOlderNames) {
  Json config = FamilyCase("gpt_neox_1").data.at("config");
  config.erase("rope_parameters");
  config["rotary_emb_base"] = 5000;
  config["rotary_pct"] = 0.5;
  const ModelConfig read = parse_model_config(config.dump(), "config.json");
  EXPECT_EQ(read.rope.theta, 5000.0);
  EXPECT_EQ(read.rope.rotary_dim, read.head_dim / 2);
}

// What is refused in layers with windows says nothing where there are none.
TEST(FamilyFields, OfGemma3sWindowsAreUnusedWithoutWindows) {
  Json config = FamilyCase("gemma3_text_1").data.at("config");
  config["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 5e4}}},
                               {"sliding_attention", {{"rope_type", "dynamic"}, {"factor", 3.0}}}};
  EXPECT_THROW(parse_model_config(config.dump(), "config.json"), CheckpointError);
  for (Json& type : config.at("layer_types")) type = "full_attention";
  const ModelConfig read = parse_model_config(config.dump(), "config.json");
  EXPECT_FALSE(read.window_rope.has_value());
  EXPECT_EQ(read.rope.theta, 5e4);
}

// The list of windows counts, and not which layers rotate.
TEST(FamilyFields, OfSmolLm3sWindows) {
  Json config = FamilyCase("smollm3_3").data.at("config");
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  const ModelConfig read = parse_model_config(config.dump(), "config.json");
  EXPECT_EQ(read.layer_has_window, (std::vector<uint8_t>{1, 0, 0}));
  EXPECT_EQ(read.layer_without_rope, (std::vector<uint8_t>{0, 1, 0}));
}

TEST(FamilyFields, OfGemmasActivationAgree) {
  Json config = FamilyCase("gemma_1").data.at("config");
  const auto read = [&] { return parse_model_config(config.dump(), "config.json").hidden_act; };
  for (const auto& [field, name] : {std::pair("hidden_act", "gelu"), {"hidden_activation", "gelu_pytorch_tanh"}}) {
    config[field] = name;
    EXPECT_EQ(read(), ops::Activation::GeluTanh) << field;
  }
  config["hidden_activation"] = nullptr;
  config["hidden_act"] = "relu";
  EXPECT_EQ(read(), ops::Activation::Relu);
  config.erase("hidden_act");
  config["hidden_activation"] = "silu";
  EXPECT_EQ(read(), ops::Activation::Silu);
}

// Matrices are quantized while they load, but for those whose rows are collected from all over the file's.
TEST(FamilyQuantization, WhileLoadingComesClose) {
  if (get_accelerator()->name() != "cpu") GTEST_SKIP() << "not every accelerator computes with quantized weights";
  for (const auto& [name, formats] :
       {std::pair("stablelm_1", "Q8_0"), {"phi3_4", "Q8_0"}, {"gpt_neox_1", "Q8_0"}, {"mixtral_1", "Q8_0"}}) {
    const FamilyCase reference(name);
    LoadOptions options;
    options.quantize = "q8_0";
    const auto model = Model::load(reference.directory.path(), options);
    EXPECT_EQ(model->quantized_formats(), formats) << name;
    const double difference = worst_difference(found_logits(reference, model), reference);
    EXPECT_LE(difference, 0.1) << name;
    EXPECT_GT(difference, 1e-4) << name;
  }
}

TEST(FamilyQuantization, OfDirectoriesWithFusedMatricesIsRefused) {
  for (const char* name : {"phi3_1", "glm_1", "gpt2_1", "gpt_neox_1", "granitemoe_1"}) {
    Json config = FamilyCase(name).data.at("config");
    config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}, {"desc_act", false}};
    EXPECT_THROW(parse_model_config(config.dump(), "config.json"), CheckpointError) << name;
  }
}

// Programs write the matrices of all experts of a layer as one tensor, too.
TEST(FamilyExperts, InOneTensorAreTheSameModel) {
  for (const char* name : {"mixtral_2", "qwen3_moe_3"}) {
    const FamilyCase reference(name);
    const auto text = [](const Json& tensor) { return tensor.at(0).get<std::string>(); };
    const std::map<std::string, int> parts = {{"w1", 0},        {"w3", 1},      {"w2", 2},
                                              {"gate_proj", 0}, {"up_proj", 1}, {"down_proj", 2}};
    struct Stack {
      std::vector<int64_t> shape;
      std::vector<float> values;
    };
    std::map<std::string, Stack> stacks;
    const auto seed = reference.data.at("seed").get<uint64_t>();
    for (const Json& tensor : reference.data.at("tensors")) {
      const auto shape = tensor.at(1).get<std::vector<int64_t>>();
      const auto count = static_cast<size_t>(Shape(shape).numel());
      const std::vector<float> values =
          made_numbers(text(tensor), seed, count, tensor.at(2).get<float>(), tensor.at(3).get<float>());
      std::string to = text(tensor);
      const size_t at = to.find(".experts.");
      if (at == std::string::npos) {
        if (const size_t gate = to.find("block_sparse_moe."); gate != std::string::npos) to.replace(gate, 16, "mlp");
        stacks[to] = {shape, values};
        continue;
      }
      const std::string expert = to.substr(at + 9);
      const int64_t number = std::stoll(expert);
      const std::string part = expert.substr(expert.find('.') + 1);
      const int which = parts.at(part.substr(0, part.find('.')));
      const std::string layer = to.substr(0, to.find('.', std::string("model.layers.").size()));
      Stack& stack = stacks[layer + (which == 2 ? ".mlp.experts.down_proj" : ".mlp.experts.gate_up_proj")];
      const int64_t experts = reference.data.at("config").contains("num_local_experts")
                                  ? reference.data.at("config").at("num_local_experts").get<int64_t>()
                                  : reference.data.at("config").at("num_experts").get<int64_t>();
      stack.shape = {experts, which == 2 ? shape[0] : 2 * shape[0], shape[1]};
      stack.values.resize(static_cast<size_t>(Shape(stack.shape).numel()));
      const auto begin = static_cast<size_t>(which == 2 ? number : 2 * number + which) * count;
      std::copy(values.begin(), values.end(), stack.values.begin() + static_cast<ptrdiff_t>(begin));
    }
    std::vector<TensorSpec> specs;
    for (const auto& [tensor, stack] : stacks) specs.push_back({tensor, DType::F32, stack.shape});
    SafetensorsWriter writer(reference.directory.path() + "/model.safetensors", specs, {{"format", "pt"}});
    for (const auto& [tensor, stack] : stacks) writer.append(std::as_bytes(std::span(stack.values)));
    writer.finish();
    EXPECT_LE(worst_difference(found_logits(reference, reference.load()), reference), 1e-4) << name;
  }
}

// llm-compressor writes Mixtral's experts under the names of other families.
TEST(FamilyExperts, OfMixtralMayHaveOtherNames) {
  const FamilyCase reference("mixtral_1");
  std::vector<TensorSpec> specs;
  std::vector<std::vector<float>> values;
  for (const Json& tensor : reference.data.at("tensors")) {
    std::string name = tensor.at(0);
    const auto shape = tensor.at(1).get<std::vector<int64_t>>();
    values.push_back(made_numbers(name, reference.data.at("seed").get<uint64_t>(),
                                  static_cast<size_t>(Shape(shape).numel()), tensor.at(2).get<float>(),
                                  tensor.at(3).get<float>()));
    for (const auto& [from, to] : {std::pair(".w1.", ".gate_proj."), {".w3.", ".up_proj."}, {".w2.", ".down_proj."}}) {
      if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, 4, to);
    }
    specs.push_back({name, DType::F32, shape});
  }
  SafetensorsWriter writer(reference.directory.path() + "/model.safetensors", specs, {{"format", "pt"}});
  for (const std::vector<float>& each : values) writer.append(std::as_bytes(std::span(each)));
  writer.finish();
  EXPECT_LE(worst_difference(found_logits(reference, reference.load()), reference), 1e-4);
}

// Files of DeepSeek V3 have a layer more, which predicts the token after the next one.
TEST(FamilyFiles, OfDeepseekMayHaveALayerMore) {
  for (const char* name : {"model.layers.3.mlp.gate.weight", "model.layers.4.mlp.gate.weight"}) {
    const FamilyCase reference("deepseek_v3_1");
    std::vector<TensorSpec> specs;
    for (const Json& tensor : reference.data.at("tensors")) {
      specs.push_back({tensor.at(0), DType::F32, tensor.at(1).get<std::vector<int64_t>>()});
    }
    specs.push_back({name, DType::F32, {6, 48}});
    SafetensorsWriter writer(reference.directory.path() + "/model.safetensors", specs, {});
    writer.append(std::vector<std::byte>(static_cast<size_t>(writer.total())));
    writer.finish();
    if (std::string(name).find(".3.") != std::string::npos) {
      EXPECT_NO_THROW(reference.load()) << name;
    } else {
      EXPECT_THROW(reference.load(), CheckpointError) << name;
    }
  }
}

// MXFP4 is computed with as it is stored, and results are those with the decoded weights: on one rank and on several, which
// have whole blocks of the matrices, from the mapped file and without the mapping.
TEST(FamilyExperts, InMxfp4StayInMxfp4) {
  if (get_accelerator()->name() != "cpu") GTEST_SKIP() << "not every accelerator computes with quantized weights";
  const FamilyCase reference("gpt_oss_4");
  LoadOptions options;
  options.activations = Activations::F32;
  // The other matrices are fp16 then, too, and MXFP4 is exact in fp16.
  const std::vector<float> expected = found_logits(reference, reference.load(DType::F16));
  float largest = 0;
  for (const float logit : expected) largest = std::max(largest, std::fabs(logit));
  for (const bool map_files : {true, false}) {
    options.map_files = map_files;
    const auto model = Model::load(reference.directory.path(), options);
    EXPECT_EQ(model->quantized_formats(), "MXFP4");
    const std::vector<float> found = found_logits(reference, model);
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-4 * largest) << i;
  }
  const auto body = [&](const std::shared_ptr<comm::ProcessGroup>& group) {
    LoadOptions of_rank = options;
    of_rank.group = group;
    const auto model = Model::load(reference.directory.path(), of_rank);
    EXPECT_EQ(model->quantized_formats(), "MXFP4");
    Session session(model, {.sequences = 1, .context = 64});
    const std::vector<std::vector<int32_t>> prompts = {reference.prompt};
    EXPECT_EQ(decode(session, prompts, reference.greedy.size())[0], reference.greedy);
  };
  for (const Between between : {Between::SharedMemory, Between::Messages}) run_ranks(2, body, between);
}

TEST(FamilyExperts, InMxfp4OfAnotherShapeAreRefused) {
  FamilyCase reference("gpt_oss_4");
  std::vector<TensorSpec> specs;
  for (const Json& tensor : reference.data.at("tensors")) {
    const std::string name = tensor.at(0);
    auto shape = tensor.at(1).get<std::vector<int64_t>>();
    if (name.ends_with("1.mlp.experts.down_proj_scales")) ++shape[1];
    specs.push_back({name, tensor.size() > 4 ? DType::U8 : DType::F32, shape});
  }
  SafetensorsWriter writer(reference.directory.path() + "/model.safetensors", specs, {});
  writer.append(std::vector<std::byte>(static_cast<size_t>(writer.total())));
  writer.finish();
  try {
    reference.load();
    FAIL() << "was loaded";
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find("model.layers.1.mlp.experts.down_proj_scales"), std::string::npos)
        << error.what();
  }
}

// The experts that a token needs do not depend on the tokens with which it is computed.
TEST(FamilyExperts, GiveTheSameBitsInAnyBatch) {
  if (get_accelerator()->name() != "cpu") GTEST_SKIP() << "not every accelerator has ops by row";
  const FamilyCase reference("qwen2_moe_1");
  const auto model = reference.load();
  EXPECT_EQ(found_logits(reference, model, 512, true), found_logits(reference, model, 3, true));
}

// The slopes of the paper, and those of a number of heads that is no power of two; Falcon's are rounded to bf16.
TEST(FamilySlopes, AreThoseOfAlibi) {
  ModelConfig config;
  EXPECT_TRUE(alibi_slopes(config).empty());
  config.positions = Positions::Alibi;
  config.num_attention_heads = 8;
  EXPECT_EQ(alibi_slopes(config),
            (std::vector<float>{0x1p-1f, 0x1p-2f, 0x1p-3f, 0x1p-4f, 0x1p-5f, 0x1p-6f, 0x1p-7f, 0x1p-8f}));
  config.num_attention_heads = 12;
  EXPECT_FLOAT_EQ(alibi_slopes(config)[9], static_cast<float>(std::exp2(-1.5)));
  config.rounds_alibi_slopes = true;
  EXPECT_EQ(alibi_slopes(config)[9], 0.353515625f);
}

// transformers adds slices of products then, without their biases.
TEST(FamilyFields, SlicedProductsOfBloomAreRefused) {
  Json config = FamilyCase("bloom_1").data.at("config");
  config["slow_but_exact"] = true;
  EXPECT_NO_THROW(parse_model_config(config.dump(), "config.json"));
  config["pretraining_tp"] = 2;
  EXPECT_THROW(parse_model_config(config.dump(), "config.json"), CheckpointError);
  config["slow_but_exact"] = false;
  EXPECT_NO_THROW(parse_model_config(config.dump(), "config.json"));
}

// Files of BLOOM have other names of sizes, too, and no prefix.
TEST(FamilyFields, OfOlderBloomFilesMeanTheSame) {
  Json config = FamilyCase("bloom_1").data.at("config");
  const ModelConfig expected = parse_model_config(config.dump(), "config.json");
  for (const auto& [name, other] :
       {std::pair("hidden_size", "n_embed"), {"n_layer", "num_hidden_layers"}, {"n_head", "num_attention_heads"}}) {
    config[other] = config.at(name);
    config.erase(name);
  }
  const ModelConfig found = parse_model_config(config.dump(), "config.json");
  EXPECT_EQ(found.hidden_size, expected.hidden_size);
  EXPECT_EQ(found.num_hidden_layers, expected.num_hidden_layers);
  EXPECT_EQ(found.num_attention_heads, expected.num_attention_heads);
  EXPECT_TRUE(found.notes.empty()) << found.notes[0];
}

// The rows of Baichuan 2's output matrix, which has a larger vocabulary, are divided by their lengths.
TEST(FamilyFiles, OfBaichuan2HaveAnOutputMatrixWithNormalizedRows) {
  const FamilyCase reference("baichuan_1");
  constexpr int64_t plain_vocab = 99999, normalized_vocab = 100000;
  std::vector<std::vector<float>> logits;
  std::vector<float> lm_head;
  for (const int64_t vocab : {plain_vocab, normalized_vocab}) {
    const TemporaryDirectory dir;
    Json config = reference.data.at("config");
    config["vocab_size"] = vocab;
    std::ofstream(dir.path() + "/config.json") << config.dump();
    std::vector<TensorSpec> specs;
    for (const Json& tensor : reference.data.at("tensors")) {
      auto shape = tensor.at(1).get<std::vector<int64_t>>();
      if (shape[0] == reference.vocab) shape[0] = vocab;
      specs.push_back({tensor.at(0), DType::F32, shape});
    }
    SafetensorsWriter writer(dir.path() + "/model.safetensors", specs, {});
    for (size_t i = 0; i < specs.size(); ++i) {
      const Json& tensor = reference.data.at("tensors").at(i);
      const std::vector<float> values =
          made_numbers(specs[i].name, 0, static_cast<size_t>(Shape(specs[i].shape).numel()), tensor.at(2).get<float>(),
                       tensor.at(3).get<float>());
      if (specs[i].name == "lm_head.weight") lm_head = values;
      writer.append(std::as_bytes(std::span(values)));
    }
    writer.finish();
    LoadOptions options;
    options.dtype = DType::F32;
    Session session(Model::load(dir.path(), options), {.sequences = 1, .context = 8});
    const std::vector<int32_t> ids = {3}, sequence = {0}, positions = {0}, rows = {0};
    logits.push_back(session.forward({ids, sequence, positions}, rows).to_vector<float>());
  }
  const size_t hidden = lm_head.size() / static_cast<size_t>(normalized_vocab);
  for (size_t row = 0; row < static_cast<size_t>(plain_vocab); row += 977) {
    double squares = 0;
    for (size_t i = 0; i < hidden; ++i) squares += std::pow(static_cast<double>(lm_head[row * hidden + i]), 2);
    EXPECT_NEAR(static_cast<double>(logits[1][row]), static_cast<double>(logits[0][row]) / std::sqrt(squares), 1e-4)
        << row;
  }
}

// Learned positions end.
TEST(FamilySessions, ContextsBeyondLearnedPositionsAreRefused) {
  const auto model = FamilyCase("gpt2_1").load();
  EXPECT_THROW(Session(model, {.sequences = 1, .context = 65}), InvalidArgument);
}

TEST(FamilyTable, IsWritten) {
  const char* file = std::getenv("ANYACCEL_WRITE_FAMILIES");
  if (file == nullptr) GTEST_SKIP() << "ANYACCEL_WRITE_FAMILIES names no file";
  std::vector<std::string> order;
  std::map<std::string, std::pair<int, double>> found;
  for (const Json& each : family_cases()) {
    const std::string family = each.at("family");
    if (!found.contains(family)) order.push_back(family);
    const FamilyCase reference(each.at("name"));
    auto& [count, worst] = found[family];
    ++count;
    worst = std::max(worst, worst_difference(found_logits(reference, reference.load()), reference));
  }
  std::ofstream out(file);
  for (const std::string& family : order) {
    char worst[32];
    std::snprintf(worst, sizeof worst, "%.1e", found[family].second);
    out << "| `" << family << "` | " << found[family].first << " | " << worst << " |\n";
  }
}

}  // namespace
}  // namespace anyaccel::llm
