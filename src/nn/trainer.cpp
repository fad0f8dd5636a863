// Implements the learning rate schedule and the training step.
#include "anyaccel/nn/trainer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "anyaccel/error.h"

namespace anyaccel::nn {

double Schedule::at(int64_t step) const {
  if (shape != "constant" && shape != "linear" && shape != "cosine") {
    throw InvalidArgument("nn::Schedule: unknown shape '" + shape + "'; expected constant, linear or cosine");
  }
  if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  if (shape == "constant") return peak;
  const auto all = static_cast<double>(std::max<int64_t>(steps - warmup, 1));
  const double done = std::min(1.0, static_cast<double>(step - warmup) / all);
  const double part = shape == "linear" ? 1 - done : 0.5 * (1 + std::cos(std::numbers::pi * done));
  return peak * (final_part + (1 - final_part) * part);
}

Trainer::Trainer(Model& model, Parameters& parameters, Optimizer& optimizer, const TrainerOptions& options)
    : model_(model), parameters_(parameters), optimizer_(optimizer), options_(options) {
  const auto require = [](bool good, const char* what) {
    if (!good) throw InvalidArgument(std::string("nn::Trainer: ") + what);
  };
  require(options.max_norm >= 0 && std::isfinite(options.max_norm), "max_norm must be 0 or more");
  require(options.first_scale > 0 && std::isfinite(options.first_scale), "first_scale must be above 0");
  require(options.scale_window > 0, "scale_window must be at least 1");
  options.schedule.at(1);
  if (parameters.context().dtype() == DType::F16) scale_ = options.first_scale;
}

StepResult Trainer::step(std::span<const Batch> pieces) {
  Context& context = parameters_.context();
  if (pieces.empty()) throw InvalidArgument("nn::Trainer: a step without batches");
  const bool scaled = context.dtype() == DType::F16;
  const bool alone = !options_.group || options_.group->size() == 1;
  StepResult result;
  result.step = step_ + 1;
  result.rate = options_.schedule.at(result.step);

  parameters_.zero_gradients();
  const Tensor loss = Tensor::zeros({1}, DType::F32, context.device());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Batch& piece = pieces[i];
    if (piece.counted < 1) throw InvalidArgument("nn::Trainer: a batch without targets");
    if (alone && i + 1 == pieces.size()) optimizer_.expect_step();
    const double part = 1 / (static_cast<double>(piece.counted) * static_cast<double>(pieces.size()));
    const Tensor losses = model_.losses_and_gradients(piece, static_cast<float>(scale_ * part));
    const Tensor sum = context.empty({1}, DType::F32);
    context.ops().column_sums(sum, losses.view({losses.numel(), 1}));
    context.ops().scaled_add(loss, loss, 1, sum, static_cast<float>(part));
  }
  if (!alone) {
    options_.group->all_reduce(parameters_.gradients(), comm::ReduceOp::Avg);
    options_.group->all_reduce(loss, comm::ReduceOp::Avg);
  }
  // If the norm is not measured, the host can begin to process the first gradients while the device still computes the
  // last.
  const bool measure = options_.max_norm > 0 || scaled;
  double factor = 1 / scale_;
  if (measure) {
    result.norm = gradient_norm() / scale_;
    if (options_.max_norm > 0 && result.norm > options_.max_norm) factor *= options_.max_norm / (result.norm + 1e-6);
    if (!std::isfinite(result.norm)) {
      if (!scaled || scale_ < 1) {
        throw NumericalError("nn::Trainer: the gradients of step " + std::to_string(result.step) +
                             " are not finite; lower the learning rate, or clip, or begin at an earlier checkpoint");
      }
      scale_ /= 2;
      good_steps_ = 0;
      ++skipped_steps_;
      result.skipped = true;
    }
  }
  const auto read_loss = [&] {
    result.loss = static_cast<double>(loss.item<float>());
    if (std::isfinite(result.loss) || result.skipped) return;
    throw NumericalError("nn::Trainer: the loss of step " + std::to_string(result.step) +
                         " is not finite; lower the learning rate, or begin at an earlier checkpoint");
  };
  if (measure) read_loss();
  if (!result.skipped) {
    // Its moments know of applied steps only, so that correcting their bias for all steps would give the first ones the wrong length.
    optimizer_.step(result.step - skipped_steps_, result.rate, factor);
    if (scaled && ++good_steps_ % options_.scale_window == 0) scale_ *= 2;
  }
  if (!measure) read_loss();
  step_ = result.step;
  return result;
}

double Trainer::evaluate(std::span<const Batch> batches) {
  double sum = 0, counted = 0;
  for (const Batch& batch : batches) {
    for (const float loss : model_.losses(batch).to_vector<float>()) sum += static_cast<double>(loss);
    counted += static_cast<double>(batch.counted);
  }
  return counted > 0 ? sum / counted : 0;
}

void Trainer::set_progress(int64_t steps_done, double loss_scale, int64_t good_steps, int64_t skipped_steps) {
  if (steps_done < 0 || !(loss_scale > 0) || !std::isfinite(loss_scale) || good_steps < 0 || skipped_steps < 0 ||
      skipped_steps > steps_done) {
    throw InvalidArgument("nn::Trainer: set_progress with " + std::to_string(steps_done) + " steps, the scale " +
                          std::to_string(loss_scale) + ", " + std::to_string(good_steps) + " good steps and " +
                          std::to_string(skipped_steps) + " skipped ones");
  }
  step_ = steps_done;
  scale_ = parameters_.context().dtype() == DType::F16 ? loss_scale : 1;
  good_steps_ = good_steps;
  skipped_steps_ = skipped_steps;
}

// Computes the root of the sum of squares from the means of rows and the mean of these: each sum is short, and the
// order of summation depends only on the accelerator.
double Trainer::gradient_norm() {
  Context& context = parameters_.context();
  const Tensor& gradients = parameters_.gradients();
  constexpr int64_t kRow = 1024;  // Parameters pads the flat tensors to whole rows
  const int64_t rows = gradients.numel() / kRow;
  const Tensor zeros = context.empty({rows}, DType::F32), squares = context.empty({rows}, DType::F32);
  context.ops().moments(zeros, squares, gradients.view({rows, kRow}), 0, false);
  const Tensor mean = context.empty({1}, DType::F32), spread = context.empty({1}, DType::F32);
  context.ops().moments(mean, spread, squares.view({1, rows}), 0, true);
  return std::sqrt(static_cast<double>(mean.item<float>()) * static_cast<double>(gradients.numel()));
}

}  // namespace anyaccel::nn
