// Tokenizers of GGUF files against Hugging Face tokenizers and SentencePiece on random texts
// (tests/data/gguf_tokenizers.json, made by tools/gguf_tokenizer_fixtures.py), and bad keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "anyaccel/llm/tokenizer.h"
#include "llm/gguf_writer.h"
#include "llm/model_fixtures.h"
#include "llm/random_texts.h"
#include "llm/test_directory.h"
#include "llm/tokenizer/sentencepiece_model.h"

namespace anyaccel::llm {
namespace {

using namespace testing;

nlohmann::json fixtures() {
  return nlohmann::json::parse(std::ifstream(anyaccel::testing::test_data() + "/gguf_tokenizers.json"));
}

std::string tokenizer_file(const std::string& name, const char* file) {
  return anyaccel::testing::test_data() + "/tokenizers/" + name + "/" + file;
}

GgufWriter by_scores(const std::string& name) {
  const std::string path = tokenizer_file(name, "tokenizer.model");
  const SentencePieceModel model = parse_sentencepiece_model(read_text(path), path);
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;
  for (const SentencePiece& piece : model.pieces) {
    tokens.push_back(piece.text);
    scores.push_back(piece.score);
    types.push_back(static_cast<int32_t>(piece.type));
  }
  GgufWriter writer;
  writer.add("general.architecture", "llama");
  writer.add("tokenizer.ggml.model", "llama");
  writer.add("tokenizer.ggml.tokens", tokens);
  writer.add("tokenizer.ggml.scores", scores);
  writer.add("tokenizer.ggml.token_type", types);
  writer.add("tokenizer.ggml.bos_token_id", 1u);
  writer.add("tokenizer.ggml.eos_token_id", 2u);
  return writer;
}

TEST(GgufTokenizers, ByteLevelOnesAgreeOnRandomTexts) {
  const nlohmann::json data = fixtures();
  const std::vector<std::string> texts = random_texts(data);
  const TestDirectory dir;
  for (const auto& [pre, entry] : data.at("byte_level").items()) {
    GgufWriter writer;
    writer.add("general.architecture", "llama");
    const std::string json = tokenizer_file(entry.at("vocabulary").get<std::string>(), "tokenizer.json");
    const auto end = nlohmann::json::parse(std::ifstream(json)).at("added_tokens")[0].at("id").get<uint32_t>();
    add_tokenizer(writer, json, pre.c_str(), end, end);
    const auto tokenizer = Tokenizer::load(dir.write("t.gguf", writer.file()));
    EXPECT_EQ(id_hashes(*tokenizer, texts, data.at("group").get<size_t>(), false),
              entry.at("hashes").get<std::vector<std::string>>())
        << pre;
    if (pre == "qwen2") continue;  // NFC changes the text
    for (size_t i = 0; i < 50; ++i) {
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(texts[i], false), false), texts[i]) << pre;
    }
  }
}

TEST(GgufTokenizers, ThoseByScoresAgreeOnRandomTexts) {
  const nlohmann::json data = fixtures();
  const std::vector<std::string> texts = random_texts(data);
  const TestDirectory dir;
  for (const auto& [name, entry] : data.at("by_scores").items()) {
    GgufWriter writer = by_scores(entry.at("vocabulary").get<std::string>());
    writer.add("tokenizer.ggml.add_space_prefix", entry.at("prefix").get<bool>());
    const auto tokenizer = Tokenizer::load(dir.write("t.gguf", writer.file()));
    EXPECT_EQ(id_hashes(*tokenizer, texts, data.at("group").get<size_t>(), false),
              entry.at("hashes").get<std::vector<std::string>>())
        << name;
  }
}

// As llama.cpp: a special token is found in a text, and the text behind it is tokenized as if it began there.
TEST(GgufTokenizers, SpecialPiecesAreFoundInATextAndASpaceFollows) {
  const TestDirectory dir;
  const auto tokenizer = Tokenizer::load(dir.write("t.gguf", by_scores("sentencepiece_bpe").file()));
  const std::vector<int32_t> word = tokenizer->encode("the", false);
  std::vector<int32_t> expected = {1};  // the BOS is added without a key that says so
  expected.insert(expected.end(), word.begin(), word.end());
  EXPECT_EQ(tokenizer->encode("the"), expected);
  expected.push_back(2);
  expected.insert(expected.end(), word.begin(), word.end());
  EXPECT_EQ(tokenizer->encode("the</s>the"), expected);
  EXPECT_EQ(tokenizer->decode(expected), "the the");
  EXPECT_EQ(tokenizer->encode(""), std::vector<int32_t>{1});
  // The result of llama.cpp for this vocabulary.
  EXPECT_EQ(tokenizer->encode("the</s>the"), (std::vector<int32_t>{1, 263, 2, 263}));
  EXPECT_EQ(tokenizer->encode("</s> the"), (std::vector<int32_t>{1, 2, 259, 322}));
  EXPECT_EQ(tokenizer->encode("a<s>b"), (std::vector<int32_t>{1, 265, 1, 286}));
  EXPECT_EQ(tokenizer->encode("<unk>a"), (std::vector<int32_t>{1, 0, 265}));
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
}

TEST(GgufTokenizers, BadKeysAreRefusedByName) {
  const TestDirectory dir;
  const auto error = [&](const GgufWriter& writer) {
    return checkpoint_error([&] { Tokenizer::load(dir.write("t.gguf", writer.file())); });
  };
  const auto small = [](const char* model, const std::vector<std::string>& tokens) {
    GgufWriter writer;
    writer.add("tokenizer.ggml.model", model);
    writer.add("tokenizer.ggml.pre", "gpt-2");
    writer.add("tokenizer.ggml.tokens", tokens);
    return writer;
  };
  expect_contains(error(small("gpt2", {"a", "a"})), "occur once");
  expect_contains(error(small("gpt2", {"a", ""})), "token 1");
  expect_contains(error(small("gpt2", {"a", "\xFF"})), "UTF-8");
  expect_contains(error(small("gpt2", {"a"})), "tokenizer.ggml.merges");
  expect_contains(error(small("llama", {"a"})), "tokenizer.ggml.scores");
  expect_contains(error(small("bert", {"a"})), "supported are gpt2");
  GgufWriter writer = small("gpt2", {"a", "b", "ab"});
  writer.add("tokenizer.ggml.merges", std::vector<std::string>{"a b", "b a"});
  expect_contains(error(writer), "\"ba\" is not a token");
  writer = small("gpt2", {"a"});
  writer.add("tokenizer.ggml.merges", std::vector<std::string>{" a"});
  expect_contains(error(writer), "two texts");
  writer = small("gpt2", {"a"});
  writer.add("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1});
  expect_contains(error(writer), "as many as tokens");
  writer = small("gpt2", {"a"});
  writer.add("tokenizer.ggml.merges", std::vector<std::string>{});
  writer.add("tokenizer.ggml.add_bos_token", true);
  expect_contains(error(writer), "asks for a token");
  writer.add("tokenizer.ggml.bos_token_id", 1u);
  expect_contains(error(writer), "tokenizer.ggml.bos_token_id");
  writer = small("llama", {"a", "b"});
  writer.add("tokenizer.ggml.scores", std::vector<float>{0.0F, std::numeric_limits<float>::quiet_NaN()});
  expect_contains(error(writer), "is not a number for token 1");
  writer = small("llama", {"a", "b"});
  writer.add("tokenizer.ggml.bos_token_id", 1u);
  writer.add("tokenizer.ggml.scores", std::vector<float>{0.0F, 0.0F});
  expect_contains(error(writer), "unknown piece");
  writer.add("tokenizer.ggml.token_type", std::vector<int32_t>{2, 7});
  expect_contains(error(writer), "expected 1 to 6");
}

}  // namespace
}  // namespace anyaccel::llm
