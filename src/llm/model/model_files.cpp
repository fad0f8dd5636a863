// Matches the tensors of a model's files with those that its configuration requires.
#include "llm/model/model_files.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "anyaccel/error.h"
#include "anyaccel/ops/inference.h"
#include "llm/checkpoint/gguf.h"
#include "llm/families/families.h"

namespace anyaccel::llm {
namespace {

// Returns whether no model needs this tensor of a file: frequencies, which are computed, and masks of causal attention.
bool is_known_to_be_unneeded(std::string_view name) {
  for (const std::string_view end : {"rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias",
                                     ".attention.masked_bias", "rotary_pos_emb.inv_freq"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

// Returns whether the tensor is one of the layers after the model's own, which predict further tokens.
bool is_of_unused_layer(std::string_view name, const ModelConfig& config) {
  const std::string_view prefix = config.names.layer;
  if (config.unused_layers == 0 || !name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  for (int64_t layer = 0; layer < config.unused_layers; ++layer) {
    if (name.starts_with(std::to_string(config.num_hidden_layers + layer) + ".")) return true;
  }
  return false;
}

// Compares two tensors, reading a piece of each at a time.
bool same_data(const Checkpoint& checkpoint, TensorView a, TensorView b) {
  constexpr uint64_t piece_bytes = uint64_t{4} << 20;
  if (a.dtype != b.dtype || a.format != b.format || !std::ranges::equal(a.shape, b.shape)) return false;
  std::vector<std::byte> of_a(std::min(piece_bytes, a.bytes)), of_b(of_a.size());
  for (uint64_t left = a.bytes; left > 0;) {
    const auto now = static_cast<size_t>(std::min<uint64_t>(left, of_a.size()));
    checkpoint.read(a, std::span(of_a).first(now));
    checkpoint.read(b, std::span(of_b).first(now));
    if (std::memcmp(of_a.data(), of_b.data(), now) != 0) return false;
    a.offset += now;
    b.offset += now;
    left -= now;
  }
  return true;
}

}  // namespace

ModelFiles::ModelFiles(const std::string& directory, FileAccess access, ModelConfig& config, bool whole_rows,
                       std::vector<std::string>& notes)
    : checkpoint_(Checkpoint::open(directory, access)) {
  // Checkpoints of the bare decoder, without an output matrix, leave out "model.".
  const std::string embedding = std::string(config.names.embedding) + ".weight";
  base_ = embedding.substr(0, embedding.find('.') + 1);
  bare_ = checkpoint_.find(embedding) == nullptr && checkpoint_.find(embedding.substr(base_.size())) != nullptr;
  lm_head_slot_ = std::string(config.names.lm_head);
  lm_head_ = lm_head_slot_;
  const std::string too(config.names.lm_head_too);
  if (checkpoint_.find(lm_head_ + ".weight") == nullptr && checkpoint_.find(too + ".weight") != nullptr) lm_head_ = too;
  untie_if_different(config, notes);
  choose_expert_names(config);
  // Of quantized matrices the separate names are expected.
  if (config.quantization == nullptr) config.experts.stacked |= has_stacked_experts(config);
  slots_ = decoder_tensors(config, whole_rows);
  if (config.quantization != nullptr) find_packed(directory, config);
  check(directory);
  note_unused(config, notes);
}

void ModelFiles::choose_expert_names(ModelConfig& config) const {
  TensorNames& names = config.names;
  // Of quantized matrices the files have other tensors than ".weight".
  const auto has = [&](std::string_view matrix) {
    const std::string part = std::string(names.expert) + "0." + std::string(matrix) + ".";
    return std::ranges::any_of(checkpoint_.names(),
                               [&](const std::string& name) { return name.find(part) != name.npos; });
  };
  if (names.expert_gate_too.empty() || has(names.expert_gate) || !has(names.expert_gate_too)) return;
  names.expert_gate = names.expert_gate_too;
  names.expert_up = names.expert_up_too;
  names.expert_down = names.expert_down_too;
}

bool ModelFiles::has_stacked_experts(const ModelConfig& config) const {
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!config.has_experts(layer)) continue;
    const std::string name =
        std::string(config.names.layer) + std::to_string(layer) + "." + std::string(config.names.stacked_gate_up);
    return checkpoint_.find(bare_ ? name.substr(base_.size()) : name) != nullptr;
  }
  return false;
}

TensorView ModelFiles::at(const TensorSlot& slot) const {
  const std::string name = file_name(slot);
  const auto packed = packed_views_.find(packed_key(slot));
  if (packed != packed_views_.end()) return packed->second;
  TensorView view = checkpoint_.at(name);
  if (slot.source && slot.source->count > 0) {
    view.bytes /= static_cast<uint64_t>(slot.source->count);
    const uint64_t skipped = view.bytes * static_cast<uint64_t>(slot.source->index);
    if (view.data != nullptr) view.data += skipped;
    view.offset += skipped;
    view.shape = slot.source->shape.dims();
  }
  if (!slot.source || slot.is_gathered()) return view;  // whole
  const auto rows = static_cast<uint64_t>(slot.shape[0]);
  const auto row_values = static_cast<uint64_t>(slot.shape.numel()) / rows;
  const uint64_t row_bytes = view.bytes / (static_cast<uint64_t>(slot.source->shape.numel()) / row_values);
  const uint64_t skipped = row_bytes * static_cast<uint64_t>(slot.source->first);
  if (view.data != nullptr) view.data += skipped;
  view.offset += skipped;
  view.bytes = row_bytes * rows;
  view.shape = slot.shape.dims();
  return view;
}

void ModelFiles::find_packed(const std::string& directory, const ModelConfig& config) {
  quantization_ = config.quantization;
  for (const TensorSlot& slot : slots_) {
    if (slot.kind != TensorKind::Matrix) continue;
    const std::string name = file_name(slot);
    PackedRows rows;
    if (slot.source && slot.source->count > 0) {
      const TensorSource& source = *slot.source;
      rows = {source.count, source.index, source.shape[1], source.first, source.block == 1 ? source.stride : 1};
    }
    const std::string module = rows.matrices > 0 ? name : name.substr(0, name.rfind('.'));
    auto matrix = PackedMatrix::find(checkpoint_, module, *quantization_, slot.shape[0], slot.shape[1], rows);
    if (matrix == nullptr) continue;
    TensorView view;
    view.dtype = matrix->dtype();
    view.shape = slot.shape.dims();
    view.bytes = matrix->bytes();
    view.packed = matrix.get();
    packed_views_.emplace(packed_key(slot), view);
    packed_.push_back(std::move(matrix));
  }
  if (!packed_.empty()) return;
  throw CheckpointError("model '" + directory + "': config.json says that the weights are quantized (quant_method " +
                        quantization_->method +
                        "), and the files have no tensors of that kind; if they are not quantized, "
                        "remove quantization_config");
}

// Matrices of several experts have one name.
std::string ModelFiles::packed_key(const TensorSlot& slot) const {
  const std::string name = file_name(slot);
  if (!slot.source || slot.source->count == 0) return name;
  return name + ' ' + std::to_string(slot.source->index) + ' ' + std::to_string(slot.source->first);
}

std::string ModelFiles::file_name(const TensorSlot& slot) const {
  const bool is_head = slot.is_lm_head() || slot.model_member == &ModelWeights::lm_head_bias;
  if (embedding_is_lm_head_ && slot.is_embedding()) return lm_head_ + ".weight";
  if (is_head) return lm_head_ + slot.name.substr(lm_head_slot_.size());
  return bare_ && slot.name.starts_with(base_) ? slot.name.substr(base_.size()) : slot.name;
}

// A model that ties its output matrix to the embedding may nevertheless have both in the file, or only the output
// matrix. As in transformers 5, both are used if they differ; otherwise either one is used for both.
void ModelFiles::untie_if_different(ModelConfig& config, std::vector<std::string>& notes) {
  if (!config.tie_word_embeddings) return;
  const std::string embedding_name = std::string(config.names.embedding) + ".weight";
  const TensorView* lm_head = checkpoint_.find(lm_head_ + ".weight");
  const TensorView* embedding = checkpoint_.find(bare_ ? embedding_name.substr(base_.size()) : embedding_name);
  if (lm_head == nullptr) return;
  if (embedding == nullptr) {
    embedding_is_lm_head_ = true;
    return;
  }
  if (same_data(checkpoint_, *lm_head, *embedding)) return;
  config.tie_word_embeddings = false;
  notes.push_back(
      "config.json says that the output matrix is the embedding (tie_word_embeddings), but the files have an output "
      "matrix " +
      lm_head_ + ".weight that differs from it, which is used");
}

// Returns what to say about a missing matrix of which the files have a quantized part; nothing if they have none.
std::string ModelFiles::quantized_part(const std::string& name) const {
  constexpr std::string_view plain = ".weight";
  if (!name.ends_with(plain)) return {};
  for (const char* suffix : {".qweight", ".weight_packed", ".weight_blocks"}) {
    const std::string part = name.substr(0, name.size() - plain.size()) + suffix;
    if (checkpoint_.find(part) == nullptr) continue;
    return "; the files have '" + part +
           "', a part of quantized weights, which have to be described by quantization_config in config.json";
  }
  return {};
}

void ModelFiles::check(const std::string& directory) const {
  const char* by_config = is_gguf(directory) ? " by the file's keys" : " by config.json";
  for (const TensorSlot& slot : slots_) {
    const std::string name = file_name(slot);
    if (packed_views_.contains(packed_key(slot))) continue;  // checked when it was found
    const TensorView* view = checkpoint_.find(name);
    if (view == nullptr) {
      throw CheckpointError("model '" + directory + "': tensor '" + name + "' is missing; expected shape " +
                            slot.file_shape().to_string() + by_config + quantized_part(name));
    }
    const Shape found(view->shape);
    const Shape expected = slot.file_shape();
    if (!(found == expected)) {
      throw CheckpointError("model '" + directory + "': tensor '" + name + "' has shape " + found.to_string() +
                            "; expected " + expected.to_string() + by_config);
    }
    if (!is_op_float(view->dtype) && view->dtype != DType::F64) {
      throw CheckpointError("model '" + directory + "': tensor '" + name + "' is " +
                            std::string(dtype_name(view->dtype)) +
                            "; expected float32, bfloat16, float16 or float64, or a quantization_config in config.json "
                            "that describes it");
    }
  }
}

void ModelFiles::note_unused(const ModelConfig& config, std::vector<std::string>& notes) const {
  constexpr size_t most_named = 4;
  std::unordered_set<std::string> used;
  for (const TensorSlot& slot : slots_) used.insert(file_name(slot));
  for (const auto& matrix : packed_) {
    for (std::string& name : matrix->tensors()) used.insert(std::move(name));
  }
  std::string named;
  size_t count = 0;
  for (const std::string& name : checkpoint_.names()) {
    if (used.contains(name) || is_known_to_be_unneeded(name) || is_of_unused_layer(name, config)) continue;
    // This is the output matrix of a model that ties it.
    if (name == lm_head_ + ".weight" && config.tie_word_embeddings) continue;
    if (count < most_named) named += (count == 0 ? "" : ", ") + name;
    ++count;
  }
  if (count == 0) return;
  if (!has_first_families_rules(config.family)) {
    // Ignoring a bias or a norm would change the generated text.
    throw CheckpointError("the files have " + std::to_string(count) + " tensors that a model of type " +
                          std::string(family_name(config.family)) + " does not have by config.json: " + named +
                          (count > most_named ? ", ..." : ""));
  }
  notes.push_back(std::to_string(count) + (count == 1 ? " tensor" : " tensors") +
                  " in the files that the model does not use: " + named + (count > most_named ? ", ..." : ""));
}

}  // namespace anyaccel::llm
