// Implements bench transformer: compares the training step of one encoder layer, forward and backward, with dropout,
// with the rate of fp32 multiply-adds.
#include "anyaccel/op_builder.h"
#include "anyaccel/ops/training.h"
#include "anyaccel/ops/transformer.h"
#include "cli/bench/bench.h"

namespace anyaccel::cli::bench {

void run_transformer(const Options& options, std::vector<Result>& results) {
  constexpr int64_t tokens = 512, hidden = 1024, heads = 16, intermediate = 4 * hidden;
  constexpr float dropout = 0.1f;
  // The multiply-adds of the products: each is done once forward and twice backward.
  constexpr double operations =
      3.0 * (2.0 * tokens * (4 * hidden * hidden + 2 * hidden * intermediate) + 4.0 * tokens * tokens * hidden);
  constexpr uint32_t layer = 0xb37c8;
  Accelerator& accelerator = *get_accelerator();
  const Device device = accelerator.device();
  auto library = accelerator.create_op_builder("TransformerBuilder")->load_as<ops::Transformer>();
  auto inference = accelerator.create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  uint64_t seed = 0;
  const auto random = [&](const Shape& shape, double size) {
    const Tensor tensor = Tensor::empty(shape, DType::F32, device);
    inference->random(tensor, AA_RANDOM_UNIFORM, ++seed, 0, -size, size);
    return tensor;
  };
  const Tensor input = random({1, tokens, hidden}, 1), upstream = random({1, tokens, hidden}, 1);
  const Tensor mask = Tensor::zeros({1, 1, 1, tokens}, DType::F32, device);
  const ops::TransformerWeights weights{random({3 * hidden, hidden}, 0.03),
                                        random({3 * hidden}, 0.1),
                                        random({hidden, hidden}, 0.03),
                                        random({hidden}, 0.1),
                                        random({hidden}, 1),
                                        random({hidden}, 0.1),
                                        random({intermediate, hidden}, 0.03),
                                        random({intermediate}, 0.1),
                                        random({hidden, intermediate}, 0.015),
                                        random({hidden}, 0.1),
                                        random({hidden}, 1),
                                        random({hidden}, 0.1)};
  library->create_transformer_layer_fp32(layer, 1, hidden, heads, intermediate, dropout, dropout, 1e-12f, -1, true,
                                         false, false, false, false, false);
  Result result{.name = "transformer.f32", .unit = "GFLOP/s", .ceiling_name = "fp32 fused multiply-add"};
  const double ceiling = ceiling_around(AA_CEILING_FMA_F32, options, [&] {
    std::vector<double> values;
    // The first runs may compile, load and allocate.
    for (int run = -2; run < options.runs; ++run) {
      const auto start = Clock::now();
      const ops::TransformerActivations activations =
          library->forward_fp32(layer, input, mask, weights, true, true, false, false, false);
      const ops::TransformerGradients gradients =
          library->backward_fp32(layer, upstream, activations, input, mask, weights);
      accelerator.synchronize();
      if (run >= 0) values.push_back(1e-9 * operations / seconds_since(start));
    }
    summarize(result, values, false);
  });
  result.ceiling = 1e-9 * ceiling;
  if (ceiling > 0) result.ratio = result.value / result.ceiling;
  results.push_back(result);
}

}  // namespace anyaccel::cli::bench
