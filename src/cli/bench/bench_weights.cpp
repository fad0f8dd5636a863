// Implements bench weights: products with weights of every type and format that a model file may have. One to sixteen rows of x are
// compared with reading the weights, 512 rows with the rate of fp32 multiply-adds.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/inference.h"
#include "base/block_encode.h"
#include "base/block_format.h"
#include "cli/bench/bench.h"

namespace anyaccel::cli::bench {
namespace {

constexpr int64_t kOutputs = 4096;  // rows of a matrix of weights
// Inputs of a matrix: a multiple of every format's block, and one that is a multiple of the small blocks only.
constexpr int64_t kInputs = 2048, kOddInputs = 864;
constexpr int64_t kPromptRows = 512;

// `count` matrices of weights, of one type or format.
struct Weights {
  std::string name;
  const BlockFormat* format = nullptr;  // null: of the dtype of `matrices`
  Tensor matrices;                      // [count, kOutputs, inputs], or U8 [count, kOutputs, bytes of a row]
};

// A few rows of blocks, encoded from random numbers; of the formats that have no encoder, random codes with a scale at the end.
std::vector<std::byte> random_rows(const BlockFormat& format, int64_t rows, int64_t inputs) {
  std::mt19937 engine(1);
  const auto blocks = static_cast<size_t>(rows * inputs / format.values);
  std::vector<std::byte> bytes(blocks * format.bytes);
  if (can_encode(format)) {
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    std::vector<float> values(static_cast<size_t>(rows * inputs));
    for (float& value : values) value = uniform(engine);
    encode_blocks(format, values, bytes);
    return bytes;
  }
  constexpr uint16_t scale = 0x2400;  // 1/64 in fp16
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(engine());
  for (size_t i = 1; i <= blocks; ++i)
    std::memcpy(bytes.data() + i * format.bytes - sizeof(scale), &scale, sizeof(scale));
  return bytes;
}

Weights random_blocks(const BlockFormat& format, int64_t inputs, size_t bytes, Device device) {
  constexpr int64_t kRows = 64;  // that are different
  static_assert(kOutputs % kRows == 0);
  const std::vector<std::byte> rows = random_rows(format, kRows, inputs);
  const auto row_bytes = static_cast<int64_t>(rows.size()) / kRows;
  std::vector<std::byte> matrix;
  while (static_cast<int64_t>(matrix.size()) < kOutputs * row_bytes)
    matrix.insert(matrix.end(), rows.begin(), rows.end());
  const Tensor one = Tensor::from_host(matrix.data(), {kOutputs, row_bytes}, DType::U8, device);
  const int64_t count = std::max<int64_t>(static_cast<int64_t>(bytes / matrix.size()), 1);
  Weights weights{std::string(format.name), &format, Tensor::empty({count, kOutputs, row_bytes}, DType::U8, device)};
  for (int64_t i = 0; i < count; ++i) weights.matrices.select(0, i).copy_from(one);
  return weights;
}

}  // namespace

void run_weights(const Options& options, std::vector<Result>& results) {
  Accelerator& accelerator = *get_accelerator();
  const Device device = accelerator.device();
  auto inference = accelerator.create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  // Limits are measured around each run, as briefly as the run.
  Options brief = options;
  brief.seconds = std::min(options.seconds, 0.1);

  const auto random = [&](const Shape& shape, DType dtype, uint64_t seed) {
    Tensor tensor = Tensor::empty(shape, dtype, device);
    inference->random(tensor, AA_RANDOM_UNIFORM, seed, 0, -1.0, 1.0);
    return tensor;
  };
  const auto measure = [&](const Weights& weights, int64_t rows, int64_t inputs) {
    const bool prompt = rows == kPromptRows;
    // As a model has them: floats of 16 bits are multiplied by activations of their own type.
    const DType dtype = weights.format ? DType::F32 : weights.matrices.dtype();
    const Tensor x = random({rows, inputs}, dtype, 1), out = Tensor::empty({rows, kOutputs}, DType::F32, device);
    const int64_t count = prompt ? 1 : weights.matrices.size(0);
    const auto multiply = [&] {
      for (int64_t i = 0; i < count; ++i) {
        const Tensor w = weights.matrices.select(0, i);
        if (weights.format) {
          inference->quantized_linear(out, x, w, static_cast<aa_block_format>(weights.format->number), true);
        } else {
          inference->linear(out, x, w);
        }
      }
    };
    Result result{.name = "weights." + weights.name + " " + std::to_string(rows) + "x" + std::to_string(inputs),
                  .unit = prompt ? "GFLOP/s" : "GB/s",
                  .ceiling_name = prompt ? "fp32 fused multiply-add" : "best read of the weights"};
    const double work =
        prompt ? 2.0 * static_cast<double>(rows * inputs * kOutputs) : static_cast<double>(weights.matrices.nbytes());
    std::vector<double> values;
    const std::vector<double> limits = ceilings_in_turns(prompt ? AA_CEILING_FMA_F32 : AA_CEILING_READ, brief, [&] {
      values.push_back(1e-9 * work / seconds_a_call(multiply));
    });
    summarize_turns(result, values, scaled(limits, 1e-9), false);
    results.push_back(result);
  };

  for (const int64_t inputs : {kInputs, kOddInputs}) {
    const auto measure_rows = [&](const Weights& weights) {
      for (const int64_t rows : {int64_t{1}, int64_t{4}, int64_t{16}, kPromptRows}) measure(weights, rows, inputs);
    };
    for (const auto& [dtype, name] :
         {std::pair(DType::F32, "F32"), std::pair(DType::F16, "F16"), std::pair(DType::BF16, "BF16")}) {
      const int64_t bytes_of_one = kOutputs * inputs * static_cast<int64_t>(dtype_size(dtype));
      const int64_t count = std::max<int64_t>(static_cast<int64_t>(options.bytes) / bytes_of_one, 1);
      Weights weights{name, nullptr, Tensor::empty({count, kOutputs, inputs}, dtype, device)};
      for (int64_t i = 0; i < count; ++i) {
        inference->random(weights.matrices.select(0, i), AA_RANDOM_UNIFORM, static_cast<uint64_t>(i + 2), 0, -1.0, 1.0);
      }
      measure_rows(weights);
    }
    if (!inference->takes_quantized_weights()) continue;
    for (const BlockFormat& format : block_formats()) {
      if (inputs % format.values == 0) measure_rows(random_blocks(format, inputs, options.bytes, device));
    }
  }
  accelerator.empty_cache();
}

}  // namespace anyaccel::cli::bench
