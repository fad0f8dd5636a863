// Quantizing with the importance of columns, measured on a text: it is the mean square of each product's inputs, errors weighted
// by it fall, and so does the distance of the bundled model from what it was.
#include "llm/quantize/importance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/quantize.h"
#include "anyaccel/llm/session.h"
#include "anyaccel/llm/tokenizer.h"
#include "base/block_encode.h"
#include "llm/quantize/quantize_rows.h"
#include "llm/test_directory.h"
#include "test_paths.h"

namespace anyaccel::llm {
namespace {

using namespace testing;

const std::string bundled_model = std::string(ANYACCEL_SOURCE_DIR) + "/models/stories";

TEST(Importance, WeightedErrorsOfEveryFormatFall) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  constexpr size_t columns = 512;
  std::vector<float> values(columns * 32), importance(columns);
  for (float& value : values) value = normal(random);
  for (float& factor : importance) factor = std::exp(2.0F * normal(random));
  std::vector<std::pair<const BlockFormat*, std::optional<DType>>> ways = {
      {find_block_format(std::string_view("q4_0")), DType::BF16},
      {find_block_format(std::string_view("q8_0")), DType::F16}};
  for (const BlockFormat& format : block_formats()) {
    if (can_encode(format)) ways.emplace_back(&format, std::nullopt);
  }
  for (const auto& way : ways) {
    const BlockFormat* format = way.first;
    const std::optional<DType> scales = way.second;
    std::vector<std::byte> blocks(values.size() / format->values * format->bytes);
    const auto error = [&](std::span<const float> factors) {
      const RowQuantization how{*format, scales, factors};
      quantize_rows(how, values, blocks, "matrix");
      std::vector<float> decoded(values.size());
      decode_blocks(*format, blocks, decoded);
      double sum = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double miss = static_cast<double>(values[i]) - static_cast<double>(decoded[i]);
        sum += static_cast<double>(importance[i % columns]) * miss * miss;
      }
      return sum;
    };
    const double alike = error({}), weighted = error(importance);
    // 8 bits leave little to choose, and MXFP4 only one of three powers of two.
    const bool is_fine = format->bytes * 8 > format->values * 6 || format->name == "MXFP4";
    EXPECT_LT(weighted, (is_fine ? 1.0 : 0.9) * alike) << format->name;
  }
}

// The inputs of the first layer's queries are the normalized rows of the embedding.
TEST(Importance, IsTheMeanSquareOfTheInputs) {
  const std::string text = "Once upon a time, there was a little girl. She had a red ball, and the ball was big.";
  const Importance importance = Importance::measure(bundled_model, text);
  LoadOptions load;
  load.dtype = DType::F32;
  const auto model = Model::load(bundled_model, load);
  const std::vector<int32_t> ids = Tokenizer::load(bundled_model)->encode(text);
  const auto columns = static_cast<size_t>(model->config().hidden_size);
  const std::vector<float> table = model->weights().embedding.to_vector<float>();
  const std::vector<float> norm = model->weights().layers[0].input_norm.to_vector<float>();
  // The text is one window; its last token is only predicted.
  std::vector<double> expected(columns, 0.0);
  for (size_t t = 0; t + 1 < ids.size(); ++t) {
    const float* row = table.data() + static_cast<size_t>(ids[t]) * columns;
    double square = 0;
    for (size_t i = 0; i < columns; ++i) square += static_cast<double>(row[i]) * static_cast<double>(row[i]);
    square /= static_cast<double>(columns);
    for (size_t i = 0; i < columns; ++i) {
      const double x = static_cast<double>(row[i]) * static_cast<double>(norm[i]);
      expected[i] += x * x / (square + static_cast<double>(model->config().rms_norm_eps));
    }
  }
  double mean = 0;
  for (const double sum : expected) mean += sum / static_cast<double>(columns);
  const std::span<const float> found = importance.of("model.layers.0.self_attn.q_proj.weight");
  ASSERT_EQ(found.size(), columns);
  for (size_t i = 0; i < columns; ++i) EXPECT_NEAR(found[i], std::max(expected[i] / mean, 1e-4), 0.01 * found[i]) << i;
  // Every matrix has some, the output too, which is the embedding.
  EXPECT_EQ(importance.of("model.embed_tokens.weight").size(), columns);
  for (const char* matrix : {"self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    for (const char* layer : {"0", "5"}) {
      const auto of_matrix = importance.of(std::string("model.layers.") + layer + "." + matrix + ".weight");
      double sum = 0;
      for (const float factor : of_matrix) sum += static_cast<double>(factor);
      EXPECT_NEAR(sum / static_cast<double>(of_matrix.size()), 1.0, 1e-2) << matrix;
    }
  }
  EXPECT_TRUE(importance.of("model.layers.0.input_layernorm.weight").empty());
  EXPECT_THROW(Importance::measure(bundled_model, ""), InvalidArgument);
}

// Two texts that the bundled model wrote (tests/data/README.md).
std::pair<std::string, std::string> stories() {
  std::ifstream file(anyaccel::testing::test_data() + "/stories.txt");
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  const size_t border = all.find("----\n");
  return {all.substr(0, border), all.substr(border + 5)};
}

// The logits after each token of a window.
std::vector<float> logits_of_window(const std::string& path, std::span<const int32_t> ids, const LoadOptions& load) {
  std::vector<int32_t> sequence(ids.size(), 0), positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  SessionOptions options;
  options.context = static_cast<int64_t>(ids.size());
  Session session(Model::load(path, load), options);
  return session.forward({ids, sequence, positions}, positions).to_vector<float>();
}

// The mean Kullback-Leibler divergence of the distributions of the next token.
double divergence(const std::vector<float>& original, const std::vector<float>& other, size_t vocabulary) {
  const auto log_sum = [&](const std::vector<float>& logits, size_t row) {
    double sum = 0;
    for (size_t i = 0; i < vocabulary; ++i) sum += std::exp(static_cast<double>(logits[row * vocabulary + i]));
    return std::log(sum);
  };
  double total = 0;
  const size_t rows = original.size() / vocabulary;
  for (size_t row = 0; row < rows; ++row) {
    const double a = log_sum(original, row), b = log_sum(other, row);
    for (size_t i = 0; i < vocabulary; ++i) {
      const double p = static_cast<double>(original[row * vocabulary + i]) - a;
      total += std::exp(p) * (p - static_cast<double>(other[row * vocabulary + i]) + b);
    }
  }
  return total / static_cast<double>(rows);
}

// The text on which models are compared is not the one that the importance comes from. A perplexity may fall by chance when
// weights are rounded; the divergence from the original does not.
class ImportanceOfModels : public ::testing::TestWithParam<const char*> {};

TEST_P(ImportanceOfModels, TheBundledModelStaysNearerToTheOriginal) {
  const std::string type = GetParam();
  const TestDirectory dir;
  const auto [known, other] = stories();
  std::vector<int32_t> ids = Tokenizer::load(bundled_model)->encode(other);
  ASSERT_GT(ids.size(), 400U);
  ids.resize(400);
  LoadOptions plain;
  plain.dtype = DType::F32;
  const std::vector<float> original = logits_of_window(bundled_model, ids, plain);
  LoadOptions exact;
  exact.activations = Activations::F32;
  QuantizeResult results[2];
  double distance[2] = {};
  for (const size_t with : {0, 1}) {
    const std::string ending = type[0] == 'q' ? ".gguf" : "";
    const std::string out = (dir.path() / (type + std::to_string(with) + ending)).string();
    QuantizeOptions options;
    options.type = type;
    if (with == 1) options.importance_text = known;
    results[with] = quantize_model(bundled_model, out, options);
    distance[with] = divergence(original, logits_of_window(out, ids, exact), original.size() / ids.size());
  }
  EXPECT_LT(distance[1], distance[0]);
  EXPECT_EQ(results[0].weighted_error, 0);
  EXPECT_LT(results[1].weighted_error, results[1].relative_error);
  EXPECT_GT(results[1].relative_error, results[0].relative_error) << "nothing was weighted";
  RecordProperty(type, std::to_string(distance[0]) + " and with a text " + std::to_string(distance[1]));
}

// Every format is in WeightedErrorsOfEveryFormatFall.
INSTANTIATE_TEST_SUITE_P(All, ImportanceOfModels, ::testing::Values("q4_k", "q2_k", "int4"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace anyaccel::llm
