// The files of a model beside the list of the tensors that it must have.
#pragma once

#include <string>
#include <vector>

#include "anyaccel/llm/model_config.h"
#include "anyaccel/llm/safetensors.h"
#include "llm/model/decoder_tensors.h"

namespace anyaccel::llm {

class ModelFiles {
 public:
  // Opens the files and checks that every tensor is there with the shape and the kind of dtype that follow from the
  // configuration. Clears config.tie_word_embeddings if the files have an output matrix that differs from the embedding.
  // Adds notes about that and about tensors that are not used. CheckpointError.
  ModelFiles(const std::string& directory, FileAccess access, ModelConfig& config, std::vector<std::string>& notes);

  const Checkpoint& checkpoint() const noexcept { return checkpoint_; }
  // In the order of their use, as decoder_tensors().
  const std::vector<TensorSlot>& slots() const noexcept { return slots_; }
  // The name that the files have for a tensor.
  std::string file_name(const TensorSlot& slot) const;
  const TensorView& at(const TensorSlot& slot) const { return checkpoint_.at(file_name(slot)); }

 private:
  void untie_if_different(ModelConfig& config, std::vector<std::string>& notes);
  void check(const std::string& directory) const;
  void note_unused(const ModelConfig& config, std::vector<std::string>& notes) const;

  Checkpoint checkpoint_;
  std::vector<TensorSlot> slots_;
  bool bare_ = false;
  bool embedding_is_lm_head_ = false;
};

}  // namespace anyaccel::llm
