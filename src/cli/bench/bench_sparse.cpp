// Implements bench sparse: compares block-sparse attention over a sixteenth of the blocks, alternately, with dense
// attention, without a mask and with a causal one, its gradients with the rate of multiply-adds, and four times the length
// with four times the time.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/inference.h"
#include "anyaccel/ops/sparse_attn.h"
#include "cli/bench/bench.h"

namespace anyaccel::cli::bench {
namespace {

constexpr int64_t head_count = 4, size = 64, block = 16, sequence_length = 8192;

// Returns a configuration with about `per_row` blocks per row, whatever the length: a window, random blocks, and two
// rows and columns that see everything and are seen by everything (these rows grow with the length).
ops::BigBirdSparsityConfig configuration(int64_t per_row) {
  return ops::BigBirdSparsityConfig(head_count, block, false, 5, per_row - 9, 2);
}

int64_t blocks_of(const Tensor& layout) {
  const std::vector<int64_t> values = layout.to_vector<int64_t>();
  return std::count(values.begin(), values.end(), 1);
}

}  // namespace

void run_sparse(const Options& options, std::vector<Result>& results) {
  Accelerator& accelerator = *get_accelerator();
  const Device device = accelerator.device();
  auto inference = accelerator.create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  auto library = accelerator.create_op_builder("SparseAttnBuilder")->load_as<ops::SparseAttn>();
  const auto random = [&](const Shape& shape, uint64_t seed) {
    Tensor tensor = Tensor::empty(shape, DType::F32, device);
    inference->random(tensor, AA_RANDOM_UNIFORM, seed, 0, -1.0, 1.0);
    return tensor;
  };
  const auto milliseconds = [&](const std::function<void()>& body) {
    const auto start = Clock::now();
    body();
    accelerator.synchronize();
    return 1e3 * seconds_since(start);
  };
  constexpr int64_t per_row = sequence_length / block / 16;
  double at_length = 0;  // milliseconds of a call at `length`
  for (const int64_t n : {sequence_length, 4 * sequence_length}) {
    auto config = configuration(per_row);
    const auto blocks = static_cast<double>(blocks_of(configuration(per_row).make_layout(n)));
    const double fraction = blocks / static_cast<double>(head_count * (n / block) * (n / block));
    const auto attention = library->self_attention(config, "add", "mul", n);
    const Tensor q = random({1, head_count, n, size}, 1), k = random({1, head_count, n, size}, 2),
                 v = random({1, head_count, n, size}, 3);
    std::vector<double> sparse, backward, dense, causal;
    const Tensor dout = random({1, head_count, n, size}, 4);
    if (n == sequence_length) {
      const Tensor tokens = q.select(0, 0).transpose(0, 1).contiguous(),
                   out = Tensor::empty(tokens.shape(), DType::F32, device);
      std::vector<int32_t> numbers(static_cast<size_t>(n));
      std::iota(numbers.begin(), numbers.end(), 0);
      const Tensor sequence = Tensor::zeros({n}, DType::I32, device);
      const Tensor own = Tensor::from_host(numbers.data(), {n}, DType::I32, device);
      // At the last position a token sees all others.
      std::fill(numbers.begin(), numbers.end(), static_cast<int32_t>(n - 1));
      const Tensor last = Tensor::from_host(numbers.data(), {n}, DType::I32, device);
      const float scale = 1.0f / std::sqrt(static_cast<float>(size));
      Tensor weights;
      for (int run = 0; run < options.runs + 1; ++run) {
        const auto dense_time = [&](const Tensor& positions) {
          return milliseconds([&] { inference->attention(out, tokens, k, v, sequence, positions, scale); });
        };
        const double all_time = dense_time(last);
        const double sparse_time = milliseconds([&] { attention.forward(q, k, v); });
        const double causal_time = dense_time(own);
        attention.forward(q, k, v, {}, {}, {}, &weights);
        const double backward_time = milliseconds([&] { attention.backward(dout, q, k, v, weights); });
        if (run == 0) continue;  // the first run compiles, loads and touches memory
        dense.push_back(all_time);
        causal.push_back(causal_time);
        sparse.push_back(sparse_time);
        backward.push_back(backward_time);
      }
      Result whole;
      summarize(whole, dense, true);
      Result result{.name = "sparse.forward 8192",
                    .unit = "ms",
                    .ceiling = whole.value * fraction,
                    .ceiling_name = "dense attention's " + std::to_string(static_cast<int>(whole.value)) +
                                    " ms for all scores, for the blocks' " + std::to_string(fraction).substr(0, 6) +
                                    " of them"};
      summarize(result, sparse, true);
      at_length = result.value;
      results.push_back(result);
      const auto add_speedup = [&](const std::string& name, std::vector<double> times, double scores,
                                   const std::string& of_what) {
        for (size_t i = 0; i < times.size(); ++i) times[i] /= sparse[i];
        Result speedup{
            .name = name, .unit = "x", .ceiling = scores / fraction, .ceiling_name = of_what + " over the blocks'"};
        summarize(speedup, times, false);
        results.push_back(speedup);
      };
      const auto positions = static_cast<double>(n);
      add_speedup("sparse.over_dense 8192", dense, 1.0, "all scores");
      add_speedup("sparse.over_causal 8192", causal, (positions + 1) / (2 * positions), "scores of the causal mask");
      Result gradient{.name = "sparse.backward 8192",
                      .unit = "GFLOP/s",
                      .ceiling = 1e-9 * measure_ceiling(AA_CEILING_FMA_F32, options),
                      .ceiling_name = "fp32 fused multiply-add"};
      // The gradients take four products over the blocks.
      for (double& time : backward) time = 1e-6 * 4 * 2 * blocks * block * block * size / time;
      summarize(gradient, backward, false);
      results.push_back(gradient);
    } else {
      for (int run = 0; run < options.runs + 1; ++run) {
        const double time = milliseconds([&] { attention.forward(q, k, v); });
        if (run) sparse.push_back(time);
      }
      const double before = static_cast<double>(blocks_of(configuration(per_row).make_layout(sequence_length)));
      Result result{.name = "sparse.forward 32768",
                    .unit = "ms",
                    .ceiling = at_length * blocks / before,
                    .ceiling_name = "the time of 8,192 positions times " +
                                    std::to_string(blocks / before).substr(0, 4) +
                                    ", the growth of the number of blocks"};
      summarize(result, sparse, true);
      results.push_back(result);
    }
  }
  accelerator.empty_cache();
}

}  // namespace anyaccel::cli::bench
