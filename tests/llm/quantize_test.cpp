// Quantizing: the error of each type's encoder, models written as GGUF files, quantizing while loading, and perplexity
// against transformers' (tests/data/perplexity.json, made by tools/perplexity_fixtures.py).
#include "anyaccel/llm/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "anyaccel/accelerator.h"
#include "anyaccel/llm/make_model.h"
#include "anyaccel/llm/perplexity.h"
#include "anyaccel/llm/session.h"
#include "anyaccel/llm/tokenizer.h"
#include "base/block_encode.h"
#include "llm/checkpoint/gguf.h"
#include "llm/checkpoint/gguf_file_writer.h"
#include "llm/gguf_writer.h"
#include "llm/model_fixtures.h"
#include "llm/quantize/quantize_rows.h"
#include "llm/quantizing.h"
#include "llm/test_directory.h"

namespace anyaccel::llm {
namespace {

using namespace testing;
using anyaccel::testing::load_reference_model;
using anyaccel::testing::ReferenceModel;
namespace fs = std::filesystem;

std::vector<float> encoded_and_decoded(const BlockFormat& format, const std::vector<float>& values) {
  std::vector<std::byte> blocks(values.size() / format.values * format.bytes);
  encode_blocks(format, values, blocks);
  std::vector<float> decoded(values.size());
  decode_blocks(format, blocks, decoded);
  return decoded;
}

double relative_error(const std::vector<float>& expected, const std::vector<float>& found) {
  double error = 0, sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double miss = static_cast<double>(expected[i]) - static_cast<double>(found[i]);
    error += miss * miss;
    sum += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  return std::sqrt(error / sum);
}

#if defined(__x86_64__) && !defined(__FMA__)
// Every compiler's program finds the same bytes. (With -O3, g++ 14 vectorized a former search for the nearest number wrongly.)
TEST(BlockEncode, FindsTheSameBytesWithEveryCompiler) {
  const std::map<std::string_view, std::pair<uint64_t, uint64_t>> expected = {
      {"Q4_0", {694911880348105585u, 17791708418338101752u}},
      {"Q4_1", {5415301386579685286u, 2545666509499976888u}},
      {"Q5_0", {13964014680146825000u, 4480531844252834519u}},
      {"Q5_1", {9589687303134534478u, 299707561843146821u}},
      {"Q8_0", {11891522862190269600u, 4492158338456290454u}},
      {"Q2_K", {14870017268624419349u, 15164624085498395991u}},
      {"Q3_K", {17030905141183913901u, 6238550181400232702u}},
      {"Q4_K", {2383518787720157436u, 15991690951847552544u}},
      {"Q5_K", {15434789793120212615u, 18056007291092011532u}},
      {"Q6_K", {14454569066973235950u, 15878404453246161566u}},
      {"IQ4_NL", {5069351573252313229u, 7947597326482236653u}},
      {"IQ4_XS", {5200672538719408754u, 3017217117493245913u}},
      {"MXFP4", {15396034819877719737u, 508519677506343076u}},
  };
  std::mt19937 random(3);
  constexpr size_t count = 8192, columns = 512;
  std::vector<float> values(count), weights(columns);
  const auto number = [&] { return static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 256; };
  for (float& value : values) value = number() + number() + number();
  for (float& weight : weights) weight = number() * number();
  for (float& weight : weights) weight = weight * weight + 1;
  for (const BlockFormat& format : block_formats()) {
    if (!can_encode(format)) continue;
    const auto hash = [&](bool weighted) {
      uint64_t sum = 14695981039346656037u;  // FNV-1a
      std::vector<std::byte> block(format.bytes);
      for (size_t i = 0; i < count; i += format.values) {
        const std::span<const float> factors =
            weighted ? std::span<const float>(weights).subspan(i % columns, format.values) : std::span<const float>();
        encode_blocks(format, std::span<const float>(values).subspan(i, format.values), block, factors);
        for (const std::byte byte : block) sum = (sum ^ static_cast<uint64_t>(byte)) * 1099511628211u;
      }
      return sum;
    };
    const std::pair<uint64_t, uint64_t> found = {hash(false), hash(true)};
    const auto known = expected.find(format.name);
    EXPECT_TRUE(known != expected.end() && known->second == found)
        << "{\"" << format.name << "\", {" << found.first << "u, " << found.second << "u}},";
  }
}
#endif

// Errors of ggml's own encoders, without importance weights, on normally distributed numbers: ours must not be worse.
TEST(BlockEncode, ErrorsAreAtMostThoseOfTheReferenceEncoders) {
  constexpr std::pair<const char*, double> reference[] = {
      {"Q4_0", 0.086},   {"Q4_1", 0.078},   {"Q5_0", 0.043}, {"Q5_1", 0.038}, {"Q8_0", 0.0054},
      {"Q2_K", 0.30},    {"Q3_K", 0.15},    {"Q4_K", 0.071}, {"Q5_K", 0.036}, {"Q6_K", 0.018},
      {"IQ4_NL", 0.079}, {"IQ4_XS", 0.077}, {"MXFP4", 0.115}};
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(256 * 64);
  for (float& value : values) value = normal(random);
  size_t made = 0;
  for (const BlockFormat& format : block_formats()) made += can_encode(format) ? 1 : 0;
  EXPECT_EQ(made, std::size(reference));
  for (const auto& [name, most] : reference) {
    const BlockFormat* format = find_block_format(std::string_view(name));
    ASSERT_NE(format, nullptr) << name;
    for (const float scale : {1.0F, 1e-3F, 300.0F}) {
      std::vector<float> scaled = values;
      for (float& value : scaled) value *= scale;
      EXPECT_LE(relative_error(scaled, encoded_and_decoded(*format, scaled)), most) << name << " times " << scale;
    }
  }
}

TEST(BlockEncode, ExtremesStayFiniteAndZerosStayZero) {
  std::mt19937 random(2);
  for (const BlockFormat& format : block_formats()) {
    if (!can_encode(format)) continue;
    const size_t n = format.values;
    const std::vector<float> zeros(n, 0.0F);
    EXPECT_EQ(encoded_and_decoded(format, zeros), zeros) << format.name;
    std::vector<std::vector<float>> blocks = {std::vector<float>(n, 1.0F), std::vector<float>(n, -3.0F),
                                              std::vector<float>(n, 1e-30F), std::vector<float>(n, 3e38F)};
    blocks.emplace_back(n, 0.0F)[n - 1] = -5.0F;
    blocks.emplace_back(n, 1e-45F)[0] = std::numeric_limits<float>::max();
    for (const std::vector<float>& values : blocks) {
      for (const float value : encoded_and_decoded(format, values)) ASSERT_TRUE(std::isfinite(value)) << format.name;
    }
    // One kind of value, or a single one among zeros, is held to the precision of scales and of the steps.
    const double precision = format.name == "MXFP4" ? 0.35 : 0.13;
    for (const size_t i : {size_t{0}, size_t{1}, size_t{4}}) {
      EXPECT_LE(relative_error(blocks[i], encoded_and_decoded(format, blocks[i])), precision)
          << format.name << " " << i;
    }
  }
}

std::vector<float> logits_of(const std::string& model, const std::vector<int32_t>& ids, const LoadOptions& load) {
  SessionOptions options;
  options.context = 64;
  Session session(Model::load(model, load), options);
  std::vector<int32_t> sequence(ids.size(), 0), positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  return session.forward({ids, sequence, positions}, positions).to_vector<float>();
}

// A reference model with a tokenizer of as many tokens.
fs::path with_tokenizer(const TestDirectory& dir, const std::string& name) {
  const fs::path to = dir.path() / name;
  fs::create_directories(to);
  const fs::path from = fs::path(anyaccel::testing::models_directory()) / name;
  for (const auto& entry : fs::directory_iterator(from)) fs::copy(entry.path(), to / entry.path().filename());
  const fs::path tokenizer = fs::path(anyaccel::testing::models_directory()) / "llama_gqa" / "tokenizer.json";
  fs::copy_file(tokenizer, to / "tokenizer.json", fs::copy_options::overwrite_existing);
  return to;
}

TEST(Quantize, FilesHoldTheModelsOfDirectories) {
  const TestDirectory dir;
  for (const char* name :
       {"llama3_rope", "llama_bias", "llama_gqa", "llama_linear", "llama_tied", "llama_yarn", "qwen2", "qwen3"}) {
    const ReferenceModel reference = load_reference_model(name);
    const std::string in = with_tokenizer(dir, name).string();
    const std::vector<int32_t>& ids = reference.run.prompt_ids;
    for (const char* type : {"q8_0", "Q4_1", "q4_k_m"}) {
      const std::string out = (dir.path() / "out.gguf").string();
      const QuantizeResult result = quantize_with_progress(in, out, type);
      EXPECT_LT(result.bytes_after, result.bytes_before) << name;
      LoadOptions exact;
      exact.activations = Activations::F32;
      const std::vector<float> found = logits_of(out, ids, exact);
      const double error = relative_error(reference.prompt_logits, found);
      EXPECT_LE(error, std::string_view(type) == "q8_0" ? 0.04 : 0.4) << name << " " << type;
      EXPECT_GT(error, 0.0);
      // The same blocks, made while the directory loads.
      exact.quantize = type;
      // A llama file's rows of queries and keys are in pairs, so their products are summed in another order; where that
      // moves a key across the middle between two fp16 numbers, its rounding differs by a whole step, 2^-11 of it.
      const bool in_pairs = std::string_view(name).starts_with("llama");
      const double rounding = in_pairs ? 2e-4 : 1e-5;
      EXPECT_LE(relative_error(found, logits_of(in, ids, exact)), rounding) << name << " " << type;
      exact.map_files = false;
      EXPECT_LE(relative_error(found, logits_of(in, ids, exact)), rounding) << name << " " << type;
      EXPECT_NE(Model::load(in, exact)->quantized_formats(), "");
    }
  }
}

// Matrices of more than 4 Mi values are read, quantized, decoded and written in pieces.
TEST(Quantize, LargeMatricesHaveAllTheirPieces) {
  const TestDirectory dir;
  ModelShape shape = find_model_shape("tiny");
  shape.layers = 1;
  shape.hidden_size = 64;
  shape.intermediate_size = 66048;
  const std::string in = (dir.path() / "large").string();
  make_model(shape, in);
  const std::vector<int32_t> ids = {5, 6, 7};
  LoadOptions exact, at_load;
  exact.dtype = at_load.dtype = DType::F32;
  const std::vector<float> expected = logits_of(in, ids, exact);
  at_load.dtype = DType::None;
  for (const char* type : {"q8_0", "int8"}) {
    const std::string out = (dir.path() / (std::string("out") + (type[0] == 'q' ? ".gguf" : ""))).string();
    quantize_with_progress(in, out, type);
    EXPECT_LE(relative_error(expected, logits_of(out, ids, exact)), 0.02) << type << ", decoded";
    EXPECT_LE(relative_error(expected, logits_of(out, ids, {})), 0.02) << type << ", in blocks";
    at_load.quantize = type;
    EXPECT_LE(relative_error(expected, logits_of(in, ids, at_load)), 0.02) << type << ", while loading";
  }
}

// Directories in the format of compressed-tensors. That its own software and transformers read them is checked by
// tools/check_quantized_directory.py.
TEST(Quantize, DirectoriesHoldTheModelsOfDirectories) {
  const TestDirectory dir;
  for (const char* name : {"llama_bias", "llama_tied", "qwen3"}) {
    const ReferenceModel reference = load_reference_model(name);
    const std::string in = with_tokenizer(dir, name).string();
    const std::vector<int32_t>& ids = reference.run.prompt_ids;
    for (const char* type : {"int8", "int4"}) {
      const std::string out = (dir.path() / (std::string(name) + type)).string();
      const QuantizeResult result = quantize_with_progress(in, out, type);
      EXPECT_EQ(result.type, type);
      EXPECT_LT(result.bytes_after, result.bytes_before) << name;
      const bool is_int4 = std::string_view(type) == "int4";
      EXPECT_LE(result.relative_error, is_int4 ? 0.09 : 0.0065) << name;
      LoadOptions exact;
      exact.activations = Activations::F32;
      const std::vector<float> found = logits_of(out, ids, exact);
      EXPECT_LE(relative_error(reference.prompt_logits, found), is_int4 ? 0.4 : 0.04) << name << " " << type;
      EXPECT_EQ(Model::load(out, exact)->quantized_formats(), is_int4 ? "Q4_0" : "Q8_0");
      // The same numbers, made while the directory loads.
      LoadOptions at_load = exact;
      at_load.quantize = type;
      EXPECT_EQ(logits_of(in, ids, at_load), found) << name << " " << type;
      EXPECT_EQ(Tokenizer::load(out)->encode("a b c"), Tokenizer::load(in)->encode("a b c"));
      QuantizeOptions options;
      options.type = type;
      EXPECT_THROW(quantize_model(in, out, options), InvalidArgument) << "over a directory that is not empty";
      EXPECT_THROW(quantize_model(out, out + "again", options), CheckpointError) << "what is quantized already";
    }
  }
  for (const auto& entry : fs::directory_iterator(dir.path())) {
    EXPECT_EQ(entry.path().filename().string().find(".tmp"), std::string::npos) << entry.path();
  }
}

TEST(Quantize, MixturesAreFilesOfTwoFormats) {
  const TestDirectory dir;
  const std::string in = with_tokenizer(dir, "llama_gqa").string();
  const std::string out = (dir.path() / "mixed.gguf").string();
  EXPECT_EQ(quantize_with_progress(in, out, "Q4_K_M").type, "Q4_K_M");
  const auto file = open_gguf(out);
  EXPECT_EQ(file->metadata().whole("general.file_type", 0, 100), 15);
  // Rows are shorter than the blocks of 256: Q5_0 stands for Q4_K and Q8_0 for Q6_K.
  for (const auto& [tensor, type] : {std::pair{"output", AA_BLOCK_Q8_0},
                                     {"token_embd", AA_BLOCK_Q5_0},
                                     {"blk.1.attn_v", AA_BLOCK_Q5_0},
                                     {"blk.1.ffn_down", AA_BLOCK_Q5_0},
                                     {"blk.2.attn_q", AA_BLOCK_Q5_0},
                                     {"blk.2.attn_v", AA_BLOCK_Q8_0},
                                     {"blk.2.ffn_down", AA_BLOCK_Q8_0},
                                     {"blk.2.ffn_up", AA_BLOCK_Q5_0}}) {
    size_t part = 0;
    const GgufTensor* found = file->find(std::string(tensor) + ".weight", &part);
    ASSERT_NE(found, nullptr) << tensor;
    EXPECT_EQ(found->type, static_cast<uint32_t>(type)) << tensor;
  }
  const ReferenceModel reference = load_reference_model("llama_gqa");
  LoadOptions exact;
  exact.activations = Activations::F32;
  EXPECT_LE(relative_error(reference.prompt_logits, logits_of(out, reference.run.prompt_ids, exact)), 0.3);
  QuantizeOptions options;
  options.type = "q4_k_m";
  EXPECT_THROW(quantize_model(in, (dir.path() / "directory").string(), options), InvalidArgument);
}

TEST(Quantize, AFileInGgufIsQuantizedAsItsDirectory) {
  const TestDirectory dir;
  const std::string in = with_tokenizer(dir, "llama_gqa").string();
  GgufWriter plain = gguf_of_directory(in);
  add_tokenizer(plain, in + "/tokenizer.json", "llama-bpe", 1, 2);
  const std::string file = dir.write("plain.gguf", plain.file()).string();
  const std::string of_directory = (dir.path() / "a.gguf").string();
  const std::string of_file = (dir.path() / "b.gguf").string();
  quantize_model(in, of_directory);
  quantize_model(file, of_file);
  const std::vector<int32_t> ids = load_reference_model("llama_gqa").run.prompt_ids;
  EXPECT_EQ(logits_of(of_directory, ids, {}), logits_of(of_file, ids, {}));
  EXPECT_EQ(Tokenizer::load(of_file)->encode("a b c"), Tokenizer::load(file)->encode("a b c"));
}

// llama.cpp (0.3.36 of its Python package) gives a Llama of 22 layers 21 matrices in Q6_K: these, and the output.
TEST(Quantize, MixturesAreThoseOfLlamaCpp) {
  ModelConfig config;
  config.num_hidden_layers = 22;
  config.hidden_size = 2048;
  config.num_attention_heads = 32;
  config.num_key_value_heads = 4;
  config.head_dim = 64;
  config.intermediate_size = 5632;
  config.vocab_size = 32000;
  const std::set<int64_t> finer = {0, 1, 4, 7, 10, 13, 16, 19, 20, 21};
  for (const auto& [name, most] : {std::pair("q4_k_m", "Q4_K"), std::pair("Q5_K_M", "Q5_K")}) {
    const FileType type = type_to_write(name);
    EXPECT_TRUE(type.mixed);
    for (const TensorSlot& slot : decoder_tensors(config)) {
      if (slot.kind != TensorKind::Matrix) continue;
      const bool matters = slot.layer_member == &LayerWeights::v || slot.layer_member == &LayerWeights::down;
      const std::string_view expected = slot.is_lm_head() || (matters && finer.contains(slot.layer)) ? "Q6_K" : most;
      EXPECT_EQ(format_of_matrix(*type.format, type.mixed, slot, slot.shape[1], config)->name, expected) << slot.name;
    }
  }
  EXPECT_EQ(type_to_load("q4_k_m").format->name, "Q4_K");
}

TEST(Quantize, WhatCannotBeQuantizedIsRefusedAndLeavesNoFile) {
  const TestDirectory dir;
  const fs::path in = with_tokenizer(dir, "llama_gqa");
  const std::string out = (dir.path() / "out.gguf").string();
  const auto error = [&](const std::string& from, const std::string& to, const std::string& type = "q8_0") {
    QuantizeOptions options;
    options.type = type;
    std::string what;
    try {
      quantize_model(from, to, options);
      ADD_FAILURE() << "expected an error";
    } catch (const Error& found) {
      what = found.what();
    }
    for (const auto& entry : fs::directory_iterator(dir.path())) {
      EXPECT_EQ(entry.path().filename().string().find(".tmp"), std::string::npos) << entry.path();
    }
    EXPECT_FALSE(fs::exists(out)) << what;
    return what;
  };
  expect_contains(error(in.string(), out, "q9_9"), "q4_k");
  expect_contains(error(in.string(), out, "tq1_0"), "q4_k");
  expect_contains(error(in.string(), (dir.path() / "out.bin").string()), ".gguf");
  expect_contains(error(in.string(), (dir.path() / "missing" / "out.gguf").string()), "cannot be created");
  expect_contains(error(with_tokenizer(dir, "mistral_window").string(), out), "window");
  expect_contains(error(with_tokenizer(dir, "llama_dynamic").string(), out), "dynamic");
  fs::remove(in / "tokenizer.json");
  fs::remove(in / "tokenizer_config.json");
  expect_contains(error(in.string(), out), "has no tokenizer");

  // Values that are not finite, and a file that is quantized already.
  GgufWriter damaged = gguf_keys_of_directory(in.string());
  GgufWriter quantized = damaged;
  for_each_gguf_tensor(
      in.string(), [&](const std::string& tensor, const std::vector<int64_t>& shape, uint32_t type, std::string bytes) {
        const bool chosen = tensor == "blk.1.ffn_up.weight";
        quantized.add_tensor(tensor, shape, chosen ? 8 : type,
                             chosen ? std::string(static_cast<size_t>(shape[0] * shape[1]) / 32 * 34, '\1') : bytes);
        if (chosen) bytes[7] = bytes[6] = '\x7F';  // NaN in bf16
        if (chosen) bytes[6] = '\xC0';
        damaged.add_tensor(tensor, shape, type, bytes);
      });
  expect_contains(error(dir.write("damaged.gguf", damaged.file()).string(), out), "mlp.up_proj");
  const std::string path = dir.write("quantized.gguf", quantized.file()).string();
  expect_contains(error(path, out), "quantized already (Q8_0)");

  // A part of a split file, which the result would replace.
  GgufWriter first = gguf_keys_of_directory(in.string());
  GgufWriter second;
  for_each_gguf_tensor(
      in.string(), [&](const std::string& tensor, const std::vector<int64_t>& shape, uint32_t type, std::string bytes) {
        (tensor == "output_norm.weight" ? second : first).add_tensor(tensor, shape, type, bytes);
      });
  for (GgufWriter* part : {&first, &second}) {
    part->add("split.no", part == &first ? 0U : 1U);
    part->add("split.count", 2U);
  }
  const std::string split = dir.write("split-00001-of-00002.gguf", first.file()).string();
  const std::string other = dir.write("split-00002-of-00002.gguf", second.file()).string();
  expect_contains(error(split, split), "a part of the input");
  expect_contains(error(split, other), "a part of the input");
  EXPECT_EQ(quantize_with_progress(split, (dir.path() / "whole.gguf").string(), "q8_0").type, "q8_0");

  LoadOptions load;
  load.quantize = "q4_0";
  load.dtype = DType::BF16;
  EXPECT_THROW(Model::load(anyaccel::testing::models_directory() + "/llama_gqa", load), InvalidArgument);
}

TEST(Perplexity, IsTransformers) {
  const auto data = nlohmann::json::parse(std::ifstream(anyaccel::testing::test_data() + "/perplexity.json"));
  const std::string stories = std::string(ANYACCEL_SOURCE_DIR) + "/models/stories";
  const auto ids = data.at("ids").get<std::vector<int32_t>>();
  EXPECT_EQ(Tokenizer::load(stories)->encode(data.at("text").get<std::string>()), ids);
  LoadOptions load;
  load.dtype = DType::F32;
  const auto model = Model::load(stories, load);
  for (const auto& run : data.at("runs")) {
    PerplexityOptions options;
    options.window = run.at("window").get<int64_t>();
    options.stride = run.at("stride").get<int64_t>();
    const Perplexity found = perplexity(model, ids, options);
    EXPECT_EQ(found.predicted, run.at("tokens").get<int64_t>());
    EXPECT_NEAR(std::log(found.value), run.at("mean_loss").get<double>(), 1e-4) << run;
    EXPECT_NEAR(found.bits * std::log(2.0), std::log(found.value), 1e-9);
    EXPECT_GT(found.mean_error, 0.0);
  }
  const auto refused = [&](std::vector<int32_t> tokens, int64_t window, int64_t stride) {
    PerplexityOptions options;
    options.window = window;
    options.stride = stride;
    EXPECT_THROW(perplexity(model, tokens, options), InvalidArgument) << window << " " << stride;
  };
  refused({1}, 0, 0);
  refused({1, 2048}, 0, 0);
  refused({1, -1}, 0, 0);
  refused(ids, 1, 0);
  refused(ids, 513, 0);
  refused(ids, 64, 64);
  refused(ids, 64, -1);
}

}  // namespace
}  // namespace anyaccel::llm
