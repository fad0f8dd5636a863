// Loads a model: opens its files and an adapter, and places its tensors one by one, with progress. load_plan.h decides in
// which form each tensor is held, and weight_placer.h puts it there.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/comm/process_group.h"
#include "anyaccel/error.h"
#include "anyaccel/format_bytes.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/safetensors.h"
#include "anyaccel/ops/inference.h"
#include "base/block_format.h"
#include "base/text/json.h"
#include "llm/checkpoint/checkpoint_scan.h"
#include "llm/checkpoint/gguf.h"
#include "llm/model/adapter_loader.h"
#include "llm/model/decoder_tensors.h"
#include "llm/model/load_plan.h"
#include "llm/model/lora_adapter.h"
#include "llm/model/model_files.h"
#include "llm/model/model_identity.h"
#include "llm/model/weight_pages.h"
#include "llm/model/weight_placer.h"

namespace anyaccel::llm {

class ModelLoader {
 public:
  ModelLoader(const std::string& directory, const LoadOptions& options)
      : directory_(directory), options_(options), accelerator_(*get_accelerator()) {}

  std::shared_ptr<const Model> load() {
    open();
    const Checkpoint& checkpoint = files_->checkpoint();
    const std::vector<TensorSlot>& slots = files_->slots();
    model_->choose_product_dtype(options_.activations);
    if (!model_->quantized_formats_.empty()) {
      model_->product_dtype_ = DType::F32;
      model_->rounds_quantized_ = options_.activations == Activations::Auto;
    }

    ModelWeights& weights = model_->weights_;
    weights.layers.resize(static_cast<size_t>(model_->config_.num_hidden_layers));
    WeightPlacer placer(accelerator_, checkpoint, *plan_, model_->device_);
    LoadProgress progress;
    for (const TensorSlot& slot : slots) progress.bytes_total += plan_->part_to_read(slot).bytes;
    // The disk reads the next tensor while one is converted. Tensors that are used from the file, as all are if the last one
    // was, come into memory when they are accessed: in large pages, into which reading ahead does not put them.
    bool reads_ahead = false;
    for (size_t i = 0; i < slots.size(); ++i) {
      const TensorSlot& slot = slots[i];
      const TensorView view = plan_->part_to_read(slot);
      if (reads_ahead && i + 1 < slots.size() && files_->at(slots[i + 1]).packed == nullptr) {
        checkpoint.will_need(plan_->part_to_read(slots[i + 1]));
      }
      try {
        Tensor& weight = slot.in(weights);  // adds an expert even if the rank holds nothing of it
        const uint64_t placed_before = placer.mapped_bytes();
        if (view.bytes > 0) place(placer, view, slot, weight);
        const uint64_t mapped = placer.mapped_bytes() - placed_before;
        reads_ahead = mapped == 0 || weight.is_packed();
        if (!reads_ahead) {
          model_->mapped_bytes_ += mapped;
          if (options_.progress) wait_for_disk(checkpoint, view, slot.name, progress);
        }
      } catch (const OutOfMemoryError& error) {
        throw_too_large(slots, error);
      }
      plan_->set_apart_the_rest(slot);
      if (view.bytes == 0) continue;
      if (!slot.part || slot.part->first > 0) model_->weight_bytes_ += slot.in(weights).nbytes();
      progress.bytes_done += view.bytes;
      progress.tensor = slot.name;
      if (options_.progress) options_.progress(progress);
    }
    if (adapters_) place_adapters();
    if (model_->config_.tie_word_embeddings) {
      weights.lm_head = weights.embedding;
      weights.lm_head_format = weights.embedding_format;
    }
    // Copies still read from the mapping, which is now destroyed unless weights are used from it. Other streams are not
    // waited for: another rank of this process may have work there that waits for this rank.
    accelerator_.current_stream().synchronize();
    checkpoint.check_unchanged();
    if (model_->mapped_bytes_ > 0) {
      model_->mapped_files_ = checkpoint.files();
      const int device = model_->device_.index;
      // The variable's value was checked when the accelerator was chosen. Ranks of one host share the pages of the file, which copies
      // would not be.
      const char* const pages = std::getenv("ANYACCEL_WEIGHT_PAGES");
      if (pages != nullptr && std::string_view(pages) == "large" && !model_->group_ &&
          (accelerator_.device_properties(device).caps & AA_CAP_IS_HOST) != 0) {
        model_->weight_pages_ = std::make_shared<WeightPages>(
            checkpoint.files(),
            [this_accelerator = &accelerator_, device] { return this_accelerator->available_memory(device); });
      }
    }
    return std::move(model_);
  }

  TensorCheck check_values() {
    open();
    std::unordered_map<std::string, TensorUse> uses;
    for (const TensorSlot& slot : files_->slots()) {
      uses.emplace(files_->file_name(slot), TensorUse{plan_->held_dtype(slot), slot.kind == TensorKind::Bias});
    }
    return scan_checkpoint(files_->checkpoint(), uses);
  }

 private:
  void place(WeightPlacer& placer, const TensorView& view, const TensorSlot& slot, Tensor& weight) {
    ModelWeights& weights = model_->weights_;
    if (slot.part) {
      placer.place_part(view, slot, weight);
      if (slot.part->first > 0) weight = pack(slot, weight);  // the last one
    } else if (is_adapted(slot)) {
      weight = pack(slot, placer.place_adapted(*adapter_, view, slot));
    } else if (const BlockFormat* made = plan_->format_to_make(view, slot)) {
      weight = placer.place_quantized(view, slot, *made);
      slot.format_in(weights) = static_cast<aa_block_format>(made->number);
    } else if (const BlockFormat* cut = plan_->format_to_round_to(view, slot)) {
      weight = pack(slot, placer.place_rounded(view, slot, *cut));
    } else if (plan_->stays_quantized(view, slot)) {
      const bool keeps_pairs = view.paired_rows > 0 && plan_->rotates_pairs(slot);
      if (keeps_pairs) weights.layers[static_cast<size_t>(slot.layer)].rotates_pairs = true;
      weight = placer.place_blocks(view, slot, view.paired_rows > 0 && !keeps_pairs);
      slot.format_in(weights) = static_cast<aa_block_format>(block_format(view)->number);
    } else {
      weight = pack(slot, placer.place(view, slot));
    }
  }

  // Call it once all matrices are placed, as their layout decides that of the factors.
  void place_adapters() {
    for (const TensorSlot& slot : files_->slots()) {
      LowRank LayerAdapters::*const place = adapters_of(slot);
      if (place == nullptr) continue;
      LayerWeights& layer = model_->weights_.layers[static_cast<size_t>(slot.layer)];
      const int64_t pairs = layer.rotates_pairs ? files_->at(slot).paired_rows : 0;
      LowRank& factors = layer.adapters.*place;
      factors = adapters_->place(slot, plan_->held(slot), pairs, model_->dtype_, model_->device_);
      if (factors.a) model_->weight_bytes_ += factors.a.nbytes() + factors.b.nbytes();
    }
  }

  // Waits until a mapped tensor is in memory, so that the progress shown is that of the disk.
  void wait_for_disk(const Checkpoint& checkpoint, const TensorView& view, std::string_view name,
                     LoadProgress progress) const {
    constexpr uint64_t step = uint64_t{16} << 20;
    const uint64_t done = progress.bytes_done;
    progress.tensor = name;
    for (uint64_t at = 0; at < view.bytes; at += step) {
      TensorView part = view;
      part.data += at;
      part.bytes = std::min(step, view.bytes - at);
      if (checkpoint.is_in_memory(part)) continue;
      checkpoint.populate(part);
      progress.bytes_done = done + at + part.bytes;
      if (at + part.bytes < view.bytes) options_.progress(progress);  // load() reports the end
    }
  }

  // Reads the configuration and the files, and checks everything except the weights' values.
  void open() {
    check_computes(accelerator_, options_.dtype);
    const MatrixType quantization = quantization_asked_for(options_, accelerator_, ops_);
    const auto held = is_gguf(directory_) ? open_gguf(directory_) : nullptr;  // the calls below share it
    model_->configure(load_model_config(directory_), options_.group,
                      accelerator_.device(accelerator_.current_device()));
    files_.emplace(directory_, options_.map_files ? FileAccess::Map : FileAccess::Read, model_->config_,
                   model_->shard().hidden.size() > 0, model_->notes_);
    plan_.emplace(*files_, options_, ops_, *model_, quantization);
    model_->dtype_ = plan_->dtype();
    model_->shards_ = plan_->shards();
    model_->quantized_formats_ = plan_->describe(model_->notes_);
    if (model_->group_)
      model_->identity_ = hash_loaded_model(directory_, files_->checkpoint(), plan_->dtype(), options_);
    if (!options_.adapter.empty()) open_adapter();
    if (options_.adapters.empty()) return;
    adapters_.emplace(options_.adapters, files_->slots());
    model_->adapters_ = adapters_->names();
    model_->adapter_ranks_ = adapters_->ranks();
    const std::vector<std::string> notes = adapters_->notes();
    model_->notes_.insert(model_->notes_.end(), notes.begin(), notes.end());
  }

  // Reads the adapter and checks that the model has every matrix that it changes.
  void open_adapter() {
    adapter_.emplace(options_.adapter);
    std::set<std::string> left;
    for (const std::string& name : adapter_->tensors()) left.insert(name);
    model_->notes_.push_back("the adapter " + options_.adapter + " changes " + std::to_string(left.size()) +
                             " matrices");
    model_->notes_.insert(model_->notes_.end(), adapter_->notes().begin(), adapter_->notes().end());
    for (const TensorSlot& slot : files_->slots()) {
      if (!is_adapted(slot)) continue;
      left.erase(slot.name);
      const TensorView& view = files_->at(slot);
      if (slot.kind != TensorKind::Matrix) {
        throw CheckpointError(options_.adapter + ": the adapter changes " + quote_text(slot.name) +
                              ", which is not a matrix of this model; expected the adapter of this model");
      }
      if (is_quantized(view) || plan_->format_to_make(view, slot) != nullptr ||
          plan_->format_to_round_to(view, slot) != nullptr || view.paired_rows > 0) {
        throw InvalidArgument("model: the adapter " + options_.adapter + " changes " + quote_text(slot.name) +
                              ", which is quantized or in a GGUF file; expected a directory with weights that are not "
                              "quantized, and no --quantize");
      }
      if (slot.divides_rows) {
        throw InvalidArgument("model: the adapter " + options_.adapter + " changes " + quote_text(slot.name) +
                              ", whose rows this family divides by their lengths, which is not supported together");
      }
      const bool transposed = slot.source && slot.source->transposed;
      const Shape whole = slot.source ? slot.source->shape : slot.shape;
      adapter_->check_shape(slot.name, whole[0], whole[1], transposed);
    }
    if (left.empty()) return;
    throw CheckpointError(
        options_.adapter + ": the adapter changes " + quote_text(*left.begin()) +
        (left.size() > 1 ? " and " + std::to_string(left.size() - 1) + " more" : std::string()) +
        ", which this model does not have as a matrix of its own; expected the adapter of this model");
  }

  bool is_adapted(const TensorSlot& slot) const { return adapter_ && adapter_->changes(slot.name); }

  // Passes the weights of products to the driver, which may store them in a layout of its own.
  Tensor pack(const TensorSlot& slot, Tensor weight) {
    const bool is_read_by_rows = slot.is_embedding();
    if (slot.kind != TensorKind::Matrix || is_read_by_rows) return weight;
    return ops_.pack_linear_weight(weight, model_->product_dtype());
  }

  // Throws an error with the memory that the model needs, the memory available, and what would fit.
  [[noreturn]] void throw_too_large(const std::vector<TensorSlot>& slots, const OutOfMemoryError& error) {
    uint64_t elements = 0;
    for (const TensorSlot& slot : slots) {
      elements += static_cast<uint64_t>(held_shape(slot, plan_->held(slot)).numel());
    }
    const auto bytes = static_cast<double>(elements * dtype_size(model_->dtype_));
    const int device = model_->device_.index;
    const double room =
        static_cast<double>(model_->weight_bytes_) + static_cast<double>(accelerator_.available_memory(device));
    const std::string whose = model_->group_ ? "rank " + std::to_string(model_->shard().rank) + " of " : "";
    const std::string needs = whose + "model '" + directory_ + "' needs " + format_bytes(bytes) +
                              " for its weights as " + std::string(dtype_name(model_->dtype_)) + " and " +
                              accelerator_.device_name(device) + " has room for " + format_bytes(room);
    // Something else than the device's free memory was used up, which the driver's words may name.
    if (bytes < room) {
      throw OutOfMemoryError(needs + ", but it could not be loaded: " + error.what(), error.native_code());
    }
    std::string advice = "a model of at most " + format_bytes(room) + " would fit";
    if (dtype_size(model_->dtype_) > 2 && bytes / 2 < room) advice = "it would fit as bf16 or fp16 (--dtype bf16)";
    throw OutOfMemoryError(needs + "; " + advice + ". (" + error.what() + ")", error.native_code());
  }

  std::string directory_;
  const LoadOptions& options_;
  Accelerator& accelerator_;
  ops::Inference ops_{accelerator_};
  std::shared_ptr<Model> model_{new Model()};
  std::optional<ModelFiles> files_;
  std::optional<LoadPlan> plan_;
  std::optional<LoraAdapter> adapter_;     // of LoadOptions::adapter
  std::optional<AdapterLoader> adapters_;  // of LoadOptions::adapters
};

TensorCheck check_tensors(const std::string& directory, DType dtype) {
  LoadOptions options;
  options.dtype = dtype;
  options.map_files = false;
  return ModelLoader(directory, options).check_values();
}

std::shared_ptr<const Model> Model::load(const std::string& directory, const LoadOptions& options) {
  return ModelLoader(directory, options).load();
}

}  // namespace anyaccel::llm
