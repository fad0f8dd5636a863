// Prompts kept in files: the text with and without is the same, and files that do not belong are refused and kept.
#include "llm/generate/prompt_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/session.h"
#include "anyaccel/llm/text_generation.h"
#include "llm/gguf_writer.h"
#include "llm/model_fixtures.h"
#include "llm/test_directory.h"
#include "llm/thread_ranks.h"

namespace anyaccel::llm {
namespace {

const std::string stories = std::string(ANYACCEL_SOURCE_DIR) + "/models/stories";

class PromptCaches : public ::testing::Test {
 protected:
  static TextGenerator load(const std::string& model = stories, DType dtype = DType::F32) {
    LoadOptions options;
    options.dtype = dtype;
    return TextGenerator::load(model, options);
  }
  GenerateOptions options(TextGenerator& generator) const {
    GenerateOptions made = generator.default_options();
    made.max_new_tokens = 12;
    made.deterministic = get_accelerator()->name() == "cpu";
    return made;
  }
  // Returns the message of the error that generating with the file gives.
  static std::string message(TextGenerator& generator, const GenerateOptions& options) {
    try {
      generator.generate(std::vector<std::string>{"Once upon a time"}, options);
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "no error";
  }

  anyaccel::testing::TemporaryDirectory folder_;
  const std::string file_ = folder_.path() + "/prompt.cache";
};

TEST_F(PromptCaches, TheTextIsTheSameAndTokensAreNotRunAgain) {
  const std::string prompt = "Once upon a time there was a little cat who liked to sing";
  for (const CacheType type : {CacheType::Model, CacheType::Int8}) {
    std::filesystem::remove(file_);
    TextGenerator generator = load();
    GenerateOptions plain = options(generator);
    plain.cache = type;
    GenerateOptions kept = plain;
    kept.prompt_cache = file_;
    std::optional<TextGenerator> other;
    bool first = true;
    for (const char* more : {"", " and", " and dance", ""}) {
      const std::vector<std::string> prompts = {prompt + more};
      const Completion expected = generator.generate(prompts, plain).completions[0];
      other.emplace(load());  // nothing in memory
      const GenerateResult result = other->generate(prompts, kept);
      EXPECT_EQ(result.completions[0].token_ids, expected.token_ids) << more;
      const auto length = static_cast<int64_t>(expected.prompt_ids.size());
      if (first) {
        EXPECT_EQ(result.timings.prompt_tokens, length);
      } else {
        EXPECT_LE(result.timings.prompt_tokens, 4) << more;
      }
      first = false;
    }
    // A prompt with another end, and one that has nothing in common.
    for (const std::string& text : {prompt.substr(0, 30) + " dog", std::string("The sun")}) {
      const std::vector<std::string> prompts = {text};
      EXPECT_EQ(other->generate(prompts, kept).completions[0].text,
                generator.generate(prompts, plain).completions[0].text);
    }
  }
}

TEST_F(PromptCaches, FilesThatDoNotBelongAreRefusedAndKept) {
  TextGenerator generator = load();
  GenerateOptions kept = options(generator);
  kept.prompt_cache = file_;
  generator.generate(std::vector<std::string>{"Once upon a time"}, kept);
  const std::string good = testing::read_text(file_);
  EXPECT_EQ(message(generator, kept), "no error");
  EXPECT_EQ(testing::read_text(file_), good);

  // Another dtype, and the same files with one changed weight.
  TextGenerator half = load(stories, DType::BF16);
  EXPECT_NE(message(half, kept).find("the prompt cache was made with another model"), std::string::npos);
  const std::string copy = folder_.path() + "/model";
  std::filesystem::copy(stories, copy, std::filesystem::copy_options::recursive);
  {
    std::fstream weights(copy + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    weights.seekp(-100, std::ios::end);
    weights.write("\x01\x3c", 2);
  }
  TextGenerator changed = load(copy);
  EXPECT_NE(message(changed, kept).find("the prompt cache was made with another model"), std::string::npos);
  EXPECT_EQ(testing::read_text(file_), good);

  const auto write = [&](const std::string& bytes) { std::ofstream(file_, std::ios::binary) << bytes; };
  const auto expect = [&](const std::string& bytes, const char* part) {
    write(bytes);
    EXPECT_NE(message(generator, kept).find(part), std::string::npos) << message(generator, kept);
    EXPECT_EQ(testing::read_text(file_), bytes);
  };
  expect("a text of mine\n", "this is not a prompt cache of anyaccel");
  std::string other_version = good;
  other_version[std::string("anyaccel prompt cache ").size()] = '2';
  expect(other_version, "was written by another version of anyaccel");
  expect(good + "x", "the prompt cache is damaged");
  expect("", "this is not a prompt cache of anyaccel");
  expect(good.substr(0, 30), "the prompt cache is damaged");
  expect(good.substr(0, good.size() - 1), "the prompt cache is damaged");
  std::string flipped = good;
  flipped[flipped.size() - 100] = static_cast<char>(flipped[flipped.size() - 100] ^ 1);
  expect(flipped, "the prompt cache is damaged");
}

// Nothing is allocated for what a header promises.
TEST_F(PromptCaches, HugeFilesAreRefusedUnread) {
  TextGenerator generator = load();
  GenerateOptions kept = options(generator);
  kept.prompt_cache = file_;
  generator.generate(std::vector<std::string>{"Once upon a time"}, kept);
  std::filesystem::resize_file(file_, uintmax_t{1} << 40);  // sparse
  EXPECT_NE(message(generator, kept).find("the prompt cache is damaged"), std::string::npos);
}

TEST_F(PromptCaches, KindsOfCachesAndAdaptersHaveFilesOfTheirOwn) {
  TextGenerator generator = load();
  GenerateOptions kept = options(generator);
  kept.prompt_cache = file_;
  generator.generate(std::vector<std::string>{"Once upon a time"}, kept);
  kept.cache = CacheType::Int8;
  EXPECT_NE(message(generator, kept).find("made with another model, adapter, dtype or kind of cache"),
            std::string::npos);
  const std::string data = ANYACCEL_TEST_DATA;
  const std::string plain = model_identity(data + "/models/llama_gqa", "", "fp32");
  EXPECT_EQ(plain, model_identity(data + "/models/llama_gqa", "", "fp32"));
  EXPECT_NE(plain, model_identity(data + "/models/llama_gqa", data + "/adapters/llama_rslora", "fp32"));
  // The factor of an adapter is in its configuration alone.
  const std::string copy = folder_.path() + "/adapter";
  std::filesystem::copy(data + "/adapters/llama_rslora", copy);
  const std::string same = model_identity(data + "/models/llama_gqa", copy, "fp32");
  std::ofstream(copy + "/adapter_config.json", std::ios::app) << "\n";
  EXPECT_NE(same, model_identity(data + "/models/llama_gqa", copy, "fp32"));
}

TEST_F(PromptCaches, ActivationsAndNamedAdaptersHaveFilesOfTheirOwn) {
  const std::string model = std::string(ANYACCEL_TEST_DATA) + "/models/llama_gqa";
  const auto loaded = [&](Activations activations) {
    LoadOptions options;
    options.dtype = DType::BF16;
    options.activations = activations;
    for (const char* name : {"llama_patterns", "llama_other"}) {
      options.adapters.push_back({name, std::string(ANYACCEL_TEST_DATA) + "/adapters/" + name});
    }
    return TextGenerator::load(model, options);
  };
  const auto belongs = [&](TextGenerator& generator, const std::vector<std::string>& adapters) {
    GenerateOptions kept = options(generator);
    kept.prompt_cache = file_;
    kept.adapters = adapters;
    return message(generator, kept) == "no error";
  };
  TextGenerator exact = loaded(Activations::F32), rounded = loaded(Activations::BF16);
  EXPECT_TRUE(belongs(exact, {"llama_patterns"}));
  EXPECT_TRUE(belongs(exact, {"llama_patterns"}));
  EXPECT_FALSE(belongs(exact, {"llama_other"}));
  EXPECT_FALSE(belongs(exact, {}));
  EXPECT_FALSE(belongs(rounded, {"llama_patterns"}));
}

// Two models of the same sizes may differ in one matrix, or in a part of a split file that is not the first.
TEST(PromptCacheIdentity, ContainsEveryPartOfTheWeights) {
  const testing::TestDirectory folder;
  constexpr size_t matrix = size_t{1} << 16;
  std::string weights(matrix * 256, 'a');
  folder.write("model.safetensors", weights);
  const std::string before = model_identity(folder.path().string(), "", "fp32");
  std::fill_n(weights.begin() + 41 * matrix, matrix, 'b');
  folder.write("model.safetensors", weights);
  EXPECT_NE(before, model_identity(folder.path().string(), "", "fp32"));

  const auto part = [](uint32_t number, const char* value) {
    testing::GgufWriter writer;
    writer.add("split.no", number);
    writer.add("split.count", 2u);
    writer.add_tensor(number == 0 ? "a" : "b", {1}, 0, value);
    return writer.file();
  };
  const std::string first = folder.write("m-00001-of-00002.gguf", part(0, "1234")).string();
  folder.write("m-00002-of-00002.gguf", part(1, "1234"));
  const std::string split = model_identity(first, "", "fp32");
  folder.write("m-00002-of-00002.gguf", part(1, "1235"));
  EXPECT_NE(split, model_identity(first, "", "fp32"));
}

TEST_F(PromptCaches, ModelsOverRanksAndWithPositionsOfTheirLengthAreRefused) {
  const auto refused = [](const std::shared_ptr<const Model>& model) {
    SessionOptions options;
    options.context = 16;
    Session session(model, options);
    EXPECT_THROW(session.token_cache_bytes(), NotImplementedError);
    EXPECT_THROW(session.cache_contents(0, 1), NotImplementedError);
  };
  refused(Model::load(std::string(ANYACCEL_TEST_DATA) + "/models/llama_dynamic"));
  if (!get_accelerator()->is_host_coherent()) return;
  anyaccel::testing::run_ranks(2, [&](const std::shared_ptr<comm::ProcessGroup>& group) {
    LoadOptions options;
    options.group = group;
    TextGenerator generator = TextGenerator::load(stories, options);
    GenerateOptions kept = generator.default_options();
    kept.prompt_cache = file_;
    EXPECT_THROW(generator.generate(std::vector<std::string>{"a"}, kept), NotImplementedError);
  });
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST_F(PromptCaches, RefuseWhatTheyAreNotFor) {
  TextGenerator generator = load();
  GenerateOptions kept = options(generator);
  kept.prompt_cache = file_;
  EXPECT_THROW(generator.generate(std::vector<std::string>{"a", "b"}, kept), InvalidArgument);
  kept.reuse_cache = true;
  EXPECT_THROW(generator.generate(std::vector<std::string>{"a"}, kept), InvalidArgument);
  kept.reuse_cache = false;
  kept.prompt_cache = folder_.path() + "/missing/prompt.cache";
  EXPECT_THROW(generator.generate(std::vector<std::string>{"a"}, kept), CheckpointError);
}

}  // namespace
}  // namespace anyaccel::llm
