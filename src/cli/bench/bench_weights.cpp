// Implements bench weights: products with weights of every type and format that a model file may have. One to sixteen rows of x are
// compared with reading the weights, 512 rows with the rate of fp32 multiply-adds.
#include <algorithm>
#include <cstring>
#include <iterator>
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
constexpr int64_t kInputs = 2048, kOddInputs = 896;
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
  // Both limits are measured before the first run and after each, and a run measures all numbers of rows.
  const auto measure_rows = [&](const Weights& weights, int64_t inputs) {
    const int64_t count = weights.matrices.size(0);
    // As a model has them: floats of 16 bits are multiplied by activations of their own type.
    const DType dtype = weights.format ? DType::F32 : weights.matrices.dtype();
    const auto seconds_of = [&](int64_t rows, int64_t matrices) {
      const Tensor x = random({rows, inputs}, dtype, 1), out = Tensor::empty({rows, kOutputs}, DType::F32, device);
      return seconds_a_call([&] {
        for (int64_t i = 0; i < matrices; ++i) {
          const Tensor w = weights.matrices.select(0, i);
          if (weights.format) {
            inference->quantized_linear(out, x, w, static_cast<aa_block_format>(weights.format->number), true);
          } else {
            inference->linear(out, x, w);
          }
        }
      });
    };
    constexpr int64_t few_rows[] = {1, 4, 16};
    std::vector<double> read, multiplied, of_prompt, of_few[std::size(few_rows)];
    const auto limits = [&] {
      read.push_back(1e-9 * measure_ceiling(AA_CEILING_READ, brief));
      multiplied.push_back(1e-9 * measure_ceiling(AA_CEILING_FMA_F32, brief));
    };
    limits();
    for (int run = 0; run < options.runs; ++run) {
      for (size_t i = 0; i < std::size(few_rows); ++i) {
        of_few[i].push_back(1e-9 * static_cast<double>(weights.matrices.nbytes()) / seconds_of(few_rows[i], count));
      }
      of_prompt.push_back(2e-9 * static_cast<double>(kPromptRows * inputs * kOutputs) / seconds_of(kPromptRows, 1));
      limits();
    }
    const auto add = [&](int64_t rows, const char* unit, const char* ceiling, const std::vector<double>& values,
                         const std::vector<double>& ceilings) {
      Result result{.name = "weights." + weights.name + " " + std::to_string(rows) + "x" + std::to_string(inputs),
                    .unit = unit,
                    .ceiling_name = ceiling};
      summarize_turns(result, values, ceilings, false);
      results.push_back(result);
    };
    for (size_t i = 0; i < std::size(few_rows); ++i) {
      add(few_rows[i], "GB/s", "best read of the weights", of_few[i], read);
    }
    add(kPromptRows, "GFLOP/s", "fp32 fused multiply-add", of_prompt, multiplied);
  };

  for (const int64_t inputs : {kInputs, kOddInputs}) {
    for (const auto& [dtype, name] :
         {std::pair(DType::F32, "F32"), std::pair(DType::F16, "F16"), std::pair(DType::BF16, "BF16")}) {
      const int64_t bytes_of_one = kOutputs * inputs * static_cast<int64_t>(dtype_size(dtype));
      const int64_t count = std::max<int64_t>(static_cast<int64_t>(options.bytes) / bytes_of_one, 1);
      Weights weights{name, nullptr, Tensor::empty({count, kOutputs, inputs}, dtype, device)};
      for (int64_t i = 0; i < count; ++i) {
        inference->random(weights.matrices.select(0, i), AA_RANDOM_UNIFORM, static_cast<uint64_t>(i + 2), 0, -1.0, 1.0);
      }
      measure_rows(weights, inputs);
    }
    if (!inference->takes_quantized_weights()) continue;
    for (const BlockFormat& format : block_formats()) {
      if (inputs % format.values == 0) measure_rows(random_blocks(format, inputs, options.bytes, device), inputs);
    }
  }
  accelerator.empty_cache();
}

}  // namespace anyaccel::cli::bench
