// Tokenizers against what Hugging Face tokenizers and Google sentencepiece gave for the same files: every directory of
// tests/data/tokenizers, encoding, decoding, and decoding as a stream.
#include "anyaccel/llm/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/text/json.h"
#include "base/text/utf8.h"
#include "cpu_time_growth.h"
#include "llm/test_directory.h"
#include "this_build.h"

namespace anyaccel::llm {
namespace {

using testing::checkpoint_error;
using testing::expect_contains;
using testing::TestDirectory;

const std::filesystem::path tokenizer_folders = std::filesystem::path(ANYACCEL_TEST_DATA) / "tokenizers";
constexpr size_t max_cases_bytes = 16 << 20;

std::vector<std::filesystem::path> directories() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(tokenizer_folders)) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<int32_t> read_ids(const JsonRef& list) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < list.size(); ++i) ids.push_back(static_cast<int32_t>(list[i].integer(0, INT32_MAX)));
  return ids;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special) {
  StreamDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) {
    const std::string part = decoder.push(id);
    EXPECT_TRUE(is_valid_utf8(part));
    text += part;
  }
  return text + decoder.finish();
}

TEST(Tokenizer, EncodesAsTheReferenceDoes) {
  size_t cases = 0;
  for (const auto& dir : directories()) {
    const auto tokenizer = Tokenizer::load(dir);
    const JsonDocument document = JsonDocument::load(dir / "cases.json", max_cases_bytes);
    for (size_t i = 0; i < document.root().size(); ++i) {
      const JsonRef test = document.root()[i];
      SCOPED_TRACE(dir.filename().string() + " case " + std::to_string(i) + ": " +
                   quote_text(test.at("text").string()));
      const std::string& text = test.at("text").string();
      EXPECT_EQ(tokenizer->encode(text), read_ids(test.at("ids")));
      EXPECT_EQ(tokenizer->encode(text, false), read_ids(test.at("ids_no_special")));
      EXPECT_EQ(tokenizer->decode(read_ids(test.at("ids"))), test.at("decoded").string());
      EXPECT_EQ(streamed(*tokenizer, read_ids(test.at("ids")), true), test.at("decoded").string());
      ++cases;
    }
  }
  EXPECT_GE(cases, 700u);
}

TEST(Tokenizer, DecodesAsTheReferenceDoes) {
  size_t cases = 0;
  for (const auto& dir : directories()) {
    const auto tokenizer = Tokenizer::load(dir);
    const JsonDocument document = JsonDocument::load(dir / "decode_cases.json", max_cases_bytes);
    for (size_t i = 0; i < document.root().size(); ++i) {
      SCOPED_TRACE(dir.filename().string() + " case " + std::to_string(i));
      const JsonRef test = document.root()[i];
      const std::vector<int32_t> ids = read_ids(test.at("ids"));
      EXPECT_EQ(tokenizer->decode(ids), test.at("decoded").string());
      EXPECT_EQ(streamed(*tokenizer, ids, true), test.at("decoded").string());
      if (test.has("decoded_all")) {
        EXPECT_EQ(tokenizer->decode(ids, false), test.at("decoded_all").string());
        EXPECT_EQ(streamed(*tokenizer, ids, false), test.at("decoded_all").string());
      }
      ++cases;
    }
  }
  EXPECT_GE(cases, 700u);
}

TEST(Tokenizer, KnowsItsTokens) {
  for (const auto& dir : directories()) {
    SCOPED_TRACE(dir.string());
    const auto tokenizer = Tokenizer::load(dir);
    ASSERT_GT(tokenizer->vocab_size(), 256);
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
      const auto token = tokenizer->id_to_token(id);
      ASSERT_TRUE(token.has_value()) << id;
      EXPECT_EQ(tokenizer->token_to_id(*token), id);
    }
    EXPECT_FALSE(tokenizer->id_to_token(-1).has_value());
    EXPECT_FALSE(tokenizer->id_to_token(static_cast<int32_t>(tokenizer->vocab_size())).has_value());
    EXPECT_FALSE(tokenizer->token_to_id("no such token").has_value());
    EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{-1, INT32_MAX}), "");
  }
}

// The ids are those of Hugging Face tokenizers 0.23, which takes the last id of a token and the score that belongs to it.
TEST(Tokenizer, TheLastOfEqualUnigramTokensCounts) {
  const auto tokenizer = Tokenizer::parse_json(
      R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["a", -1.0], ["b", -2.0], ["ab", -2.0],
          ["c", -1.0], ["ab", -9.0], ["bc", -8.0], ["c", -1.0], ["bc", -1.5], ["a", -1.25]]}})",
      "tokenizer.json");
  EXPECT_EQ(tokenizer->encode("abc"), (std::vector<int32_t>{9, 8}));
  EXPECT_EQ(tokenizer->encode("aabbcc"), (std::vector<int32_t>{9, 9, 2, 8, 7}));
  EXPECT_EQ(tokenizer->encode("bcx"), (std::vector<int32_t>{8, 0}));
  EXPECT_EQ(tokenizer->token_to_id("ab"), 5);
  EXPECT_EQ(tokenizer->id_to_token(3), "ab");
}

// Components whose settings the stored tokenizers do not have, against Hugging Face tokenizers 0.23.3. Words of the vocabulary are
// tokens as a whole, so that the pieces show.
TEST(Tokenizer, SettingsOfComponents) {
  struct Case {
    const char *normalizer, *pre_tokenizer, *merges, *text;
    std::vector<const char*> tokens;
  };
  const std::string bert = R"({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, )";
  const std::string keeps_case = bert + R"("strip_accents": null, "lowercase": false})";
  const std::string lowers = bert + R"("strip_accents": null, "lowercase": true})";
  const char* const first_word = R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"String": "b"},
    "behavior": "Isolated", "invert": false}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first",
    "split": false}]})";
  const Case cases[] = {
      {keeps_case.c_str(), "null", "", "éa", {"é", "a"}},
      {lowers.c_str(), "null", "", "éa", {"e", "a"}},
      {keeps_case.c_str(), "null", "", "a\U0002B820b", {"a\U0002B820b"}},
      {R"({"type": "Nmt"})", "null", "", "a▁b", {"a b"}},
      {"null", R"({"type": "Digits", "individual_digits": false})", "", "a12b", {"a", "12", "b"}},
      {"null", R"({"type": "Digits", "individual_digits": true})", "", "a12b", {"a", "1", "2", "b"}},
      {"null", first_word, "", "abc", {"▁a", "b", "c"}},
      {"null", "null", R"("#version: 0.2", "a c")", "acb", {"ac", "b"}},
  };
  for (const Case& each : cases) {
    const std::string json = std::string(R"({"added_tokens": [], "normalizer": )") + each.normalizer +
                             R"(, "pre_tokenizer": )" + each.pre_tokenizer +
                             R"(, "post_processor": null, "decoder": null, "model": {"type": "BPE", "unk_token": "?",
      "ignore_merges": true, "vocab": {"?": 0, "a": 1, "b": 2, "c": 3, "e": 4, "é": 5, "1": 6, "2": 7, "12": 8, " ": 9, "▁": 10,
      "▁a": 11, "a𫠠b": 12, "a b": 13, "ac": 14}, "merges": [)" +
                             each.merges + "]}}";
    const auto tokenizer = Tokenizer::parse_json(json, "tokenizer.json");
    std::vector<std::string> tokens;
    for (const int32_t id : tokenizer->encode(each.text)) tokens.push_back(tokenizer->id_to_token(id).value_or("none"));
    EXPECT_EQ(tokens, std::vector<std::string>(each.tokens.begin(), each.tokens.end())) << json << " " << each.text;
  }
}

TEST(Tokenizer, BrokenUtf8IsReplaced) {
  for (const auto& dir : directories()) {
    SCOPED_TRACE(dir.string());
    const auto tokenizer = Tokenizer::load(dir);
    EXPECT_EQ(tokenizer->encode("a\xff z"), tokenizer->encode("a\xEF\xBF\xBD z"));
    EXPECT_EQ(tokenizer->encode("\xf0\x9f\x98"), tokenizer->encode("\xEF\xBF\xBD"));
    std::string all;
    for (int i = 0; i < 1024; ++i) all += static_cast<char>((i * 37) ^ (i >> 8));
    EXPECT_NO_THROW(tokenizer->encode(all));
    EXPECT_NO_THROW(tokenizer->encode(std::string(3, '\0')));
  }
}

// Long words and long runs must not take time that grows with the square of their length.
TEST(Tokenizer, LongTextsAreQuick) {
  // The address sanitizer is slower by a factor that does not depend on the length.
  const size_t bytes = test::sanitizer() == test::Sanitizer::address ? 1 << 15 : 1 << 18;
  std::vector<std::string> texts = {std::string(bytes, 'a'), std::string(bytes, ' '), std::string(bytes, '\n'), ""};
  for (size_t i = 0; i < bytes / 4; ++i) texts[3] += "\xCC\x81\xCC\x96";  // marks that normalization must sort
  for (const auto& dir : directories()) {
    const auto tokenizer = Tokenizer::load(dir);
    for (const std::string& text : texts) {
      SCOPED_TRACE(dir.string());
      const double growth = anyaccel::testing::cpu_time_growth(text.size(), [&](size_t size) {
        EXPECT_LE(tokenizer->encode(text.substr(0, size), false).size(), size + 1);
      });
      EXPECT_LT(growth, anyaccel::testing::kMostGrowth);
    }
  }
}

TEST(Tokenizer, ManyThreadsAtOnce) {
  for (const auto& dir : directories()) {
    const auto tokenizer = Tokenizer::load(dir);
    const std::string text = testing::read_text(dir / "cases.json").substr(0, 3000);
    const std::vector<int32_t> expected = tokenizer->encode(text);
    std::vector<std::thread> threads;
    std::vector<int> same(4, 0);
    for (size_t i = 0; i < same.size(); ++i) {
      threads.emplace_back([&, i] { same[i] = tokenizer->encode(text) == expected ? 1 : 0; });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(same, std::vector<int>(4, 1)) << dir;
  }
}

TEST(StreamDecoder, GivesWholeCharactersEarly) {
  const auto tokenizer = Tokenizer::load(tokenizer_folders / "llama3_style");
  const std::vector<int32_t> ids = tokenizer->encode(
      "a\xF0\x9F\x98\x80"
      "b",
      false);
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.push(ids[0]), "a");
  StreamDecoder moved = std::move(decoder);
  std::string rest;
  for (size_t i = 1; i < ids.size(); ++i) rest += moved.push(ids[i]);
  EXPECT_EQ(rest,
            "\xF0\x9F\x98\x80"
            "b");
  EXPECT_EQ(moved.finish(), "");
}

TEST(StreamDecoder, LongRunsOfBytesComeOut) {
  const auto tokenizer = Tokenizer::load(tokenizer_folders / "llama2_style");
  const int32_t byte = *tokenizer->token_to_id("<0x41>");
  StreamDecoder decoder(*tokenizer);
  std::string text;
  for (int i = 0; i < 100; ++i) text += decoder.push(byte);
  EXPECT_GE(text.size(), 60u);
  text += decoder.finish();
  EXPECT_EQ(text, std::string(100, 'A'));
}

TEST(Tokenizer, SpecialTokensFromTheConfiguration) {
  const TestDirectory dir;
  std::filesystem::copy_file(tokenizer_folders / "llama3_style" / "tokenizer.json", dir.path() / "tokenizer.json");
  EXPECT_FALSE(Tokenizer::load(dir.path())->bos_id().has_value());
  dir.write("tokenizer_config.json",
            R"({"bos_token": "<|begin_of_text|>", "eos_token": {"content": "<|eot_id|>"}, "add_bos_token": false})");
  EXPECT_EQ(Tokenizer::load(dir.path())->bos_id(), 906);
  EXPECT_EQ(Tokenizer::load(dir.path())->eos_id(), 911);
  dir.write("tokenizer_config.json", R"({"bos_token": 7})");
  expect_contains(checkpoint_error([&] { Tokenizer::load(dir.path()); }), "bos_token");
}

TEST(Tokenizer, SentencePieceEndsFromTheConfiguration) {
  const TestDirectory dir;
  std::filesystem::copy_file(tokenizer_folders / "sentencepiece_bpe" / "tokenizer.model",
                             dir.path() / "tokenizer.model");
  const std::vector<int32_t> plain = Tokenizer::load(dir.path())->encode("the", false);
  dir.write("tokenizer_config.json", R"({"add_bos_token": false, "add_eos_token": true})");
  const auto tokenizer = Tokenizer::load(dir.path());
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  std::vector<int32_t> expected = plain;
  expected.push_back(2);
  EXPECT_EQ(tokenizer->encode("the"), expected);
}

TEST(Tokenizer, MissingFiles) {
  const TestDirectory dir;
  expect_contains(checkpoint_error([&] { Tokenizer::load(dir.path()); }),
                  "expected tokenizer.json, tokenizer.model, vocab.json");
}

}  // namespace
}  // namespace anyaccel::llm
