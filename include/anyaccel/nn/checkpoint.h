// Checkpoints of training: a folder that is written under another name and renamed when it is whole, so that nothing that was
// saved before is lost when writing fails or a process ends meanwhile.
//
//   model.safetensors      the master weights, F32; with config.json and tokenizer.json beside it a model that can be run
//   training.safetensors   the optimizer's states, the losses, and as metadata the progress and the caller's notes
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "anyaccel/nn/trainer.h"

namespace anyaccel::nn {

struct TrainingState {
  int64_t steps_done = 0;
  double loss_scale = 1;
  int64_t good_steps = 0;
  uint64_t generator_offset = 0;  // of the device's default generator, which drops activations
  std::vector<float> losses;      // of each step
  std::map<std::string, std::string>
      notes;  // the caller's, UTF-8: what a run must have in common with the one that it continues
};

// Writes `folder`, whose parent exists; what stood there before is replaced at once. `files` are names and contents of further
// files. Blocks until all is on the disk. Error, with `folder` as it was, when writing fails.
void save_checkpoint(const std::filesystem::path& folder, Parameters& parameters, Optimizer& optimizer,
                     const TrainingState& state, std::span<const std::pair<std::string, std::string>> files);

// Reads a checkpoint into the parameters (masters and weights) and the optimizer's states. Everything is checked before anything
// is changed. CheckpointError names the file and the tensor: one that is missing, has another shape or dtype, is not of this model,
// or a file that is cut short. Blocks.
TrainingState load_checkpoint(const std::filesystem::path& folder, Parameters& parameters, Optimizer& optimizer);

// The weights alone, of any model directory with this model's tensors, in any float dtype: where fine-tuning begins. What no tensor
// shows (numbers of heads, rotary positions, the eps of norms) is not compared: llm::load_model_config() tells it. Blocks.
void load_weights(const std::filesystem::path& model, Parameters& parameters);

}  // namespace anyaccel::nn
