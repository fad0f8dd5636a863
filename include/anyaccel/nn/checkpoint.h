// Checkpoints of training. A checkpoint is a folder that is written under another name and renamed when it is complete,
// so that earlier data is not lost if writing fails or the process ends meanwhile.
//
//   model.safetensors the master weights, F32; with config.json and tokenizer.json beside it a model that can be run
//   training.safetensors the optimizer's states, the losses, and, as metadata, the progress and the caller's notes
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
  int64_t skipped_steps = 0;
  uint64_t generator_offset = 0;  // of the device's default generator, which dropout uses
  std::vector<float> losses;      // one for each step
  std::map<std::string, std::string>
      notes;  // of the caller, UTF-8: settings that a run must share with the one that it continues
};

// Writes `folder`, whose parent must exist, and atomically replaces an earlier checkpoint or an empty folder. `files` are
// names and contents of further files. Blocks until everything is on the disk. Throws InvalidArgument if there are not as
// many losses as steps, and Error if writing fails or `folder` has other contents than a checkpoint's; `folder` is unchanged
// then.
void save_checkpoint(const std::filesystem::path& folder, Parameters& parameters, Optimizer& optimizer,
                     const TrainingState& state, std::span<const std::pair<std::string, std::string>> files);

// Reads a checkpoint into the parameters (masters and weights) and the optimizer's states. Everything is checked before
// anything is changed. Throws CheckpointError, naming the file and the tensor, for a tensor that is missing, has
// another shape or dtype, or does not belong to this model, or for a truncated file. Blocks.
TrainingState load_checkpoint(const std::filesystem::path& folder, Parameters& parameters, Optimizer& optimizer);

// Reads only the weights, from any model directory with this model's tensors, in any float dtype, to begin fine-tuning.
// It cannot check settings that do not show in tensors (numbers of heads, rotary positions, the eps of norms);
// llm::load_model_config() returns them. Blocks.
void load_weights(const std::filesystem::path& model, Parameters& parameters);

}  // namespace anyaccel::nn
