// Reading config.json and generation_config.json: the stored models, defaults of each family, rotary frequencies
// against numbers of transformers, and bad input of every kind.
#include "anyaccel/llm/model_config.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "anyaccel/llm/generation_config.h"
#include "llm/test_directory.h"

namespace anyaccel::llm {
namespace {

using testing::checkpoint_error;
using testing::expect_contains;
using testing::TestDirectory;

const std::filesystem::path models = std::filesystem::path(ANYACCEL_TEST_DATA) / "models";

// A small valid config of the family, with more fields (each preceded by a comma).
std::string config_text(const std::string& type, const std::string& more = "") {
  // Without the field, only Llama has as many as query heads.
  const std::string key_value_heads = type == "llama" ? "" : R"("num_key_value_heads": 4, )";
  return R"({"model_type": ")" + type + R"(", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,)" +
         key_value_heads + R"("num_attention_heads": 4, "vocab_size": 320)" + more + "}";
}

ModelConfig parse(const std::string& type, const std::string& more = "") {
  return parse_model_config(config_text(type, more), "config.json");
}

std::string error_of(const std::string& type, const std::string& more) {
  const std::string message = checkpoint_error([&] { parse(type, more); });
  expect_contains(message, "config.json");
  return message;
}

TEST(ModelConfig, ReadsEveryStoredModel) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    SCOPED_TRACE(entry.path().string());
    const ModelConfig config = load_model_config(entry.path());
    const GenerationConfig generation = load_generation_config(entry.path());
    ++found;
    EXPECT_EQ(config.hidden_size, 64);
    EXPECT_EQ(config.vocab_size, 320);
    EXPECT_EQ(config.bos_token_id, 1);
    EXPECT_EQ(config.dtype, DType::BF16);
    EXPECT_FALSE(generation.eos_token_ids.empty());
    EXPECT_EQ(generation.eos_token_ids, config.eos_token_ids);
    EXPECT_EQ(rope_inv_freq(config).inv_freq.size(), static_cast<size_t>(config.head_dim / 2));
  }
  EXPECT_GE(found, 10);
}

// The defaults of transformers' classes, and null where it means none.
TEST(ModelConfig, FieldsThatAreMissingOrNull) {
  EXPECT_EQ(parse("llama").max_position_embeddings, 2048);
  EXPECT_EQ(parse("mistral").max_position_embeddings, 131072);
  EXPECT_EQ(parse("qwen2").max_position_embeddings, 32768);
  EXPECT_EQ(parse("llama").bos_token_id, 1);
  EXPECT_EQ(parse("llama", R"(, "bos_token_id": null)").bos_token_id, std::nullopt);
}

// A window as long as the context hides nothing.
TEST(ModelConfig, WindowsOfLlama) {
  parse("llama", R"(, "max_position_embeddings": 64, "sliding_window": 64)");
  expect_contains(error_of("llama", R"(, "max_position_embeddings": 64, "sliding_window": 63)"), "sliding_window");
}

TEST(ModelConfig, StoredModelsSayWhatTheyShow) {
  EXPECT_TRUE(load_model_config(models / "llama_tied").tie_word_embeddings);
  EXPECT_EQ(load_model_config(models / "llama_tied").head_dim, 24);
  const ModelConfig llama3 = load_model_config(models / "llama3_rope");
  EXPECT_EQ(llama3.rope.type, RopeType::Llama3);
  EXPECT_EQ(llama3.rope.theta, 500000.0);
  EXPECT_EQ(llama3.rope.original_max_position_embeddings, 64);
  EXPECT_EQ(llama3.eos_token_ids, (std::vector<int32_t>{2, 3}));
  const ModelConfig linear = load_model_config(models / "llama_linear");
  EXPECT_EQ(linear.rope.type, RopeType::Linear);
  EXPECT_EQ(linear.num_key_value_heads, 4);
  EXPECT_FLOAT_EQ(linear.rms_norm_eps, 0.01f);
  EXPECT_EQ(load_model_config(models / "llama_dynamic").rope.type, RopeType::Dynamic);
  EXPECT_EQ(load_model_config(models / "llama_yarn").rope.beta_fast, 8.0);
  EXPECT_EQ(load_model_config(models / "mistral_window").window_of_layer(1), 8);
  const ModelConfig qwen2 = load_model_config(models / "qwen2");
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.o_bias);
  EXPECT_EQ(qwen2.window_of_layer(1), 0);
  const ModelConfig qwen3 = load_model_config(models / "qwen3");
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_EQ(qwen3.rope.theta, 1000000.0);
  const ModelConfig bias = load_model_config(models / "llama_bias");
  EXPECT_TRUE(bias.qkv_bias && bias.o_bias && bias.mlp_bias);
}

TEST(ModelConfig, DefaultsAreThoseOfTheFamily) {
  const ModelConfig llama = parse("llama");
  EXPECT_EQ(llama.num_key_value_heads, 4);
  EXPECT_EQ(llama.head_dim, 16);
  EXPECT_EQ(llama.max_position_embeddings, 2048);
  EXPECT_FLOAT_EQ(llama.rms_norm_eps, 1e-6f);
  EXPECT_EQ(llama.rope.theta, 10000.0);
  EXPECT_EQ(llama.hidden_act, ops::Activation::Silu);
  EXPECT_EQ(llama.dtype, DType::None);
  EXPECT_EQ(llama.bos_token_id, 1);
  EXPECT_EQ(llama.eos_token_ids, (std::vector<int32_t>{2}));
  EXPECT_FALSE(parse("qwen2").bos_token_id.has_value());
  EXPECT_TRUE(parse("qwen2").eos_token_ids.empty());
  EXPECT_EQ(parse("qwen3").head_dim, 128);
  EXPECT_EQ(parse("qwen3", R"(, "head_dim": null)").head_dim, 16);
  EXPECT_EQ(parse("mistral").window_of_layer(2), 4096);
  EXPECT_EQ(parse("mistral", R"(, "sliding_window": null)").window_of_layer(2), 0);
  EXPECT_EQ(parse("llama", R"(, "sliding_window": 2048)").window_of_layer(0), 0);
}

TEST(ModelConfig, MissingKeyValueHeadsAreTheFamilys) {
  const auto heads = [](const std::string& type, int64_t query_heads) {
    const std::string text = R"({"model_type": ")" + type + R"(", "hidden_size": 2048, "intermediate_size": 96,)" +
                             R"("num_hidden_layers": 1, "vocab_size": 320, "num_attention_heads": )" +
                             std::to_string(query_heads) + "}";
    return parse_model_config(text, "config.json").num_key_value_heads;
  };
  EXPECT_EQ(heads("llama", 16), 16);
  EXPECT_EQ(heads("mistral", 16), 8);
  EXPECT_EQ(heads("qwen2", 32), 32);
  EXPECT_EQ(heads("qwen3", 64), 32);
  expect_contains(checkpoint_error([&] { heads("qwen2", 16); }), "num_key_value_heads is missing, which means 32");
}

TEST(ModelConfig, WindowsOfMistral) {
  const ModelConfig mixed = parse("mistral", R"(, "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"])");
  EXPECT_EQ(mixed.window_of_layer(0), 8);
  EXPECT_EQ(mixed.window_of_layer(1), 0);
  EXPECT_EQ(mixed.window_of_layer(2), 8);
  EXPECT_EQ(parse("mistral", R"(, "sliding_window": 8, "layer_types": null)").window_of_layer(1), 8);
  std::string text = config_text("ministral", R"(, "architectures": ["MinistralForCausalLM"], "sliding_window": 8,
    "layer_types": ["full_attention", "full_attention", "sliding_attention"])");
  EXPECT_EQ(parse_model_config(text, "x").window_of_layer(0), 0);
  EXPECT_EQ(parse_model_config(text, "x").window_of_layer(2), 8);
  expect_contains(error_of("mistral", R"(, "sliding_window": null,
    "layer_types": ["full_attention", "full_attention", "sliding_attention"])"),
                  "\"layer_types[2]\": expected \"full_attention\", because sliding_window is null");
  expect_contains(error_of("mistral", R"(, "layer_types": ["full_attention"])"), "for each of the 3 layers");
}

TEST(ModelConfig, WindowsThatLlamaDoesNotHaveAreRefused) {
  expect_contains(error_of("llama", R"(, "sliding_window": 8)"), "\"sliding_window\": expected null, or a number from");
  expect_contains(error_of("llama", R"(, "sliding_window": 8,
    "layer_types": ["full_attention", "sliding_attention", "full_attention"])"),
                  "layer_types[1]");
  EXPECT_EQ(parse("llama", R"(, "layer_types": ["full_attention", "full_attention", "full_attention"])").sliding_window,
            0);
}

TEST(ModelConfig, FamilyFromArchitecturesAlone) {
  std::string text = config_text("qwen3");
  text.replace(text.find(R"("model_type": "qwen3")"), 21, R"("architectures": ["Qwen3ForCausalLM"])");
  EXPECT_EQ(parse_model_config(text, "x").family, Family::Qwen3);
}

TEST(ModelConfig, SlidingWindowsOfQwen) {
  const ModelConfig by_number =
      parse("qwen2", R"(, "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 2)");
  EXPECT_EQ(by_number.window_of_layer(1), 0);
  EXPECT_EQ(by_number.window_of_layer(2), 8);
  const ModelConfig by_list = parse("qwen3", R"(, "use_sliding_window": true, "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention", "full_attention"])");
  EXPECT_EQ(by_list.window_of_layer(0), 8);
  EXPECT_EQ(by_list.window_of_layer(1), 0);
  EXPECT_EQ(parse("qwen3", R"(, "use_sliding_window": true, "sliding_window": 8)").sliding_window, 0);
  expect_contains(error_of("qwen2", R"(, "use_sliding_window": true, "layer_types": ["full_attention"])"),
                  "for each of the 3 layers");
  expect_contains(error_of("qwen2", R"(, "use_sliding_window": true, "layer_types": ["full_attention", "x", "x"])"),
                  "layer_types[1]");
  // The list is looked at when windows are off, too.
  expect_contains(error_of("qwen3", R"(, "layer_types": ["full_attention", "sliding_attention", "full_attention"])"),
                  "\"layer_types[1]\": expected \"full_attention\", because use_sliding_window is not true");
}

TEST(ModelConfig, ActivationsAndDtypes) {
  EXPECT_EQ(parse("llama", R"(, "hidden_act": "gelu")").hidden_act, ops::Activation::Gelu);
  EXPECT_EQ(parse("llama", R"(, "hidden_act": "gelu_pytorch_tanh")").hidden_act, ops::Activation::GeluTanh);
  EXPECT_EQ(parse("llama", R"(, "hidden_act": "relu")").hidden_act, ops::Activation::Relu);
  EXPECT_EQ(parse("llama", R"(, "torch_dtype": "float16")").dtype, DType::F16);
  EXPECT_EQ(parse("llama", R"(, "torch_dtype": "float16", "dtype": "float32")").dtype, DType::F32);
  expect_contains(error_of("llama", R"(, "hidden_act": "mish")"), "found the text \"mish\"");
  expect_contains(error_of("llama", R"(, "dtype": "int3")"), "int3");
}

struct RopeCase {
  const char* name;
  const char* parameters;
  int64_t max_positions;
  int64_t length;
  std::array<float, 8> expected;  // of pairs 0, 1, 7, 12, 15, 18, 22, 31
  float scale;
};

// Numbers of transformers 5.23.0 (LlamaRotaryEmbedding, head_dim 64).
const RopeCase rope_cases[] = {
    {"default",
     R"({"rope_type": "default", "rope_theta": 10000.0})",
     4096,
     0,
     {1.0f, 0.749894202f, 0.133352146f, 0.0316227786f, 0.0133352149f, 0.00562341325f, 0.00177827943f, 0.00013335215f},
     1.0f},
    {"linear",
     R"({"type": "linear", "rope_theta": 10000.0, "factor": 4})",
     4096,
     0,
     {0.25f, 0.18747355f, 0.0333380364f, 0.00790569466f, 0.00333380373f, 0.00140585331f, 0.000444569858f,
      3.33380376e-05f},
     1.0f},
    {"dynamic, short",
     R"({"rope_type": "dynamic", "factor": 2.0})",
     4096,
     100,
     {1.0f, 0.749894202f, 0.133352146f, 0.0316227786f, 0.0133352149f, 0.00562341325f, 0.00177827943f, 0.00013335215f},
     1.0f},
    {"dynamic, long",
     R"({"rope_type": "dynamic", "factor": 2.0})",
     4096,
     6000,
     {1.0f, 0.734160006f, 0.114956945f, 0.0245182198f, 0.00970199704f, 0.00383913494f, 0.00111531187f, 6.91055684e-05f},
     1.0f},
    {"llama3",
     R"({"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})",
     131072,
     0,
     {1.0f, 0.663601279f, 0.0566696189f, 0.00729266508f, 0.00137189368f, 7.78465546e-05f, 1.50962178e-05f,
      3.7673226e-07f},
     1.0f},
    {"yarn",
     R"({"type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "original_max_position_embeddings": 32768})",
     131072,
     0,
     {1.0f, 0.649381638f, 0.0486967526f, 0.00515479548f, 0.00102661771f, 0.000175706868f, 1.87473561e-05f,
      3.84981632e-07f},
     1.13862944f},
    {"yarn with everything",
     R"({"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 4096,
         "beta_fast": 16.0, "beta_slow": 2.0, "truncate": false, "mscale": 0.8, "mscale_all_dim": 0.5})",
     16384,
     0,
     {1.0f, 0.749894202f, 0.133352146f, 0.0316227786f, 0.0104010971f, 0.00263480213f, 0.000444569858f, 3.33380376e-05f},
     1.03889298f},
    {"yarn with a given attention factor",
     R"({"rope_type": "yarn", "rope_theta": 10000.0, "factor": null, "original_max_position_embeddings": 4096,
         "attention_factor": 1.5})",
     16384,
     0,
     {1.0f, 0.749894202f, 0.133352146f, 0.0279739965f, 0.00948851742f, 0.00302799162f, 0.000547162897f,
      3.33380376e-05f},
     1.5f},
    {"yarn of a long context",  // the ramp ends behind the last pair
     R"({"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "original_max_position_embeddings": 1000000})",
     2000000,
     0,
     {1.0f, 0.749894202f, 0.133352146f, 0.0316227786f, 0.0133352149f, 0.00562341325f, 0.00177827943f, 0.000123094302f},
     1.06931472f},
    {"yarn without a ramp",
     R"({"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "original_max_position_embeddings": 6})",
     12,
     0,
     {1.0f, 0.374947101f, 0.0666760728f, 0.0158113893f, 0.00666760746f, 0.00281170662f, 0.000889139716f,
      6.66760752e-05f},
     1.06931472f},
};

TEST(RopeFrequencies, AgreeWithTransformers) {
  constexpr std::array<size_t, 8> pairs = {0, 1, 7, 12, 15, 18, 22, 31};
  for (const RopeCase& test : rope_cases) {
    for (const char* field : {"rope_parameters", "rope_scaling"}) {
      SCOPED_TRACE(std::string(test.name) + " in " + field);
      const ModelConfig config =
          parse("llama", ", \"head_dim\": 64, \"max_position_embeddings\": " + std::to_string(test.max_positions) +
                             ", \"" + field + "\": " + test.parameters);
      const RopeFrequencies found = rope_inv_freq(config, test.length);
      EXPECT_FLOAT_EQ(found.attention_scale, test.scale);
      EXPECT_FLOAT_EQ(config.rope.attention_factor, test.scale);
      for (size_t i = 0; i < pairs.size(); ++i) {
        EXPECT_NEAR(found.inv_freq[pairs[i]], test.expected[i], 3e-7f * test.expected[i]) << "pair " << pairs[i];
      }
    }
  }
}

// As in transformers, a factor that stretches nothing leaves attention as it is; yarn's has to be there, if only as null.
TEST(RopeFrequencies, FactorsBelowOne) {
  EXPECT_EQ(parse("llama", R"(, "rope_scaling": {"type": "yarn", "factor": 0.5})").rope.attention_factor, 1.0f);
  EXPECT_EQ(
      parse("llama", R"(, "head_dim": 4, "rope_scaling": {"type": "longrope", "factor": 0.5, "short_factor": [1, 1],
    "long_factor": [1, 1]})")
          .rope.attention_factor,
      1.0f);
  expect_contains(error_of("llama", R"(, "rope_scaling": {"type": "yarn"})"), "\"rope_scaling.factor\" is missing");
}

TEST(RopeFrequencies, ThetaBesideTheParameters) {
  EXPECT_EQ(parse("llama", R"(, "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2})").rope.theta, 5e5);
  EXPECT_EQ(parse("llama", R"(, "rope_theta": 5e5, "rope_parameters": {"rope_theta": 7e5})").rope.theta, 7e5);
  EXPECT_EQ(parse("llama", R"(, "rope_theta": 5e5, "rope_scaling": null)").rope.theta, 5e5);
}

TEST(RopeFrequencies, PartOfTheHead) {
  expect_contains(error_of("llama", R"(, "partial_rotary_factor": 0.5)"),
                  "\"partial_rotary_factor\": expected 1 or null: a whole head rotates");
  expect_contains(error_of("qwen3", R"(, "rope_parameters": {"rope_type": "linear", "factor": 2,
    "partial_rotary_factor": 0.5})"),
                  "\"rope_parameters.partial_rotary_factor\"");
  EXPECT_EQ(parse("llama", R"(, "head_dim": 64, "partial_rotary_factor": 1.0)").rope.rotary_dim, 64);
}

TEST(ModelConfig, BadRopeIsRefused) {
  expect_contains(error_of("llama", R"(, "rope_scaling": {"type": "su"})"), "\"longrope\" or \"proportional\", found");
  expect_contains(error_of("llama", R"(, "rope_scaling": {"rope_type": null})"), "rope_scaling.rope_type");
  expect_contains(error_of("llama", R"(, "rope_scaling": {"type": "longrope"})"), "rope_scaling.short_factor");
  expect_contains(error_of("llama", R"(, "rope_scaling": {"type": "longrope", "short_factor": [1, 2]})"),
                  "a list of 8 numbers");
  expect_contains(error_of("llama", R"(, "rope_parameters": {"mrope_section": [1, 2]})"), "mrope_section");
  error_of("llama", R"(, "rope_theta": null)");
  expect_contains(error_of("llama", R"(, "rope_scaling": "linear")"), "rope_scaling");
  expect_contains(error_of("llama", R"(, "rope_scaling": {"type": "linear"})"), "\"rope_scaling.factor\" is missing");
  expect_contains(error_of("llama", R"(, "rope_scaling": {"type": "linear", "factor": "x"})"), "rope_scaling.factor");
  error_of("llama", R"(, "rope_scaling": {"type": "linear", "factor": 0})");
  error_of("llama", R"(, "rope_scaling": {"type": "linear", "factor": -1})");
  error_of("llama", R"(, "rope_theta": 0)");
  error_of("llama", R"(, "rope_theta": 1e300)");
  error_of("llama", R"(, "rope_scaling": {"type": "dynamic", "factor": 0.5})");
  error_of("llama", R"(, "head_dim": 2, "rope_scaling": {"type": "dynamic", "factor": 2})");
  error_of("llama",
           R"(, "rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1})");
  error_of("llama", R"(, "rope_scaling": {"type": "yarn", "factor": 8, "beta_fast": 1, "beta_slow": 2})");
  error_of("llama", R"(, "rope_parameters": {"full_attention": {}, "sliding_attention": {}})");
}

TEST(ModelConfig, UnknownArchitecturesListTheKnownOnes) {
  const std::string message = error_of("gpt_bigcode", "");
  expect_contains(message, "gpt_bigcode");
  expect_contains(message, "llama, mistral, ministral, qwen2, qwen3");
  expect_contains(error_of("llama", R"(, "architectures": ["LlamaForSequenceClassification"])"),
                  "LlamaForSequenceClassification");
  error_of("llama", R"(, "architectures": ["Qwen2ForCausalLM"])");
  error_of("llama", R"(, "quantization_config": {"bits": 4})");
  expect_contains(error_of("qwen2", R"(, "quantization_config": {"quant_method": "bitsandbytes"})"),
                  "quantized weights (quant_method \"bitsandbytes\") are not supported");
  checkpoint_error([] { parse_model_config("{}", "x"); });
}

TEST(ModelConfig, EveryNumberIsChecked) {
  const auto replaced = [](const std::string& field, const std::string& value) {
    std::string text = config_text("llama", R"(, "num_key_value_heads": 2, "max_position_embeddings": 9,
      "head_dim": 16, "rms_norm_eps": 0.1)");
    const size_t begin = text.find("\"" + field + "\": ") + field.size() + 4;
    text.replace(begin, text.find_first_of(",}", begin) - begin, value);
    return text;
  };
  for (const char* field : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                            "vocab_size", "num_key_value_heads", "max_position_embeddings", "head_dim"}) {
    SCOPED_TRACE(field);
    for (const char* value :
         {"0", "-1", "1e30", "99999999999999", "18446744073709551615", "1.5", "\"4\"", "true", "[]", "{}"}) {
      const std::string message = checkpoint_error([&] { parse_model_config(replaced(field, value), "config.json"); });
      expect_contains(message, field);
      expect_contains(message, "expected");
    }
  }
  checkpoint_error([&] { parse_model_config(replaced("rms_norm_eps", "-1"), "x"); });
  checkpoint_error([&] { parse_model_config(replaced("num_key_value_heads", "3"), "x"); });
  checkpoint_error([&] { parse_model_config(replaced("head_dim", "15"), "x"); });
  EXPECT_EQ(parse_model_config(replaced("hidden_size", "64.0"), "x").hidden_size, 64);
  for (const char* field :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}) {
    std::string text = config_text("llama");
    text.replace(text.find(field), 2, "xx");
    expect_contains(checkpoint_error([&] { parse_model_config(text, "x"); }), std::string(field) + "\" is missing");
  }
  error_of("llama", R"(, "eos_token_id": -1)");
  error_of("llama", R"(, "eos_token_id": [1, "2"])");
  error_of("llama", R"(, "bos_token_id": 3000000000)");
  error_of("llama", R"(, "tie_word_embeddings": "yes")");
}

TEST(ModelConfig, BadJsonIsRefused) {
  for (const char* text : {"", "{", "[]", "null", "{\"a\": NaN}", "{\"a\": 1} x", "\xff\xfe", "{\"a\": \"\xff\"}"}) {
    SCOPED_TRACE(text);
    checkpoint_error([&] { parse_model_config(text, "config.json"); });
  }
  expect_contains(checkpoint_error([] { parse_model_config(R"({"a": 1, "a": 2})", "x"); }), "\"a\" twice");
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  expect_contains(checkpoint_error([&] { parse_model_config("{\"a\": " + deep + "}", "x"); }), "nested");
}

TEST(ModelConfig, MissingFiles) {
  const TestDirectory dir;
  expect_contains(checkpoint_error([&] { load_model_config(dir.path()); }), "no such file");
  expect_contains(checkpoint_error([&] { load_model_config(dir.path() / "nowhere"); }), "not a directory");
  std::filesystem::create_directory(dir.path() / "config.json");
  checkpoint_error([&] { load_model_config(dir.path()); });
}

TEST(GenerationConfig, DefaultsAndOverrides) {
  const TestDirectory dir;
  EXPECT_TRUE(load_generation_config(dir.path()).eos_token_ids.empty());
  dir.write("config.json", config_text("llama", R"(, "eos_token_id": 7, "bos_token_id": 6)"));
  EXPECT_EQ(load_generation_config(dir.path()).eos_token_ids, (std::vector<int32_t>{7}));
  dir.write("generation_config.json",
            R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [8, 9]})");
  const GenerationConfig config = load_generation_config(dir.path());
  EXPECT_EQ(config.eos_token_ids, (std::vector<int32_t>{8, 9}));
  EXPECT_EQ(config.bos_token_id, 6);
  EXPECT_TRUE(config.do_sample);
  EXPECT_FLOAT_EQ(config.temperature, 0.6f);
  EXPECT_FLOAT_EQ(config.top_p, 0.9f);
  EXPECT_TRUE(config.warnings.empty());

  // No answer would end by the second.
  dir.write("generation_config.json", R"({"eos_token_id": [8, 123456]})");
  const std::vector<std::string> warnings = load_generation_config(dir.path()).warnings;
  ASSERT_EQ(warnings.size(), 1u);
  expect_contains(warnings[0], "the end token 123456 (eos_token_id) is not in the vocabulary");
  EXPECT_EQ(config.top_k, 50);
  EXPECT_FLOAT_EQ(config.repetition_penalty, 1.0f);
  EXPECT_EQ(parse_generation_config(R"({"top_k": null})", "x").top_k, 0);
  // Sampling takes numbers above 0 only, and the smallest ones mean what transformers does with 0.
  EXPECT_FLOAT_EQ(parse_generation_config(R"({"top_p": 0})", "x").top_p, 1e-6f);
  for (const char* text :
       {R"({"temperature": -1})", R"({"top_p": 1.5})", R"({"typical_p": 0})", R"({"top_k": -1})", R"([])",
        R"({"repetition_penalty": 0})", R"({"do_sample": 1})", R"({"eos_token_id": "x"})"}) {
    checkpoint_error([&] { parse_generation_config(text, "x"); });
  }
}

}  // namespace
}  // namespace anyaccel::llm
