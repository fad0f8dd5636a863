// GGUF files of every family, as llama.cpp's converter makes them of the directories of tests/data/families.json
// (tests/data/gguf_families.json, made by tools/gguf_family_fixtures.py), against transformers' logits of those
// directories. Where the format, or the converter, cannot say all that config.json does, against the logits here of the
// directory with a config.json that says no more.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/model.h"
#include "base/block_format.h"
#include "llm/decoding.h"
#include "llm/family_cases.h"
#include "llm/gguf_writer.h"
#include "llm/quantize/quantize_rows.h"
#include "llm/test_directory.h"
#include "llm/thread_ranks.h"

namespace anyaccel::llm {
namespace {

using namespace testing;

const Json& gguf_cases() {
  static const Json data = Json::parse(std::ifstream(anyaccel::testing::test_data() + "/gguf_families.json"));
  return data.at("cases");
}

const Json& gguf_case(const std::string& name) {
  for (const Json& each : gguf_cases()) {
    if (each.at("name") == name) return each;
  }
  throw InvalidArgument("no GGUF case " + name);
}

std::string with_layer(std::string text, int layer) {
  for (size_t at = text.find("{}"); at != std::string::npos; at = text.find("{}")) {
    text.replace(at, 2, std::to_string(layer));
  }
  return text;
}

void add_key(GgufWriter& out, const std::string& key, const std::string& type, const Json& value) {
  if (type == "STRING") return out.add(key, value.get<std::string>().c_str());
  if (type == "BOOL") return out.add(key, value.get<bool>());
  if (type == "FLOAT32") return out.add(key, value.get<float>());
  ASSERT_EQ(type, "UINT32") << key;
  out.add(key, value.get<uint32_t>());
}

// Appends the elements of a strided view, the last dimension fastest.
void append_view(const std::vector<float>& values, int64_t first, const std::vector<int64_t>& shape,
                 const std::vector<int64_t>& strides, std::vector<float>& out, size_t dim = 0) {
  for (int64_t i = 0; i < shape[dim]; ++i) {
    const int64_t at = first + i * strides[dim];
    if (dim + 1 == shape.size()) {
      out.push_back(values.at(static_cast<size_t>(at)));
    } else {
      append_view(values, at, shape, strides, out, dim + 1);
    }
  }
}

class CaseFile {
 public:
  explicit CaseFile(const FamilyCase& reference) : reference_(reference) {
    for (const Json& tensor : reference.data.at("tensors")) {
      size_t count = 1;
      for (const Json& size : tensor.at(1)) count *= size.get<size_t>();
      values_[tensor.at(0)] = made_numbers(tensor.at(0), reference.data.at("seed").get<uint64_t>(), count,
                                           tensor.at(2).get<float>(), tensor.at(3).get<float>());
    }
  }

  // If `quantizes`, the matrices of layers are Q8_0, except those of routers.
  GgufWriter write(const Json& described, bool quantizes = false) const {
    GgufWriter out;
    for (const auto& [key, value] : described.at("keys").items()) add_key(out, key, value.at(0), value.at(1));
    for (const Json& tensor : described.at("tensors")) {
      const std::string name = tensor.at("name");
      const bool of_layers = name.find("{}") != std::string::npos;
      const int layers = of_layers ? reference_.data.at("layers").get<int>() : 1;
      for (int layer = 0; layer < layers; ++layer) {
        const std::vector<float> values = values_of(tensor, layer);
        const auto shape = tensor.at("shape").get<std::vector<int64_t>>();
        const bool is_matrix = of_layers && shape.size() > 1 && name.ends_with(".weight") &&
                               name.find("gate_inp") == std::string::npos && shape.back() % 32 == 0;
        if (quantizes && is_matrix) {
          const BlockFormat& format = *type_to_write("q8_0").format;
          std::vector<std::byte> blocks(values.size() / 32 * 34);
          quantize_rows({format, {}, {}}, values, blocks, name);
          out.add_tensor(with_layer(name, layer), shape, format.number,
                         {reinterpret_cast<const char*>(blocks.data()), blocks.size()});
          continue;
        }
        out.add_tensor(with_layer(name, layer), shape, 0,
                       {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
      }
    }
    return out;
  }

 private:
  std::vector<float> values_of(const Json& tensor, int layer) const {
    if (tensor.contains("values")) return tensor.at("values").get<std::vector<float>>();
    std::vector<float> all;
    for (const Json& source : tensor.at("from")) {
      const bool is_whole = source.is_string();
      const std::vector<float>& from = values_.at(with_layer(is_whole ? source : source.at(0), layer));
      if (is_whole) {
        all.insert(all.end(), from.begin(), from.end());
      } else {
        append_view(from, source.at(1).get<int64_t>(), source.at(2).get<std::vector<int64_t>>(),
                    source.at(3).get<std::vector<int64_t>>(), all);
      }
    }
    for (float& value : all) value += tensor.value("plus", 0.0f);
    return all;
  }

  const FamilyCase& reference_;
  std::map<std::string, std::vector<float>> values_;
};

std::shared_ptr<const Model> load_fp32(const std::string& path, std::shared_ptr<comm::ProcessGroup> group = {}) {
  LoadOptions options;
  options.dtype = DType::F32;
  options.group = std::move(group);
  return Model::load(path, options);
}

class GgufFamilies : public ::testing::TestWithParam<std::string> {};

TEST_P(GgufFamilies, LogitsAreThoseOfTheDirectory) {
  FamilyCase reference(GetParam());
  const Json& described = gguf_case(GetParam());
  const TestDirectory dir;
  const auto path = dir.write("model.gguf", CaseFile(reference).write(described).file());
  if (described.contains("said_instead")) {
    Json config = reference.data.at("config");
    config.update(described.at("said_instead"));
    reference.write_config(config);
    reference.logits = found_logits(reference, reference.load());
  }
  const auto model = load_fp32(path.string());
  for (const std::string& note : model->notes()) ADD_FAILURE() << note;
  EXPECT_LE(worst_difference(found_logits(reference, model), reference), 1e-4);
}

// All on the CPU, one of each family over OpenCL, and a few on simulated devices, which are slow.
std::vector<std::string> gguf_case_names() {
  const char* accelerator = std::getenv("ANYACCEL_TEST_ACCELERATOR");
  if (accelerator != nullptr && std::string_view(accelerator) != "xpu") return {"gemma2_1", "phi3_3", "deepseek_v3_3"};
  std::vector<std::string> names;
  for (const Json& each : gguf_cases()) {
    const std::string name = each.at("name");
    if (accelerator == nullptr || name.ends_with("_1")) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, GgufFamilies, ::testing::ValuesIn(gguf_case_names()),
                         [](const auto& test_info) { return test_info.param; });

// Fused rows, experts of three tensors, and gate and up in one: blocks are used as they are, and give what they decode to.
TEST(GgufFamilyFiles, QuantizedMatricesComputeWithWhatTheyDecodeTo) {
  for (const char* name : {"phi3_4", "gpt_neox_1", "mixtral_1"}) {
    const FamilyCase reference(name);
    const TestDirectory dir;
    const auto path = dir.write("q.gguf", CaseFile(reference).write(gguf_case(name), true).file());
    FamilyCase decoded(name);
    decoded.logits = found_logits(reference, load_fp32(path.string()));
    EXPECT_LE(worst_difference(decoded.logits, reference), 0.2) << name;
    LoadOptions options;
    options.activations = Activations::F32;
    const auto model = Model::load(path.string(), options);
    // Keys and values are fp16.
    EXPECT_LE(worst_difference(found_logits(decoded, model), decoded), 5e-3) << name;
  }
}

// Some programs store a matrix of one row as a vector, and 0 where there are no groups of experts.
TEST(GgufFamilyFiles, OtherWaysToSayTheSame) {
  const auto difference = [](const char* name, auto&& change) {
    const FamilyCase reference(name);
    const TestDirectory dir;
    Json described = gguf_case(name);
    change(described);
    const auto path = dir.write("model.gguf", CaseFile(reference).write(described).file());
    return worst_difference(found_logits(reference, load_fp32(path.string())), reference);
  };
  EXPECT_LE(difference("qwen2_moe_1",
                       [](Json& described) {
                         for (Json& tensor : described["tensors"]) {
                           if (tensor["name"] == "blk.{}.ffn_gate_inp_shexp.weight")
                             tensor["shape"] = {tensor["shape"][1]};
                         }
                       }),
            1e-4);
  EXPECT_LE(difference("deepseek_v2_1",
                       [](Json& described) {
                         for (const char* key : {"deepseek2.expert_group_count", "deepseek2.expert_group_used_count"}) {
                           described["keys"][key] = {"UINT32", 0};
                         }
                       }),
            1e-4);
}

// What keys that are missing mean in llama.cpp.
TEST(GgufFamilyFiles, KeysThatAreMissing) {
  const auto without = [](const char* name, const std::vector<std::string>& keys) {
    const FamilyCase reference(name);
    Json described = gguf_case(name);
    for (const std::string& key : keys) described["keys"].erase(key);
    const TestDirectory dir;
    return load_model_config(dir.write("model.gguf", CaseFile(reference).write(described).file()));
  };
  const ModelConfig gemma2 = without("gemma2_1", {"gemma2.attention.sliding_window", "gemma2.attn_logit_softcapping",
                                                  "gemma2.final_logit_softcapping"});
  EXPECT_EQ(gemma2.sliding_window, 4096);
  EXPECT_EQ(gemma2.attention_softcap, 50.0F);
  EXPECT_EQ(gemma2.logits_softcap, 30.0F);
  EXPECT_EQ(without("gemma3_text_1", {"gemma3.rope.freq_base_swa"}).window_rope.value().theta, 10000.0);
  const ModelConfig deepseek =
      without("deepseek_v2_1", {"deepseek2.expert_weights_norm", "deepseek2.expert_gating_func"});
  EXPECT_FALSE(deepseek.experts.normalizes);
  EXPECT_FALSE(deepseek.experts.uses_sigmoid);
}

// No key says how Gemma scales scores; the largest model of a version is known by its number of layers.
TEST(GgufFamilyFiles, ScalesOfTheLargestGemmas) {
  for (const auto& [name, layers, scale] :
       {std::tuple{"gemma2", 46, 32}, {"gemma2", 26, 16}, {"gemma3", 62, 32}, {"gemma3", 26, 16}}) {
    GgufWriter writer;
    const std::string arch = name;
    writer.add("general.architecture", name);
    for (const auto& [key, value] : {std::pair{"block_count", layers},
                                     {"embedding_length", 64},
                                     {"feed_forward_length", 8},
                                     {"context_length", 16},
                                     {"attention.head_count", 2},
                                     {"attention.key_length", 16},
                                     {"attention.value_length", 16}}) {
      writer.add(arch + "." + key, static_cast<uint32_t>(value));
    }
    writer.add(arch + ".attention.layer_norm_rms_epsilon", 1e-6F);
    writer.add_tensor("token_embd.weight", {4, 64}, 1, std::string(512, '\0'));
    const TestDirectory dir;
    EXPECT_FLOAT_EQ(load_model_config(dir.write("m.gguf", writer.file())).attention_scale,
                    1.0F / std::sqrt(static_cast<float>(scale)))
        << name << " " << layers;
  }
}

TEST(GgufFamilyFiles, RanksGiveTheTokensOfOne) {
  if (!get_accelerator()->is_host_coherent()) GTEST_SKIP() << "ranks as threads need the host's memory";
  for (const char* name : {"phi3_1", "falcon_2", "mixtral_1", "deepseek_v2_2", "bloom_1"}) {
    const FamilyCase reference(name);
    const TestDirectory dir;
    const auto path = dir.write("model.gguf", CaseFile(reference).write(gguf_case(name)).file());
    anyaccel::testing::run_ranks(2, [&](const std::shared_ptr<comm::ProcessGroup>& group) {
      Session session(load_fp32(path.string(), group), {.sequences = 1, .context = 64});
      const std::vector<std::vector<int32_t>> prompts = {reference.prompt};
      EXPECT_EQ(anyaccel::testing::decode(session, prompts, reference.greedy.size())[0], reference.greedy) << name;
    });
  }
}

// Keys and tensors that change the computation in a way that the family does not know.
TEST(GgufFamilyFiles, WhatIsNotUnderstoodIsRefusedByName) {
  const auto refused = [](const char* name, const char* part, auto&& change) {
    const FamilyCase reference(name);
    const TestDirectory dir;
    Json described = gguf_case(name);
    change(described);
    const auto path = dir.write("model.gguf", CaseFile(reference).write(described).file());
    expect_contains(checkpoint_error([&] { load_fp32(path.string()); }), part);
  };
  const auto key = [](const char* added, const char* type, const Json& value) {
    return [=](Json& described) { described["keys"][added] = {type, value}; };
  };
  refused("gemma_1", "gemma.final_logit_softcapping", key("gemma.final_logit_softcapping", "FLOAT32", 30.0));
  refused("olmo2_1", "olmo2.attention.sliding_window", key("olmo2.attention.sliding_window", "UINT32", 8));
  refused("mpt_1", "mpt.attention.clamp_kqv", key("mpt.attention.clamp_kqv", "FLOAT32", 6.0));
  refused("mpt_1", "mpt.attention.max_alibi_bias", key("mpt.attention.max_alibi_bias", "FLOAT32", 0.0));
  refused("falcon_1", "falcon.tensor_data_layout", key("falcon.tensor_data_layout", "STRING", "other"));
  refused("granite_1", "granite.logit_scale", key("granite.logit_scale", "FLOAT32", 0.0));
  refused("qwen2_moe_1", "qwen2moe.expert_used_count", key("qwen2moe.expert_used_count", "UINT32", 7));
  refused("stablelm_1", "stablelm.use_parallel_residual", key("stablelm.use_parallel_residual", "BOOL", true));
  refused("phi_1", "phi2.rope.dimension_count", key("phi2.rope.dimension_count", "UINT32", 14));
  refused("deepseek_v3_1", "deepseek2.expert_group_count", key("deepseek2.expert_group_count", "UINT32", 5));
  refused("deepseek_v3_1", "deepseek2.expert_gating_func", key("deepseek2.expert_gating_func", "UINT32", 4));
  refused("bloom_1", "blk.0.attn_extra.weight", [](Json& described) {
    described["tensors"].push_back({{"name", "blk.0.attn_extra.weight"}, {"shape", {1}}, {"values", {1.0}}});
  });
}

}  // namespace
}  // namespace anyaccel::llm
