// Directories whose special tokens lie in several files: tokenizer_config.json, special_tokens_map.json,
// added_tokens.json beside tokenizer.json or tokenizer.model. What comes out must be what transformers' AutoTokenizer
// gave (tests/data/tokenizer_directories, made by tools/tokenizer_directories.py), and files that contradict each other
// are refused with the names of both.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "anyaccel/llm/tokenizer.h"
#include "llm/test_directory.h"

namespace anyaccel::llm {
namespace {

using Json = nlohmann::json;
using testing::checkpoint_error;
using testing::expect_contains;
using testing::TestDirectory;

const std::filesystem::path test_data = std::filesystem::path(ANYACCEL_TEST_DATA) / "tokenizer_directories";

// Makes the files of a stored directory: shared ones are copied, the others are written.
void write_files(const Json& files, const TestDirectory& dir) {
  for (const auto& [name, content] : files.items()) {
    if (content.is_string()) {
      std::filesystem::copy_file(test_data / "shared" / content.get<std::string>(), dir.path() / name);
    } else {
      dir.write(name, content.dump());
    }
  }
}

std::vector<Json> stored_directories() {
  std::vector<Json> found;
  for (const auto& entry : std::filesystem::directory_iterator(test_data)) {
    if (!entry.is_regular_file()) continue;
    found.push_back(Json::parse(testing::read_text(entry.path())));
    found.back()["name"] = entry.path().stem().string();
  }
  return found;
}

std::string stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special) {
  StreamDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

void check_decoding(const Tokenizer& tokenizer, const Json& test) {
  const auto ids = test["ids"].get<std::vector<int32_t>>();
  EXPECT_EQ(tokenizer.decode(ids), test["decoded"].get<std::string>());
  EXPECT_EQ(stream(tokenizer, ids, true), test["decoded"].get<std::string>());
  EXPECT_EQ(tokenizer.decode(ids, false), test["decoded_all"].get<std::string>());
  EXPECT_EQ(stream(tokenizer, ids, false), test["decoded_all"].get<std::string>());
}

TEST(TokenizerDirectory, AgreesWithAutoTokenizer) {
  size_t texts = 0;
  for (const Json& stored : stored_directories()) {
    SCOPED_TRACE(stored["name"]);
    const TestDirectory dir;
    write_files(stored["files"], dir);
    const auto tokenizer = Tokenizer::load(dir.path());
    EXPECT_EQ(tokenizer->vocab_size(), stored["vocab_size"]);
    for (const auto& [token, place] : stored["added_tokens"].items()) {
      EXPECT_EQ(tokenizer->token_to_id(token), place.get<int32_t>()) << token;
    }
    const auto id = [](const Json& value) {
      return value.is_null() ? std::nullopt : std::optional<int32_t>(value.get<int32_t>());
    };
    EXPECT_EQ(tokenizer->bos_id(), id(stored["bos_id"]));
    EXPECT_EQ(tokenizer->eos_id(), id(stored["eos_id"]));
    for (const Json& test : stored["cases"]) {
      const auto text = test["text"].get<std::string>();
      SCOPED_TRACE(test["text"].dump());
      EXPECT_EQ(tokenizer->encode(text), test["ids"].get<std::vector<int32_t>>());
      EXPECT_EQ(tokenizer->encode(text, false), test["ids_no_special"].get<std::vector<int32_t>>());
      check_decoding(*tokenizer, test);
      ++texts;
    }
    for (const Json& test : stored["decode_cases"]) {
      SCOPED_TRACE(test["ids"].dump());
      check_decoding(*tokenizer, test);
    }
  }
  EXPECT_GE(texts, 1000u);
}

// -- files that contradict each other --

class Conflicts : public ::testing::Test {
 protected:
  // A vocabulary of 4 tokens, of which the last is an added one.
  static constexpr const char* json = R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": []},
      "added_tokens": [{"id": 3, "content": "<s>", "special": true, "normalized": false}], "decoder": {"type": "Fuse"}})";

  void SetUp() override { dir_.write("tokenizer.json", json); }
  std::string error(const std::string& name, const std::string& text) {
    dir_.write(name, text);
    const std::string message = checkpoint_error([&] { Tokenizer::load(dir_.path()); });
    expect_contains(message, name);
    std::filesystem::remove(dir_.path() / name);
    return message;
  }
  std::vector<std::string> notes() { return Tokenizer::load(dir_.path())->notes(); }

  TestDirectory dir_;
};

TEST_F(Conflicts, OneTokenWithTwoIds) {
  for (const auto& [name, text] :
       {std::pair("tokenizer_config.json", R"({"added_tokens_decoder": {"7": {"content": "<s>"}}})"),
        std::pair("added_tokens.json", R"({"<s>": 7})")}) {
    const std::string message = error(name, text);
    expect_contains(message, "the token \"<s>\" has the id 7 there, but 3 in ");
    expect_contains(message, "tokenizer.json; expected all files to agree");
  }
  expect_contains(error("added_tokens.json", R"({"ab": 7})"), "the token \"ab\" has the id 7 there, but 2 in ");
}

TEST_F(Conflicts, OneIdForTwoTokens) {
  expect_contains(error("tokenizer_config.json", R"({"added_tokens_decoder": {"1": {"content": "<x>"}}})"),
                  "the id 1 there, but in ");
  expect_contains(error("tokenizer_config.json", R"({"added_tokens_decoder": {"1": {"content": "<x>"}}})"),
                  "tokenizer.json that is the id of \"b\"");
  const std::string message = error("added_tokens.json", R"({"<x>": 3})");
  expect_contains(message, "the token \"<x>\" has the id 3 there, but in ");
  expect_contains(message, "tokenizer.json that is the id of \"<s>\"");
  expect_contains(error("added_tokens.json", R"({"<x>": 4, "<y>": 4})"), "the id 4 is also the id of \"<x>\"");
  expect_contains(
      error("tokenizer_config.json", R"({"added_tokens_decoder": {"4": {"content": "<x>"}, "5": {"content": "<x>"}}})"),
      "the token \"<x>\" has the id 4 too");
}

TEST_F(Conflicts, HolesBetweenIds) {
  const std::string message = error("added_tokens.json", R"({"<x>": 4, "<y>": 6})");
  expect_contains(message, "the token \"<y>\" has the id 6 there, but ");
  expect_contains(message, "the next free id behind those of ");
  expect_contains(message, "tokenizer.json is 5; expected all files to agree, and no free ids between new tokens");
}

TEST_F(Conflicts, FilesThatAreNoSuchFiles) {
  expect_contains(error("added_tokens.json", "[1]"), "an object");
  expect_contains(error("added_tokens.json", R"({"x": "y"})"), "expected");
  expect_contains(error("added_tokens.json", R"({"x": -1})"), "expected");
  expect_contains(error("added_tokens.json", R"({"x": 4294967296})"), "expected");
  expect_contains(error("added_tokens.json", R"({"": 4})"), "not empty");
  expect_contains(error("special_tokens_map.json", R"({"eos_token": 7})"), "eos_token");
  expect_contains(error("special_tokens_map.json", "{"), "special_tokens_map.json");
  expect_contains(error("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "<x>"}}})"),
                  "the id \"x\" is not a whole number");
  expect_contains(error("tokenizer_config.json", R"({"added_tokens_decoder": {"04": {"content": "<x>"}}})"), "\"04\"");
  expect_contains(error("tokenizer_config.json", R"({"added_tokens_decoder": {"4": "<x>"}})"),
                  "added_tokens_decoder.4");
  expect_contains(error("tokenizer_config.json", R"({"added_tokens_decoder": {"4": {"content": "<x>", "lstrip": 1}}})"),
                  "lstrip");
  expect_contains(error("tokenizer_config.json", R"({"legacy": "yes"})"), "legacy");
  expect_contains(error("tokenizer_config.json", R"({"extra_special_tokens": "x"})"), "extra_special_tokens");
  expect_contains(error("config.json", "[]"), "config.json");
}

TEST_F(Conflicts, WhatDoesNotCountIsNamed) {
  EXPECT_TRUE(notes().empty());
  dir_.write("tokenizer_config.json", R"({"bos_token": "<s>", "add_bos_token": true})");
  ASSERT_EQ(notes().size(), 1u);
  expect_contains(notes()[0], "add_bos_token is true, and ");
  expect_contains(notes()[0], "tokenizer.json puts no \"<s>\" before a text; tokenizer.json counts");
  dir_.write("tokenizer_config.json", R"({"tokenizer_class": "SomethingTokenizerFast", "auto_map": {}})");
  ASSERT_EQ(notes().size(), 2u);
  expect_contains(notes()[0], "\"SomethingTokenizer\"");
  expect_contains(notes()[1], "auto_map");
  dir_.write("tokenizer_config.json", R"({"added_tokens_decoder": {"3": {"content": "<s>"}}})");
  dir_.write("added_tokens.json", R"({"<x>": 4})");
  ASSERT_EQ(notes().size(), 1u);
  expect_contains(notes()[0], "added_tokens.json: the token \"<x>\" with the id 4 is not used, because ");
  std::filesystem::remove(dir_.path() / "added_tokens.json");
  dir_.write("tokenizer.json", R"({"model": {"type": "BPE", "dropout": 0.5, "vocab": {"a": 0, "b": 1, "ab": 2},
      "merges": ["a b"]}, "added_tokens": [{"id": 3, "content": "<s>"}], "decoder": {"type": "Fuse"}})");
  ASSERT_EQ(notes().size(), 1u);
  expect_contains(notes()[0], "dropout");
  EXPECT_EQ(Tokenizer::load(dir_.path())->encode("ab"), std::vector<int32_t>{2});
  // transformers heeds this for other models than BPE.
  SetUp();
  dir_.write("tokenizer_config.json", R"({"clean_up_tokenization_spaces": true})");
  EXPECT_TRUE(notes().empty());
  dir_.write("tokenizer.json", R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0], ["b", -1]]}})");
  ASSERT_EQ(notes().size(), 1u);
  expect_contains(notes()[0], "clean_up_tokenization_spaces");
}

// transformers 5.24 gives these ids. Only large vocabularies of Mistral's that older releases wrote are mended.
TEST(TokenizerDirectory, MistralsPatternIsMendedOnRequest) {
  const auto ids = [](const std::string& type, const char* version, bool mends, int tokens) {
    const TestDirectory dir;
    Json vocabulary = {{"a", 0}, {"B", 1}, {"aB", 2}};
    for (int id = 3; id < tokens; ++id) vocabulary["t" + std::to_string(id)] = id;
    const Json split = {
        {"type", "Split"}, {"pattern", {{"Regex", "\\p{L}+"}}}, {"behavior", "Isolated"}, {"invert", false}};
    const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    const Json tokenizer = {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"a B"}}}},
                            {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}},
                            {"decoder", {{"type", "ByteLevel"}}}};
    dir.write("tokenizer.json", tokenizer.dump());
    dir.write("tokenizer_config.json", Json{{"fix_mistral_regex", mends}}.dump());
    dir.write("config.json", Json{{"model_type", type}, {"transformers_version", version}}.dump());
    return Tokenizer::load(dir.path())->encode("aB");
  };
  const std::vector<int32_t> as_stored = {2}, mended = {0, 1};
  EXPECT_EQ(ids("mistral", "4.50.0", true, 100001), mended);
  EXPECT_EQ(ids("mistral", "4.50.0", true, 100000), as_stored);
  EXPECT_EQ(ids("mistral", "4.50.0", false, 100001), as_stored);
  EXPECT_EQ(ids("mistral", "5.1.0", true, 100001), as_stored);
  EXPECT_EQ(ids("llama", "4.50.0", true, 100001), as_stored);
}

// Only the class that the files name tells how a text begins.
TEST(TokenizerDirectory, SentencePieceWithoutClassKeepsItsBos) {
  const TestDirectory dir;
  std::filesystem::copy_file(test_data / "shared" / "llama.model", dir.path() / "tokenizer.model");
  const std::vector<int32_t> alone = Tokenizer::load(dir.path())->encode("Hello");
  EXPECT_EQ(alone[0], 1);
  dir.write("config.json", R"({"model_type": "mistral"})");
  const auto tokenizer = Tokenizer::load(dir.path());
  EXPECT_EQ(tokenizer->encode("Hello"), alone);
  EXPECT_EQ(tokenizer->encode("<s>Hello</s>", false).front(), 1);
  EXPECT_EQ(tokenizer->encode("<s>Hello</s>", false).back(), 2);
  EXPECT_EQ(tokenizer->bos_id(), 1);
  dir.write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
  EXPECT_NE(Tokenizer::load(dir.path())->encode("Hello")[0], 1);
  ASSERT_EQ(Tokenizer::load(dir.path())->notes().size(), 1u);
  expect_contains(Tokenizer::load(dir.path())->notes()[0], "says nothing about add_bos_token");
}

// A text that begins with the BOS gets another one, as in transformers; add_special = false leaves the text alone.
TEST(TokenizerDirectory, TextThatBeginsWithTheBos) {
  for (const Json& stored : stored_directories()) {
    const TestDirectory dir;
    write_files(stored["files"], dir);
    const auto tokenizer = Tokenizer::load(dir.path());
    const std::vector<int32_t> before = tokenizer->encode("");
    if (before.empty() || before[0] != tokenizer->bos_id()) continue;
    SCOPED_TRACE(stored["name"]);
    const std::string text = *tokenizer->id_to_token(*tokenizer->bos_id()) + "the";
    const std::vector<int32_t> ids = tokenizer->encode(text);
    EXPECT_EQ(ids[0], *tokenizer->bos_id());
    EXPECT_EQ(ids[1], *tokenizer->bos_id());
    EXPECT_EQ(tokenizer->encode(text, false)[0], *tokenizer->bos_id());
    EXPECT_NE(tokenizer->encode(text, false)[1], *tokenizer->bos_id());
  }
}

// The class merges pairs, which a Unigram model does not have.
TEST(TokenizerDirectory, UnigramAndLlamaTokenizerContradict) {
  const TestDirectory dir;
  for (const char* kind : {"model", "json"}) {
    const std::string name = std::string("tokenizer.") + kind;
    std::filesystem::copy_file(test_data / "shared" / (std::string("unigram.") + kind), dir.path() / name,
                               std::filesystem::copy_options::overwrite_existing);
    dir.write("tokenizer_config.json", R"({})");
    EXPECT_NO_THROW(Tokenizer::load(dir.path())->encode("the text")) << name;
    dir.write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
    const std::string message = checkpoint_error([&] { Tokenizer::load(dir.path()); });
    expect_contains(message, name);
    expect_contains(message, "Unigram");
  }
}

}  // namespace
}  // namespace anyaccel::llm
