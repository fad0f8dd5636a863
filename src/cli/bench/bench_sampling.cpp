// Implements bench sampling: compares choosing a token out of 128,000 with 2% of the time in which a model of 1.1 billion
// bf16 parameters is read once, which is what a token takes at least.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/inference.h"
#include "cli/bench/bench.h"

namespace anyaccel::cli::bench {

void run_sampling(const Options& options, std::vector<Result>& results) {
  constexpr int64_t tokens = 128000;
  constexpr double weight_bytes = 2.2e9, share = 0.02;
  const Device device = get_accelerator()->device();
  auto inference = get_accelerator()->create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  // The probability of a token falls with its rank as in Zipf's law, as it does for a language model on average; in the
  // flat case every token is likely.
  std::mt19937 random(1);
  std::vector<float> zipf(tokens), flat(tokens);
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < zipf.size(); ++i) {
    zipf[i] = -1.2F * std::log(static_cast<float>(i + 1)) + 0.1F * normal(random);
    flat[i] = normal(random);
  }
  std::shuffle(zipf.begin(), zipf.end(), random);
  const auto row_of = [&](const std::vector<float>& logits) {
    return Tensor::from_host(logits.data(), {1, tokens}, DType::F32).to(device);
  };
  const Tensor likely = row_of(zipf), even = row_of(flat);
  const Tensor out = Tensor::empty({1}, DType::I32, device), rng = Tensor::zeros({2}, DType::I64, device);
  struct Case {
    const char* name;
    const Tensor* logits;
    float temperature;
    int top_k;
    float top_p;
  };
  constexpr int calls = 64;
  const double best_read = measure_ceiling(AA_CEILING_READ, options);
  for (const Case& c :
       {Case{"greedy", &likely, 0, 0, 1}, Case{"top_k", &likely, 0.8F, 40, 0.95F},
        Case{"top_p", &likely, 0.8F, 0, 0.95F}, Case{"all", &likely, 1, 0, 1}, Case{"flat", &even, 1, 0, 0.95F}}) {
    Result result{.name = std::string("sampling.") + c.name,
                  .unit = "us",
                  .ceiling_name = "2% of the best read of 2.2 GB, the weights of 1.1 billion parameters"};
    if (best_read > 0) result.ceiling = 1e6 * share * weight_bytes / best_read;
    std::vector<double> times;
    for (int run = 0; run < options.runs + 1; ++run) {
      const auto start = Clock::now();
      for (int call = 0; call < calls; ++call) {
        inference->sample(out, *c.logits, rng, c.temperature, c.top_k, c.top_p, {}, 0);
        inference->increment(rng.slice(0, 1, 2), 1);
      }
      get_accelerator()->synchronize();
      if (run) times.push_back(1e6 * seconds_since(start) / calls);
    }
    summarize(result, times, true);
    results.push_back(result);
  }
}

}  // namespace anyaccel::cli::bench
