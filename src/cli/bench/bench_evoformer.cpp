// Implements bench evoformer: compares attention with two biases, and its gradients, with the rate of multiply-adds.
#include <string>
#include <vector>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/evoformer_attn.h"
#include "anyaccel/ops/inference.h"
#include "cli/bench/bench.h"

namespace anyaccel::cli::bench {

void run_evoformer(const Options& options, std::vector<Result>& results) {
  // A part of a model's stack of aligned sequences.
  constexpr int64_t sequences = 32, length = 256, head_count = 8, head_size = 32;
  Accelerator& accelerator = *get_accelerator();
  const Device device = accelerator.device();
  auto inference = accelerator.create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  auto library = accelerator.create_op_builder("EvoformerAttnBuilder")->load_as<ops::EvoformerAttn>();
  const auto random = [&](const Shape& shape, uint64_t seed) {
    Tensor tensor = Tensor::empty(shape, DType::BF16, device);
    inference->random(tensor, AA_RANDOM_UNIFORM, seed, 0, -1.0, 1.0);
    return tensor;
  };
  const Shape shape{1, sequences, length, head_count, head_size};
  const Tensor q = random(shape, 1), k = random(shape, 2), v = random(shape, 3), go = random(shape, 4);
  const Tensor biases[] = {random({1, sequences, 1, 1, length}, 5), random({1, 1, head_count, length, length}, 6)};
  const double product = 2.0 * sequences * head_count * length * length * head_size;  // operations of one
  ops::EvoformerAttn::Saved saved;
  const struct {
    const char* name;
    double products;
    std::function<void()> body;
  } calls[] = {
      {"evoformer.forward", 2, [&] { library->DS4Sci_EvoformerAttention(q, k, v, biases, &saved); }},
      {"evoformer.backward", 5, [&] { library->backward(go, q, k, v, biases, saved); }},
  };
  for (const auto& call : calls) {
    std::vector<double> rates;
    bool first = true;
    const auto run = [&] {
      const auto start = Clock::now();
      call.body();
      accelerator.synchronize();
      const double rate = 1e-9 * call.products * product / seconds_since(start);
      if (!first) rates.push_back(rate);  // the first run compiles, loads and touches memory
      first = false;
    };
    run();
    Result result{.name = call.name, .unit = "GFLOP/s", .ceiling_name = "fp32 fused multiply-add"};
    const std::vector<double> ceilings = ceilings_in_turns(AA_CEILING_FMA_F32, options, run);
    summarize_turns(result, rates, scaled(ceilings, 1e-9), false);
    results.push_back(result);
  }
  accelerator.empty_cache();
}

}  // namespace anyaccel::cli::bench
