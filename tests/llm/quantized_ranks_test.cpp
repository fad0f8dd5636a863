// Models with quantized weights over several ranks (threads of this process): the logits are those of one rank, and blocks
// end where a rank's part ends, so that they stay quantized.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "anyaccel/accelerator.h"
#include "anyaccel/llm/make_model.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/quantize.h"
#include "anyaccel/llm/session.h"
#include "llm/test_directory.h"
#include "llm/thread_ranks.h"

namespace anyaccel::llm {
namespace {

using anyaccel::testing::Between;
using anyaccel::testing::run_ranks;
using Group = std::shared_ptr<comm::ProcessGroup>;

// Five blocks of 256 in the feed-forward layers, which are no whole number for two or three ranks; heads of 128.
ModelShape shape_of_blocks() {
  ModelShape shape = find_model_shape("tiny");
  shape.hidden_size = 256;  // quantizing is most of the time of this test
  shape.layers = 1;
  shape.heads = 6;
  shape.kv_heads = 3;
  shape.head_dim = 128;
  shape.intermediate_size = 5 * 256;
  shape.vocab_size = 300;
  return shape;
}

std::shared_ptr<const Model> load(const std::string& path, const Group& group, const std::string& quantize) {
  LoadOptions options;
  options.group = group;
  options.activations = Activations::F32;
  options.quantize = quantize;
  return Model::load(path, options);
}

std::vector<float> logits_of(const std::shared_ptr<const Model>& model, CacheType cache) {
  const std::vector<int32_t> ids = {1, 20, 3, 40, 5, 60, 7};
  std::vector<int32_t> sequence(ids.size(), 0), positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  SessionOptions options;
  options.context = 32;
  options.cache = cache;
  return Session(model, options).forward({ids, sequence, positions}, positions).to_vector<float>();
}

// `limit` is a share of the largest logit.
void expect_near(const std::vector<float>& found, const std::vector<float>& expected, float limit,
                 const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  float largest = 0;
  float difference = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    difference = std::max(difference, std::abs(found[i] - expected[i]));
  }
  EXPECT_LE(difference / largest, limit) << what;
}

// The matrices of the layers that are decoded.
int decoded_matrices(const Model& model) {
  int count = 0;
  for (const LayerWeights& layer : model.weights().layers) {
    for (const Tensor* w : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      count += *w && w->dtype() != DType::U8 ? 1 : 0;
    }
  }
  return count;
}

TEST(QuantizedRanks, BlocksEndWhereTheRanksPartsEnd) {
  const anyaccel::llm::testing::TestDirectory directory;
  const std::string plain = (directory.path() / "model").string();
  make_model(shape_of_blocks(), plain);
  for (const std::string type : {"q4_0", "q4_k"}) {
    const std::string file = (directory.path() / (type + ".gguf")).string();
    QuantizeOptions options;
    options.type = type;
    quantize_model(plain, file, options);
    const auto whole = load(file, nullptr, "");
    EXPECT_EQ(decoded_matrices(*whole), 0);
    const std::vector<float> expected = logits_of(whole, CacheType::Int8);
    // From the file, and quantized while the directory loads: a path and --quantize.
    for (const auto& source : {std::pair{file, std::string()}, {plain, type}}) {
      for (const int ranks : {2, 3}) {
        const std::string what = type + " on " + std::to_string(ranks) + " ranks";
        std::vector<float> found;
        const auto body = [&](const Group& group) {
          const auto model = load(source.first, group, source.second);
          EXPECT_EQ(decoded_matrices(*model), 0) << what;
          EXPECT_EQ(model->weights().embedding.dtype(), DType::U8) << what;
          EXPECT_EQ(model->weights().lm_head_format, whole->weights().lm_head_format) << what;
          if (type == "q4_k" && model->shard().hidden.size() == 0) {  // otherwise rows of down are whole
            EXPECT_EQ(model->shard().intermediate.begin % 256, 0) << what;
          }
          const std::vector<float> logits = logits_of(model, CacheType::Int8);
          if (group->rank() == 0) found = logits;
        };
        run_ranks(ranks, body);
        expect_near(found, expected, 2e-3f, what);
        run_ranks(ranks, body, Between::Messages);
        expect_near(found, expected, 2e-3f, what);
      }
    }
  }
}

// Without common memory a part of attention's output matrix is half a block: the rank decodes it, and says so.
TEST(QuantizedRanks, PartsOfBlocksAreDecoded) {
  const anyaccel::llm::testing::TestDirectory directory;
  const std::string plain = (directory.path() / "model").string();
  ModelShape shape = shape_of_blocks();
  shape.head_dim = 64;
  shape.heads = 8;
  shape.kv_heads = 4;
  make_model(shape, plain);
  const std::string file = (directory.path() / "model.gguf").string();
  QuantizeOptions options;
  options.type = "q4_k";
  quantize_model(plain, file, options);
  const std::vector<float> expected = logits_of(load(file, nullptr, ""), CacheType::Model);
  for (const auto& source : {std::pair{file, std::string()}, {plain, options.type}}) {
    const auto body = [&](const Group& group) {
      const auto model = load(source.first, group, source.second);
      const bool whole = model->shard().query_heads.begin % 4 == 0 && model->shard().query_heads.size() % 4 == 0;
      EXPECT_EQ(decoded_matrices(*model), whole ? 0 : static_cast<int>(shape.layers));
      const std::vector<std::string>& notes = model->notes();
      EXPECT_EQ(std::any_of(notes.begin(), notes.end(),
                            [](const std::string& note) { return note.find("are decoded to") != std::string::npos; }),
                !whole);
      expect_near(logits_of(model, CacheType::Model), expected, 2e-3f, "parts of blocks");
    };
    run_ranks(3, body, Between::Messages);
    run_ranks(3, [&](const Group& group) {
      const auto model = load(source.first, group, source.second);
      if (anyaccel::testing::gathers(Between::SharedMemory)) {
        EXPECT_EQ(decoded_matrices(*model), 0);
      }
      expect_near(logits_of(model, CacheType::Model), expected, 2e-3f, "whole rows");
    });
  }
}

}  // namespace
}  // namespace anyaccel::llm
