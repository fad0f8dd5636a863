// The files of a model beside the list of the tensors that it must have.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "anyaccel/llm/model_config.h"
#include "anyaccel/llm/safetensors.h"
#include "llm/checkpoint/packed_matrix.h"
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
  // A quantized matrix of a directory has a view of its own (TensorView::packed). Of a slot that is one range of rows of a
  // tensor the view is that range, of one that is gathered (TensorSlot::is_gathered) the whole tensor.
  TensorView at(const TensorSlot& slot) const;

 private:
  void untie_if_different(ModelConfig& config, std::vector<std::string>& notes);
  void find_packed(const std::string& directory, const ModelConfig& config);
  void check(const std::string& directory) const;
  void note_unused(const ModelConfig& config, std::vector<std::string>& notes) const;

  Checkpoint checkpoint_;
  std::vector<TensorSlot> slots_;
  std::shared_ptr<const WeightQuantization> quantization_;
  std::vector<std::unique_ptr<PackedMatrix>> packed_;
  std::unordered_map<std::string, TensorView> packed_views_;  // by the name in the files
  std::string base_;  // the first part of the family's names ("model."), which files of bare decoders leave out
  bool bare_ = false;
  bool embedding_is_lm_head_ = false;
  std::string lm_head_;  // as the files call it
  std::string lm_head_slot_;
};

}  // namespace anyaccel::llm
