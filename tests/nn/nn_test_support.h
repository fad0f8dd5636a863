// Models small enough for tests, and a text that they learn.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/nn/checkpoint.h"

namespace anyaccel::nn::testing {

inline DecoderSizes tiny_decoder() {
  DecoderSizes sizes;
  sizes.tokens = 13;
  sizes.hidden = 32;
  sizes.layers = 2;
  sizes.heads = 4;
  sizes.kv_heads = 2;
  sizes.head_dim = 8;
  sizes.intermediate = 48;
  return sizes;
}

inline EncoderSizes tiny_encoder(float dropout) {
  EncoderSizes sizes;
  sizes.tokens = 14;
  sizes.positions = 24;
  sizes.hidden = 16;
  sizes.layers = 2;
  sizes.heads = 2;
  sizes.intermediate = 32;
  sizes.largest_batch = 8;
  sizes.dropout = dropout;
  return sizes;
}

// Returns a sequence that counts upwards or downwards by one or two, modulo 12. Its first two tokens determine the others.
inline std::vector<int32_t> counting(uint64_t number, int64_t length) {
  std::vector<int32_t> tokens;
  const int64_t step = std::vector<int64_t>{1, 2, 11, 10}[number % 4];
  int64_t token = static_cast<int64_t>(number / 4 * 7 % 12);
  for (int64_t i = 0; i < length; ++i, token += step) tokens.push_back(static_cast<int32_t>(token % 12));
  return tokens;
}

// Sequences [first, first + count) of a step: each place's target is the next token.
inline Batch next_tokens(Context& context, int64_t step, int64_t first, int64_t count, int64_t length) {
  std::vector<int32_t> ids, targets;
  for (int64_t i = first; i < first + count; ++i) {
    const auto tokens = counting(static_cast<uint64_t>(step * 64 + i), length + 1);
    ids.insert(ids.end(), tokens.begin(), tokens.end() - 1);
    targets.insert(targets.end(), tokens.begin() + 1, tokens.end());
  }
  return Batch::from_host(context, count, length, ids, targets);
}

// Every fifth token is hidden by the token 13.
inline Batch hidden_tokens(Context& context, int64_t step, int64_t count, int64_t length) {
  std::vector<int32_t> ids, targets;
  for (int64_t i = 0; i < count; ++i) {
    const auto tokens = counting(static_cast<uint64_t>(step * 64 + i), length);
    for (size_t place = 0; place < tokens.size(); ++place) {
      const bool hidden = (place + static_cast<size_t>(step)) % 5 == 0;
      ids.push_back(hidden ? 13 : tokens[place]);
      targets.push_back(hidden ? tokens[place] : -1);
    }
  }
  return Batch::from_host(context, count, length, ids, targets);
}

struct RunOptions {
  DType dtype = DType::F32;
  OptimizerOptions optimizer = {};
  TrainerOptions trainer = {};
  bool encoder = false;
  float dropout = 0;
  uint64_t seed = 5;
};

// A model in training.
class TestRun {
 public:
  explicit TestRun(const RunOptions& options)
      : context(*get_accelerator(), options.dtype), parameters(context), is_encoder(options.encoder) {
    if (options.encoder) {
      model = std::make_unique<Encoder>(parameters, tiny_encoder(options.dropout));
    } else {
      model = std::make_unique<Decoder>(parameters, tiny_decoder());
    }
    parameters.allocate(options.seed, options.optimizer.placement != Placement::Device);
    optimizer = Optimizer::make(parameters, options.optimizer);
    trainer = std::make_unique<Trainer>(*model, parameters, *optimizer, options.trainer);
  }

  Batch batch(int64_t step, int64_t first = 0, int64_t count = 8) {
    return is_encoder ? hidden_tokens(context, step, count, 20) : next_tokens(context, step, first, count, 20);
  }
  StepResult step() {
    const Batch pieces[] = {batch(trainer->steps_done() + 1)};
    return trainer->step(pieces);
  }
  double steps(int64_t count) {
    double loss = 0;
    for (int64_t i = 0; i < count; ++i) loss = step().loss;
    return loss;
  }
  std::vector<float> weights() { return parameters.masters().to_vector<float>(); }

  Context context;
  Parameters parameters;
  bool is_encoder;
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Trainer> trainer;
};

inline TrainerOptions quick_trainer() {
  TrainerOptions options;
  options.schedule = {"cosine", 1e-2, 5, 60, 0.1};
  return options;
}

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return largest;
}

}  // namespace anyaccel::nn::testing
