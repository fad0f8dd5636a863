// Implements bench adam on a device: compares steps of FusedAdam on fp32 tensors of device memory with the best copy of
// the same process.
#include <algorithm>
#include <array>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/fused_adam.h"
#include "anyaccel/ops/inference.h"
#include "cli/bench/bench.h"

namespace anyaccel::cli::bench {
namespace {

constexpr double bytes_per_element = 28;  // parameter, gradient and two moments read; all but the gradient written

using Lists = std::array<std::vector<Tensor>, 4>;  // gradients, parameters, first and second moments

// Creates tensors that are separate allocations, filled with numbers that are neither zero nor denormal.
Lists make_lists(ops::Inference& inference, const Device& device, int64_t tensors, int64_t size) {
  Lists lists;
  uint64_t seed = 1;
  for (std::vector<Tensor>& list : lists) {
    for (int64_t i = 0; i < tensors; ++i) {
      list.push_back(Tensor::empty({size}, DType::F32, device));
      inference.random(list.back(), AA_RANDOM_UNIFORM, seed++, 0, 0.01, 0.5);
    }
  }
  return lists;
}

}  // namespace

void run_fused_adam(const Options& options, std::vector<Result>& results) {
  Accelerator& accelerator = *get_accelerator();
  auto inference = accelerator.create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  auto adam = accelerator.create_op_builder("FusedAdamBuilder")->load_as<ops::FusedAdam>();
  int64_t step = 0;
  const auto measure = [&](Result result, const Lists& lists, int steps, double scale) {
    std::vector<double> values;
    for (int run = 0; run < options.runs + 1; ++run) {
      const auto start = Clock::now();
      for (int i = 0; i < steps; ++i) {
        adam->multi_tensor_adam(2048 * 32, {}, lists, 1e-6, 0.9, 0.999, 1e-8, ++step, ops::FusedAdam::AdamW, true,
                                0.01);
      }
      accelerator.synchronize();
      if (run) values.push_back(scale * steps / seconds_since(start));
    }
    summarize(result, values, false);
    results.push_back(result);
  };
  const int64_t room = accelerator.available_memory() / 2 / 16;
  const int64_t elements = std::min(options.elements, std::max<int64_t>(room, 1));
  Result large{.name = "adam.bandwidth", .unit = "GB/s", .ceiling_name = "best copy (read + written bytes)"};
  large.ceiling = 1e-9 * measure_ceiling(AA_CEILING_COPY, options);
  {
    const Lists lists = make_lists(*inference, accelerator.device(), 1, elements);
    measure(large, lists, 1, 1e-9 * bytes_per_element * static_cast<double>(elements));
  }
  constexpr int64_t tensors = 1000, size = 4096;
  Result small{.name = "adam.small", .unit = "elem/s", .ceiling_name = "best copy / 28 bytes"};
  small.ceiling = 1e9 * large.ceiling / bytes_per_element;
  const Lists lists = make_lists(*inference, accelerator.device(), tensors, size);
  measure(small, lists, 20, static_cast<double>(tensors * size));
}

}  // namespace anyaccel::cli::bench
