// Quantized directories over several ranks (threads of this process): GPTQ, AWQ, compressed-tensors and float8 give the logits of
// one process, also where a rank's part ends within a group, a block of scales or a word of packed numbers. That one process
// decodes what other software decodes is tested by packed_matrix_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/llm/make_model.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/safetensors.h"
#include "anyaccel/llm/session.h"
#include "base/scalar_convert.h"
#include "llm/packed_models.h"
#include "llm/test_directory.h"
#include "llm/thread_ranks.h"

namespace anyaccel::llm {
namespace {

using namespace testing;
using anyaccel::testing::run_ranks;
using Group = std::shared_ptr<comm::ProcessGroup>;
using Random = std::mt19937;

// The tensors of a matrix [n, k] of the layer `module` ("model.layers.0.mlp.up_proj.").
using Pack = std::function<std::vector<TensorData>(Random&, const std::string& module, int64_t n, int64_t k)>;

struct Layout {
  const char* name;
  const char* settings;  // quantization_config
  const char* blocks;    // the formats of the matrices that stay quantized; "" if all are decoded
  Pack pack;
};

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::vector<uint32_t> words(Random& random, int64_t count) {
  std::vector<uint32_t> values(static_cast<size_t>(count));
  for (uint32_t& value : values) value = static_cast<uint32_t>(random());
  return values;
}

// Scales that are halves, and such that products of the model stay small.
std::vector<float> scales(Random& random, int64_t count, float most) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = fp16_to_float(float_to_fp16(most * (0.25F + 0.75F * static_cast<float>(random() % 1000) / 1000.0F)));
  }
  return values;
}

TensorData tensor(const std::string& name, DType dtype, std::vector<int64_t> shape, std::string bytes) {
  return {{name, dtype, std::move(shape)}, std::move(bytes)};
}

TensorData halves(const std::string& name, std::vector<int64_t> shape, const std::vector<float>& values) {
  std::vector<uint16_t> bits(values.size());
  std::ranges::transform(values, bits.begin(), float_to_fp16);
  return tensor(name, DType::F16, std::move(shape), bytes_of_numbers(bits));
}

Pack gptq(int64_t group, bool symmetric, bool ordered) {
  return [=](Random& random, const std::string& module, int64_t n, int64_t k) {
    const int64_t groups = divided_up(k, group);
    std::vector<int32_t> group_of(static_cast<size_t>(k));
    for (int64_t i = 0; i < k; ++i) group_of[static_cast<size_t>(i)] = static_cast<int32_t>(i / group);
    if (!ordered) std::ranges::shuffle(group_of, random);
    const int64_t zeros = groups * (n / 8);
    return std::vector<TensorData>{
        tensor(module + "qweight", DType::I32, {k / 8, n}, bytes_of_numbers(words(random, k / 8 * n))),
        tensor(module + "qzeros", DType::I32, {groups, n / 8},
               bytes_of_numbers(symmetric ? std::vector<uint32_t>(static_cast<size_t>(zeros), 0x77777777U)
                                          : words(random, zeros))),
        halves(module + "scales", {groups, n}, scales(random, groups * n, 0.02F)),
        tensor(module + "g_idx", DType::I32, {k}, bytes_of_numbers(group_of))};
  };
}

std::vector<TensorData> awq(Random& random, const std::string& module, int64_t n, int64_t k) {
  const int64_t groups = k / 32;
  return {tensor(module + "qweight", DType::I32, {k, n / 8}, bytes_of_numbers(words(random, k * (n / 8)))),
          tensor(module + "qzeros", DType::I32, {groups, n / 8}, bytes_of_numbers(words(random, groups * (n / 8)))),
          halves(module + "scales", {groups, n}, scales(random, groups * n, 0.02F))};
}

// `group` 0: a scale for each row.
Pack compressed(int64_t group, int bits) {
  return [=](Random& random, const std::string& module, int64_t n, int64_t k) {
    const int64_t columns = group == 0 ? 1 : k / group;
    const int64_t row_words = divided_up(k * bits, 32);
    return std::vector<TensorData>{
        tensor(module + "weight_packed", DType::I32, {n, row_words}, bytes_of_numbers(words(random, n * row_words))),
        halves(module + "weight_scale", {n, columns},
               scales(random, n * columns, 0.02F * 16.0F / static_cast<float>(1 << bits))),
        tensor(module + "weight_shape", DType::I64, {2}, bytes_of_numbers(std::vector<int64_t>{n, k}))};
  };
}

// Blocks of 48 x 40 scales, at whose borders no rank's part ends.
std::vector<TensorData> float8(Random& random, const std::string& module, int64_t n, int64_t k) {
  std::string codes(static_cast<size_t>(n * k), '\0');
  for (char& code : codes) {
    const auto bits = static_cast<uint8_t>(random());
    code = static_cast<char>((bits & 0x7f) == 0x7f ? 0 : bits & 0xbf);  // below 2 in magnitude
  }
  const int64_t blocks = divided_up(n, 48) * divided_up(k, 40);
  return {tensor(module + "weight", DType::F8E4M3, {n, k}, codes),
          tensor(module + "weight_scale_inv", DType::F32, {divided_up(n, 48), divided_up(k, 40)},
                 bytes_of_numbers(scales(random, blocks, 0.1F)))};
}

constexpr const char* compressed_4_rows =
    R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {"targets": ["Linear"],
        "weights": {"num_bits": 4, "type": "int", "symmetric": true, "strategy": "channel"}}}})";
constexpr const char* compressed_3_groups =
    R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {"targets": ["Linear"],
        "weights": {"num_bits": 3, "type": "int", "symmetric": true, "strategy": "group", "group_size": 80}}}})";

const Layout layouts[] = {
    {"gptq", R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": true, "desc_act": false})", "Q4_0",
     gptq(32, true, true)},
    {"gptq with groups across ranks",
     R"({"quant_method": "gptq", "bits": 4, "group_size": 160, "sym": true, "desc_act": false})", "Q4_0",
     gptq(160, true, true)},
    {"gptq with act-order", R"({"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": false, "desc_act": true})",
     "", gptq(64, false, false)},
    {"awq", R"({"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": true, "version": "gemm"})", "", awq},
    {"compressed-tensors by rows", compressed_4_rows, "Q4_0", compressed(0, 4)},
    {"compressed-tensors of 3 bits", compressed_3_groups, "", compressed(80, 3)},
    {"float8 by blocks", R"({"quant_method": "fp8", "weight_block_size": [48, 40]})", "", float8},
};

// Over two ranks and three, a rank's part of attention's output has 3 or 2 heads of 32, and its part of the feed-forward
// block ends at multiples of 64 of 480.
ModelShape shape_for_ranks() {
  ModelShape shape = find_model_shape("tiny");
  shape.hidden_size = 160;
  shape.layers = 1;
  shape.heads = 5;
  shape.kv_heads = 5;
  shape.head_dim = 32;
  shape.intermediate_size = 480;
  shape.vocab_size = 300;
  return shape;
}

void write_packed(const std::string& plain, const std::filesystem::path& to, const Layout& layout) {
  std::filesystem::create_directories(to);
  const Checkpoint checkpoint = Checkpoint::open(plain);
  Random random(7);
  std::vector<TensorData> tensors;
  for (const std::string& name : checkpoint.names()) {
    const TensorView& view = checkpoint.at(name);
    if (name.ends_with("_proj.weight")) {
      for (TensorData& part : layout.pack(random, name.substr(0, name.size() - 6), view.shape[0], view.shape[1])) {
        tensors.push_back(std::move(part));
      }
    } else {
      tensors.push_back({{name, view.dtype, {view.shape.begin(), view.shape.end()}},
                         {reinterpret_cast<const char*>(view.data), view.bytes}});
    }
  }
  write_model(to, tensors);
  write_config(to, plain, layout.settings);
}

std::vector<float> logits_of(const std::shared_ptr<const Model>& model) {
  const std::vector<int32_t> ids = {1, 20, 3, 40, 5, 60, 7};
  std::vector<int32_t> sequence(ids.size(), 0), positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  SessionOptions options;
  options.context = 32;
  return Session(model, options).forward({ids, sequence, positions}, positions).to_vector<float>();
}

TEST(PackedRanks, LogitsAreThoseOfOneProcess) {
  const TestDirectory dir;
  const std::string plain = (dir.path() / "plain").string();
  make_model(shape_for_ranks(), plain);
  for (const Layout& layout : layouts) {
    const std::string packed = (dir.path() / layout.name).string();
    write_packed(plain, packed, layout);
    LoadOptions options;
    options.activations = Activations::F32;
    const auto whole = Model::load(packed, options);
    EXPECT_EQ(whole->quantized_formats(), layout.blocks) << layout.name;
    const std::vector<float> expected = logits_of(whole);
    const auto range = std::ranges::minmax(expected);
    const float spread = range.max - range.min;
    ASSERT_GT(spread, 0.01F) << layout.name;
    for (const int ranks : {2, 3}) {
      const auto body = [&](const Group& group) {
        LoadOptions shared = options;
        shared.group = group;
        const auto model = Model::load(packed, shared);
        EXPECT_EQ(model->quantized_formats(), layout.blocks) << layout.name << " on " << ranks;
        const std::vector<float> found = logits_of(model);
        float gap = 0;
        for (size_t i = 0; i < found.size(); ++i) gap = std::max(gap, std::abs(found[i] - expected[i]));
        // Sums in another order, and keys and values in 16 bits.
        EXPECT_LE(gap, 2e-3F * spread) << layout.name << " on " << ranks;
      };
      run_ranks(ranks, body);
      run_ranks(ranks, body, anyaccel::testing::Between::Messages);
    }
  }
}

}  // namespace
}  // namespace anyaccel::llm
