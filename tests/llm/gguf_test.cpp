// GGUF files: the reference models as GGUF give the logits that transformers computed, tokenizers give the ids of their
// tokenizer.json, and files that are cut or lie are refused.
#include "llm/checkpoint/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "anyaccel/accelerator.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/session.h"
#include "anyaccel/llm/tokenizer.h"
#include "llm/gguf_writer.h"
#include "llm/model_fixtures.h"
#include "llm/test_directory.h"

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

class GgufModels : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufModels, LogitsAreTransformers) {
  const ReferenceModel reference = load_reference_model(GetParam());
  const TestDirectory dir;
  const auto path = dir.write("model.gguf", gguf_of_directory(reference.directory).file());
  for (const bool map_files : {true, false}) {
    LoadOptions load;
    load.dtype = DType::F32;
    load.map_files = map_files;
    SessionOptions options;
    options.context = 64;
    Session session(Model::load(path.string(), load), options);
    const std::vector<int32_t>& ids = reference.run.prompt_ids;
    std::vector<int32_t> sequence(ids.size(), 0), positions(ids.size());
    std::iota(positions.begin(), positions.end(), 0);
    const std::vector<float> found = session.forward({ids, sequence, positions}, positions).to_vector<float>();
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
                                           "qwen2", "qwen3"));

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

TEST(Gguf, ModelsThatNeedSomethingElseAreRefusedByName) {
  const std::string directory = anyaccel::testing::models_directory() + "/llama_gqa";
  const TestDirectory dir;
  const auto refused = [&](std::string_view part, auto&& change) {
    GgufWriter writer = gguf_of_directory(directory);
    change(writer);
    const auto path = dir.write("m.gguf", writer.file());
    expect_contains(checkpoint_error([&] { Model::load(path.string()); }), part);
  };
  refused("llama.expert_count", [](GgufWriter& w) { w.add("llama.expert_count", 8u); });
  refused("llama.logit_scale", [](GgufWriter& w) { w.add("llama.logit_scale", 0.5f); });
  refused("yarn", [](GgufWriter& w) { w.add("llama.rope.scaling.type", "yarn"); });
  refused("blk.0.attn_sinks.weight", [](GgufWriter& w) { w.add_tensor("blk.0.attn_sinks.weight", {1}, 0, "1234"); });
  refused("is Q8_0", [](GgufWriter& w) { w.add_tensor("blk.9.attn_q.weight", {1, 32}, 8, std::string(34, 'x')); });
  GgufWriter other;
  other.add("general.architecture", "falcon");
  const auto path = dir.write("o.gguf", other.file());
  expect_contains(checkpoint_error([&] { Model::load(path.string()); }), "falcon");
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
  const GgufModel model = open_gguf(first);
  size_t index = 0;
  ASSERT_NE(model.find("b", &index), nullptr);
  EXPECT_EQ(index, 1u);
  expect_contains(checkpoint_error([&] { open_gguf(second); }), "give the first part");
  dir.write("m-00002-of-00002.gguf", part(1, 2, "a"));
  expect_contains(checkpoint_error([&] { open_gguf(first); }), "in an earlier part");
  dir.write("m-00002-of-00002.gguf", part(0, 2, "b"));
  expect_contains(checkpoint_error([&] { open_gguf(first); }), "split.no");
  std::filesystem::remove(second);
  expect_contains(checkpoint_error([&] { open_gguf(first); }), "m-00002-of-00002.gguf");
  expect_contains(checkpoint_error([&] { open_gguf(dir.write("m.gguf", part(0, 2, "a"))); }), "-00001-of-00002.gguf");
}

}  // namespace
}  // namespace anyaccel::llm
