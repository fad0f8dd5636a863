// Opens the files of a model and matches them with the list of the tensors that it must have.
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
  // configuration. Clears config.tie_word_embeddings if the files have an output matrix that differs from the
  // embedding. Adds notes about that and about tensors that are not used. whole_rows: see decoder_tensors().
  // CheckpointError.
  ModelFiles(const std::string& directory, FileAccess access, ModelConfig& config, bool whole_rows,
             std::vector<std::string>& notes);

  const Checkpoint& checkpoint() const noexcept { return checkpoint_; }
  // The tensors in the order of their use, like decoder_tensors().
  const std::vector<TensorSlot>& slots() const noexcept { return slots_; }
  // Returns the name of a tensor in the files.
  std::string file_name(const TensorSlot& slot) const;
  // Returns the view of a slot's tensor. A quantized matrix of a directory has a view of its own (TensorView::packed).
  // For a slot that is one range of rows of a tensor, the view is that range; for one that is gathered
  // (TensorSlot::is_gathered), it is the whole tensor.
  TensorView at(const TensorSlot& slot) const;

 private:
  std::string packed_key(const TensorSlot& slot) const;
  void untie_if_different(ModelConfig& config, std::vector<std::string>& notes);
  // llm-compressor gives the experts of Mixtral other names than transformers does.
  void choose_expert_names(ModelConfig& config) const;
  // Some programs write the matrices of all experts of a layer as one tensor.
  bool has_stacked_experts(const ModelConfig& config) const;
  void find_packed(const std::string& directory, const ModelConfig& config);
  std::string quantized_part(const std::string& name) const;
  void check(const std::string& directory) const;
  void note_unused(const ModelConfig& config, std::vector<std::string>& notes) const;

  Checkpoint checkpoint_;
  std::vector<TensorSlot> slots_;
  std::shared_ptr<const WeightQuantization> quantization_;
  std::vector<std::unique_ptr<PackedMatrix>> packed_;
  std::unordered_map<std::string, TensorView> packed_views_;  // by packed_key()
  std::string base_;  // the first part of the family's names ("model."), which files of bare decoders leave out
  bool bare_ = false;
  bool embedding_is_lm_head_ = false;
  std::string lm_head_;  // its name in the files
  std::string lm_head_slot_;
};

}  // namespace anyaccel::llm
