// Implements bench attention: compares causal attention over a prompt in bf16, 32 query and 8 key/value heads of 128,
// with the accelerator's rate of products.
#include <cmath>
#include <numeric>
#include <string>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/inference.h"
#include "cli/bench/bench.h"

namespace anyaccel::cli::bench {

void run_attention(const Options& options, std::vector<Result>& results) {
  constexpr int64_t heads = 32, kv_heads = 8, size = 128;
  Accelerator& accelerator = *get_accelerator();
  const Device device = accelerator.device();
  auto inference = accelerator.create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  const double products = measure_ceiling(AA_CEILING_PRODUCT_BF16, options);
  const double ceiling = products > 0 ? products : measure_ceiling(AA_CEILING_FMA_F32, options);
  // Prompts are shorter on the host, where work that takes a device milliseconds takes seconds.
  const std::vector<int64_t> lengths = on_host() ? std::vector<int64_t>{512} : std::vector<int64_t>{2048, 8192};
  for (const int64_t length : lengths) {
    const auto random = [&](const Shape& shape, uint64_t seed) {
      Tensor tensor = Tensor::empty(shape, DType::BF16, device);
      inference->random(tensor, AA_RANDOM_UNIFORM, seed, 0, -1.0, 1.0);
      return tensor;
    };
    const Tensor q = random({length, heads, size}, 1);
    const Tensor k = random({1, kv_heads, length, size}, 2), v = random({1, kv_heads, length, size}, 3);
    const Tensor out = Tensor::empty({length, heads, size}, DType::BF16, device);
    std::vector<int32_t> numbers(static_cast<size_t>(length));
    std::iota(numbers.begin(), numbers.end(), 0);
    const Tensor positions = Tensor::from_host(numbers.data(), {length}, DType::I32).to(device);
    const Tensor sequence = Tensor::zeros({length}, DType::I32, device);
    Result result{.name = "attention.flops " + std::to_string(length),
                  .unit = "GFLOP/s",
                  .ceiling = 1e-9 * ceiling,
                  .ceiling_name = products > 0 ? "a large bf16 product" : "fp32 fused multiply-add"};
    const auto n = static_cast<double>(length);
    const double operations = 4.0 * heads * size * n * (n + 1) / 2;
    std::vector<double> values;
    for (int run = 0; run < options.runs + 1; ++run) {
      const auto start = Clock::now();
      inference->attention(out, q, k, v, sequence, positions, 1.0f / std::sqrt(static_cast<float>(size)));
      accelerator.synchronize();
      if (run) values.push_back(1e-9 * operations / seconds_since(start));
    }
    summarize(result, values, false);
    results.push_back(result);
  }
}

}  // namespace anyaccel::cli::bench
