// Training steps: a step processes a batch in pieces, averages the gradients over ranks, unscales and clips them, and
// runs the optimizer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "anyaccel/comm/process_group.h"
#include "anyaccel/nn/models.h"
#include "anyaccel/nn/optimizer.h"

namespace anyaccel::nn {

// The learning rate of each step: it rises linearly to `peak` during the first `warmup` steps, and then stays
// (constant), or falls linearly (linear) or as half a cosine (cosine) to final_part * peak at step `steps`, where it
// stays.
struct Schedule {
  std::string shape = "cosine";  // constant, linear or cosine
  double peak = 1e-3;
  int64_t warmup = 0;
  int64_t steps = 1;
  double final_part = 0.1;

  // Returns the rate of step number `step`, counted from 1. Throws InvalidArgument for an unknown shape.
  double at(int64_t step) const;
};

struct TrainerOptions {
  Schedule schedule;
  double max_norm = 1;  // of the norm of all gradients together; 0: they are not clipped
  // Ranks that each get a part of every batch; null: this process alone. All must start with the same parameters.
  std::shared_ptr<comm::ProcessGroup> group = {};
  // FP16 only: the initial loss scale. Losses are multiplied by the scale, so that small gradients do not become 0. It
  // is halved after a step whose gradients are not finite, which updates nothing, and doubled after `scale_window`
  // steps without such gradients.
  double first_scale = 65536;
  int64_t scale_window = 1000;
};

struct StepResult {
  int64_t step = 0;
  double loss = 0;  // the mean over all ranks and pieces
  double norm = 0;  // of the mean gradients, before clipping; 0 if it was not computed
  double rate = 0;
  bool skipped = false;  // gradients of FP16 that were not finite: nothing was changed
};

class Trainer {
 public:
  // The arguments must outlive the trainer. Throws InvalidArgument for invalid options.
  Trainer(Model& model, Parameters& parameters, Optimizer& optimizer, const TrainerOptions& options);

  // Makes one step over the pieces of this rank's part of a batch. Their gradients are accumulated, so that only one
  // piece's activations are in memory at a time; every piece and every rank has the same weight. Blocks until the loss
  // is known. Throws InvalidArgument without pieces, and for a piece without targets. Throws NumericalError for a loss
  // that is not finite and, if gradients are clipped, for gradients that are not finite, before anything is changed.
  // With max_norm 0 and another dtype than FP16 the loss is known only after the optimizer has run, so begin at an
  // earlier checkpoint then. With FP16, gradients that are not finite skip the step (StepResult::skipped), and throw
  // once the scale is below 1.
  StepResult step(std::span<const Batch> pieces);

  // Returns the mean loss of all targets of this rank's batches, computed without gradients and without dropout; 0 if
  // there are none. Blocks.
  double evaluate(std::span<const Batch> batches);

  // The progress that a checkpoint stores. A run that continues from a checkpoint sets it.
  int64_t steps_done() const noexcept { return step_; }
  double loss_scale() const noexcept { return scale_; }
  int64_t good_steps() const noexcept { return good_steps_; }
  // Of steps_done(): those with FP16 that were skipped. The optimizer does not count them.
  int64_t skipped_steps() const noexcept { return skipped_steps_; }
  void set_progress(int64_t steps_done, double loss_scale, int64_t good_steps, int64_t skipped_steps = 0);

 private:
  double gradient_norm();

  Model& model_;
  Parameters& parameters_;
  Optimizer& optimizer_;
  TrainerOptions options_;
  int64_t step_ = 0;
  double scale_ = 1;
  int64_t good_steps_ = 0;
  int64_t skipped_steps_ = 0;
};

}  // namespace anyaccel::nn
