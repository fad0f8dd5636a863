// GGUF files: the reference models as GGUF give the logits that transformers computed, tokenizers give the ids of their
// tokenizer.json, and files that are cut or lie are refused.
#include "llm/checkpoint/gguf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "anyaccel/accelerator.h"
#include "anyaccel/llm/check_tensors.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/quantize.h"
#include "anyaccel/llm/session.h"
#include "anyaccel/llm/tokenizer.h"
#include "base/block_format.h"
#include "llm/checkpoint/gguf_file_writer.h"
#include "llm/decoding.h"
#include "llm/gguf_writer.h"
#include "llm/model_fixtures.h"
#include "llm/test_directory.h"
#include "llm/thread_ranks.h"

namespace anyaccel::llm {
namespace {

using anyaccel::testing::load_reference_model;
using anyaccel::testing::ReferenceModel;
using namespace testing;

GgufHeader parse_header(const std::string& file) {
  return parse_gguf_header(
      [&file](uint64_t offset, std::span<std::byte> out) {
        ASSERT_LE(offset + out.size(), file.size());
        std::memcpy(out.data(), file.data() + offset, out.size());
      },
      file.size(), "x.gguf");
}

// Logits of the prompt of a reference model.
std::vector<float> prompt_logits(const std::string& model, const std::vector<int32_t>& ids, bool map_files,
                                 DType dtype = DType::F32, Activations activations = Activations::Auto) {
  LoadOptions load;
  load.dtype = dtype;
  load.activations = activations;
  load.map_files = map_files;
  SessionOptions options;
  options.context = 64;
  Session session(Model::load(model, load), options);
  std::vector<int32_t> sequence(ids.size(), 0), positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  return session.forward({ids, sequence, positions}, positions).to_vector<float>();
}

class GgufModels : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufModels, LogitsAreTransformers) {
  const ReferenceModel reference = load_reference_model(GetParam());
  const TestDirectory dir;
  const auto path = dir.write("model.gguf", gguf_of_directory(reference.directory).file());
  for (const bool map_files : {true, false}) {
    const std::vector<float> found = prompt_logits(path.string(), reference.run.prompt_ids, map_files);
    ASSERT_EQ(found.size(), reference.prompt_logits.size());
    double largest = 0, difference = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(reference.prompt_logits[i])));
      const double gap = std::abs(static_cast<double>(found[i] - reference.prompt_logits[i]));
      difference = std::isnan(gap) ? INFINITY : std::max(difference, gap);
    }
    EXPECT_LE(difference, 1e-4 * largest) << "map_files " << map_files;
  }
}
INSTANTIATE_TEST_SUITE_P(All, GgufModels,
                         ::testing::Values("llama3_rope", "llama_bias", "llama_gqa", "llama_linear", "llama_tied",
                                           "llama_yarn", "qwen2", "qwen3"));

// InternLM 2 has Llama's tensors, and its converter stores rows of queries and keys as pairs, too.
TEST(Gguf, InternLm2IsLlamaUnderAnotherName) {
  const ReferenceModel reference = load_reference_model("llama_gqa");
  const TestDirectory dir;
  const auto logits = [&](const char* named) {
    return prompt_logits(dir.write("m.gguf", gguf_of_directory(reference.directory, named).file()).string(),
                         reference.run.prompt_ids, true);
  };
  EXPECT_EQ(logits("internlm2"), logits("llama"));
}

// Keys of older files, and values that mean nothing.
TEST(Gguf, RopeScalingUnderOtherNames) {
  const ReferenceModel reference = load_reference_model("llama_gqa");
  const TestDirectory dir;
  const auto logits = [&](const std::vector<std::pair<const char*, float>>& keys) {
    GgufWriter writer = gguf_of_directory(reference.directory);
    for (const auto& [key, value] : keys) writer.add(key, value);
    return prompt_logits(dir.write("m.gguf", writer.file()).string(), reference.run.prompt_ids, true);
  };
  EXPECT_EQ(logits({{"llama.rope.scale_linear", 4.0f}}), logits({{"llama.rope.scaling.factor", 4.0f}}));
  EXPECT_NE(logits({{"llama.rope.scale_linear", 4.0f}}), logits({}));
  EXPECT_EQ(logits({{"llama.rope.scaling.factor", 0.0f}}), logits({}));
}

TEST(Gguf, YarnWithoutFurtherKeys) {
  GgufWriter writer = gguf_of_directory(anyaccel::testing::models_directory() + "/llama_gqa");
  writer.add("llama.rope.scaling.type", "yarn");
  writer.add("llama.rope.scaling.factor", 4.0F);
  const TestDirectory dir;
  const ModelConfig config = load_model_config(dir.write("m.gguf", writer.file()));
  EXPECT_EQ(config.rope.beta_fast, 32.0);
  EXPECT_EQ(config.rope.beta_slow, 1.0);
  EXPECT_EQ(config.rope.original_max_position_embeddings, config.max_position_embeddings);
  EXPECT_FLOAT_EQ(config.rope.attention_factor, 1 + 0.1F * std::log(4.0F));
}

TEST(Gguf, EveryKindOfEndEndsAText) {
  GgufWriter writer = gguf_of_directory(anyaccel::testing::models_directory() + "/llama_gqa");
  writer.add("tokenizer.ggml.eos_token_id", 2u);
  writer.add("tokenizer.ggml.eot_token_id", 7u);
  writer.add("tokenizer.ggml.eom_token_id", 9u);
  const TestDirectory dir;
  EXPECT_EQ(load_model_config(dir.write("m.gguf", writer.file())).eos_token_ids, (std::vector<int32_t>{2, 7, 9}));
}

// Only the size of the vocabulary tells the versions of Baichuan apart, of which the second divides the output's rows by their lengths.
TEST(Gguf, VersionsOfBaichuan) {
  for (const auto& [vocabulary, divides] : {std::pair{int64_t{64000}, false}, {int64_t{125696}, true}}) {
    GgufWriter writer;
    writer.add("general.architecture", "baichuan");
    for (const auto& [key, value] : {std::pair{"block_count", 32u},
                                     {"embedding_length", 4u},
                                     {"feed_forward_length", 8u},
                                     {"context_length", 16u},
                                     {"attention.head_count", 1u}}) {
      writer.add(std::string("baichuan.") + key, value);
    }
    writer.add("baichuan.attention.layer_norm_rms_epsilon", 1e-6F);
    const std::string zeros(static_cast<size_t>(vocabulary) * 8, '\0');
    for (const char* name : {"token_embd.weight", "output.weight"}) writer.add_tensor(name, {vocabulary, 4}, 1, zeros);
    const TestDirectory dir;
    EXPECT_EQ(load_model_config(dir.write("m.gguf", writer.file())).divides_lm_head_rows, divides) << vocabulary;
  }
}

TEST(Gguf, NumbersOfLayersAreTheSameForAll) {
  GgufWriter writer;
  writer.add("same", std::vector<int32_t>{2, 2, 2});
  writer.add("other", std::vector<int32_t>{2, 2, 1});
  writer.add("flag", true);
  const GgufHeader header = parse_header(writer.file());
  EXPECT_EQ(header.metadata.whole_of_layers("same", 1, 9, 3), 2);
  EXPECT_THROW(header.metadata.whole_of_layers("same", 1, 9, 2), CheckpointError);
  EXPECT_THROW(header.metadata.whole_of_layers("other", 1, 9, 3), CheckpointError);
  EXPECT_THROW(header.metadata.whole("flag", 0, 9), CheckpointError);
}

// Rows of queries, keys and values that are stored as one tensor, plain and quantized.
TEST(Gguf, FusedRowsAreTakenApart) {
  for (const char* name : {"llama_gqa", "llama_bias", "qwen2"}) {
    const ReferenceModel reference = load_reference_model(name);
    GgufWriter apart = gguf_keys_of_directory(reference.directory);
    GgufWriter fused = apart;
    std::map<std::string, std::string> parts;
    std::map<std::string, std::vector<int64_t>> shapes;
    for_each_gguf_tensor(reference.directory, [&](const std::string& tensor, const std::vector<int64_t>& shape,
                                                  uint32_t type, const std::string& bytes) {
      apart.add_tensor(tensor, shape, type, bytes);
      const bool part = tensor.find(".attn_q.") != std::string::npos || tensor.find(".attn_k.") != std::string::npos ||
                        tensor.find(".attn_v.") != std::string::npos;
      if (!part) return fused.add_tensor(tensor, shape, type, bytes);
      parts[tensor] = bytes;
      shapes[tensor] = shape;
    });
    for (const auto& entry : parts) {
      const std::string& query = entry.first;
      const std::string& bytes = entry.second;
      const size_t at = query.find(".attn_q.");
      if (at == std::string::npos) continue;
      const auto part = [&](const char* letter) { return std::string(query).replace(at + 6, 1, letter); };
      std::vector<int64_t> shape = shapes.at(query);
      shape[0] += 2 * shapes.at(part("k"))[0];
      fused.add_tensor(part("qkv"), shape, 30, bytes + parts.at(part("k")) + parts.at(part("v")));
    }
    const TestDirectory dir;
    const std::vector<int32_t>& ids = reference.run.prompt_ids;
    EXPECT_EQ(prompt_logits(dir.write("fused.gguf", fused.file()).string(), ids, true),
              prompt_logits(dir.write("apart.gguf", apart.file()).string(), ids, true))
        << name;
  }
}

// Longrope's factors are chosen by the length of the sequence; equal ones are those of rope_freqs.weight.
TEST(Gguf, LongropeFactorsAreUsed) {
  const ReferenceModel reference = load_reference_model("llama_gqa");
  const auto file = [&](const char* type, const std::vector<std::pair<const char*, float>>& tensors) {
    GgufWriter writer = gguf_of_directory(reference.directory);
    if (type != nullptr) {
      writer.add("llama.rope.scaling.type", type);
      writer.add("llama.rope.scaling.original_context_length", 8u);
    }
    for (const auto& [name, factor] : tensors) {
      std::string bytes;
      for (int i = 0; i < 8; ++i) GgufWriter::put(bytes, factor + static_cast<float>(i));
      writer.add_tensor(name, {8}, 0, bytes);
    }
    return writer.file();
  };
  const TestDirectory dir;
  const auto logits = [&](const std::string& content, size_t tokens) {
    const std::vector<int32_t> ids(reference.run.prompt_ids.begin(),
                                   reference.run.prompt_ids.begin() + static_cast<int64_t>(tokens));
    return prompt_logits(dir.write("m.gguf", content).string(), ids, true);
  };
  const std::string both = file("longrope", {{"rope_factors_long.weight", 3.0F}, {"rope_factors_short.weight", 1.5F}});
  EXPECT_EQ(logits(both, 8), logits(file(nullptr, {{"rope_freqs.weight", 1.5F}}), 8));
  EXPECT_EQ(logits(both, 20), logits(file(nullptr, {{"rope_freqs.weight", 3.0F}}), 20));
  EXPECT_NE(logits(both, 20), logits(file(nullptr, {{"rope_freqs.weight", 1.5F}}), 20));
}

// A reference model whose matrices are random blocks of a format, and the same model with what the blocks decode to: the
// logits are equal bit by bit, whatever is mapped, paired, tied or biased.
TEST(Gguf, QuantizedModelsComputeWithWhatTheirBlocksDecodeTo) {
  std::mt19937 random(7);
  for (const char* name : {"llama_gqa", "llama_tied", "qwen2", "qwen3"}) {
    const ReferenceModel reference = load_reference_model(name);
    for (const BlockFormat& format : block_formats()) {
      if (format.values != 32 || format.name == "MXFP4") continue;  // rows are multiples of 32
      GgufWriter writer = gguf_keys_of_directory(reference.directory);
      GgufWriter plain = writer;
      for_each_gguf_tensor(reference.directory, [&](const std::string& tensor, const std::vector<int64_t>& shape,
                                                    uint32_t type, const std::string& bytes) {
        if (shape.size() != 2) {
          writer.add_tensor(tensor, shape, type, bytes);
          plain.add_tensor(tensor, shape, type, bytes);
          return;
        }
        const size_t count = static_cast<size_t>(shape[0] * shape[1]) / format.values;
        std::string blocks(count * format.bytes, '\0');
        for (char& byte : blocks) byte = static_cast<char>(random());
        for (size_t i = 0; i < count; ++i) {  // scales and minima of about 2^-9
          blocks[i * format.bytes + 1] = 0x18;
          if (format.name.ends_with("_1")) blocks[i * format.bytes + 3] = static_cast<char>(0x98);
        }
        std::vector<float> values(count * format.values);
        decode_blocks(format, std::as_bytes(std::span(blocks)), values);
        writer.add_tensor(tensor, shape, format.number, blocks);
        plain.add_tensor(tensor, shape, 0,
                         {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
      });
      const TestDirectory dir;
      const std::string path = dir.write("model.gguf", writer.file()).string();
      const std::vector<int32_t>& ids = reference.run.prompt_ids;
      const std::vector<float> expected = prompt_logits(dir.write("plain.gguf", plain.file()).string(), ids, true);
      EXPECT_EQ(prompt_logits(path, ids, true), expected) << name << " " << format.name;
      EXPECT_EQ(prompt_logits(path, ids, false), expected) << name << " " << format.name;
      EXPECT_TRUE(std::isfinite(expected[0]));
      // The blocks as they are, without and with rounded activations.
      const float largest = std::abs(*std::ranges::max_element(expected, {}, [](float v) { return std::abs(v); }));
      const auto difference = [&](bool map_files, Activations activations) {
        const std::vector<float> found = prompt_logits(path, ids, map_files, DType::None, activations);
        float most = 0;
        for (size_t i = 0; i < found.size(); ++i) most = std::max(most, std::abs(found[i] - expected[i]));
        return most / largest;
      };
      EXPECT_LE(difference(true, Activations::F32), 1e-3F) << name << " " << format.name;
      EXPECT_LE(difference(false, Activations::F32), 1e-3F) << name << " " << format.name;
      EXPECT_LE(difference(true, Activations::Auto), 0.05F) << name << " " << format.name;
      const auto model = Model::load(path);
      EXPECT_EQ(model->quantized_formats(), format.name);
      LoadOptions decoded;
      decoded.dtype = DType::BF16;
      expect_contains(Model::load(path, decoded)->notes().back(),
                      "quantized weights (" + std::string(format.name) + ") are decoded to bfloat16");
    }
  }
}

TEST(Gguf, TheBundledModelIn8BitsTellsTheStoryOfFp32) {
  const std::string stories = std::string(ANYACCEL_SOURCE_DIR) + "/models/stories";
  const TestDirectory dir;
  const std::string path = (dir.path() / "stories.gguf").string();
  quantize_model(stories, path);  // Q8_0
  EXPECT_EQ(Tokenizer::load(path)->encode("Once upon a time"), Tokenizer::load(stories)->encode("Once upon a time"));
  const std::vector<std::vector<int32_t>> prompts = {Tokenizer::load(stories)->encode("Once upon a time")};
  const auto tell = [&](const std::string& model, const LoadOptions& load) {
    SessionOptions options;
    options.context = 128;
    Session session(Model::load(model, load), options);
    return anyaccel::testing::decode(session, prompts, 60);
  };
  LoadOptions fp32;
  fp32.dtype = DType::F32;
  const auto expected = tell(stories, fp32);
  EXPECT_EQ(tell(path, {}), expected);
  LoadOptions exact;
  exact.activations = Activations::F32;
  EXPECT_EQ(tell(path, exact), expected);
  LoadOptions at_load;
  at_load.quantize = "q8_0";
  EXPECT_EQ(tell(stories, at_load), expected);
  for (const int ranks : {2, 3}) {  // the columns of a rank, if it has not rows, are whole blocks
    const auto body = [&](const std::shared_ptr<comm::ProcessGroup>& group) {
      LoadOptions shared;
      shared.group = group;
      EXPECT_EQ(tell(path, shared), expected) << "rank " << group->rank() << " of " << ranks;
    };
    anyaccel::testing::run_ranks(ranks, body);
    anyaccel::testing::run_ranks(ranks, body, anyaccel::testing::Between::Messages);
  }
  LoadOptions bf16;
  bf16.activations = Activations::BF16;
  EXPECT_THROW(Model::load(path, bf16), InvalidArgument);
}

TEST(Gguf, DamagedScalesOfQuantizedWeightsAreFound) {
  const std::string directory = anyaccel::testing::models_directory() + "/llama_gqa";
  GgufWriter writer = gguf_keys_of_directory(directory);
  for_each_gguf_tensor(directory, [&](const std::string& tensor, const std::vector<int64_t>& shape, uint32_t type,
                                      const std::string& bytes) {
    if (tensor != "blk.1.ffn_up.weight") {
      writer.add_tensor(tensor, shape, type, bytes);
      return;
    }
    const size_t count = static_cast<size_t>(shape[0] * shape[1]) / 32;
    std::string blocks(count * 34, '\1');
    blocks[3 * 34] = 0;         // of row 1, values 32 and on
    blocks[3 * 34 + 1] = 0x7E;  // NaN
    writer.add_tensor(tensor, shape, 8, blocks);
  });
  const TestDirectory dir;
  const TensorCheck check = check_tensors(dir.write("m.gguf", writer.file()).string(), DType::F32);
  ASSERT_EQ(check.damaged(), 1u);
  ASSERT_FALSE(check.findings.empty());
  const TensorFinding& finding = check.findings.front();
  EXPECT_EQ(finding.nan_count, 32u);
  EXPECT_EQ(finding.first, (std::vector<int64_t>{1, 32}));
}

TEST(Gguf, TokenizersGiveTheIdsOfTheirJson) {
  const std::string folder = anyaccel::testing::test_data() + "/tokenizers/";
  const std::tuple<const char*, const char*, uint32_t> cases[] = {
      {"llama3_style", "llama-bpe", 906}, {"qwen2_style", "qwen2", 900}, {"gpt2_bytelevel", "gpt-2", 0}};
  for (const auto& [name, pre, bos] : cases) {
    const std::string json = folder + name + "/tokenizer.json";
    GgufWriter writer;
    writer.add("general.architecture", "llama");
    add_tokenizer(writer, json, pre, bos, bos);
    const TestDirectory dir;
    const auto tokenizer = Tokenizer::load(dir.write("t.gguf", writer.file()));
    const auto expected = Tokenizer::parse_json(read_text(json), json);
    for (const char* text : {"Once upon a time, there were 12345 cats.", "I'LL don't\n\n  \tx = y_1;",
                             "e\xCC\x81 Ünïcode", "<|end_of_text|>a<|endoftext|> <|im_start|>", ""}) {
      const std::vector<int32_t> ids = tokenizer->encode(text);
      EXPECT_EQ(ids, expected->encode(text)) << name << ": " << text;
      EXPECT_EQ(tokenizer->decode(ids), expected->decode(ids)) << name << ": " << text;
    }
  }
}

GgufWriter small_file() {
  GgufWriter writer;
  writer.add("general.architecture", "llama");
  writer.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
  writer.add("general.alignment", 32u);
  writer.add_tensor("a", {2, 32}, 8, std::string(68, 'a'));
  writer.add_tensor("b", {3}, 0, std::string(12, 'b'));
  return writer;
}

TEST(Gguf, HeaderIsReadAndEveryCutIsRefused) {
  std::string file = small_file().file();
  for (const uint32_t version : {2u, 3u}) {
    const GgufHeader header = parse_header(small_file().file(version));
    ASSERT_EQ(header.tensors.size(), 2u);
    EXPECT_EQ(header.tensors[0].shape, (std::vector<int64_t>{2, 32}));
    EXPECT_EQ(header.tensors[0].bytes, 68u);
    EXPECT_EQ(file.substr(header.tensors[1].offset, 12), std::string(12, 'b'));
  }
  const size_t end = parse_header(file).tensors[1].offset + 12;
  for (size_t size = 0; size < end; ++size) {
    expect_contains(checkpoint_error([&] { parse_header(file.substr(0, size)); }), "x.gguf");
  }
  parse_header(file.substr(0, end));  // the last tensor's padding may be missing
}

TEST(Gguf, KeysThatNobodyReadsMayHaveAnyNumber) {
  GgufWriter writer = small_file();
  writer.add("general.source.hash", UINT64_MAX);
  writer.add("llama.context_length", UINT64_MAX);
  const GgufHeader header = parse_header(writer.file());
  EXPECT_EQ(header.tensors.size(), 2u);
  expect_contains(checkpoint_error([&] { header.metadata.required_whole("llama.context_length", 1, 1 << 30); }),
                  "\"llama.context_length\" is 18446744073709551615; expected");
  EXPECT_THROW(header.metadata.required_whole("llama.context_length", INT64_MIN, INT64_MAX), CheckpointError);
  // As quantizing copies it.
  GgufKeys keys;
  header.metadata.for_each([&](const std::string& key, const GgufValue& value) {
    if (key == "general.source.hash") keys.add(key, value);
  });
  EXPECT_TRUE(keys.bytes().ends_with(std::string(8, '\xff')));
}

TEST(Gguf, LiesAreRefused) {
  // Each byte in turn, and each aligned or unaligned count, becomes extreme: either an error, or ranges in the file.
  const std::string file = small_file().file();
  const size_t header_bytes = parse_header(file).tensors[0].offset;
  for (size_t at = 0; at + 8 <= header_bytes; ++at) {
    for (const uint64_t lie : {uint64_t{0}, uint64_t{1} << 31, uint64_t{1} << 32, uint64_t{1} << 63, UINT64_MAX}) {
      std::string changed = file;
      std::memcpy(changed.data() + at, &lie, sizeof lie);
      try {
        for (const GgufTensor& tensor : parse_header(changed).tensors) {
          ASSERT_LE(tensor.offset, file.size());
          ASSERT_LE(tensor.bytes, file.size() - tensor.offset);
        }
      } catch (const CheckpointError&) {
      }
    }
  }
  const auto refused = [](std::string_view part, auto&& change) {
    GgufWriter writer = small_file();
    change(writer);
    expect_contains(checkpoint_error([&] { parse_header(writer.file()); }), part);
  };
  refused("occurs twice", [](GgufWriter& w) { w.add("general.architecture", "qwen2"); });
  refused("occurs twice", [](GgufWriter& w) { w.add_tensor("a", {1}, 0, "1234"); });
  refused("type 77", [](GgufWriter& w) { w.add_tensor("c", {1}, 77, "1234"); });
  refused("the type 4, which is not known", [](GgufWriter& w) { w.add_tensor("c", {32}, 4, "1234"); });
  refused("a multiple of 256", [](GgufWriter& w) { w.add_tensor("c", {32}, 12, "1234"); });
  refused("cannot be counted", [](GgufWriter& w) { w.add_tensor("c", {INT64_MAX, 4}, 0, "1234"); });
  refused("5 dimensions", [](GgufWriter& w) { w.add_tensor("c", {1, 1, 1, 1, 1}, 0, "1234"); });
  const auto alignment = [](uint32_t value) {
    GgufWriter writer;
    writer.add("general.alignment", value);
    return checkpoint_error([&] { parse_header(writer.file()); });
  };
  expect_contains(alignment(0), "general.alignment");
  expect_contains(alignment(48), "power of two");
  expect_contains(alignment(1u << 31), "general.alignment");
  expect_contains(checkpoint_error([&] { parse_header(small_file().file(1)); }), "version 1");
  expect_contains(checkpoint_error([&] { parse_header(small_file().file(0x03000000)); }), "big-endian");
}

// Overwrites the bytes that lie `distance` behind the last place where `text` is.
template <class T>
std::string changed_after(std::string file, std::string_view text, size_t distance, T value) {
  const size_t at = file.rfind(text);
  EXPECT_NE(at, std::string::npos);
  std::memcpy(file.data() + at + distance, &value, sizeof value);
  return file;
}

TEST(Gguf, EachLieIsNamed) {
  const auto refused = [](std::string_view part, std::string_view text, size_t distance, auto value) {
    const std::string file = changed_after(small_file().file(), text, distance, value);
    expect_contains(checkpoint_error([&] { parse_header(file); }), part);
  };
  constexpr uint64_t kNegative = ~uint64_t{31};
  refused("not a GGUF file", "GGUF", 0, uint32_t{1});
  refused("as the number of tensors", "GGUF", 8, uint64_t{1} << 62);
  refused("as the number of keys", "GGUF", 16, UINT64_MAX);
  const std::string_view architecture = "general.architecture", tokens = "tokenizer.ggml.tokens";
  refused("ends within key 0", "GGUF", 24, uint64_t{1} << 40);
  refused("value type 99", architecture, architecture.size(), uint32_t{99});
  refused("ends within the key", architecture, architecture.size() + 4, uint64_t{1} << 63);
  refused("value type 77", tokens, tokens.size() + 4, uint32_t{77});
  refused("a list of lists", tokens, tokens.size() + 4, uint32_t{9});
  refused("as the number of elements", tokens, tokens.size() + 8, uint64_t{1} << 50);
  const std::string_view b("\1\0\0\0\0\0\0\0b", 9);  // the name of the second tensor, of one dimension
  refused("0 dimensions", b, b.size(), uint32_t{0});
  refused("0 as a size", b, b.size() + 4, uint64_t{0});
  refused("as a size", b, b.size() + 4, kNegative);
  refused("takes 128 bytes", b, b.size() + 4, uint64_t{32});
  refused("type 9, which is not known", b, b.size() + 12, uint32_t{9});
  for (const uint64_t offset : {uint64_t{0}, uint64_t{97}, uint64_t{128}, uint64_t{1} << 60, kNegative}) {
    refused("tensor \"b\" begins at byte " + std::to_string(offset), b, b.size() + 16, offset);
    refused("expected 96, behind the tensor before it", b, b.size() + 16, offset);
  }
}

TEST(Gguf, ModelsThatNeedSomethingElseAreRefusedByName) {
  const std::string directory = anyaccel::testing::models_directory() + "/llama_gqa";
  const TestDirectory dir;
  const auto refused = [&](std::string_view part, auto&& change) {
    GgufWriter writer = gguf_of_directory(directory);
    change(writer);
    const auto path = dir.write("m.gguf", writer.file());
    expect_contains(checkpoint_error([&] { Model::load(path.string()); }), part);
  };
  refused("llama.expert_used_count", [](GgufWriter& w) { w.add("llama.expert_count", 8u); });
  refused("llama.attention.sliding_window", [](GgufWriter& w) { w.add("llama.attention.sliding_window", 8u); });
  refused("llama.logit_scale", [](GgufWriter& w) { w.add("llama.logit_scale", 0.5f); });
  refused("\"su\"", [](GgufWriter& w) { w.add("llama.rope.scaling.type", "su"); });
  refused("not both there", [](GgufWriter& w) { w.add("llama.rope.scaling.type", "longrope"); });
  refused("yarn_ext_factor", [](GgufWriter& w) {
    w.add("llama.rope.scaling.type", "yarn");
    w.add("llama.rope.scaling.yarn_ext_factor", 0.5f);
  });
  refused("attn_factor", [](GgufWriter& w) { w.add("llama.rope.scaling.attn_factor", 0.5f); });
  std::string ones;
  for (int i = 0; i < 8; ++i) GgufWriter::put(ones, 1.0F);
  refused("is there beside a rope.scaling.type other than none", [&](GgufWriter& w) {
    w.add("llama.rope.scaling.factor", 2.0F);
    w.add_tensor("rope_freqs.weight", {8}, 0, ones);
  });
  refused("has the tensor \"rope_factors_long.weight\" without a rope.scaling.type of longrope",
          [&](GgufWriter& w) { w.add_tensor("rope_factors_long.weight", {8}, 0, ones); });
  const std::string zeros(32, '\0');
  refused("expected finite ones above 0", [&](GgufWriter& w) { w.add_tensor("rope_freqs.weight", {8}, 0, zeros); });
  refused("beside longrope", [](GgufWriter& w) {
    w.add("llama.rope.scaling.type", "longrope");
    w.add("llama.rope.scaling.factor", 2.0F);
  });
  refused("llama.rope.dimension_count", [](GgufWriter& w) { w.add("llama.rope.dimension_count", 8u); });
  refused("rows; expected 5", [](GgufWriter& w) { w.add("llama.vocab_size", 5u); });
  const std::string_view value_length = "llama.attention.value_length";
  const auto odd_values = dir.write(
      "v.gguf", changed_after(gguf_of_directory(directory).file(), value_length, value_length.size() + 4, uint32_t{8}));
  expect_contains(checkpoint_error([&] { Model::load(odd_values.string()); }), "is 8; expected 16, the key_length");
  refused("attention.causal", [](GgufWriter& w) { w.add("llama.attention.causal", false); });
  refused("expected a multiple of the 16 of a head", [](GgufWriter& w) {
    w.add_tensor("blk.9.attn_q.weight", {15, 1}, 0, std::string(60, '\0'));
  });
  refused("is not a number; expected a floating-point number from 0",
          [](GgufWriter& w) { w.add("llama.rope.scaling.attn_factor", std::numeric_limits<float>::quiet_NaN()); });
  refused("expected 128, those of all", [](GgufWriter& w) {
    w.add_tensor("blk.9.attn_qkv.weight", {2, 1}, 0, "12345678");
  });
  refused("blk.0.attn_sinks.weight", [](GgufWriter& w) { w.add_tensor("blk.0.attn_sinks.weight", {1}, 0, "1234"); });
  refused("is I8", [](GgufWriter& w) { w.add_tensor("blk.9.attn_q.weight", {1, 32}, 24, std::string(32, 'x')); });
  refused("is Q8_0 of 1 dimensions",
          [](GgufWriter& w) { w.add_tensor("blk.9.attn_norm.weight", {32}, 8, std::string(34, 'x')); });
  GgufWriter other;
  other.add("general.architecture", "mamba");
  const auto path = dir.write("o.gguf", other.file());
  expect_contains(checkpoint_error([&] { Model::load(path.string()); }), "mamba");
  expect_contains(checkpoint_error([&] { Tokenizer::load(path); }), "tokenizer.ggml.model");
  other.add("tokenizer.ggml.model", "gpt2");
  other.add("tokenizer.ggml.pre", "unheard-of");
  expect_contains(checkpoint_error([&] { Tokenizer::load(dir.write("p.gguf", other.file())); }), "unheard-of");
}

TEST(Gguf, SplitFiles) {
  const auto part = [](uint32_t number, uint32_t count, const char* tensor) {
    GgufWriter writer;
    writer.add("split.no", number);
    writer.add("split.count", count);
    writer.add("split.tensors.count", 2u);
    writer.add_tensor(tensor, {1}, 0, "1234");
    return writer.file();
  };
  const TestDirectory dir;
  const auto first = dir.write("m-00001-of-00002.gguf", part(0, 2, "a"));
  const auto second = dir.write("m-00002-of-00002.gguf", part(1, 2, "b"));
  auto model = open_gguf(first);
  size_t index = 0;
  ASSERT_NE(model->find("b", &index), nullptr);
  EXPECT_EQ(index, 1u);
  EXPECT_EQ(open_gguf(first), model) << "it is read once while it is held";
  expect_contains(checkpoint_error([&] { open_gguf(second); }), "give the first part");
  dir.write("m-00002-of-00002.gguf", part(1, 2, "a"));
  expect_contains(checkpoint_error([&] { open_gguf(first); }), "in an earlier part");
  dir.write("m-00002-of-00002.gguf", part(0, 2, "b"));
  expect_contains(checkpoint_error([&] { open_gguf(first); }), "split.no");
  dir.write("m-00002-of-00002.gguf", part(1, 3, "b"));
  expect_contains(checkpoint_error([&] { open_gguf(first); }), "is 3; the first part has 2");
  GgufWriter more;
  more.add("split.no", 1u);
  more.add("split.count", 2u);
  more.add_tensor("b", {1}, 0, "1234");
  more.add_tensor("c", {1}, 0, "1234");
  dir.write("m-00002-of-00002.gguf", more.file());
  expect_contains(checkpoint_error([&] { open_gguf(first); }), "split.tensors.count");
  std::filesystem::remove(second);
  expect_contains(checkpoint_error([&] { open_gguf(first); }), "m-00002-of-00002.gguf");
  expect_contains(checkpoint_error([&] { open_gguf(dir.write("m.gguf", part(0, 2, "a"))); }), "-00001-of-00002.gguf");
}

}  // namespace
}  // namespace anyaccel::llm
