// Implements bench attention, with 32 query and 8 key/value heads of 128: compares causal attention over a prompt in bf16
// with the accelerator's rate of products, and that of one new token with the rate at which it reads, with caches in
// bf16, int8 and fp8 in turns.
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
  constexpr int64_t block = 32, block_bytes = 34;  // of AA_CACHE_Q8_0
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
  struct Caches {
    const char* type;
    int32_t format;                             // aa_cache_format; 0: floats
    std::vector<std::array<Tensor, 2>> layers;  // keys and values
    std::vector<double> times;
  };
  std::vector<Caches> all_caches = {{"bf16", 0, {}, {}}};
  if (inference.takes_quantized_caches()) {
    all_caches.push_back({"int8", AA_CACHE_Q8_0, {}, {}});
    all_caches.push_back({"fp8", AA_CACHE_F8_E4M3, {}, {}});
  }
  for (Caches& caches : all_caches) {
    const int64_t row = caches.format == AA_CACHE_Q8_0 ? head_size / block * block_bytes : head_size;
    const DType dtype = caches.format == 0 ? DType::BF16 : DType::U8;
    for (int64_t layer = 0; layer < layers; ++layer) {
      const Tensor k = Tensor::empty({1, cached_heads, length, row}, dtype, device);
      const Tensor v = Tensor::empty({1, cached_heads, length, row}, dtype, device);
      if (caches.format == 0) {
        inference.cache_write(k, v, rows, rows, first, every);
      } else {
        inference.quantized_cache_write(k, v, static_cast<aa_cache_format>(caches.format), rows, rows, first, every);
      }
      caches.layers.push_back({k, v});
    }
  }
  // As in a step of a model in bf16.
  const Tensor q = random({1, query_heads, head_size}, DType::F32),
               out = Tensor::empty({1, query_heads, head_size}, DType::BF16, device);
  const Tensor sequence = index({0}), position = index({static_cast<int32_t>(length - 1)});
  const auto run = [&](Caches& caches) {
    const auto start = Clock::now();
    int calls = 0;
    double seconds = 0;
    do {
      for (const auto& [k, v] : caches.layers) {
        if (caches.format != 0) {
          const auto format = static_cast<aa_cache_format>(caches.format);
          inference.quantized_attention(out, q, k, v, format, sequence, position, score_scale);
        } else {
          inference.attention(out, q, k, v, sequence, position, score_scale);
        }
        ++calls;
      }
      get_accelerator()->synchronize();
      seconds = seconds_since(start);
    } while (seconds < 0.02);
    caches.times.push_back(1e6 * seconds / calls);
  };
  for (Caches& caches : all_caches) {
    run(caches);
    caches.times.clear();
  }
  const std::vector<double> reads =
      ceilings_in_turns(AA_CEILING_READ, options, [&] { std::ranges::for_each(all_caches, run); });
  for (const Caches& caches : all_caches) {
    Result result{.name = std::string("attention.token_") + caches.type + " " + std::to_string(length),
                  .unit = "us",
                  .ceiling_name = "best read of these keys and values, in turns"};
    summarize_turns(result, caches.times, over(1e6 * 2 * static_cast<double>(caches.layers[0][0].nbytes()), reads),
                    true);
    results.push_back(result);
  }
}

}  // namespace

void run_attention(const Options& options, std::vector<Result>& results) {
  Accelerator& accelerator = *get_accelerator();
  const Device device = accelerator.device();
  auto inference = accelerator.create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  const bool products = has_products_of_bf16(options);
  const size_t first = results.size();
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
                  .ceiling_name = products ? "a large bf16 product" : "fp32 fused multiply-add"};
    const auto n = static_cast<double>(length);
    const double operations = 4.0 * query_heads * head_size * n * (n + 1) / 2;
    std::vector<double> values;
    for (int run = 0; run < options.runs + 1; ++run) {
      const double seconds =
          seconds_a_call([&] { inference->attention(out, q, k, v, sequence, positions, score_scale); });
      if (run) values.push_back(1e-9 * operations / seconds);
    }
    summarize(result, values, false);
    results.push_back(result);
  }
  const double ceiling = 1e-9 * measure_ceiling(products ? AA_CEILING_PRODUCT_BF16 : AA_CEILING_FMA_F32, options);
  for (size_t i = first; i < results.size(); ++i) {
    results[i].ceiling = ceiling;
    if (ceiling > 0) results[i].ratio = results[i].value / ceiling;
  }
  for (const int64_t length : {4096, 32768}) run_new_token(options, *inference, length, results);
}

}  // namespace anyaccel::cli::bench
