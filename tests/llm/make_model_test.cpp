// Models with random weights: the files they consist of, that they load and generate, and that the weights have the
// right distribution and are the same every time.
#include "anyaccel/llm/make_model.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/safetensors.h"
#include "anyaccel/llm/text_generation.h"
#include "anyaccel/philox.h"
#include "llm/model/random_weights.h"
#include "llm/model_fixtures.h"
#include "llm/tokenizer/byte_tokenizer.h"

namespace anyaccel::llm {
namespace {

using anyaccel::testing::TemporaryDirectory;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(RandomWeights, AreNormal) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    const RandomWeights weights(1, dtype, 0.02f);
    constexpr size_t count = 1 << 20;
    std::vector<float> values(count);
    if (dtype == DType::F32) {
      weights.fill(values.data(), 3, 0, count);
    } else {
      std::vector<uint16_t> bits(count);
      weights.fill(bits.data(), 3, 0, count);
      std::transform(bits.begin(), bits.end(), values.begin(), dtype == DType::BF16 ? bf16_to_float : fp16_to_float);
    }
    double sum = 0, squares = 0, fourth = 0;
    for (const float value : values) {
      const double v = static_cast<double>(value) / 0.02;
      sum += v;
      squares += v * v;
      fourth += v * v * v * v;
    }
    EXPECT_NEAR(sum / count, 0.0, 5e-3) << dtype_name(dtype);
    EXPECT_NEAR(squares / count, 1.0, 1e-2) << dtype_name(dtype);
    EXPECT_NEAR(fourth / count, 3.0, 6e-2) << dtype_name(dtype);  // a normal distribution's
  }
}

TEST(RandomWeights, FollowPhiloxWhereverAPieceBegins) {
  const RandomWeights weights(0x123456789abcdefull, DType::F32, 1.0f);
  std::vector<float> whole(1000), part(300);
  weights.fill(whole.data(), 5, 0, whole.size());
  weights.fill(part.data(), 5, 400, part.size());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 400));
  // Half words choose quantiles, which rise with them.
  const auto words = philox4x32_10({3, 0, 5, 0}, {0x89abcdefu, 0x01234567u});
  std::vector<std::pair<uint32_t, float>> pairs;
  for (size_t i = 0; i < 8; ++i)
    pairs.emplace_back(i % 2 == 0 ? words[i / 2] & 0xffffu : words[i / 2] >> 16, whole[24 + i]);
  std::sort(pairs.begin(), pairs.end());
  EXPECT_TRUE(
      std::is_sorted(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.second < b.second; }));
  std::vector<float> other(1000);
  weights.fill(other.data(), 6, 0, other.size());
  EXPECT_NE(whole, other);
}

TEST(MadeUpTokenizer, HasEveryIdOnce) {
  std::ostringstream out;
  write_made_up_tokenizer(out, 20000);
  const auto json = nlohmann::json::parse(out.str());
  const auto& vocab = json.at("model").at("vocab");
  EXPECT_EQ(vocab.size(), 20000u);  // equal words would be one entry
  std::vector<bool> present(20000);
  for (const auto& [word, id] : vocab.items()) present.at(id.get<size_t>()) = true;
  EXPECT_EQ(std::count(present.begin(), present.end(), true), 20000);
}

TEST(MakeModel, KnownShapesHaveTheirSizes) {
  EXPECT_EQ(find_model_shape("llama-1b").parameters(), 1100048384);
  EXPECT_EQ(find_model_shape("llama-8b").parameters(), 8030261248);
  EXPECT_EQ(find_model_shape("qwen2.5-0.5b").parameters(), 494032768);
  EXPECT_EQ(find_model_shape("qwen3-0.6b").parameters(), 596049920);
}

TEST(MakeModel, UnknownShapesAreRefusedWithTheKnownOnes) {
  try {
    find_model_shape("llama-2b");
    FAIL() << "no exception";
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("llama-2b"), std::string::npos) << message;
    EXPECT_NE(message.find("llama-1b"), std::string::npos) << message;
  }
}

// Small shapes of every family.
std::vector<ModelShape> small_shapes() {
  std::vector<ModelShape> shapes = {find_model_shape("tiny"), find_model_shape("stories")};
  for (const char* family : {"mistral", "qwen2", "qwen3"}) {
    ModelShape shape = find_model_shape("tiny");
    shape.name = std::string("tiny-") + family;
    shape.family = family;
    shape.tied = shape.family == "qwen3";
    shapes.push_back(shape);
  }
  return shapes;
}

// The directory of every family is complete: it loads without notes, and the model makes text.
TEST(MakeModel, FamiliesLoadAndGenerate) {
  ModelShape tiny = find_model_shape("tiny");
  tiny.vocab_size = 320;
  for (const ModelShape& shape : family_shapes(tiny)) {
    SCOPED_TRACE(shape.name);
    const TemporaryDirectory directory;
    MakeModelOptions options;
    uint64_t total = 0;
    options.progress = [&](uint64_t, uint64_t all) { total = all; };
    make_model(shape, directory.path(), options);
    // Two rows of OPT's positions are not used.
    const uint64_t unused = shape.family == "opt" ? 2 * static_cast<uint64_t>(shape.hidden_size) : 0;
    EXPECT_EQ(total, (static_cast<uint64_t>(shape.parameters()) + unused) * sizeof(uint16_t));
    TextGenerator generator = TextGenerator::load(directory.path(), {});
    EXPECT_EQ(family_name(generator.model().config().family), shape.family);
    for (const std::string& note : generator.model().notes()) ADD_FAILURE() << note;
    GenerateOptions generate = generator.default_options();
    generate.max_new_tokens = 2;
    generate.ignore_eos = true;
    EXPECT_EQ(generator.generate(std::vector<std::string>{"Hello"}, generate).completions[0].token_ids.size(), 2u);
  }
}

// Removes a file that was just written from the system's page cache. On file systems in memory it stays there.
void forget_pages(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY);
  ASSERT_GE(descriptor, 0);
  EXPECT_EQ(::fsync(descriptor), 0);
  EXPECT_EQ(::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED), 0);
  ::close(descriptor);
}

// The progress of mapped weights is that of the disk: at the end, all of them are in memory. The system may take pages away
// again when other processes need memory, so that one of some loads must show it.
TEST(MakeModel, ProgressWaitsForTheDisk) {
  const TemporaryDirectory directory;
  ModelShape shape = find_model_shape("tiny");
  shape.vocab_size = 40000;  // one matrix of several reports
  shape.hidden_size = 512;
  make_model(shape, directory.path());
  std::string missing;
  for (int load = 0; load < 3; ++load) {
    missing.clear();
    forget_pages(directory.path() + "/model.safetensors");
    uint64_t last = 0;
    int of_embedding = 0;
    LoadOptions options;
    options.progress = [&](const LoadProgress& progress) {
      EXPECT_GT(progress.bytes_done, last);
      last = progress.bytes_done;
      of_embedding += progress.tensor == "model.embed_tokens.weight" ? 1 : 0;
      if (progress.bytes_done < progress.bytes_total) return;
      const Checkpoint checkpoint = Checkpoint::open(directory.path());
      for (const std::string& name : checkpoint.names()) {
        if (!checkpoint.is_in_memory(checkpoint.at(name))) missing = name;
      }
    };
    const auto model = Model::load(directory.path(), options);
    EXPECT_GE(of_embedding, 1);
    EXPECT_GT(last, uint64_t{40} << 20);
    if (missing.empty()) break;
  }
  EXPECT_EQ(missing, "");
}

TEST(MakeModel, ModelsLoadAndGenerate) {
  for (const ModelShape& shape : small_shapes()) {
    for (const DType dtype : {DType::BF16, DType::F16, DType::F32}) {
      const TemporaryDirectory directory;
      MakeModelOptions options;
      options.dtype = dtype;
      uint64_t last = 0, total = 0;
      options.progress = [&](uint64_t done, uint64_t all) {
        EXPECT_GT(done, last);
        last = done;
        total = all;
      };
      const std::string path = directory.path() + "/new/model";
      make_model(shape, path, options);
      EXPECT_EQ(last, total);
      EXPECT_EQ(total, static_cast<uint64_t>(shape.parameters()) * dtype_size(dtype));

      LoadOptions as_fp32;
      as_fp32.dtype = DType::F32;
      TextGenerator generator = TextGenerator::load(path, as_fp32);
      EXPECT_TRUE(generator.model().notes().empty());
      EXPECT_EQ(generator.model().weight_bytes(), static_cast<uint64_t>(shape.parameters()) * sizeof(float));
      GenerateOptions generate = generator.default_options();
      generate.max_new_tokens = 8;
      generate.sampling.temperature = 1.0f;
      generate.seed = 1;
      generate.ignore_eos = true;
      const std::vector<std::string> prompts = {"Hello, w\xC3\xB6rld"};
      const Completion completion = generator.generate(prompts, generate).completions[0];
      EXPECT_EQ(completion.prompt_ids.size(), 1 + prompts[0].size());  // one for each byte
      EXPECT_EQ(completion.token_ids.size(), 8u);
      EXPECT_FALSE(completion.text.empty());
    }
  }
}

TEST(MakeModel, TheSameSeedGivesTheSameBytes) {
  const TemporaryDirectory directory;
  const ModelShape& shape = find_model_shape("tiny");
  MakeModelOptions options;
  make_model(shape, directory.path() + "/a", options);
  make_model(shape, directory.path() + "/b", options);
  options.seed = 1;
  make_model(shape, directory.path() + "/c", options);
  const auto bytes = [&](const char* name) { return read_file(directory.path() + name + "/model.safetensors"); };
  EXPECT_EQ(bytes("/a"), bytes("/b"));
  EXPECT_NE(bytes("/a"), bytes("/c"));
}

TEST(MakeModel, RefusesWrongInput) {
  const TemporaryDirectory directory;
  const ModelShape& shape = find_model_shape("tiny");
  MakeModelOptions options;
  options.dtype = DType::I8;
  EXPECT_THROW(make_model(shape, directory.path() + "/a", options), InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(directory.path() + "/a/config.json"));
  options.dtype = DType::BF16;
  make_model(shape, directory.path() + "/a", options);
  // Not over a model that is there.
  EXPECT_THROW(make_model(shape, directory.path() + "/a", options), InvalidArgument);
  EXPECT_THROW(make_model(shape, "/proc/nowhere", options), Error);
  ModelShape wrong = shape;
  wrong.vocab_size = 100;
  EXPECT_THROW(make_model(wrong, directory.path() + "/b", options), InvalidArgument);
}

TEST(MakeModel, AFailureLeavesNothing) {
  const TemporaryDirectory directory;
  MakeModelOptions options;
  options.progress = [](uint64_t, uint64_t) { throw std::runtime_error("enough"); };
  EXPECT_THROW(make_model(find_model_shape("tiny"), directory.path(), options), std::runtime_error);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace anyaccel::llm
