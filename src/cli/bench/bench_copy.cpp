// Implements bench copy: compares reading device memory by an op, and copying it, with the device's best read and copy.
#include "anyaccel/op_builder.h"
#include "anyaccel/ops/inference.h"
#include "cli/bench/bench.h"

namespace anyaccel::cli::bench {

void run_copy(const Options& options, std::vector<Result>& results) {
  Accelerator& accelerator = *get_accelerator();
  auto ops = accelerator.create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  const Device device = accelerator.device();

  // A product with one row reads its weights once, so it is the simplest reader among the ops.
  Result read{.name = "copy.read", .unit = "GB/s", .ceiling_name = "best read"};
  {
    const int64_t k = 4096;
    const auto n = static_cast<int64_t>(options.bytes) / (2 * k);
    const Tensor weights = Tensor::empty({n, k}, DType::BF16, device);
    const Tensor x = Tensor::empty({1, k}, DType::F32, device);
    const Tensor out = Tensor::empty({1, n}, DType::F32, device);
    ops->random(weights, AA_RANDOM_UNIFORM, 1, 0, -1.0, 1.0);
    ops->random(x, AA_RANDOM_UNIFORM, 2, 0, -1.0, 1.0);
    std::vector<double> values;
    const std::vector<double> ceilings = ceilings_in_turns(AA_CEILING_READ, options, [&] {
      const double seconds = seconds_a_call([&] { ops->linear(out, x, weights); });
      values.push_back(1e-9 * static_cast<double>(weights.nbytes()) / seconds);
    });
    summarize_turns(read, values, scaled(ceilings, 1e-9), false);
  }
  results.push_back(read);

  Result copy{.name = "copy.copy", .unit = "GB/s", .ceiling_name = "best copy (read + written bytes)"};
  {
    const auto bytes = static_cast<int64_t>(options.bytes);
    const Tensor source = Tensor::empty({bytes / 4}, DType::F32, device);
    const Tensor target = Tensor::empty({bytes / 4}, DType::F32, device);
    ops->random(source, AA_RANDOM_UNIFORM, 3, 0, -1.0, 1.0);
    std::vector<double> values;
    const std::vector<double> ceilings = ceilings_in_turns(AA_CEILING_COPY, options, [&] {
      const double seconds = seconds_a_call([&] { target.copy_from(source); });
      values.push_back(2e-9 * static_cast<double>(source.nbytes()) / seconds);
    });
    summarize_turns(copy, values, scaled(ceilings, 1e-9), false);
  }
  results.push_back(copy);
  accelerator.empty_cache();
}

}  // namespace anyaccel::cli::bench
