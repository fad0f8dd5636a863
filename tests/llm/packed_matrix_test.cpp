// Quantized safetensors directories: each format decodes to what compressed-tensors, transformers and PyTorch decode
// (tests/data/packed_weights.safetensors, made by tools/packed_weights_fixtures.py), models compute with what their
// tensors decode to, and bad tensors and settings are refused by name.
#include "llm/checkpoint/packed_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <random>

#include "anyaccel/accelerator.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/session.h"
#include "base/block_encode.h"
#include "llm/config/weight_quantization.h"
#include "llm/model_fixtures.h"
#include "llm/packed_models.h"
#include "llm/test_directory.h"
#include "llm/thread_ranks.h"

namespace anyaccel::llm {
namespace {

using namespace testing;
namespace fs = std::filesystem;

std::shared_ptr<const WeightQuantization> quantization(const std::string& json) {
  std::vector<std::string> notes;
  const JsonDocument document = JsonDocument::parse(json, "config.json");
  return read_quantization(document.root(), notes);
}

TEST(PackedMatrices, DecodeToWhatTheirDefinitionsSay) {
  const std::string path = anyaccel::testing::test_data() + "/packed_weights.safetensors";
  const TestDirectory dir;
  fs::copy_file(path, dir.path() / "model.safetensors");
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  const auto file = SafetensorsFile::open(path);
  size_t as_blocks = 0;
  EXPECT_GE(file->metadata().size(), 21u);
  for (const auto& [name, config] : file->metadata()) {
    const auto how = quantization(config);
    const TensorView& expected_view = checkpoint.at(name + ".expected");
    const int64_t rows = expected_view.shape[0];
    const int64_t columns = expected_view.shape[1];
    std::vector<float> expected(static_cast<size_t>(rows * columns));
    checkpoint.read(expected_view, std::as_writable_bytes(std::span(expected)));
    const auto matrix = PackedMatrix::find(checkpoint, name, *how, rows, columns);
    ASSERT_NE(matrix, nullptr) << name;
    const auto values = matrix->read(checkpoint);
    std::vector<float> found(expected.size());
    values->decode(0, rows / 2, found.data());
    values->decode(rows / 2, rows - rows / 2, found.data() + rows / 2 * columns);
    EXPECT_EQ(found, expected) << name;
    if (matrix->block_format() == nullptr) continue;
    // Blocks are the same numbers without the rounding to 16 bits.
    ++as_blocks;
    const BlockFormat& format = *matrix->block_format();
    std::vector<std::byte> blocks(expected.size() / format.values * format.bytes);
    values->encode(0, rows, blocks.data());
    decode_blocks(format, blocks, found);
    for (size_t i = 0; i < found.size(); ++i) {
      const float rounded = matrix->dtype() == DType::F16    ? fp16_to_float(float_to_fp16(found[i]))
                            : matrix->dtype() == DType::BF16 ? bf16_to_float(float_to_bf16(found[i]))
                                                             : found[i];
      ASSERT_EQ(rounded, expected[i]) << name << " " << i;
    }
  }
  EXPECT_GE(as_blocks, 6u);
}

// ---- models ---------------------------------------------------------------------------------------------------------

constexpr const char* gptq_settings =
    R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": false, "sym": true})";

// A reference model whose layers' matrices are random numbers in GPTQ's layout, and one with what those decode to, in
// fp16. `order`: the columns of the groups are shuffled.
void make_gptq_models(const TestDirectory& dir, const std::string& directory, bool order,
                      const std::function<void(TensorData&)>& change = {},
                      const std::string& settings = gptq_settings) {
  std::mt19937 random(5);
  const Checkpoint checkpoint = Checkpoint::open(directory);
  std::vector<TensorData> packed, plain;
  for (const std::string& name : checkpoint.names()) {
    const TensorView& view = checkpoint.at(name);
    const TensorSpec spec{name, view.dtype, {view.shape.begin(), view.shape.end()}};
    if (name.find("_proj.weight") == std::string::npos) {
      const TensorData kept{spec, {reinterpret_cast<const char*>(view.data), view.bytes}};
      packed.push_back(kept);
      plain.push_back(kept);
      continue;
    }
    const int64_t n = view.shape[0], k = view.shape[1], groups = k / 32;
    const std::string module = name.substr(0, name.size() - 6);
    std::vector<uint32_t> words(static_cast<size_t>(k / 8 * n));
    for (uint32_t& word : words) word = static_cast<uint32_t>(random());
    std::vector<uint16_t> scales(static_cast<size_t>(groups * n));
    for (uint16_t& scale : scales) scale = float_to_fp16(0.001F + 0.0001F * static_cast<float>(random() % 100));
    std::vector<int32_t> group_of(static_cast<size_t>(k));
    for (int64_t i = 0; i < k; ++i) group_of[static_cast<size_t>(i)] = static_cast<int32_t>(i / 32);
    if (order) std::ranges::shuffle(group_of, random);
    std::vector<uint16_t> halves(static_cast<size_t>(n * k));
    for (int64_t row = 0; row < n; ++row) {
      for (int64_t column = 0; column < k; ++column) {
        const int q = static_cast<int>(words[static_cast<size_t>(column / 8 * n + row)] >> (column % 8 * 4) & 15u) - 8;
        const float scale = fp16_to_float(scales[static_cast<size_t>(group_of[static_cast<size_t>(column)] * n + row)]);
        halves[static_cast<size_t>(row * k + column)] = float_to_fp16(scale * static_cast<float>(q));
      }
    }
    plain.push_back({{name, DType::F16, {n, k}}, bytes_of_numbers(halves)});
    packed.push_back({{module + "qweight", DType::I32, {k / 8, n}}, bytes_of_numbers(words)});
    packed.push_back({{module + "qzeros", DType::I32, {groups, n / 8}},
                      bytes_of_numbers(std::vector<uint32_t>(static_cast<size_t>(groups * n / 8), 0x77777777u))});
    packed.push_back({{module + "scales", DType::F16, {groups, n}}, bytes_of_numbers(scales)});
    packed.push_back({{module + "g_idx", DType::I32, {k}}, bytes_of_numbers(group_of)});
  }
  if (change) std::ranges::for_each(packed, change);
  for (const char* name : {"packed", "plain"}) {
    const fs::path to = dir.path() / name;
    fs::create_directories(to);
    write_model(to, name == std::string("packed") ? packed : plain);
    write_config(to, directory, name == std::string("packed") ? settings : "");
  }
}

std::vector<float> packed_logits(const std::string& model, const std::vector<int32_t>& ids, const LoadOptions& load) {
  SessionOptions options;
  options.context = 64;
  Session session(Model::load(model, load), options);
  std::vector<int32_t> sequence(ids.size(), 0), positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  return session.forward({ids, sequence, positions}, positions).to_vector<float>();
}

TEST(PackedMatrices, ModelsComputeWithWhatTheyDecodeTo) {
  for (const char* name : {"llama_gqa", "qwen2"}) {
    for (const bool order : {false, true}) {
      const auto reference = anyaccel::testing::load_reference_model(name);
      const TestDirectory dir;
      make_gptq_models(dir, reference.directory, order);
      const std::string packed = (dir.path() / "packed").string();
      const std::string plain = (dir.path() / "plain").string();
      const std::vector<int32_t>& ids = reference.run.prompt_ids;
      LoadOptions fp32;
      fp32.dtype = DType::F32;  // decoded, exactly
      const std::vector<float> expected = packed_logits(plain, ids, fp32);
      EXPECT_EQ(packed_logits(packed, ids, fp32), expected) << name << " " << order;
      fp32.map_files = false;
      EXPECT_EQ(packed_logits(packed, ids, fp32), expected) << name << " " << order;
      LoadOptions as_blocks;
      as_blocks.activations = Activations::F32;
      const std::vector<float> found = packed_logits(packed, ids, as_blocks);
      double most = 0, difference = 0;
      for (size_t i = 0; i < found.size(); ++i) {
        most = std::max(most, std::abs(static_cast<double>(expected[i])));
        difference = std::max(difference, std::abs(static_cast<double>(expected[i] - found[i])));
      }
      EXPECT_LE(difference, 4e-3 * most) << name << " " << order;
      const auto model = Model::load(packed, as_blocks);
      EXPECT_EQ(model->quantized_formats(), order ? "" : "Q4_0");
      if (order) expect_contains(model->notes().back(), "quantized weights (gptq) are decoded to");
      for (const int ranks : {2, 3}) {
        const auto body = [&](const std::shared_ptr<comm::ProcessGroup>& group) {
          LoadOptions shared;
          shared.dtype = DType::F32;
          shared.group = group;
          const std::vector<float> of_ranks = packed_logits(packed, ids, shared);
          double gap = 0;
          for (size_t i = 0; i < of_ranks.size(); ++i) {
            gap = std::max(gap, std::abs(static_cast<double>(expected[i] - of_ranks[i])));
          }
          EXPECT_LE(gap, 1e-4 * most) << "rank " << group->rank() << " of " << ranks;
        };
        anyaccel::testing::run_ranks(ranks, body);
        anyaccel::testing::run_ranks(ranks, body, anyaccel::testing::Between::Messages);
      }
    }
  }
}

TEST(PackedMatrices, BadTensorsAreRefusedByName) {
  const std::string directory = anyaccel::testing::models_directory() + "/llama_gqa";
  const auto refused = [&](std::string_view part, const std::string& tensor,
                           const std::function<void(TensorData&)>& change) {
    const TestDirectory dir;
    make_gptq_models(dir, directory, false, [&](TensorData& data) {
      const std::string stored = tensor == "weight" ? "g_idx" : tensor;  // which is renamed
      if (data.spec.name == "model.layers.1.mlp.up_proj." + stored) change(data);
    });
    const std::string message = checkpoint_error([&] { Model::load((dir.path() / "packed").string()); });
    expect_contains(message, part);
    if (tensor != "qweight") expect_contains(message, "model.layers.1.mlp.up_proj." + tensor);
  };
  refused("scale 3 is NaN or infinite", "scales", [](TensorData& data) { data.bytes[7] = '\x7E'; });
  refused("column 5 is in group 9; expected 0 to 1", "g_idx", [](TensorData& data) { data.bytes[20] = 9; });
  refused("column 5 is in group -", "g_idx", [](TensorData& data) { data.bytes[23] = '\x80'; });
  refused("expected [2, 12]", "qzeros", [](TensorData& data) { std::swap(data.spec.shape[0], data.spec.shape[1]); });
  refused("is missing", "scales", [](TensorData& data) { data.spec.name += "_"; });
  refused("is float32; expected int32", "qzeros", [](TensorData& data) { data.spec.dtype = DType::F32; });
  refused("'model.layers.1.mlp.up_proj.weight' is missing", "qweight", [](TensorData& data) { data.spec.name += "_"; });
  refused("is there beside the quantized tensors of the same matrix", "weight",
          [](TensorData& data) { data.spec.name = "model.layers.1.mlp.up_proj.weight"; });
  // Settings that are not those of the tensors.
  const auto lies = [&](std::string_view part, const std::string& settings, bool keeps_order) {
    const TestDirectory dir;
    make_gptq_models(
        dir, directory, false,
        [&](TensorData& data) {
          if (!data.spec.name.ends_with("g_idx")) return;
          if (keeps_order) std::ranges::fill(data.bytes, '\0');
          if (!keeps_order) data.spec.name += "_";
        },
        settings);
    expect_contains(checkpoint_error([&] { Model::load((dir.path() / "packed").string()); }), part);
  };
  const std::string reordered = R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true})";
  lies("g_idx\" (gptq): is missing; expected the group of each of", reordered, false);
  lies("g_idx\" (gptq): was never set; expected", reordered, true);
  lies("expected a multiple of 40, the group, or", R"({"quant_method": "gptq", "bits": 4, "group_size": 40})", false);
  // A quantized directory that does not say so.
  const TestDirectory silent;
  make_gptq_models(silent, directory, false);
  write_config(silent.path() / "packed", directory, "");
  expect_contains(checkpoint_error([&] { Model::load((silent.path() / "packed").string()); }),
                  "have 'model.layers.0.self_attn.q_proj.qweight', a part of quantized weights");
  // Integers of a kind that nothing describes.
  const TestDirectory integers;
  make_gptq_models(integers, directory, false, [](TensorData& data) {
    if (data.spec.name != "model.norm.weight") return;
    data.spec.dtype = dtype_size(data.spec.dtype) == 2 ? DType::I16 : DType::I32;
  });
  expect_contains(checkpoint_error([&] { Model::load((integers.path() / "packed").string()); }),
                  "or a quantization_config in config.json that describes it");
  // A plain directory that says it is quantized.
  const TestDirectory dir;
  fs::copy_file(directory + "/model.safetensors", dir.path() / "model.safetensors");
  write_config(dir.path(), directory, gptq_settings);
  expect_contains(checkpoint_error([&] { Model::load(dir.path().string()); }), "have no tensors of that kind");
}

// Four rows of 64 integers of 4 bits in two groups, in the layout of compressed-tensors.
TEST(PackedMatrices, OrdersAndZeroPointsThatSettingsContradictAreRefused) {
  const auto error_of = [](const std::string& weights, const std::vector<uint32_t>& zeros,
                           const std::optional<TensorData>& more = {}) {
    const std::string json =
        R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g":
        {"targets": ["Linear"], "weights": {"num_bits": 4, "strategy": "group", "group_size": 32)" +
        weights + "}}}}";
    const TestDirectory dir;
    std::vector<TensorData> tensors = {
        {{"m.weight_packed", DType::I32, {4, 8}}, bytes_of_numbers(std::vector<uint32_t>(32, 0x9a8b7c6du))},
        {{"m.weight_scale", DType::F32, {4, 2}}, bytes_of_numbers(std::vector<float>(8, 0.5F))}};
    if (!zeros.empty()) tensors.push_back({{"m.weight_zero_point", DType::I32, {1, 2}}, bytes_of_numbers(zeros)});
    if (more) tensors.push_back(*more);
    write_model(dir.path(), tensors);
    const Checkpoint checkpoint = Checkpoint::open(dir.path());
    try {
      PackedMatrix::find(checkpoint, "m", *quantization(json), 4, 64)->read(checkpoint);
    } catch (const CheckpointError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(error_of("", {}), "");
  EXPECT_EQ(error_of("", {0, 0}), "");
  EXPECT_EQ(error_of("", {0x8888u, 0x8888u}), "");
  expect_contains(error_of("", {0x8888u, 0x8878u}), "m.weight_zero_point\" (compressed-tensors): zero point 3 is 7");
  EXPECT_EQ(error_of(R"(, "symmetric": false)", {0x8888u, 0x8878u}), "");
  EXPECT_EQ(error_of(R"(, "actorder": "weight")", {}), "");
  // An order that was never set.
  EXPECT_EQ(error_of("", {},
                     TensorData{{"m.weight_g_idx", DType::I32, {64}}, bytes_of_numbers(std::vector<int32_t>(64, -1))}),
            "");
  const auto shape = [](int64_t columns) {
    return TensorData{{"m.weight_shape", DType::I64, {2}}, bytes_of_numbers(std::vector<int64_t>{4, columns})};
  };
  EXPECT_EQ(error_of("", {}, shape(64)), "");
  expect_contains(error_of("", {}, shape(60)), "says 60; expected 64");
  for (const char* order : {"group", "dynamic"}) {
    const std::string error = error_of(R"(, "actorder": ")" + std::string(order) + "\"", {});
    expect_contains(error, "m.weight_g_idx\" (compressed-tensors): is missing; expected the group of each of the 64");
  }
}

// Four bits in a byte each, as llm-compressor stores weights whose inputs are rounded too.
TEST(PackedMatrices, BytesOfFourBitsAreBlocksOfBytes) {
  const auto how =
      quantization(R"({"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"g":
      {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}}}})");
  const TestDirectory dir;
  std::vector<int8_t> numbers(2 * 64);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int8_t>(static_cast<int>(i % 16) - 8);
  const std::vector<float> scales = {0.5F, 1, 2, 4};
  write_model(dir.path(), {{{"m.weight", DType::I8, {2, 64}}, bytes_of_numbers(numbers)},
                           {{"m.weight_scale", DType::F32, {2, 2}}, bytes_of_numbers(scales)}});
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  const auto matrix = PackedMatrix::find(checkpoint, "m", *how, 2, 64);
  ASSERT_NE(matrix, nullptr);
  ASSERT_NE(matrix->block_format(), nullptr);
  EXPECT_EQ(matrix->block_format()->name, "Q8_0");
  const auto values = matrix->read(checkpoint);
  std::vector<float> decoded(numbers.size()), of_blocks(numbers.size());
  values->decode(0, 2, decoded.data());
  std::vector<std::byte> blocks(numbers.size() / 32 * matrix->block_format()->bytes);
  values->encode(0, 2, blocks.data());
  decode_blocks(*matrix->block_format(), blocks, of_blocks);
  for (size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(decoded[i], static_cast<float>(numbers[i]) * scales[i / 32]) << i;
    EXPECT_EQ(of_blocks[i], decoded[i]) << i;
  }
}

// scale_fmt "ue8m0" of transformers: a scale is the exponent of a power of two, plus 127.
TEST(PackedMatrices, ScalesOfFloat8MayBeExponents) {
  const auto how = quantization(R"({"quant_method": "fp8", "weight_block_size": [2, 32], "scale_fmt": "ue8m0"})");
  const auto decoded = [&](const std::vector<uint8_t>& exponents) {
    // 1.5 in float8_e4m3fn. The writer has no name for exponents, so the bytes U8 become F8_E8M0 in the header.
    const TestDirectory dir;
    write_model(dir.path(), {{{"m.weight", DType::F8E4M3, {2, 64}}, std::string(128, '\x3c')},
                             {{"m.weight_scale_inv", DType::U8, {1, 2}}, bytes_of_numbers(exponents)}});
    const fs::path file = dir.path() / "model.safetensors";
    std::string bytes = read_text(file);
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    const size_t name = bytes.find("\"U8\"");
    bytes.replace(name, 4, "\"F8_E8M0\"");
    header += 5;
    std::memcpy(bytes.data(), &header, sizeof header);
    dir.write("model.safetensors", bytes);
    const Checkpoint checkpoint = Checkpoint::open(dir.path());
    std::vector<float> values(128);
    PackedMatrix::find(checkpoint, "m", *how, 2, 64)->read(checkpoint)->decode(0, 2, values.data());
    return values;
  };
  const std::vector<float> values = decoded({128, 120});
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], i % 64 < 32 ? 3.0F : 1.5F / 128) << i;
  expect_contains(checkpoint_error([&] { decoded({128, 255}); }), "scale 1 is NaN or infinite");
}

TEST(PackedMatrices, SettingsThatMayChangeTheWeightsAreRefusedByName) {
  const auto refused = [](std::string_view part, const std::string& json) {
    expect_contains(checkpoint_error([&] { quantization(json); }), part);
  };
  const auto gptq = [](const std::string& more) {
    return R"({"quant_method": "gptq", "bits": 4, "group_size": 128)" + more + "}";
  };
  EXPECT_NE(quantization(gptq(R"(, "desc_act": true, "damp_percent": 0.1, "dynamic": {}, "meta": {"a": 1})")), nullptr);
  // What GPTQModel 7.6 and transformers 5 write.
  EXPECT_TRUE(quantization(gptq(R"(, "checkpoint_format": "gptq", "format": "gptq", "method": "gptq", "sym": false,
      "act_group_aware": true, "dynamic": {"-:.*down": {}})"))
                  ->zeros_less_one);
  EXPECT_FALSE(quantization(gptq(R"(, "checkpoint_format": "gptq_v2", "format": "gptq_v2")"))->zeros_less_one);
  EXPECT_FALSE(quantization(gptq(R"(, "format": "gptq_v2")"))->zeros_less_one);
  EXPECT_TRUE(quantization(gptq(""))->symmetric);
  EXPECT_TRUE(quantization(gptq(""))->zeros_less_one);
  EXPECT_NE(
      quantization(R"({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true, "damp_percent": 0.1,
      "desc_act": false, "act_group_aware": true, "sym": true, "true_sequential": true, "format": "gemm", "batch_size": 1,
      "backend": "auto", "cache_block_outputs": true, "version": "gemm"})"),
      nullptr);
  // What AutoRound 0.16 writes: symmetric AWQ with zero points all the same, and how it found the numbers.
  const std::string auto_round = R"(, "autoround_version": "0.16.1", "provider": "auto-round", "data_type": "int",
      "enable_quanted_input": false, "iters": 50, "nsamples": 8, "seqlen": 512, "lr": 0.02, "minmax_lr": 0.02, "sym": true)";
  EXPECT_NE(quantization(gptq(auto_round)), nullptr);
  EXPECT_NE(
      quantization(R"({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": false)" +
                   auto_round + "}"),
      nullptr);
  refused("data_type", gptq(R"(, "data_type": "fp4")"));
  refused("act_bits", gptq(R"(, "act_bits": 8)"));
  refused("has no quant_method", R"({"bits": 4})");
  refused("\"bitsandbytes\"", R"({"quant_method": "bitsandbytes", "load_in_4bit": true})");
  refused("bits", R"({"quant_method": "gptq", "bits": 3, "group_size": 128})");
  refused("group_size", R"({"quant_method": "gptq", "bits": 4, "group_size": 0})");
  refused("checkpoint_format", gptq(R"(, "checkpoint_format": "marlin")"));
  refused("is_marlin_format", gptq(R"(, "is_marlin_format": true)"));
  refused("dynamic", gptq(R"(, "dynamic": {"-:.*down": {}, "+:.*o_proj": {"bits": 8}})"));
  refused("format", gptq(R"(, "format": "marlin")"));
  refused("format", gptq(R"(, "checkpoint_format": "gptq", "format": "gptq_v2")"));
  refused("method", gptq(R"(, "method": "qqq")"));
  refused("pack_dtype", gptq(R"(, "pack_dtype": "int64")"));
  refused("\"new_idea\"", gptq(R"(, "new_idea": 2)"));
  refused("version", R"({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemv"})");
  refused("format", R"({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "format": "gemv"})");
  refused("desc_act", R"({"quant_method": "awq", "bits": 4, "group_size": 128, "desc_act": true})");
  refused("fmt", R"({"quant_method": "fp8", "fmt": "e5m2"})");
  refused("weight_block_size", R"({"quant_method": "fp8", "weight_block_size": [128]})");
  const auto compressed = [](const std::string& format, const std::string& weights, const std::string& more = "") {
    return R"({"quant_method": "compressed-tensors", "format": ")" + format +
           R"(", "config_groups": {"group_0": {"targets": ["Linear"], "weights": {)" + weights + "}}}" + more + "}";
  };
  const std::string int4 = R"("num_bits": 4, "type": "int", "symmetric": true, "strategy": "group", "group_size": 32)";
  EXPECT_NE(quantization(compressed("pack-quantized", int4)), nullptr);
  refused("marlin-24", compressed("marlin-24", int4));
  refused("quantization_status", compressed("pack-quantized", int4, R"(, "quantization_status": "calibration")"));
  // Two groups of modules with the same settings, and with others.
  const auto two = [&](const std::string& group_size) {
    return R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"a": {"targets": ["Linear"],
      "weights": {)" +
           int4 + R"(}}, "b": {"targets": ["o_proj"], "weights": {"num_bits": 4, "type": "int", "symmetric": true,
      "strategy": "group", "group_size": )" +
           group_size + "}}}}";
  };
  EXPECT_NE(quantization(two("32")), nullptr);
  refused("quantized in different ways", two("64"));
  refused("kv_cache_scheme", compressed("pack-quantized", int4, R"(, "kv_cache_scheme": {"num_bits": 8})"));
  refused("sparse", compressed("pack-quantized", int4, R"(, "sparsity_config": {"format": "sparse-bitmask"})"));
  // Rotations as llm-compressor 0.14 writes them: R1 and R2 are merged into the weights, R4 is computed by the model.
  const auto rotations = [](const std::string& location) {
    return R"("transform_config": {"config_groups": {"R1": {"type": "hadamard", "randomize": false, "apply": [
        {"targets": ["re:.*o_proj$"], "location": "weight_output"},
        {"targets": ["lm_head"], "location": "weight_input", "inverse": true}]}, "R4": {"type": "hadamard", "apply": [
        {"targets": ["re:.*down_proj$"], "location": ")" +
           location + R"("}, {"targets": ["re:.*down_proj$"], "location": "weight_input", "inverse": true}]}}})";
  };
  EXPECT_NE(quantization(compressed("pack-quantized", int4, ", " + rotations("weight_output"))), nullptr);
  refused("R4.apply[0].location", compressed("pack-quantized", int4, ", " + rotations("input")));
  refused("the rotation \"R4\" is applied to \"k_cache\" while the model runs",
          compressed("pack-quantized", int4, ", " + rotations("k_cache")));
  // Without quantized weights.
  const auto only = [&](const std::string& location) {
    return R"({"quant_method": "compressed-tensors", "sparsity_config": {}, "version": "0.19.0", )" +
           rotations(location) + "}";
  };
  EXPECT_EQ(quantization(only("weight_output")), nullptr);
  refused("the rotation \"R4\"", only("q_attn"));
  refused("num_bits", compressed("pack-quantized", R"("num_bits": 9, "type": "int")"));
  refused("type", compressed("pack-quantized", R"("num_bits": 8, "type": "float", "strategy": "channel")"));
  refused("strategy", compressed("pack-quantized", R"("num_bits": 4, "strategy": "tensor_group", "group_size": 16)"));
  refused("dynamic", compressed("int-quantized", R"("num_bits": 8, "strategy": "channel", "dynamic": true)"));
}

}  // namespace
}  // namespace anyaccel::llm
