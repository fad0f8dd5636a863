// Tests what a prompt's text depends on. With SessionOptions::deterministic: on the prompt, the options and the seed
// alone, whatever its neighbours, the order of the batch and the length of chunks. Without it the rounding of
// activations still does not depend on the batch, and what differs comes from the order of sums: counted over random
// models, in a line of JSON.
//
// ANYACCEL_TEST_SEEDS says how many random models each test takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/make_model.h"
#include "anyaccel/llm/session.h"
#include "anyaccel/llm/text_generation.h"
#include "llm/decoding.h"

namespace anyaccel {
namespace {

using Prompts = std::vector<std::vector<int32_t>>;

int seeds(int usual) {
  if (const char* text = std::getenv("ANYACCEL_TEST_SEEDS")) return std::atoi(text);
  return std::getenv("SIM_STRICT") ? 1 : usual;  // a simulated device takes a minute for a model
}

constexpr int64_t context = 160;

// Shapes that differ in the properties that kernels depend on: heads, key/value heads, sizes that are no multiples of
// vectors.
llm::ModelShape shape_for(uint64_t seed) {
  llm::ModelShape shape = llm::find_model_shape("tiny");
  const int64_t heads[] = {4, 4, 6, 2}, kv_heads[] = {2, 4, 2, 1}, sizes[] = {16, 32, 16, 64};
  const size_t i = seed % 4;
  shape.heads = heads[i];
  shape.kv_heads = kv_heads[i];
  shape.head_dim = sizes[i];
  shape.hidden_size = 96 + 32 * static_cast<int64_t>(seed % 3);
  shape.intermediate_size = 200 + 8 * static_cast<int64_t>(seed % 5);
  shape.vocab_size = 301 + static_cast<int64_t>(seed % 7);
  shape.max_positions = 512;
  return shape;
}

std::shared_ptr<const llm::Model> random_model(uint64_t seed, DType dtype,
                                               llm::Activations activations = llm::Activations::Auto) {
  return llm::Model::random(*get_accelerator(), shape_for(seed), dtype, seed, {}, activations);
}

Prompts random_prompts(std::mt19937& random, size_t count, const llm::Model& model) {
  Prompts prompts(count);
  for (std::vector<int32_t>& prompt : prompts) {
    const size_t length = 1 + random() % (random() % 2 == 0 ? 12 : 110);
    for (size_t i = 0; i < length; ++i) {
      prompt.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(model.config().vocab_size)));
    }
  }
  return prompts;
}

llm::SessionOptions session_options(size_t sequences, int64_t chunk, bool deterministic) {
  llm::SessionOptions options;
  options.sequences = static_cast<int64_t>(sequences);
  options.context = context;
  options.chunk = chunk;
  options.deterministic = deterministic;
  return options;
}

Prompts answers(const std::shared_ptr<const llm::Model>& model, const Prompts& prompts, int64_t chunk,
                bool deterministic, const llm::Sampling& sampling, size_t count) {
  llm::Session session(model, session_options(prompts.size(), chunk, deterministic));
  return testing::decode(session, prompts, count, sampling);
}

TEST(BatchIndependence, DeterministicTextDependsOnThePromptAlone) {
  constexpr size_t count = 10;
  const std::vector<DType> dtypes = get_accelerator()->supported_dtypes();
  llm::Sampling sampled;
  sampled.temperature = 1.0f;
  sampled.top_k = 40;
  sampled.top_p = 0.95f;
  sampled.repetition_penalty = 1.1f;
  for (int seed = 0; seed < seeds(6); ++seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    const auto model = random_model(static_cast<uint64_t>(seed), dtypes[static_cast<size_t>(seed) % dtypes.size()],
                                    seed % 2 == 1 ? llm::Activations::F32 : llm::Activations::Auto);
    const Prompts prompts = random_prompts(random, 5, *model);
    for (const llm::Sampling& sampling : {llm::Sampling{}, sampled}) {
      Prompts alone;
      for (const std::vector<int32_t>& prompt : prompts) {
        alone.push_back(answers(model, {prompt}, 512, true, sampling, count)[0]);
      }
      for (const int64_t chunk : {int64_t{512}, static_cast<int64_t>(1 + random() % 40)}) {
        std::vector<size_t> order(prompts.size());
        std::iota(order.begin(), order.end(), size_t{0});
        std::shuffle(order.begin(), order.end(), random);
        order.push_back(order[0]);  // the same prompt twice
        Prompts batch;
        for (const size_t i : order) batch.push_back(prompts[i]);
        const Prompts together = answers(model, batch, chunk, true, sampling, count);
        for (size_t i = 0; i < order.size(); ++i) {
          EXPECT_EQ(together[i], alone[order[i]])
              << "model " << seed << ", prompt " << order[i] << " of " << batch[i].size() << " tokens at place " << i
              << ", chunks of " << chunk << (sampling.temperature > 0 ? ", sampled" : ", greedy");
        }
      }
    }
  }
}

// Sequences that end leave others at other places.
TEST(BatchIndependence, DeterministicTextSurvivesTheEndOfNeighbours) {
  constexpr size_t count = 12;
  const auto model = random_model(5, DType::BF16);
  std::mt19937 random(9);
  const Prompts prompts = random_prompts(random, 4, *model);
  llm::Sampling sampling;
  sampling.temperature = 0.9f;
  Prompts alone;
  for (const std::vector<int32_t>& prompt : prompts) {
    alone.push_back(answers(model, {prompt}, 512, true, sampling, count)[0]);
  }
  llm::Session session(model, session_options(prompts.size(), 512, true));
  session.start(prompts, sampling, 1);
  Prompts found(prompts.size());
  while (!session.active().empty()) {
    const std::span<const int32_t> tokens = session.tokens();
    const auto keep = std::make_unique<bool[]>(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto prompt = static_cast<size_t>(session.active()[i]);
      found[prompt].push_back(tokens[i]);
      keep[i] = found[prompt].size() < count - 3 * prompt;  // the first one runs longest
    }
    session.retain({keep.get(), tokens.size()});
    session.step();
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    alone[i].resize(found[i].size());
    EXPECT_EQ(found[i], alone[i]) << "prompt " << i;
  }
}

TEST(BatchIndependence, DeterministicLogitsAreTheSameBits) {
  const auto model = random_model(2, DType::BF16);
  std::mt19937 random(4);
  const Prompts prompts = random_prompts(random, 3, *model);
  const auto logits_of = [&](const Prompts& batch, size_t wanted, int64_t chunk) {
    llm::Session session(model, session_options(batch.size(), chunk, true));
    std::vector<int32_t> ids, sequence, positions;
    int32_t last = 0;
    for (size_t i = 0; i < batch.size(); ++i) {
      for (size_t p = 0; p < batch[i].size(); ++p) {
        ids.push_back(batch[i][p]);
        sequence.push_back(static_cast<int32_t>(i));
        positions.push_back(static_cast<int32_t>(p));
      }
      if (i == wanted) last = static_cast<int32_t>(ids.size()) - 1;
    }
    return session.forward({ids, sequence, positions}, std::span(&last, 1)).to_vector<float>();
  };
  const std::vector<float> alone = logits_of({prompts[1]}, 0, 512);
  EXPECT_EQ(logits_of(prompts, 1, 512), alone);
  EXPECT_EQ(logits_of(prompts, 1, 5), alone);
  EXPECT_EQ(logits_of({prompts[1]}, 0, 3), alone);
}

// Counts the texts that differ without the option. With activations as computed, no text of these models has been
// seen to differ but by the order of sums; the count is printed, since it says nothing that a test could hold to.
TEST(BatchIndependence, CountsTextsThatDependOnTheBatch) {
  constexpr size_t count = 24;
  for (const llm::Activations activations : {llm::Activations::F32, llm::Activations::BF16}) {
    int in_batch = 0, in_chunks = 0, deterministic = 0, texts = 0;
    for (int seed = 0; seed < seeds(4); ++seed) {
      std::mt19937 random(static_cast<uint32_t>(seed) + 77);
      const auto model = random_model(static_cast<uint64_t>(seed), DType::BF16, activations);
      const Prompts prompts = random_prompts(random, 4, *model);
      const Prompts together = answers(model, prompts, 512, false, {}, count);
      const Prompts exact = answers(model, prompts, 512, true, {}, count);
      bool differs = false, chunks_differ = false;
      for (size_t i = 0; i < prompts.size(); ++i) {
        differs |= answers(model, {prompts[i]}, 512, false, {}, count)[0] != together[i];
        chunks_differ |= answers(model, {prompts[i]}, 8, false, {}, count)[0] !=
                         answers(model, {prompts[i]}, 512, false, {}, count)[0];
        deterministic += answers(model, {prompts[i]}, 8, true, {}, count)[0] != exact[i];
      }
      in_batch += differs;
      in_chunks += chunks_differ;
      ++texts;
    }
    EXPECT_EQ(deterministic, 0);
    std::printf(
        "{\"activations\": \"%s\", \"models\": %d, \"differ_in_batch\": %d, \"differ_in_chunks\": %d, "
        "\"differ_when_deterministic\": %d}\n",
        activations == llm::Activations::F32 ? "fp32" : "bf16", texts, in_batch, in_chunks, deterministic);
  }
}

TEST(BatchIndependence, RoundingIsChosenOnceForAModel) {
  Accelerator& accelerator = *get_accelerator();
  const bool fast = (accelerator.device_properties().dtypes_matrix >> AA_DTYPE_BF16 & 1) != 0;
  EXPECT_EQ(random_model(1, DType::BF16)->product_dtype(), fast ? DType::BF16 : DType::F32);
  EXPECT_EQ(random_model(1, DType::BF16, llm::Activations::BF16)->product_dtype(), DType::BF16);
  EXPECT_EQ(random_model(1, DType::BF16, llm::Activations::F32)->product_dtype(), DType::F32);
  EXPECT_EQ(random_model(1, DType::F32)->product_dtype(), DType::F32);
  try {
    random_model(1, DType::F32, llm::Activations::BF16);
    ADD_FAILURE() << "a float32 model took bf16 activations";
  } catch (const InvalidArgument& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("model: activations in bf16 were asked for")) << error.what();
  }
}

TEST(BatchIndependence, AnAcceleratorThatCannotPromiseItRefuses) {
  if (std::getenv("ANYACCEL_TEST_ACCELERATOR")) GTEST_SKIP() << "once is enough";
  set_accelerator(make_accelerator("null"));
  {
    const auto model = random_model(1, DType::F32);
    try {
      const llm::Session session(model, session_options(1, 512, true));
      ADD_FAILURE() << "an accelerator without ops promised deterministic results";
    } catch (const NotImplementedError& error) {
      EXPECT_TRUE(std::string(error.what())
                      .starts_with("deterministic: accelerator \"null\" does not promise results that do not depend on "
                                   "the batch (it lacks \"linear_by_row\", \"linear_multi_by_row\""))
          << error.what();
    }
  }
  reset_accelerator();
}

}  // namespace
}  // namespace anyaccel
