// GGUF files that are written of every family of tests/data/families.json: read back, they give the logits of the directory;
// and they have the keys and tensors that llama.cpp's converter wrote of the same directory (tests/data/gguf_families.json).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "anyaccel/error.h"
#include "anyaccel/llm/quantize.h"
#include "anyaccel/llm/tokenizer.h"
#include "llm/checkpoint/gguf.h"
#include "llm/checkpoint/gguf_file_writer.h"
#include "llm/family_cases.h"
#include "llm/quantize/gguf_model_keys.h"
#include "llm/quantizing.h"
#include "llm/test_directory.h"

namespace anyaccel::llm {
namespace {

using namespace testing;

// Writes a tokenizer with as many tokens as the model has: single characters, and none for others.
void write_tokenizer(const FamilyCase& reference) {
  Json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}, {"\xE2\x96\x81", 3}};
  for (int64_t id = 4; id < reference.vocab; ++id) {
    const auto code = static_cast<int>(0x100 + id);
    vocabulary[std::string{static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))}] = id;
  }
  Json added = Json::array();
  for (int id = 0; id < 3; ++id) {
    added.push_back({{"id", id},
                     {"content", id == 0   ? "<unk>"
                                 : id == 1 ? "<s>"
                                           : "</s>"},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json prepend = {{"type", "Prepend"}, {"prepend", "\xE2\x96\x81"}};
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\xE2\x96\x81"}};
  const Json tokenizer = {{"added_tokens", added},
                          {"normalizer", {{"type", "Sequence"}, {"normalizers", {prepend, replace}}}},
                          {"model",
                           {{"type", "BPE"},
                            {"unk_token", "<unk>"},
                            {"fuse_unk", true},
                            {"vocab", vocabulary},
                            {"merges", Json::array()}}}};
  std::ofstream(reference.directory.path() + "/tokenizer.json") << tokenizer.dump();
  std::ofstream(reference.directory.path() + "/tokenizer_config.json")
      << R"({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"})";
}

std::string written(const FamilyCase& reference, const TestDirectory& dir, const std::string& type) {
  write_tokenizer(reference);
  std::string out = (dir.path() / ("model." + type + ".gguf")).string();
  quantize_with_progress(reference.directory.path(), out, type);
  return out;
}

std::shared_ptr<const Model> load_written(const std::string& path) {
  LoadOptions options;
  options.dtype = DType::F32;
  return Model::load(path, options);
}

// The parts of the cases that such a file cannot say, as errors name them.
const std::map<std::string, std::string>& refused_cases() {
  static const std::string scale = "scale of attention's scores", window = "window of attention of layer",
                           activation = "the activation", sum = "norm_topk_prob", none = "no GGUF architecture",
                           dense = "experts are the feed-forward block", limit = "swiglu_limit";
  static const std::map<std::string, std::string> cases = {{"gemma2_1", scale},
                                                           {"gemma2_2", scale},
                                                           {"gemma2_3", scale},
                                                           {"gemma3_text_1", scale},
                                                           {"gemma3_text_2", scale},
                                                           {"gemma3_text_3", scale},
                                                           {"gemma3_text_4", scale},
                                                           {"phi_2", "norms of queries and keys"},
                                                           {"phi_3", activation},
                                                           {"smollm3_2", "rotate queries and keys"},
                                                           {"smollm3_3", window},
                                                           {"internlm3_2", "rope of the type dynamic"},
                                                           {"starcoder2_2", window},
                                                           {"starcoder2_3", activation},
                                                           {"gpt2_2", scale},
                                                           {"gpt2_3", activation},
                                                           {"gptj_1", none},
                                                           {"gptj_2", none},
                                                           {"gptj_3", none},
                                                           {"gpt_neox_3", activation},
                                                           {"opt_1", none},
                                                           {"opt_2", none},
                                                           {"opt_3", none},
                                                           {"falcon_4", "halves of a layer"},
                                                           {"falcon_5", "halves of a"},
                                                           {"falcon_6", "knows positions"},
                                                           {"falcon_7", "positions"},
                                                           {"mixtral_2", window},
                                                           {"mixtral_3", activation},
                                                           {"qwen2_moe_2", dense},
                                                           {"qwen2_moe_3", window},
                                                           {"qwen3_moe_1", sum},
                                                           {"qwen3_moe_2", dense},
                                                           {"qwen3_moe_3", window},
                                                           {"olmoe_2", sum},
                                                           {"deepseek_v2_3", "rope"},
                                                           {"deepseek_v3_2", "rotate"},
                                                           {"bloom_2", "apply_residual_connection_post_layernorm"},
                                                           {"mpt_2", scale},
                                                           {"baichuan_3", "block_count"},
                                                           {"gpt_oss_1", limit},
                                                           {"gpt_oss_2", "swiglu_alpha"},
                                                           {"gpt_oss_3", limit},
                                                           {"gpt_oss_4", limit}};
  return cases;
}

const Json* converted_case(const std::string& name) {
  static const Json data = Json::parse(std::ifstream(anyaccel::testing::test_data() + "/gguf_families.json"));
  const auto found = std::ranges::find_if(data.at("cases"), [&](const Json& one) { return one.at("name") == name; });
  return found == data.at("cases").end() ? nullptr : &*found;
}

// Keys for which the converter writes a constant whatever the directory says, or which say nothing.
bool has_other_value(const std::string& key) {
  static const std::set<std::string> known = {"phi3.rope.scaling.original_context_length",
                                              "command-r.rope.scaling.type",
                                              "cohere2.rope.scaling.type",
                                              "chatglm.context_length",
                                              "chatglm.attention.layer_norm_rms_epsilon",
                                              "falcon.context_length",
                                              "bloom.context_length",
                                              "mpt.attention.layer_norm_epsilon"};
  return known.contains(key);
}

void expect_converters_keys(const Json& converted, const std::string& path) {
  const auto model = open_gguf(path);
  const GgufMetadata& found = model->metadata();
  for (const auto& [key, value] : converted.at("keys").items()) {
    if (has_other_value(key)) continue;
    const std::string type = value.at(0);
    EXPECT_TRUE(found.has(key)) << key << " " << value;
    if (!found.has(key)) continue;
    if (type == "STRING") {
      EXPECT_EQ(found.text(key), value.at(1).get<std::string>()) << key;
    } else if (type == "BOOL") {
      EXPECT_EQ(found.flag(key, false), value.at(1).get<bool>()) << key;
    } else if (type == "FLOAT32") {
      EXPECT_NEAR(found.required_number(key, -1e9, 1e9), value.at(1).get<double>(),
                  1e-6 * std::abs(value.at(1).get<double>()))
          << key;
    } else {
      EXPECT_EQ(found.required_whole(key, 0, 1 << 30), value.at(1).get<int64_t>()) << key;
    }
  }
  const auto layers = found.required_whole(found.required_text("general.architecture") + ".block_count", 1, 1000);
  std::map<std::string, std::vector<int64_t>> expected, tensors;
  for (const Json& tensor : converted.at("tensors")) {
    const std::string pattern = tensor.at("name");
    const size_t number = pattern.find("{}");
    for (int64_t layer = 0; layer < (number == std::string::npos ? 1 : layers); ++layer) {
      std::string each = pattern;
      if (number != std::string::npos) each.replace(number, 2, std::to_string(layer));
      expected[each] = tensor.at("shape").get<std::vector<int64_t>>();
    }
  }
  for (const GgufTensor& tensor : model->parts.front().tensors) tensors[tensor.name] = tensor.shape;
  EXPECT_EQ(tensors, expected);
}

class WrittenGgufFamilies : public ::testing::TestWithParam<std::string> {};

TEST_P(WrittenGgufFamilies, HaveTheLogitsOfTheDirectory) {
  const std::string name = GetParam();
  FamilyCase reference(name);
  const TestDirectory dir;
  const Json* converted = converted_case(name);
  if (const auto refused = refused_cases().find(name); refused != refused_cases().end()) {
    const std::string what = checkpoint_error([&] { written(reference, dir, "f32"); });
    expect_contains(what, refused->second);
    EXPECT_FALSE(std::filesystem::exists(dir.path() / "model.f32.gguf"));
    if (converted == nullptr || !converted->contains("said_instead")) return;
    Json config = reference.data.at("config");
    config.update(converted->at("said_instead"));
    reference.write_config(config);
  }
  const std::string path = written(reference, dir, "f32");
  const auto model = load_written(path);
  for (const std::string& note : model->notes()) ADD_FAILURE() << note;
  const auto directory = reference.load();
  reference.logits = found_logits(reference, directory);
  // Elements of a head that are stored as neighbours are summed in another order.
  const bool in_order = model->config().rope_interleaved == directory->config().rope_interleaved;
  EXPECT_LE(worst_difference(found_logits(reference, model), reference), in_order ? 0.0 : 1e-5);
  if (converted != nullptr) expect_converters_keys(*converted, path);
}

std::vector<std::string> written_case_names() {
  std::vector<std::string> names;
  for (const Json& each : family_cases()) names.push_back(each.at("name"));
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, WrittenGgufFamilies, ::testing::ValuesIn(written_case_names()),
                         [](const auto& test_info) { return test_info.param; });

// `most_error` is of the largest logit; `most_at_load` is between the file and the directory that is quantized while it loads.
void expect_quantized_as_while_loading(const std::string& name, const std::string& type, const std::string& formats,
                                       double most_error, double most_at_load) {
  FamilyCase reference(name);
  const TestDirectory dir;
  const std::string path = written(reference, dir, type);
  LoadOptions options;
  options.activations = Activations::F32;
  const auto model = Model::load(path, options);
  EXPECT_EQ(model->quantized_formats(), formats) << name;
  const std::vector<float> found = found_logits(reference, model);
  EXPECT_LE(worst_difference(found, reference), most_error) << name;
  options.quantize = type;
  reference.logits = found_logits(reference, Model::load(reference.directory.path(), options));
  EXPECT_LE(worst_difference(found, reference), most_at_load) << name;
  // The same from a GGUF file that is not quantized.
  QuantizeOptions quantize;
  quantize.type = type;
  const std::string again = (dir.path() / "again.gguf").string();
  quantize_model(written(reference, dir, "f32"), again, quantize);
  EXPECT_EQ(read_text(again).size(), read_text(path).size()) << name;
  options.quantize.clear();
  EXPECT_EQ(found_logits(reference, Model::load(again, options)), found) << name;
}

// Fused rows, experts in one tensor, and keys and values of latent attention. Keys and values are fp16. Rows that are collected from
// groups of a fused matrix (GPT-NeoX) are not quantized while they load.
TEST(WrittenGgufFiles, QuantizedOnesComputeAsWhatIsQuantizedWhileItLoads) {
  for (const char* name : {"phi3_4", "mixtral_1", "stablelm_1"}) {
    expect_quantized_as_while_loading(name, "q8_0", "Q8_0", 0.1, 5e-3);
  }
  expect_quantized_as_while_loading("gpt_neox_1", "q8_0", "Q8_0", 0.1, 2e-2);
}

// The matrices of these models are too small for blocks of 256 values: Q4_K, Q5_K (of fused queries, keys and values) and Q6_K
// become Q5_0, Q5_1 and Q8_0.
TEST(WrittenGgufFiles, MixturesGiveEachTensorOneFormat) {
  expect_quantized_as_while_loading("phi3_4", "q4_k_m", "Q5_0, Q5_1, Q8_0", 0.55, 5e-3);
  expect_quantized_as_while_loading("gpt_neox_1", "q4_k_m", "Q5_0, Q5_1, Q8_0", 0.11, 0.06);
  // As large with Q5_1 alone (Q8_0: 0.03), probably because other experts are chosen.
  expect_quantized_as_while_loading("mixtral_1", "q5_k_m", "Q5_1, Q8_0", 0.8, 5e-3);
}

// No name in GGUF stands for GPT-2's words of a text in NFC, which tokenizers of GPT-NeoX have.
TEST(WrittenGgufFiles, TokenizersThatComposeLoseOnlyThat) {
  const std::string from = anyaccel::testing::test_data() + "/tokenizers/gpt2_bytelevel/tokenizer.json";
  Json file = Json::parse(std::ifstream(from));
  for (const char* form : {"NFC", "NFKC"}) {
    file["normalizer"] = {{"type", form}};
    const TestDirectory dir;
    dir.write("tokenizer.json", file.dump());
    dir.write("tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
    const auto tokenizer = Tokenizer::load(dir.path().string());
    ModelConfig config;
    config.vocab_size = tokenizer->vocab_size();
    GgufKeys keys;
    std::vector<std::string> notes;
    const auto add = [&] { add_tokenizer_keys(dir.path(), *tokenizer, config, keys, notes); };
    if (std::string_view(form) == "NFKC") {
      expect_contains(checkpoint_error(add), "has a normalizer");
      continue;
    }
    add();
    ASSERT_EQ(notes.size(), 1u);
    expect_contains(notes[0], "NFC");
    expect_contains(keys.bytes(), "gpt-2");
  }
}

// The experts of GPT-OSS keep their numbers in MXFP4, and are decoded for other types.
TEST(WrittenGgufFiles, QuantizedExpertsKeepTheirNumbers) {
  FamilyCase reference("gpt_oss_4");
  Json config = reference.data.at("config");
  config["swiglu_limit"] = 7.0;
  reference.write_config(config);
  reference.logits = found_logits(reference, reference.load());
  for (const char* type : {"mxfp4", "f32"}) {
    const TestDirectory dir;
    write_tokenizer(reference);
    QuantizeOptions quantize;
    quantize.type = type;
    const std::string out = (dir.path() / "model.gguf").string();
    const QuantizeResult result = quantize_model(reference.directory.path(), out, quantize);
    const auto found = open_gguf(out);
    const GgufTensor* experts = found->find("blk.0.ffn_down_exps.weight");
    ASSERT_NE(experts, nullptr);
    EXPECT_EQ(ggml_type_name(experts->type), std::string_view(type) == "f32" ? "F32" : "MXFP4");
    if (std::string_view(type) == "f32") {
      EXPECT_EQ(worst_difference(found_logits(reference, load_written(out)), reference), 0.0);
    }
    const TestDirectory other;
    quantize.type = "q8_0";
    expect_contains(checkpoint_error([&] {
                      quantize_model(reference.directory.path(), (other.path() / "x.gguf").string(), quantize);
                    }),
                    "quantized already");
  }
}

}  // namespace
}  // namespace anyaccel::llm
