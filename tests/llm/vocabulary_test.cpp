// A tokenizer and a model of different sizes: tokens beyond the model's vocabulary are refused when loading, but for those
// that a model can do without; a larger model is usual; and ids that a model does not have are refused before it runs.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "anyaccel/llm/text_generation.h"
#include "llm/test_directory.h"

namespace anyaccel::llm {
namespace {

using Json = nlohmann::json;
using testing::checkpoint_error;
using testing::expect_contains;
using testing::TestDirectory;

// The model llama_gqa, which has 320 rows and as many tokens, with other tokenizer files.
class Vocabulary : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path source = std::filesystem::path(ANYACCEL_TEST_DATA) / "models" / "llama_gqa";
    for (const char* name : {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}) {
      std::filesystem::copy_file(source / name, dir_.path() / name);
    }
  }
  TextGenerator load() { return TextGenerator::load(dir_.path().string()); }
  void set_config(const Json& config) { dir_.write("tokenizer_config.json", config.dump()); }
  static Json chat_tokens() {
    return {{"320", {{"content", "<|im_start|>"}, {"special", true}}},
            {"321", {{"content", "<|im_end|>"}, {"special", true}}}};
  }

  TestDirectory dir_;
};

TEST_F(Vocabulary, TokensBeyondTheModelAreRefused) {
  EXPECT_NO_THROW(load());
  set_config({{"added_tokens_decoder", chat_tokens()}});
  const std::string message = checkpoint_error([&] { load(); });
  expect_contains(message,
                  "the tokenizer has 2 tokens beyond the model's vocabulary of 320 (vocab_size of config.json)");
  expect_contains(message, "the first is the id 320 (\"<|im_start|>\")");
}

TEST_F(Vocabulary, APaddingTokenBeyondTheModelIsOnlyRefusedInAPrompt) {
  set_config({{"pad_token", "[PAD]"}});
  dir_.write("added_tokens.json", R"({"[PAD]": 320})");
  TextGenerator generator = load();
  GenerateOptions options;
  options.max_new_tokens = 2;
  EXPECT_EQ(generator.generate(std::vector<std::string>{"The"}, options).completions.size(), 1u);
  try {
    generator.generate(std::vector<std::string>{"The", "a[PAD]"}, options);
    ADD_FAILURE() << "expected an InvalidArgument";
  } catch (const InvalidArgument& error) {
    expect_contains(error.what(), "prompt 1 has the id 320 (\"[PAD]\"); the model's vocabulary has the ids 0 to 319");
  }
  for (const int32_t id : {-1, 320, 1 << 30}) {
    EXPECT_THROW(generator.generate_ids(std::vector<std::vector<int32_t>>{{1, id}}, options), InvalidArgument);
  }
}

TEST_F(Vocabulary, AModelWithMoreRowsThanTokensIsUsual) {
  Json tokenizer = Json::parse(testing::read_text(dir_.path() / "tokenizer.json"));
  Json& vocabulary = tokenizer["model"]["vocab"];
  // Without the last tokens, and the merges that make them.
  std::vector<std::string> gone;
  for (const auto& [token, id] : vocabulary.items()) {
    if (id >= 310) gone.push_back(token);
  }
  for (const std::string& token : gone) vocabulary.erase(token);
  Json merges = Json::array();
  for (const Json& merge : tokenizer["model"]["merges"]) {
    const std::string left = merge.is_array() ? merge[0].get<std::string>() : "";
    const std::string right = merge.is_array() ? merge[1].get<std::string>() : "";
    ASSERT_TRUE(merge.is_array());
    if (vocabulary.contains(left) && vocabulary.contains(right) && vocabulary.contains(left + right))
      merges.push_back(merge);
  }
  tokenizer["model"]["merges"] = merges;
  dir_.write("tokenizer.json", tokenizer.dump());
  EXPECT_EQ(load().tokenizer()->vocab_size(), 310);
}

}  // namespace
}  // namespace anyaccel::llm
