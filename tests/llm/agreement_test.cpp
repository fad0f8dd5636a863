// The logits of an accelerator beside the CPU's: of the bundled model, and of a model of random weights that are the same
// bit for bit on both. ANYACCEL_TEST_ACCELERATOR names the accelerator (without it the program is skipped),
// ANYACCEL_TEST_SHAPE the shape of the random model ("tiny"; "llama-1b" for a real one). A line of JSON on standard output
// gives each difference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/make_model.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/session.h"
#include "anyaccel/ops/inference.h"
#include "test_paths.h"

namespace anyaccel {
namespace {

constexpr size_t prompt_length = 96;  // enough to go the way of prompts
constexpr size_t decoded = 8;         // one at a time after it

using MakeModel = std::function<std::shared_ptr<const llm::Model>(Accelerator&)>;

struct Logits {
  std::vector<float> prompt, decode;
};

// Logits after every token of a fixed text: the first part as one prompt, the rest token by token.
Logits logits_on(const std::string& name, const MakeModel& make) {
  set_accelerator(make_accelerator(name));
  Logits logits;
  {
    const std::shared_ptr<const llm::Model> model = make(*get_accelerator());
    llm::Session session(model, {.sequences = 1, .context = 256});
    std::vector<int32_t> ids, sequence, positions, rows;
    uint32_t state = 12345;
    for (size_t i = 0; i < prompt_length + decoded; ++i) {
      state = state * 1664525u + 1013904223u;
      ids.push_back(static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(model->config().vocab_size)));
      positions.push_back(static_cast<int32_t>(i));
      rows.push_back(static_cast<int32_t>(i));
      sequence.push_back(0);
    }
    const auto run = [&](size_t begin, size_t count, std::vector<float>& out) {
      const auto part = [&](const std::vector<int32_t>& values) {
        return std::vector<int32_t>(values.begin() + static_cast<ptrdiff_t>(begin),
                                    values.begin() + static_cast<ptrdiff_t>(begin + count));
      };
      const Tensor result = session.forward({part(ids), part(sequence), part(positions)}, std::span(rows).first(count));
      const Tensor host = result.to(Device{});
      get_accelerator()->synchronize();
      const auto* values = static_cast<const float*>(host.data());
      out.insert(out.end(), values, values + host.numel());
    };
    run(0, prompt_length, logits.prompt);
    for (size_t i = 0; i < decoded; ++i) run(prompt_length + i, 1, logits.decode);
  }
  reset_accelerator();
  return logits;
}

// Largest difference over largest logit.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0, largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    most = std::max(most, std::isfinite(a[i]) ? std::abs(double{a[i]} - double{b[i]}) : HUGE_VAL);
    largest = std::max(largest, std::abs(double{b[i]}));
  }
  EXPECT_GT(largest, 0.0);
  return most / largest;
}

// `prompt_bound` allows for what a prompt's activations lose where they are rounded to the model's 16 bits.
void compare(const std::string& what, const MakeModel& make, double prompt_bound, double decode_bound) {
  const Logits expected = logits_on("cpu", make);
  const Logits found = logits_on(std::getenv("ANYACCEL_TEST_ACCELERATOR"), make);
  const double prompt = difference(found.prompt, expected.prompt);
  const double decode = difference(found.decode, expected.decode);
  std::printf("{\"logits\": \"%s\", \"prompt_difference\": %.3g, \"decode_difference\": %.3g}\n", what.c_str(), prompt,
              decode);
  EXPECT_LE(prompt, prompt_bound) << what;
  EXPECT_LE(decode, decode_bound) << what;
}

class AgreementTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("ANYACCEL_TEST_ACCELERATOR")) GTEST_SKIP() << "ANYACCEL_TEST_ACCELERATOR is not set";
  }
};

std::string shape_name() {
  const char* name = std::getenv("ANYACCEL_TEST_SHAPE");
  return name ? name : "tiny";
}

MakeModel random_model(DType dtype) {
  return [dtype](Accelerator& accelerator) {
    return llm::Model::random(accelerator, llm::find_model_shape(shape_name()), dtype, 7);
  };
}

TEST_F(AgreementTest, BundledModelInFp32) {
  compare(
      "stories float32",
      [](Accelerator&) {
        return llm::Model::load(
            testing::source_directory() + "/models/stories",
            {.dtype = DType::F32, .progress = {}, .group = {}, .quantize = {}, .adapter = {}, .adapters = {}});
      },
      1e-4, 1e-4);
}

TEST_F(AgreementTest, RandomModelInFp32) { compare(shape_name() + " float32", random_model(DType::F32), 1e-4, 1e-4); }

TEST_F(AgreementTest, RandomModelInBf16) {
  // The cache rounds keys and values of nearly equal numbers to different neighbours; prompts round activations too.
  compare(shape_name() + " bfloat16", random_model(DType::BF16), 3e-2, 3e-2);
}

// The accelerator computes with the blocks of the weights. Keys and values are in fp16.
TEST_F(AgreementTest, BundledModelWithQuantizedWeights) {
  set_accelerator(make_accelerator(std::getenv("ANYACCEL_TEST_ACCELERATOR")));
  const bool takes_them = ops::Inference(*get_accelerator()).takes_quantized_weights();
  reset_accelerator();
  if (!takes_them) GTEST_SKIP() << "the accelerator has no ops for quantized weights";
  compare(
      "stories q4_0",
      [](Accelerator&) {
        llm::LoadOptions options;
        options.activations = llm::Activations::F32;
        options.quantize = "q4_0";
        const auto model = llm::Model::load(testing::source_directory() + "/models/stories", options);
        EXPECT_EQ(model->quantized_formats(), "Q4_0, Q8_0");
        return model;
      },
      2e-3, 2e-3);
}

}  // namespace
}  // namespace anyaccel
