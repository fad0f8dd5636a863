// Implements bench attention, with 32 query and 8 key/value heads of 128: compares causal attention over a prompt in bf16
// with the accelerator's rate of products, and that of one new token with the rate at which it reads, with a bf16 and an
// int8 cache in turns.
#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/inference.h"
#include "cli/bench/bench.h"

namespace anyaccel::cli::bench {

namespace {

constexpr int64_t query_heads = 32, cached_heads = 8, head_size = 128;
constexpr float score_scale = 0.08838834764831845f;  // 1 / sqrt(head_size)

// Times a token that sees `length` slots of a cache, as often as takes 20 ms and more. The caches of several layers take turns,
// so that they come from memory.
void run_new_token(const Options& options, ops::Inference& inference, int64_t length, std::vector<Result>& results) {
  const Device device = get_accelerator()->device();
  constexpr int64_t block = 32, block_bytes = 34;  // of AA_BLOCK_Q8_0
  const int64_t layers = std::max<int64_t>(2, 65536 / length);
  const auto random = [&](const Shape& shape, DType dtype) {
    Tensor tensor = Tensor::empty(shape, dtype, device);
    inference.random(tensor, AA_RANDOM_UNIFORM, 1, 0, -1.0, 1.0);
    return tensor;
  };
  const auto index = [&](std::vector<int32_t> numbers) {
    return Tensor::from_host(numbers.data(), {static_cast<int64_t>(numbers.size())}, DType::I32).to(device);
  };
  std::vector<int32_t> all(static_cast<size_t>(length));
  std::iota(all.begin(), all.end(), 0);
  const Tensor rows = random({length, cached_heads, head_size}, DType::BF16);
  const Tensor first = Tensor::zeros({length}, DType::I32, device), every = index(all);
  std::vector<std::array<Tensor, 2>> floats, bytes;  // keys and values of each layer
  for (int64_t layer = 0; layer < layers; ++layer) {
    const auto empty = [&](int64_t row, DType dtype) {
      return std::array{Tensor::empty({1, cached_heads, length, row}, dtype, device),
                        Tensor::empty({1, cached_heads, length, row}, dtype, device)};
    };
    floats.push_back(empty(head_size, DType::BF16));
    inference.cache_write(floats.back()[0], floats.back()[1], rows, rows, first, every);
    if (!inference.takes_quantized_caches()) continue;
    bytes.push_back(empty(head_size / block * block_bytes, DType::U8));
    inference.quantized_cache_write(bytes.back()[0], bytes.back()[1], AA_BLOCK_Q8_0, rows, rows, first, every);
  }
  const Tensor q = random({1, query_heads, head_size}, DType::F32),
               out = Tensor::empty({1, query_heads, head_size}, DType::F32, device);
  const Tensor sequence = index({0}), position = index({static_cast<int32_t>(length - 1)});
  const auto run = [&](std::vector<std::array<Tensor, 2>>& caches, std::vector<double>& times) {
    if (caches.empty()) return;
    const auto start = Clock::now();
    int calls = 0;
    double seconds = 0;
    do {
      for (const auto& [k, v] : caches) {
        if (k.dtype() == DType::U8) {
          inference.quantized_attention(out, q, k, v, AA_BLOCK_Q8_0, sequence, position, score_scale);
        } else {
          inference.attention(out, q, k, v, sequence, position, score_scale);
        }
        ++calls;
      }
      get_accelerator()->synchronize();
      seconds = seconds_since(start);
    } while (seconds < 0.02);
    times.push_back(1e6 * seconds / calls);
  };
  std::vector<double> of_floats, of_bytes;
  run(floats, of_floats);
  run(bytes, of_bytes);
  of_floats.clear();
  of_bytes.clear();
  const double best_read = ceiling_in_turns(AA_CEILING_READ, options, [&] {
    run(floats, of_floats);
    run(bytes, of_bytes);
  });
  const auto add = [&](const std::vector<std::array<Tensor, 2>>& caches, const std::vector<double>& times,
                       const char* type) {
    if (caches.empty()) return;
    Result result{.name = std::string("attention.token_") + type + " " + std::to_string(length),
                  .unit = "us",
                  .ceiling_name = "best read of these keys and values, in turns"};
    if (best_read > 0) result.ceiling = 1e6 * 2 * static_cast<double>(caches[0][0].nbytes()) / best_read;
    summarize(result, times, true);
    results.push_back(result);
  };
  add(floats, of_floats, "bf16");
  add(bytes, of_bytes, "int8");
}

}  // namespace

void run_attention(const Options& options, std::vector<Result>& results) {
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
    const Tensor q = random({length, query_heads, head_size}, 1);
    const Tensor k = random({1, cached_heads, length, head_size}, 2),
                 v = random({1, cached_heads, length, head_size}, 3);
    const Tensor out = Tensor::empty({length, query_heads, head_size}, DType::BF16, device);
    std::vector<int32_t> numbers(static_cast<size_t>(length));
    std::iota(numbers.begin(), numbers.end(), 0);
    const Tensor positions = Tensor::from_host(numbers.data(), {length}, DType::I32).to(device);
    const Tensor sequence = Tensor::zeros({length}, DType::I32, device);
    Result result{.name = "attention.flops " + std::to_string(length),
                  .unit = "GFLOP/s",
                  .ceiling = 1e-9 * ceiling,
                  .ceiling_name = products > 0 ? "a large bf16 product" : "fp32 fused multiply-add"};
    const auto n = static_cast<double>(length);
    const double operations = 4.0 * query_heads * head_size * n * (n + 1) / 2;
    std::vector<double> values;
    for (int run = 0; run < options.runs + 1; ++run) {
      const auto start = Clock::now();
      inference->attention(out, q, k, v, sequence, positions, score_scale);
      accelerator.synchronize();
      if (run) values.push_back(1e-9 * operations / seconds_since(start));
    }
    summarize(result, values, false);
    results.push_back(result);
  }
  for (const int64_t length : {4096, 32768}) run_new_token(options, *inference, length, results);
}

}  // namespace anyaccel::cli::bench
