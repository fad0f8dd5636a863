// Implements bench product: compares the products of a prompt with the rate of fp32 multiply-adds; if the vendor has a
// library for bf16, also those of a model of 8 billion parameters with a large product of that library.
#include <string>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/inference.h"
#include "cli/bench/bench.h"

namespace anyaccel::cli::bench {

void run_product(const Options& options, std::vector<Result>& results) {
  constexpr int64_t rows = 512, inputs = 2048, outputs = 2048;
  constexpr double operations = 2.0 * rows * inputs * outputs;
  Accelerator& accelerator = *get_accelerator();
  const Device device = accelerator.device();
  auto inference = accelerator.create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  const size_t first = results.size();
  const auto random = [&](const Shape& shape, DType dtype, uint64_t seed) {
    Tensor tensor = Tensor::empty(shape, dtype, device);
    inference->random(tensor, AA_RANDOM_UNIFORM, seed, 0, -1.0, 1.0);
    return tensor;
  };
  const double ceiling = ceiling_around(AA_CEILING_FMA_F32, options, [&] {
    for (const DType dtype : {DType::F32, DType::BF16}) {
      const Tensor x = random({rows, inputs}, DType::F32, 1), w = random({outputs, inputs}, dtype, 2);
      const Tensor out = Tensor::empty({rows, outputs}, DType::F32, device);
      Result result{.name = dtype == DType::F32 ? "product.f32" : "product.bf16",
                    .unit = "GFLOP/s",
                    .ceiling_name = "fp32 fused multiply-add"};
      std::vector<double> values;
      // The first run may compile, load, or choose an implementation.
      for (int run = 0; run < 4 * options.runs + 1; ++run) {
        const double seconds = seconds_a_call([&] { inference->linear(out, x, w); });
        if (run) values.push_back(1e-9 * operations / seconds);
      }
      summarize(result, values, false);
      results.push_back(result);
    }
  });
  for (size_t i = first; i < results.size(); ++i) {
    results[i].ceiling = 1e-9 * ceiling;
    if (ceiling > 0) results[i].ratio = results[i].value / results[i].ceiling;
  }

  if (!has_products_of_bf16(options)) return;
  const size_t first_size = results.size();
  struct Size {
    int64_t m, n, k;
  };
  for (const Size& size :
       {Size{2048, 6144, 4096}, Size{2048, 4096, 4096}, Size{2048, 28672, 4096}, Size{2048, 4096, 14336}}) {
    const Tensor x = random({size.m, size.k}, DType::BF16, 1), w = random({size.n, size.k}, DType::BF16, 2);
    const Tensor out = Tensor::empty({size.m, size.n}, DType::BF16, device);
    Result result{
        .name = "product." + std::to_string(size.m) + "x" + std::to_string(size.n) + "x" + std::to_string(size.k),
        .unit = "GFLOP/s",
        .ceiling_name = "a large bf16 product"};
    std::vector<double> values;
    for (int run = 0; run < 4 * options.runs + 1; ++run) {
      const double seconds = seconds_a_call([&] { inference->linear(out, x, w); });
      const auto work = 2.0 * static_cast<double>(size.m * size.n * size.k);
      if (run) values.push_back(1e-9 * work / seconds);
    }
    summarize(result, values, false);
    results.push_back(result);
  }
  const double large = 1e-9 * measure_ceiling(AA_CEILING_PRODUCT_BF16, options);
  for (size_t i = first_size; i < results.size(); ++i) {
    results[i].ceiling = large;
    results[i].ratio = results[i].value / large;
  }
}

}  // namespace anyaccel::cli::bench
