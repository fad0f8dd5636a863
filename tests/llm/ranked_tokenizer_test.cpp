// tiktoken's files, tekken.json, and vocab.json with merges.txt against tiktoken, mistral-common and transformers on random
// texts (tests/data/ranked_tokenizers.json, made by tools/ranked_tokenizer_fixtures.py), and damaged files.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "anyaccel/llm/tokenizer.h"
#include "llm/random_texts.h"
#include "llm/test_directory.h"

namespace anyaccel::llm {
namespace {

using namespace testing;
using nlohmann::json;

const std::filesystem::path data_folder = ANYACCEL_TEST_DATA;

json ranked_reference() { return json::parse(std::ifstream(data_folder / "ranked_tokenizers.json")); }

std::string tiktoken_file(const json& ranks) {
  std::string text;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    text += ranks[rank].get<std::string>() + ' ' + std::to_string(rank) + '\n';
  }
  return text;
}

json tekken_file(const json& ranks, json content) {
  content["vocab"] = json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    content["vocab"].push_back({{"rank", rank}, {"token_bytes", ranks[rank]}, {"token_str", nullptr}});
  }
  return content;
}

// Writes the vocabulary and merges of a tokenizer.json as GPT-2's two files.
void write_merges(const TestDirectory& dir) {
  const json model = json::parse(std::ifstream(data_folder / "tokenizers/llama3_style/tokenizer.json")).at("model");
  dir.write("vocab.json", model.at("vocab").dump());
  std::string merges = "#version: 0.2\n";
  for (const json& merge : model.at("merges")) {
    merges +=
        merge.is_string() ? merge.get<std::string>() : merge[0].get<std::string>() + ' ' + merge[1].get<std::string>();
    merges += '\n';
  }
  dir.write("merges.txt", merges);
}

void write_directory(const json& ranks, const json& entry, const TestDirectory& dir) {
  const std::string file = entry.at("file");
  if (file == "tekken.json") {
    dir.write(file, tekken_file(ranks, entry.at("content")).dump());
  } else if (file == "vocab.json") {
    write_merges(dir);
  } else {
    dir.write(file, tiktoken_file(ranks));
  }
  const json others = entry.value("others", json::object());
  for (const auto& [name, content] : others.items()) dir.write(name, content.dump());
}

TEST(RankedTokenizers, AgreeWithTheirLibrariesOnRandomTexts) {
  const json data = ranked_reference();
  const std::vector<std::string> texts = random_texts(data);
  for (const json& entry : data.at("tokenizers")) {
    SCOPED_TRACE(entry.at("file").get<std::string>() + " " + entry.value("others", json::object()).dump());
    const TestDirectory dir;
    write_directory(data.at("ranks"), entry, dir);
    const auto tokenizer = Tokenizer::load(dir.path());
    EXPECT_EQ(id_hashes(*tokenizer, texts, data.at("group"), true), entry.at("hashes").get<std::vector<std::string>>());
    for (const json& test : entry.at("cases")) {
      const auto ids = test[1].get<std::vector<int32_t>>();
      EXPECT_EQ(tokenizer->encode(test[0].get<std::string>()), ids) << test[0];
    }
    if (entry.contains("size")) {
      EXPECT_EQ(tokenizer->vocab_size(), entry.at("size"));
    }
    // Text survives, but for Unicode's composed forms, and the space that add_prefix_space puts before it.
    size_t same = 0;
    for (size_t i = 0; i < 200; ++i) {
      const std::string text = tokenizer->decode(tokenizer->encode(texts[i]));
      same += text == texts[i] || text == ' ' + texts[i] ? 1 : 0;
    }
    EXPECT_GT(same, entry.at("file") == "qwen.tiktoken" || entry.value("class", "") == "Qwen2Tokenizer" ? 100u : 199u);
  }
}

// Tokens that can be made in two ways: "zzz" of "z" and "zz" or of "zz" and "z". The leftmost pair merges.
TEST(RankedTokenizers, SpecialTokensAndEnds) {
  const json data = ranked_reference();
  for (const json& entry : data.at("tokenizers")) {
    const TestDirectory dir;
    write_directory(data.at("ranks"), entry, dir);
    const auto tokenizer = Tokenizer::load(dir.path());
    const std::string file = entry.at("file");
    if (file == "tekken.json") {
      EXPECT_EQ(tokenizer->bos_id(), 1);
      EXPECT_EQ(tokenizer->eos_id(), 2);
      EXPECT_EQ(tokenizer->id_to_token(29), "<SPECIAL_29>");
      // Special tokens are found in text, as with the tokenizer.json of the same models.
      EXPECT_EQ(tokenizer->encode("</s>[INST]", false),
                (std::vector<int32_t>{2, entry["content"].contains("special_tokens") ? 4 : 3}));
      EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{1, 30 + 'a', 2}), "a");
    } else if (file == "tokenizer.model") {
      const auto count = static_cast<int32_t>(data.at("ranks").size());
      EXPECT_EQ(tokenizer->bos_id(), count);
      EXPECT_EQ(tokenizer->eos_id(), count + 1);
      EXPECT_EQ(tokenizer->token_to_id("<|eot_id|>"), count + 9);
      EXPECT_EQ(tokenizer->encode("", false), std::vector<int32_t>());
    }
  }
  // tokenizer_config.json has other names for the tokens behind the ranks, and the ends.
  const TestDirectory dir;
  const auto count = static_cast<int32_t>(data.at("ranks").size());
  dir.write("tokenizer.model", tiktoken_file(data.at("ranks")));
  dir.write("tokenizer_config.json", json({{"tokenizer_class", "PreTrainedTokenizer"},
                                           {"add_bos_token", false},
                                           {"eos_token", "<end>"},
                                           {"added_tokens_decoder",
                                            {{std::to_string(count), {{"content", "<begin>"}, {"special", true}}},
                                             {std::to_string(count + 3), {{"content", "<end>"}, {"special", true}}}}}})
                                         .dump());
  const auto tokenizer = Tokenizer::load(dir.path());
  EXPECT_EQ(tokenizer->encode("<begin><end>"), (std::vector<int32_t>{count, count + 3}));
  EXPECT_EQ(tokenizer->eos_id(), count + 3);
  EXPECT_FALSE(tokenizer->token_to_id("<|eot_id|>"));
}

class Damaged : public ::testing::Test {
 protected:
  std::string error(const std::string& name, const std::string& content) {
    const TestDirectory dir;
    dir.write(name, content);
    return checkpoint_error([&] { Tokenizer::load(dir.path()); });
  }
  json data_ = ranked_reference();
  json ranks_ = data_.at("ranks");
  std::string good_ = tiktoken_file(ranks_);
};

TEST_F(Damaged, Tiktoken) {
  constexpr const char* name = "cl100k_base.tiktoken";
  expect_contains(error(name, good_ + "!!! 5\n"),
                  "cl100k_base.tiktoken: line 912: found \"!!! 5\"; expected a token in base64");
  expect_contains(error(name, good_ + "eg==\n"), "line 912: found \"eg==\"");
  expect_contains(error(name, good_ + "eg== x\n"), "line 912: found \"eg== x\"");
  expect_contains(error(name, good_ + "eg== 99999999999999999999\n"), "line 912: found");
  expect_contains(error(name, good_ + "enp6enp6 5\n"),
                  "line 912: the rank is 5; expected 911, in order and without gaps");
  expect_contains(error(name, good_ + "eg== 911\n"), "the token of rank 911 is that of rank 122 again");
  expect_contains(error(name, good_ + " 911\n"), "the token of rank 911 is empty");
  expect_contains(error(name, good_.substr(good_.find('\n') + 1)), "line 1: the rank is 1; expected 0");
  expect_contains(error(name, ""), "the byte 0 is no token");
  expect_contains(error(name, "eg== 0\n"), "the byte 0 is no token; expected all 256");
  expect_contains(
      error("other.tiktoken", good_),
      "neither its name nor another file tells how a text is split into words; known are Qwen (qwen.tiktoken), ");
  const TestDirectory dir;
  dir.write("tokenizer.model", good_);
  dir.write("config.json", R"({"model_type": "chatglm"})");
  expect_contains(checkpoint_error([&] { Tokenizer::load(dir.path()); }), "neither its name nor \"chatglm\" tells");
}

TEST_F(Damaged, Tekken) {
  const json good = tekken_file(ranks_, data_.at("tokenizers")[6].at("content"));
  const auto changed = [&](const std::function<void(json&)>& change) {
    json file = good;
    change(file);
    return error("tekken.json", file.dump());
  };
  expect_contains(changed([](json& f) { f.erase("config"); }), "config");
  expect_contains(changed([](json& f) { f["config"]["pattern"] = "(a"; }), "(a");
  expect_contains(changed([](json& f) { f["config"]["version"] = "v13"; }), "the version is \"v13\"");
  expect_contains(changed([](json& f) { f["config"]["default_vocab_size"] = 5; }),
                  "default_vocab_size\": expected from 30 to 941");
  expect_contains(changed([](json& f) { f["config"]["default_vocab_size"] = 942; }), "default_vocab_size");
  expect_contains(
      changed([](json& f) { f["config"]["default_num_special_tokens"] = 19, f["config"]["default_vocab_size"] = 900; }),
      "at least 20");
  expect_contains(changed([](json& f) { f["vocab"][300]["rank"] = 7; }), "vocab[300].rank\": expected 300");
  expect_contains(changed([](json& f) { f["vocab"][300]["token_bytes"] = "a"; }),
                  "vocab[300].token_bytes\": expected bytes in base64");
  expect_contains(changed([](json& f) { f["vocab"][300]["token_bytes"] = ""; }), "the token of rank 300 is empty");
  expect_contains(changed([](json& f) { f["vocab"][65]["token_bytes"] = "enp6eg=="; }), "the byte 65 is no token");
  expect_contains(changed([](json& f) {
                    f["special_tokens"] = {{{"rank", 1}, {"token_str", "<s>"}}};
                  }),
                  "special_tokens[0].rank");
  expect_contains(changed([](json& f) {
                    f["special_tokens"] = {{{"rank", 0}, {"token_str", "<s>"}}, {{"rank", 1}, {"token_str", "<s>"}}};
                  }),
                  "the special token \"<s>\" is empty or occurs twice");
  expect_contains(error("tekken.json", "[]"), "expected an object");
  expect_contains(changed([](json& f) {
                    f["vocab"].push_back({{"rank", 911}, {"token_bytes", std::string(2000, 'A')}});
                    f["config"]["default_vocab_size"] = 942;
                  }),
                  "has 1500 bytes; expected at most 1024");
}

TEST_F(Damaged, Merges) {
  const auto with = [&](const std::string& vocabulary, const std::string& merges) {
    const TestDirectory dir;
    dir.write("vocab.json", vocabulary);
    dir.write("merges.txt", merges);
    return checkpoint_error([&] { Tokenizer::load(dir.path()); });
  };
  const std::string vocabulary = R"({"a": 0, "b": 1, "ab": 2})";
  expect_contains(with(vocabulary, "a b\na\n"),
                  "merges.txt: line 2: found \"a\"; expected two tokens with a space between them");
  expect_contains(with(vocabulary, "a b c\n"), "line 1: found \"a b c\"");
  expect_contains(with(vocabulary, "a b\nb a\n"), "line 2: the merge \"b a\" needs the token \"ba\", which");
  expect_contains(with("[]", "a b\n"), "vocab.json: expected an object");
  expect_contains(with(R"({"a": 0, "b": 0})", ""), "vocab.json");
  expect_contains(with(R"({"a": 0}, "model": {})", ""), "vocab.json");
  // One of the two files alone is no tokenizer.
  expect_contains(error("vocab.json", vocabulary),
                  "has no tokenizer; expected tokenizer.json, tokenizer.model, vocab.json with merges.txt");
  expect_contains(error("merges.txt", "a b\n"), "has no tokenizer");
}

}  // namespace
}  // namespace anyaccel::llm
