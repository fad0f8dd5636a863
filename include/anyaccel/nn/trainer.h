// Steps of training: batches in pieces, gradients averaged over ranks, clipped and unscaled, then the optimizer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "anyaccel/comm/process_group.h"
#include "anyaccel/nn/models.h"
#include "anyaccel/nn/optimizer.h"

namespace anyaccel::nn {

// The learning rate of each step: it rises evenly to `peak` during the first `warmup` steps, and then stays (constant), falls evenly
// (linear) or as half a cosine (cosine) to final_part * peak at step `steps`, where it stays.
struct Schedule {
  std::string shape = "cosine";  // constant, linear or cosine
  double peak = 1e-3;
  int64_t warmup = 0;
  int64_t steps = 1;
  double final_part = 0.1;

  // Of step number `step`, from 1 on. InvalidArgument for an unknown shape.
  double at(int64_t step) const;
};

struct TrainerOptions {
  Schedule schedule;
  double max_norm = 1;  // of all gradients together; 0: they are not clipped
  // Ranks that each get a part of every batch; null: this process alone. All have the same parameters at the beginning.
  std::shared_ptr<comm::ProcessGroup> group;
  // FP16 only. Losses are multiplied by the scale, so that small gradients do not become 0. It halves after a step whose gradients
  // are not finite, which changes nothing, and doubles after `scale_window` good ones.
  double first_scale = 65536;
  int64_t scale_window = 1000;
};

struct StepResult {
  int64_t step = 0;
  double loss = 0;  // the mean over all ranks and pieces
  double norm = 0;  // of the mean gradients, before they are clipped; 0 where it was not asked for
  double rate = 0;
  bool skipped = false;  // gradients of FP16 that were not finite: nothing was changed
};

class Trainer {
 public:
  // All of these outlive the trainer. InvalidArgument for options that make no sense.
  Trainer(Model& model, Parameters& parameters, Optimizer& optimizer, const TrainerOptions& options);

  // One step over the pieces of this rank's part of a batch, whose gradients are added up, so that only one piece is in memory; each
  // piece, and each rank, counts the same. Blocks until the loss is known. NumericalError for a loss that is not finite; where
  // gradients are clipped, for those too, and before anything is changed (but see StepResult::skipped).
  StepResult step(std::span<const Batch> pieces);

  // The mean loss of this rank's batches, without gradients and without what is dropped in training. Blocks.
  double evaluate(std::span<const Batch> batches);

  // What a checkpoint keeps, and what goes on from one sets.
  int64_t steps_done() const noexcept { return step_; }
  double loss_scale() const noexcept { return scale_; }
  int64_t good_steps() const noexcept { return good_steps_; }
  void set_progress(int64_t steps_done, double loss_scale, int64_t good_steps);

 private:
  double gradient_norm();

  Model& model_;
  Parameters& parameters_;
  Optimizer& optimizer_;
  TrainerOptions options_;
  int64_t step_ = 0;
  double scale_ = 1;
  int64_t good_steps_ = 0;
};

}  // namespace anyaccel::nn
