// The gradients of whole models on the accelerator that is active: against transformers and PyTorch (tests/data/training, made by
// tools/make_training_values.py in float64), and against differences of the loss.
#include "anyaccel/llm/safetensors.h"
#include "nn/nn_test_support.h"

namespace anyaccel::nn::testing {
namespace {

const std::string kData = std::string(ANYACCEL_TEST_DATA) + "/training";

DecoderSizes stored_sizes() {
  DecoderSizes sizes;
  sizes.tokens = 23;
  sizes.hidden = 16;
  sizes.layers = 2;
  sizes.heads = 4;
  sizes.kv_heads = 2;
  sizes.head_dim = 4;
  sizes.intermediate = 24;
  return sizes;
}

struct Expected {
  std::shared_ptr<const llm::SafetensorsFile> file = llm::SafetensorsFile::open(kData + "/expected.safetensors");

  template <class T>
  std::vector<T> of(const std::string& name) const {
    const llm::TensorInfo& info = *file->find(name);
    std::vector<T> values(info.bytes / sizeof(T));
    file->read(info.offset, std::as_writable_bytes(std::span(values)));
    return values;
  }

  Batch batch(Context& context) const {
    const auto all = of<int32_t>("ids");
    std::vector<int32_t> ids, targets;
    for (size_t i = 0; i < all.size(); ++i) {
      if (i % 71 < 70) ids.push_back(all[i]);
      if (i % 71 > 0) targets.push_back(all[i]);
    }
    return Batch::from_host(context, 2, 70, ids, targets);
  }
};

TEST(NnGradients, OfADecoderAreThoseOfTransformers) {
  const Expected expected;
  // What 16 bits lose grows through the layers; relative to the largest gradient of a tensor.
  for (const auto& [dtype, loss_limit, limit] :
       {std::tuple{DType::F32, 2e-5, 2e-5}, {DType::F16, 2e-2, 2e-2}, {DType::BF16, 0.15, 0.15}}) {
    Context context(*get_accelerator(), dtype);
    Parameters parameters(context);
    Decoder decoder(parameters, stored_sizes());
    parameters.allocate(1);
    load_weights(kData, parameters);
    const Batch batch = expected.batch(context);
    EXPECT_LT(largest_difference(decoder.losses(batch).to_vector<float>(), expected.of<float>("losses")), loss_limit);
    parameters.zero_gradients();
    const float scale = dtype == DType::F16 ? 1024.0f : 1.0f;
    const Tensor losses = decoder.losses_and_gradients(batch, scale / static_cast<float>(batch.counted));
    EXPECT_LT(largest_difference(losses.to_vector<float>(), expected.of<float>("losses")), loss_limit);
    for (const Parameter& p : parameters.all()) {
      auto found = p.gradient.to_vector<float>();
      const auto wanted = expected.of<float>("grad." + p.name);
      double largest = 0;
      for (const float value : wanted) largest = std::max(largest, std::fabs(static_cast<double>(value)));
      for (float& value : found) value /= scale;
      EXPECT_LT(largest_difference(found, wanted), limit * largest) << dtype_name(dtype) << ' ' << p.name;
    }
  }
}

TEST(NnGradients, StepsOfAdamAreThoseOfPyTorch) {
  const Expected expected;
  const auto wanted = expected.of<float>("step_losses");
  Context context(*get_accelerator());
  Parameters parameters(context);
  Decoder decoder(parameters, stored_sizes());
  parameters.allocate(1);
  load_weights(kData, parameters);
  const auto optimizer = Optimizer::make(parameters, {});
  TrainerOptions options;
  options.schedule = {"constant", 0.01, 0, 1, 0};
  options.max_norm = 0.5;
  Trainer trainer(decoder, parameters, *optimizer, options);
  for (const float loss : wanted) {
    const Batch pieces[] = {expected.batch(context)};
    EXPECT_NEAR(trainer.step(pieces).loss, static_cast<double>(loss), 2e-4);
  }
}

// The gradient of the mean loss by some weights of each parameter against central differences.
void expect_differences(Model& model, Parameters& parameters, const Batch& batch, double limit) {
  const auto mean_loss = [&] {
    double sum = 0;
    for (const float loss : model.losses(batch).to_vector<float>()) sum += static_cast<double>(loss);
    return sum / static_cast<double>(batch.counted);
  };
  parameters.zero_gradients();
  model.losses_and_gradients(batch, 1 / static_cast<float>(batch.counted));
  for (const Parameter& p : parameters.all()) {
    const auto gradient = p.gradient.to_vector<float>();
    auto values = p.master.to_vector<float>();
    double largest = 0;
    for (const float value : gradient) largest = std::max(largest, std::fabs(static_cast<double>(value)));
    for (size_t i = 0; i < values.size(); i += 1 + values.size() / 5) {
      constexpr float kStep = 1.0f / 64;
      const float before = values[i];
      double sides[2];
      for (const int side : {0, 1}) {
        values[i] = before + (side ? kStep : -kStep);
        p.master.copy_from(Tensor::from_blob(values.data(), p.shape, DType::F32, nullptr));
        sides[side] = mean_loss();
      }
      values[i] = before;
      p.master.copy_from(Tensor::from_blob(values.data(), p.shape, DType::F32, nullptr));
      const double difference = (sides[1] - sides[0]) / (2 * static_cast<double>(kStep));
      EXPECT_NEAR(static_cast<double>(gradient[i]), difference, limit * (largest + 0.01)) << p.name << ' ' << i;
    }
  }
}

TEST(NnGradients, OfADecoderAreDifferences) {
  Context context(*get_accelerator());
  Parameters parameters(context);
  DecoderSizes sizes = tiny_decoder();
  sizes.tied = false;
  sizes.deviation = 0.2;
  Decoder decoder(parameters, sizes);
  parameters.allocate(3);
  expect_differences(decoder, parameters, next_tokens(context, 1, 0, 2, 9), 0.02);
}

TEST(NnGradients, OfAnEncoderAreDifferences) {
  for (const bool pre_norm : {true, false}) {
    Context context(*get_accelerator());
    Parameters parameters(context);
    EncoderSizes sizes = tiny_encoder(0);
    sizes.pre_norm = pre_norm;
    sizes.deviation = 0.2;
    Encoder encoder(parameters, sizes);
    parameters.allocate(3);
    expect_differences(encoder, parameters, hidden_tokens(context, 1, 2, 10), 0.03);
  }
}

// Positions::block queries at a time, with masks that begin in the middle, and lengths that are no multiple of it.
TEST(NnGradients, OfAttentionDoNotDependOnBlocks) {
  Context context(*get_accelerator());
  std::vector<float> short_gradient, of_two;
  for (const int64_t length : {65, 130}) {
    Parameters parameters(context);
    Decoder decoder(parameters, tiny_decoder());
    parameters.allocate(3);
    // Only the first 65 places count, which see nothing behind them.
    const auto tokens = counting(5, length + 1);
    std::vector<int32_t> targets(tokens.begin() + 1, tokens.end());
    for (size_t i = 65; i < targets.size(); ++i) targets[i] = -1;
    const Batch batch =
        Batch::from_host(context, 1, length, std::span(tokens).first(static_cast<size_t>(length)), targets);
    parameters.zero_gradients();
    decoder.losses_and_gradients(batch, 1);
    (length == 65 ? short_gradient : of_two) = parameters.gradients().to_vector<float>();
  }
  EXPECT_LT(largest_difference(short_gradient, of_two), 2e-4);
}

TEST(NnLayers, LinearWithABiasAndBadInput) {
  Context context(*get_accelerator());
  Parameters parameters(context);
  Linear linear(parameters, "linear", 3, 2, true, 0.5);
  parameters.allocate(1);
  const auto bias = parameters.all()[1].master;
  bias.fill(0.25);
  const std::vector<float> numbers = {1, 2, 3, -1, 0.5f, 2};
  const Tensor x = Tensor::from_host(numbers.data(), {2, 3}, DType::F32, context.device());
  const auto w = parameters.all()[0].master.to_vector<float>();
  const auto y = linear.forward(x).to_vector<float>();
  EXPECT_NEAR(y[3], -w[3] + 0.5f * w[4] + 2 * w[5] + 0.25f, 1e-5);
  const Tensor dy = Tensor::from_host(numbers.data(), {2, 2}, DType::F32, context.device());
  const Tensor dx = context.empty({2, 3});
  linear.backward(dy, dx);
  linear.forward(x);
  linear.backward(dy, dx, true);  // everything is added up
  EXPECT_NEAR(dx.to_vector<float>()[0], 2 * (1 * w[0] + 2 * w[3]), 1e-5);
  EXPECT_NEAR(parameters.all()[1].gradient.to_vector<float>()[1], 2 * (2 + -1), 1e-5);
  EXPECT_NEAR(parameters.all()[0].gradient.to_vector<float>()[0], 2 * (1 * 1 + 3 * -1), 1e-5);
  EXPECT_THROW(linear.backward(dy, dx), InvalidArgument);
  EXPECT_THROW(linear.forward(dx.reshape({3, 2})), InvalidArgument);
}

}  // namespace
}  // namespace anyaccel::nn::testing
