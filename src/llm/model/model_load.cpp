// Loads weights onto the device: directly from the mapped file if possible, else converted and copied one by one; or
// random weights.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "anyaccel/accelerator.h"
#include "anyaccel/comm/process_group.h"
#include "anyaccel/error.h"
#include "anyaccel/format_bytes.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/safetensors.h"
#include "anyaccel/log.h"
#include "anyaccel/ops/inference.h"
#include "base/block_format.h"
#include "base/process/all_cores.h"
#include "base/text/json.h"
#include "llm/checkpoint/checkpoint_scan.h"
#include "llm/checkpoint/gguf.h"
#include "llm/config/shape_config.h"
#include "llm/model/decoder_tensors.h"
#include "llm/model/lora_adapter.h"
#include "llm/model/model_files.h"
#include "llm/model/tensor_parallel.h"
#include "llm/quantize/quantize_rows.h"

namespace anyaccel::llm {

namespace {

bool is_supported(const Accelerator& accelerator, DType dtype) {
  const std::vector<DType> supported = accelerator.supported_dtypes();
  return is_op_float(dtype) && std::find(supported.begin(), supported.end(), dtype) != supported.end();
}

void check_wanted_dtype(const Accelerator& accelerator, DType dtype) {
  if (dtype == DType::None || is_supported(accelerator, dtype)) return;
  std::string names;
  for (const DType known : accelerator.supported_dtypes()) {
    if (is_op_float(known)) names += (names.empty() ? "" : ", ") + std::string(dtype_name(known));
  }
  throw InvalidArgument("model: dtype " + std::string(dtype_name(dtype)) + " cannot be computed with on " +
                        accelerator.name() + "; expected one of " + names);
}

// Returns a range of rows of a tensor whose first dimension is `rows`.
TensorView row_slice(TensorView view, int64_t rows, const Slice& held) {
  const uint64_t row_bytes = view.bytes / static_cast<uint64_t>(rows);
  const uint64_t skipped = row_bytes * static_cast<uint64_t>(held.begin);
  if (view.data != nullptr) view.data += skipped;
  view.offset += skipped;
  view.bytes = row_bytes * static_cast<uint64_t>(held.size());
  return view;
}

std::span<std::byte> bytes_of(const Tensor& host) { return {static_cast<std::byte*>(host.data()), host.nbytes()}; }

bool is_aligned(const TensorView& view) { return reinterpret_cast<uintptr_t>(view.data) % dtype_size(view.dtype) == 0; }

// Returns the tensor as ordinary host memory: a view, or a copy if the file is not mapped or does not align the tensor.
Tensor host_view(const Checkpoint& checkpoint, const TensorView& view, const Shape& shape) {
  if (view.data != nullptr && is_aligned(view)) {
    return Tensor::from_blob(const_cast<std::byte*>(view.data), shape, view.dtype, nullptr);
  }
  Tensor copied = Tensor::empty(shape, view.dtype);
  checkpoint.read(view, bytes_of(copied));
  return copied;
}

// Reorders rows that are stored as pairs (TensorView::paired_rows). `rows` are whole heads, contiguous.
Tensor unpaired(const Tensor& rows, int64_t head_rows) {
  Tensor result = Tensor::empty(rows.shape(), rows.dtype());
  const int64_t count = rows.shape()[0];
  const size_t row_bytes = rows.nbytes() / static_cast<size_t>(count);
  const std::byte* from = bytes_of(rows).data();
  std::byte* to = bytes_of(result).data();
  for (int64_t stored = 0; stored < count; ++stored) {
    const int64_t within = stored % head_rows;
    const int64_t row = stored - within + within % 2 * (head_rows / 2) + within / 2;
    std::memcpy(to + static_cast<size_t>(row) * row_bytes, from + static_cast<size_t>(stored) * row_bytes, row_bytes);
  }
  return result;
}

// Returns the rows of a slot, which are blocks of rows, or columns, of a file's tensor; `whole` is that tensor.
Tensor gathered(const Tensor& whole, const TensorSource& source, const Shape& shape) {
  const Tensor rows = source.transposed ? whole.transpose(0, 1) : whole;
  Tensor result = Tensor::empty(shape, whole.dtype());
  int64_t from = source.first;
  for (int64_t to = 0; to < shape[0]; to += source.block, from += source.stride) {
    result.slice(0, to, to + source.block).copy_from(rows.slice(0, from, from + source.block));
  }
  return result;
}

// Decodes rows of a quantized tensor on the host's cores.
Tensor decoded_rows(const BlockFormat& format, std::span<const std::byte> blocks, const Shape& shape) {
  constexpr int64_t rows_at_once = 16;
  Tensor values = Tensor::empty(shape, DType::F32);
  const int64_t rows = shape[0];
  const auto columns = static_cast<size_t>(shape[1]);
  const size_t row_bytes = blocks.size() / static_cast<size_t>(rows);
  const std::span<float> out(static_cast<float*>(values.data()), values.nbytes() / sizeof(float));
  std::atomic<int64_t> next{0};
  on_all_cores(static_cast<size_t>((rows + rows_at_once - 1) / rows_at_once), [&] {
    for (int64_t row = next.fetch_add(rows_at_once); row < rows; row = next.fetch_add(rows_at_once)) {
      const auto first = static_cast<size_t>(row);
      const auto count = static_cast<size_t>(std::min(rows_at_once, rows - row));
      decode_blocks(format, blocks.subspan(first * row_bytes, count * row_bytes),
                    out.subspan(first * columns, count * columns));
    }
  });
  return values;
}

}  // namespace

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
    LoadProgress progress;
    for (const TensorSlot& slot : slots) progress.bytes_total += part_to_read(slot).bytes;
    for (size_t i = 0; i < slots.size(); ++i) {
      const TensorSlot& slot = slots[i];
      const TensorView view = part_to_read(slot);
      // The disk reads the next tensor while this one is converted.
      if (i + 1 < slots.size() && files_->at(slots[i + 1]).packed == nullptr) {
        checkpoint.will_need(part_to_read(slots[i + 1]));
      }
      try {
        const uint64_t mapped = model_->mapped_bytes_;
        const BlockFormat* made = view.bytes > 0 ? format_to_make(view, slot) : nullptr;
        if (view.bytes > 0 && is_adapted(slot)) {
          slot.in(weights) = pack(slot, place_adapted(checkpoint, view, slot));
        } else if (made != nullptr) {
          slot.in(weights) = place_quantized(checkpoint, view, slot, *made);
          slot.format_in(weights) = static_cast<aa_block_format>(made->number);
        } else if (view.bytes > 0 && stays_quantized(view, slot)) {
          const bool keeps_pairs = view.paired_rows > 0 && rotates_pairs(slots, slot);
          if (keeps_pairs) weights.layers[static_cast<size_t>(slot.layer)].rotates_pairs = true;
          slot.in(weights) = place_blocks(checkpoint, view, slot, view.paired_rows > 0 && !keeps_pairs);
          slot.format_in(weights) = static_cast<aa_block_format>(block_format(view)->number);
        } else if (view.bytes > 0) {
          slot.in(weights) = pack(slot, place(checkpoint, view, slot));
        }
        if (slot.in(weights).is_packed()) model_->mapped_bytes_ = mapped;
        if (options_.progress && model_->mapped_bytes_ > mapped) wait_for_disk(checkpoint, view, slot.name, progress);
      } catch (const OutOfMemoryError& error) {
        throw_too_large(slots, error);
      }
      set_apart_the_rest(slot);
      if (view.bytes == 0) continue;
      model_->weight_bytes_ += slot.in(weights).nbytes();
      progress.bytes_done += view.bytes;
      progress.tensor = slot.name;
      if (options_.progress) options_.progress(progress);
    }
    if (model_->config_.tie_word_embeddings) {
      weights.lm_head = weights.embedding;
      weights.lm_head_format = weights.embedding_format;
    }
    // Copies still read from the mapping, which is now destroyed unless weights are used from it. Other streams are not
    // waited for: another rank of this process may have work there that waits for this rank.
    accelerator_.current_stream().synchronize();
    checkpoint.check_unchanged();
    if (model_->mapped_bytes_ > 0) model_->mapped_files_ = checkpoint.files();
    return std::move(model_);
  }

  TensorCheck check_values() {
    open();
    std::unordered_map<std::string, TensorUse> uses;
    for (const TensorSlot& slot : files_->slots()) {
      uses.emplace(files_->file_name(slot), TensorUse{held_dtype(slot), slot.kind == TensorKind::Bias});
    }
    return scan_checkpoint(files_->checkpoint(), uses);
  }

 private:
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
    check_wanted_dtype(accelerator_, options_.dtype);
    if (!options_.quantize.empty()) choose_quantization();
    const auto held = is_gguf(directory_) ? open_gguf(directory_) : nullptr;  // the calls below share it
    model_->configure(load_model_config(directory_), options_.group);
    model_->device_ = accelerator_.device(accelerator_.current_device());
    files_.emplace(directory_, options_.map_files ? FileAccess::Map : FileAccess::Read, model_->config_,
                   model_->notes_);
    align_shards();
    choose_dtype();
    note_quantized();
    if (!options_.adapter.empty()) open_adapter();
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
      if (is_quantized(view) || format_to_make(view, slot) != nullptr || view.paired_rows > 0) {
        throw InvalidArgument("model: the adapter " + options_.adapter + " changes " + quote_text(slot.name) +
                              ", which is quantized or in a GGUF file; expected a directory with weights that are not "
                              "quantized, and no --quantize");
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

  void choose_quantization() {
    wanted_format_ = &quantized_type(options_.quantize);
    if (options_.dtype != DType::None) {
      throw InvalidArgument("model: quantized weights and the dtype " + std::string(dtype_name(options_.dtype)) +
                            " were both asked for; expected one of them");
    }
    if (!ops_.takes_quantized_weights()) {
      throw InvalidArgument(
          "model: the accelerator " + accelerator_.name() +
          " has no ops for quantized weights (quantized_linear), so none are made while a model loads");
    }
  }

  // Moves the borders between the ranks' parts of the feed-forward blocks to where blocks of the second matrix's rows end:
  // a rank would have to decode parts of blocks.
  void align_shards() {
    if (!model_->group_ || options_.dtype != DType::None || !ops_.takes_quantized_weights()) return;
    ShardPolicy policy;
    for (const TensorSlot& slot : files_->slots()) {
      const bool of_experts = slot.split == SplitBy::Expert || slot.split == SplitBy::SharedExpert;
      if (slot.kind != TensorKind::Matrix || slot.split_dim != 1) continue;
      if (slot.split != SplitBy::Intermediate && !of_experts) continue;
      const TensorView& view = files_->at(slot);
      const BlockFormat* format = is_quantized(view)          ? block_format(view)
                                  : wanted_format_ != nullptr ? format_of_matrix(*wanted_format_, slot.shape[1], false)
                                                              : nullptr;
      if (format != nullptr) policy.grain = std::max<int64_t>(policy.grain, format->values);
    }
    const auto ranks = static_cast<int>(model_->group_->size());
    model_->shard_ = plan_shards(model_->config_, ranks, policy)[static_cast<size_t>(model_->group_->rank())];
  }

  static uint64_t decoded_bytes(const TensorView& view, DType dtype) {
    if (view.packed != nullptr) {
      return static_cast<uint64_t>(view.packed->rows() * view.packed->columns()) * dtype_size(dtype);
    }
    if (view.format == nullptr) return view.bytes;
    return view.bytes / view.format->bytes * view.format->values * dtype_size(dtype);
  }

  static bool is_quantized(const TensorView& view) { return view.format != nullptr || view.packed != nullptr; }
  // Returns the block format that a quantized matrix has in its file, or to which it can be repacked without loss; null
  // if there is none.
  static const BlockFormat* block_format(const TensorView& view) {
    return view.packed != nullptr ? view.packed->block_format() : view.format;
  }

  // Returns whether the model computes directly with the blocks of a quantized matrix: the accelerator supports it, no
  // dtype was requested, and this rank's part consists of whole blocks.
  bool stays_quantized(const TensorView& view, const TensorSlot& slot) const {
    const BlockFormat* format = block_format(view);
    if (format == nullptr || slot.kind != TensorKind::Matrix || options_.dtype != DType::None) return false;
    if (!ops_.takes_quantized_weights()) return false;
    if (slot.is_embedding() && model_->group_) return false;
    const Slice part = held(slot);
    const int64_t values = format->values;
    return slot.split_dim == 0 || (part.begin % values == 0 && part.end % values == 0);
  }

  // Returns the format to which a matrix is quantized while it loads. Null if it is not quantized then:
  // LoadOptions::quantize is empty, the matrix is quantized already, or no format fits its rows or this rank's part of
  // them.
  const BlockFormat* format_to_make(const TensorView& view, const TensorSlot& slot) const {
    if (wanted_format_ == nullptr || is_quantized(view) || slot.kind != TensorKind::Matrix) return nullptr;
    if (slot.is_gathered() || slot.is_of_router()) return nullptr;
    if (slot.is_embedding() && model_->group_) return nullptr;
    const bool is_output = slot.is_lm_head() || (slot.is_embedding() && model_->config_.tie_word_embeddings);
    const BlockFormat* format = format_of_matrix(*wanted_format_, slot.shape[1], is_output);
    const Slice part = held(slot);
    const bool whole_blocks = slot.split_dim == 0 || format == nullptr ||
                              (part.begin % format->values == 0 && part.end % format->values == 0);
    return whole_blocks ? format : nullptr;
  }

  // Adds notes that say which matrices are quantized, and how much memory those take that have to be decoded.
  void note_quantized() {
    uint64_t stored = 0;
    uint64_t decoded = 0;
    uint64_t made_of = 0;  // the matrices that are quantized while they load
    uint64_t made_bytes = 0;
    std::set<std::string_view> names;
    std::set<std::string_view> kept;
    for (const TensorSlot& slot : files_->slots()) {
      const TensorView& view = files_->at(slot);
      if (const BlockFormat* made = format_to_make(view, slot)) {
        kept.insert(made->name);
        made_of += view.bytes;
        made_bytes += view.bytes / dtype_size(view.dtype) / made->values * made->bytes;
        continue;
      }
      if (!is_quantized(view)) continue;
      if (stays_quantized(view, slot)) {
        kept.insert(block_format(view)->name);
        continue;
      }
      names.insert(view.packed != nullptr ? std::string_view(model_->config_.quantization->method) : view.format->name);
      stored += view.bytes;
      decoded += decoded_bytes(view, held_dtype(slot));
    }
    const auto list = [](const std::set<std::string_view>& formats) {
      std::string text;
      for (const std::string_view name : formats) text += (text.empty() ? "" : ", ") + std::string(name);
      return text;
    };
    model_->quantized_formats_ = list(kept);
    if (made_bytes > 0) {
      model_->notes_.push_back("weights are quantized while they load: " + format_bytes(made_of) + " become " +
                               format_bytes(made_bytes));
    }
    if (!kept.empty() && options_.activations == Activations::BF16) {
      throw InvalidArgument("model: activations in bf16 were asked for, and the weights are quantized (" + list(kept) +
                            "); expected --activations auto or fp32, or --dtype bf16, which decodes the weights");
    }
    if (names.empty()) return;
    model_->notes_.push_back("quantized weights (" + list(names) + ") are decoded to " +
                             std::string(dtype_name(model_->dtype_)) + " while they load, and take " +
                             format_bytes(decoded) + " instead of " + format_bytes(stored));
  }

  // Chooses the dtype that most of the matrices' bytes have, unless another is requested or needed.
  void choose_dtype() {
    model_->dtype_ = options_.dtype;
    if (options_.dtype != DType::None) return;
    uint64_t most = 0;
    DType dtype = DType::F32;
    for (const DType candidate : {DType::F32, DType::BF16, DType::F16}) {
      uint64_t bytes = 0;
      for (const TensorSlot& slot : files_->slots()) {
        const TensorView& view = files_->at(slot);
        // Decoded weights have fewer digits than bf16. If matrices stay quantized, the dtype is that of keys and
        // values, for which bf16 would cost more than the rest of the computation.
        const DType stored = format_to_make(view, slot)                                     ? DType::F16
                             : !is_quantized(view)                                          ? view.dtype
                             : stays_quantized(view, slot)                                  ? DType::F16
                             : view.packed != nullptr && view.packed->dtype() != DType::F32 ? view.packed->dtype()
                                                                                            : DType::BF16;
        if (slot.kind == TensorKind::Matrix && stored == candidate) bytes += decoded_bytes(view, stored);
      }
      if (bytes > most) dtype = candidate;
      most = std::max(most, bytes);
    }
    model_->dtype_ = is_supported(accelerator_, dtype) ? dtype : DType::F32;
  }

  // Returns the dtype in which the model holds a tensor. Norms and biases are small; in fp32 they need no conversion in
  // every step.
  DType held_dtype(const TensorSlot& slot) const {
    return slot.kind == TensorKind::Matrix ? model_->dtype_ : DType::F32;
  }

  Slice held(const TensorSlot& slot) const { return held_slice(slot, model_->shard_, model_->config_.head_dim); }

  // Returns the bytes of the file that contain this rank's part of the tensor: its rows, or all rows if the part is
  // columns. Empty if the rank holds nothing of it.
  TensorView part_to_read(const TensorSlot& slot) const {
    const TensorView& view = files_->at(slot);
    const Slice part = held(slot);
    if (view.packed != nullptr || slot.is_gathered()) {
      TensorView some = view;
      some.bytes = part.size() > 0 ? view.bytes : 0;
      return some;
    }
    if (slot.split_dim == 0 || part.size() == 0) return row_slice(view, slot.shape[slot.split_dim], part);
    return view;
  }

  // Prevents the other ranks' parts from being mapped together with neighbouring pages that this rank accesses.
  void set_apart_the_rest(const TensorSlot& slot) const {
    const Checkpoint& checkpoint = files_->checkpoint();
    const TensorView& whole = files_->at(slot);
    if (whole.packed != nullptr || slot.is_gathered()) return;
    const Slice part = held(slot);
    const int64_t rows = slot.shape[0];
    if (part.size() == slot.shape[slot.split_dim]) return;
    if (slot.split_dim != 0) {  // copied, and not read from the file again
      checkpoint.set_apart(whole);
      return;
    }
    checkpoint.set_apart(row_slice(whole, rows, {0, part.begin}));
    checkpoint.set_apart(row_slice(whole, rows, {part.end, rows}));
  }

  bool is_registered(void* address, size_t bytes) {
    try {
      return accelerator_.register_host_memory(address, bytes);
    } catch (const OutOfMemoryError& error) {
      log_warning("weights are copied out of their file: " + std::string(error.what()));
      return false;
    }
  }

  // Returns the owner of tensors that lie in a file's mapping; null if the device cannot use the mapping. A device that
  // is the host can use it; with any other device it must be registered.
  std::shared_ptr<void> usable_in_place(const std::shared_ptr<const WeightFile>& file) {
    if ((accelerator_.device_properties(model_->device_.index).caps & AA_CAP_IS_HOST) != 0) {
      return std::const_pointer_cast<WeightFile>(file);
    }
    const auto [known, is_new] = registered_files_.try_emplace(file.get());
    if (is_new) {
      const std::span<const std::byte> mapping = file->mapping();
      void* const address = const_cast<std::byte*>(mapping.data());
      if (is_registered(address, mapping.size())) {
        known->second = std::shared_ptr<void>(address, [file, &accelerator = accelerator_](void* registered) {
          try {
            accelerator.unregister_host_memory(registered);
          } catch (const Error& error) {
            log_warning("the mapping of " + file->path().string() + " cannot be unregistered: " + error.what());
          }
        });
      }
    }
    return known->second;
  }

  // `view` is the result of part_to_read(), and is not empty.
  Tensor place(const Checkpoint& checkpoint, const TensorView& view, const TensorSlot& slot) {
    const Slice part = held(slot);
    const Shape shape = held_shape(slot, part);
    const bool contiguous = slot.split_dim == 0 || part.size() == slot.shape[slot.split_dim];
    const DType wanted = held_dtype(slot);
    const bool paired = view.paired_rows > 0;
    if (view.packed != nullptr) return place_packed(checkpoint, *view.packed, slot, wanted);
    if (view.format != nullptr) {
      return place_decoded(checkpoint, view, contiguous ? shape : slot.shape, shape, slot.split_dim,
                           contiguous ? Slice{} : part, wanted);
    }
    if (slot.is_gathered() || slot.adds_one) return place_changed(checkpoint, view, slot, wanted);
    const bool in_place = contiguous && !paired && view.dtype == wanted && accelerator_.is_host_coherent();
    if (in_place && view.data != nullptr && is_aligned(view)) {
      if (std::shared_ptr<void> owner = usable_in_place(checkpoint.files()[view.file])) {
        model_->mapped_bytes_ += view.bytes;
        // Weights are never written.
        auto* data = const_cast<std::byte*>(view.data);
        return Tensor::from_blob(data, shape, view.dtype, std::move(owner), model_->device_);
      }
    }
    Tensor tensor = Tensor::empty(shape, wanted, model_->device_);
    if (in_place && view.data == nullptr) {
      checkpoint.read(view, bytes_of(tensor));
      return tensor;
    }
    Tensor source = host_view(checkpoint, view, contiguous ? shape : slot.shape);
    if (paired) source = unpaired(source, view.paired_rows);
    tensor.copy_from(contiguous ? source : source.slice(slot.split_dim, part.begin, part.end));
    // Small tensors share a page; the others on it are read again from the system's cache.
    checkpoint.release(view);
    return tensor;
  }

  // Places a matrix that the adapter changes. `view` is as in place().
  Tensor place_adapted(const Checkpoint& checkpoint, const TensorView& view, const TensorSlot& slot) {
    const Slice part = held(slot);
    const bool by_rows = slot.split_dim == 0;
    const bool gathers = slot.is_gathered();
    // The rows of the file's tensor that the view has.
    const Shape shape = gathers ? slot.source->shape : by_rows ? held_shape(slot, part) : slot.shape;
    const int64_t first = gathers ? 0 : (slot.source ? slot.source->first : 0) + (by_rows ? part.begin : 0);
    Tensor values = Tensor::empty(shape, DType::F32);
    values.copy_from(host_view(checkpoint, view, shape));
    adapter_->add_to(slot.name, first, shape[1], slot.source && slot.source->transposed,
                     {static_cast<float*>(values.data()), static_cast<size_t>(values.numel())});
    if (gathers) values = gathered(values, *slot.source, slot.shape);
    if (gathers || !by_rows) values = values.slice(slot.split_dim, part.begin, part.end);
    Tensor tensor = Tensor::empty(values.shape(), held_dtype(slot), model_->device_);
    tensor.copy_from(values);
    checkpoint.release(view);
    return tensor;
  }

  // Places a tensor that is not a contiguous copy of the file's values or rows. `view` is as in place().
  Tensor place_changed(const Checkpoint& checkpoint, const TensorView& view, const TensorSlot& slot, DType wanted) {
    const Slice part = held(slot);
    Tensor source;
    if (slot.is_gathered()) {
      source = gathered(host_view(checkpoint, view, slot.source->shape), *slot.source, slot.shape);
    } else {
      source = host_view(checkpoint, view, held_shape(slot, part));
    }
    if (slot.adds_one) {
      Tensor sum = Tensor::empty(source.shape(), DType::F32);
      sum.copy_from(source);
      auto* values = static_cast<float*>(sum.data());
      for (int64_t i = 0; i < sum.numel(); ++i) values[i] += 1.0f;
      source = std::move(sum);
    }
    if (slot.is_gathered()) source = source.slice(slot.split_dim, part.begin, part.end);
    Tensor tensor = Tensor::empty(source.shape(), wanted, model_->device_);
    tensor.copy_from(source);
    checkpoint.release(view);
    return tensor;
  }

  // Returns whether the rows of a layer's queries and keys, which the file stores as pairs, keep their order: rotating
  // neighbours instead of halves then gives the same result, since keys are multiplied only with queries. Both must be
  // quantized, and nothing else may apply to single rows of a head.
  bool rotates_pairs(const std::vector<TensorSlot>& slots, const TensorSlot& of) const {
    const ModelConfig& config = model_->config_;
    if (config.qkv_bias || config.qk_norm || !config.is_plain() || config.rope.rotary_dim != config.head_dim)
      return false;
    return std::ranges::all_of(slots, [&](const TensorSlot& slot) {
      if (slot.layer != of.layer || (slot.layer_member != &LayerWeights::q && slot.layer_member != &LayerWeights::k)) {
        return true;
      }
      const TensorView& view = files_->at(slot);
      return view.paired_rows == config.head_dim && stays_quantized(view, slot);
    });
  }

  // Places the blocks of a quantized matrix; they stay in the mapped file if possible. If `paired`, the rows are stored
  // as pairs and must be reordered.
  Tensor place_blocks(const Checkpoint& checkpoint, const TensorView& view, const TensorSlot& slot, bool paired) {
    const Slice part = held(slot);
    const bool whole_rows = slot.split_dim == 0 || part.size() == slot.shape[slot.split_dim];
    const Shape shape = held_shape(slot, part);
    if (view.packed != nullptr) return place_packed(checkpoint, *view.packed, slot, DType::U8);
    const auto row_bytes = [&view](int64_t values) { return values / view.format->values * view.format->bytes; };
    const int64_t rows = whole_rows ? shape[0] : slot.shape[0];
    const Shape stored({rows, row_bytes(whole_rows ? shape[1] : slot.shape[1])});
    if (whole_rows && !paired && accelerator_.is_host_coherent() && view.data != nullptr) {
      if (std::shared_ptr<void> owner = usable_in_place(checkpoint.files()[view.file])) {
        model_->mapped_bytes_ += view.bytes;
        return Tensor::from_blob(const_cast<std::byte*>(view.data), stored, DType::U8, std::move(owner),
                                 model_->device_);
      }
    }
    Tensor source;
    if (view.data != nullptr) {
      source = Tensor::from_blob(const_cast<std::byte*>(view.data), stored, DType::U8, nullptr);
    } else {
      source = Tensor::empty(stored, DType::U8);
      checkpoint.read(view, bytes_of(source));
    }
    if (paired) source = unpaired(source, view.paired_rows);
    if (!whole_rows) source = source.slice(1, row_bytes(part.begin), row_bytes(part.end));
    Tensor blocks = Tensor::empty(source.shape(), DType::U8, model_->device_);
    blocks.copy_from(source);
    checkpoint.release(view);
    return blocks;
  }

  // Places a matrix of a quantized directory, a piece at a time: decoded to `wanted`, or as blocks if that is U8.
  Tensor place_packed(const Checkpoint& checkpoint, const PackedMatrix& matrix, const TensorSlot& slot, DType wanted) {
    constexpr int64_t piece_values = int64_t{4} << 20;
    constexpr int64_t rows_at_once = 16;
    const bool as_blocks = wanted == DType::U8;
    const auto width = [&](int64_t values) {  // elements of a row
      if (!as_blocks) return values;
      const BlockFormat& format = *matrix.block_format();
      return values / format.values * format.bytes;
    };
    const Slice part = held(slot);
    const bool by_rows = slot.split_dim == 0;
    const Slice rows = by_rows ? part : Slice{0, matrix.rows()};
    const Slice columns = by_rows ? Slice{0, matrix.columns()} : part;
    const std::unique_ptr<PackedValues> values = matrix.read(checkpoint);
    Tensor placed = Tensor::empty(Shape({rows.size(), width(columns.size())}), wanted, model_->device_);
    const int64_t step = std::max<int64_t>(piece_values / matrix.columns() / rows_at_once, 1) * rows_at_once;
    for (int64_t begin = rows.begin; begin < rows.end; begin += step) {
      const int64_t end = std::min(begin + step, rows.end);
      Tensor piece = Tensor::empty(Shape({end - begin, width(matrix.columns())}), as_blocks ? DType::U8 : DType::F32);
      std::byte* out = bytes_of(piece).data();
      const size_t row_bytes = piece.nbytes() / static_cast<size_t>(end - begin);
      std::atomic<int64_t> next{begin};
      on_all_cores(static_cast<size_t>((end - begin + rows_at_once - 1) / rows_at_once), [&] {
        for (int64_t row = next.fetch_add(rows_at_once); row < end; row = next.fetch_add(rows_at_once)) {
          const int64_t count = std::min(rows_at_once, end - row);
          std::byte* to = out + static_cast<size_t>(row - begin) * row_bytes;
          if (as_blocks) {
            values->encode(row, count, to);
          } else {
            values->decode(row, count, reinterpret_cast<float*>(to));
          }
        }
      });
      if (columns.size() < matrix.columns()) piece = piece.slice(1, width(columns.begin), width(columns.end));
      placed.slice(0, begin - rows.begin, end - rows.begin).copy_from(piece);
    }
    return placed;
  }

  // Quantizes a matrix, a piece at a time. `view` is as in place().
  Tensor place_quantized(const Checkpoint& checkpoint, const TensorView& view, const TensorSlot& slot,
                         const BlockFormat& format) {
    constexpr int64_t piece_values = int64_t{4} << 20;
    const Slice part = held(slot);
    const bool whole_rows = slot.split_dim == 0 || part.size() == slot.shape[slot.split_dim];
    const Shape shape = held_shape(slot, part);
    const int64_t rows = shape[0];
    const int64_t stored_columns = slot.shape[1];
    const auto row_bytes = [&format](int64_t values) { return values / format.values * format.bytes; };
    Tensor blocks = Tensor::empty(Shape({rows, row_bytes(shape[1])}), DType::U8, model_->device_);
    const int64_t unit = std::max<int64_t>(view.paired_rows, 1);
    const int64_t step = (std::max<int64_t>(piece_values / stored_columns, 1) + unit - 1) / unit * unit;
    for (int64_t begin = 0; begin < rows; begin += step) {
      const int64_t end = std::min(begin + step, rows);
      std::vector<float> floats = values_as_floats(checkpoint, row_slice(view, rows, {begin, end}));
      Tensor values = Tensor::from_blob(floats.data(), Shape({end - begin, stored_columns}), DType::F32, nullptr);
      if (view.paired_rows > 0) values = unpaired(values, view.paired_rows);
      Tensor made = Tensor::empty(Shape({end - begin, row_bytes(stored_columns)}), DType::U8);
      quantize_rows(format, {static_cast<const float*>(values.data()), static_cast<size_t>(values.numel())},
                    bytes_of(made), slot.name);
      if (!whole_rows) made = made.slice(1, row_bytes(part.begin), row_bytes(part.end));
      blocks.slice(0, begin, end).copy_from(made);
    }
    checkpoint.release(view);
    return blocks;
  }

  // Decodes a quantized tensor, a piece at a time, so that the values in fp32 never take much memory in addition to the
  // result. `columns` are those that are kept if `split_dim` is 1; empty means all. `stored` is the shape of the view.
  Tensor place_decoded(const Checkpoint& checkpoint, const TensorView& view, const Shape& stored, const Shape& shape,
                       int split_dim, const Slice& columns, DType wanted) {
    constexpr int64_t piece_values = int64_t{4} << 20;
    Tensor tensor = Tensor::empty(shape, wanted, model_->device_);
    const int64_t rows = stored[0];
    // A piece consists of whole heads, whose rows are reordered.
    const int64_t unit = std::max<int64_t>(view.paired_rows, 1);
    const int64_t step = (std::max<int64_t>(piece_values / stored[1], 1) + unit - 1) / unit * unit;
    std::vector<std::byte> buffer;
    for (int64_t begin = 0; begin < rows; begin += step) {
      const int64_t end = std::min(begin + step, rows);
      const TensorView piece = row_slice(view, rows, {begin, end});
      std::span<const std::byte> blocks(piece.data, piece.bytes);
      if (piece.data == nullptr) {
        buffer.resize(piece.bytes);
        checkpoint.read(piece, buffer);
        blocks = buffer;
      }
      Tensor values = decoded_rows(*view.format, blocks, Shape({end - begin, stored[1]}));
      if (view.paired_rows > 0) values = unpaired(values, view.paired_rows);
      if (columns.size() > 0) values = values.slice(split_dim, columns.begin, columns.end);
      tensor.slice(0, begin, end).copy_from(values);
    }
    checkpoint.release(view);
    return tensor;
  }

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
      elements += static_cast<uint64_t>(held_shape(slot, held(slot)).numel());
    }
    const auto bytes = static_cast<double>(elements * dtype_size(model_->dtype_));
    const int device = model_->device_.index;
    const double room =
        static_cast<double>(model_->weight_bytes_) + static_cast<double>(accelerator_.available_memory(device));
    std::string advice = "a model of at most " + format_bytes(room) + " would fit";
    const std::string whose = model_->group_ ? "rank " + std::to_string(model_->shard_.rank) + " of " : "";
    if (dtype_size(model_->dtype_) > 2 && bytes / 2 < room) advice = "it would fit as bf16 or fp16 (--dtype bf16)";
    throw OutOfMemoryError(whose + "model '" + directory_ + "' needs " + format_bytes(bytes) + " for its weights as " +
                               std::string(dtype_name(model_->dtype_)) + " and " + accelerator_.device_name(device) +
                               " has room for " + format_bytes(room) + "; " + advice + ". (" + error.what() + ")",
                           error.native_code());
  }

  std::string directory_;
  const LoadOptions& options_;
  Accelerator& accelerator_;
  ops::Inference ops_{accelerator_};
  std::shared_ptr<Model> model_{new Model()};
  std::optional<ModelFiles> files_;
  std::optional<LoraAdapter> adapter_;                                   // of LoadOptions::adapter
  const BlockFormat* wanted_format_ = nullptr;                           // of LoadOptions::quantize
  std::map<const WeightFile*, std::shared_ptr<void>> registered_files_;  // null: refused
};

std::shared_ptr<const Model> Model::random(Accelerator& accelerator, const ModelShape& shape, DType dtype,
                                           uint64_t seed, std::shared_ptr<comm::ProcessGroup> group,
                                           Activations activations) {
  check_wanted_dtype(accelerator, dtype);
  std::shared_ptr<Model> model(new Model());
  model->configure(config_of_shape(shape, dtype), std::move(group));
  model->device_ = accelerator.device(accelerator.current_device());
  model->dtype_ = dtype;
  model->choose_product_dtype(activations);
  ModelWeights& weights = model->weights_;
  weights.layers.resize(static_cast<size_t>(model->config_.num_hidden_layers));
  const auto ops = accelerator.create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  // Uniform numbers are identical on every accelerator; normal ones depend on the rounding of a sine.
  const double limit = std::sqrt(3.0) * made_up_standard_deviation;
  for (const TensorSlot& slot : decoder_tensors(model->config_)) {
    const bool matrix = slot.kind == TensorKind::Matrix;
    Tensor tensor = Tensor::empty(slot.shape, matrix ? dtype : DType::F32, model->device_);
    if (matrix) {
      ops->random(tensor, AA_RANDOM_UNIFORM, seed++, 0, -limit, limit);
    } else {
      tensor.fill(slot.kind == TensorKind::Norm ? 1.0 : 0.0);
    }
    if (const Slice held = held_slice(slot, model->shard_, model->config_.head_dim);
        held.size() < slot.shape[slot.split_dim]) {
      if (held.size() == 0) continue;
      tensor = tensor.slice(slot.split_dim, held.begin, held.end).clone();
    }
    model->weight_bytes_ += tensor.nbytes();
    slot.in(weights) = std::move(tensor);
  }
  if (model->config_.tie_word_embeddings) weights.lm_head = weights.embedding;
  accelerator.current_stream().synchronize();
  return model;
}

void Model::choose_product_dtype(Activations wanted) {
  if (wanted == Activations::BF16 && dtype_ != DType::BF16) {
    throw InvalidArgument("model: activations in bf16 were asked for, and the model is " +
                          std::string(dtype_name(dtype_)) +
                          "; expected a bf16 model (--dtype bf16), or --activations auto or fp32");
  }
  const uint64_t fast = accelerator().device_properties(device_.index).dtypes_matrix;
  const bool faster = dtype_ == DType::BF16 && (fast >> AA_DTYPE_BF16 & 1) != 0;
  const bool rounds = wanted == Activations::BF16 || (wanted == Activations::Auto && faster);
  product_dtype_ = rounds ? DType::BF16 : DType::F32;
}

void Model::configure(ModelConfig config, std::shared_ptr<comm::ProcessGroup> group) {
  config_ = std::move(config);
  if (group && group->size() > 1) group_ = std::move(group);
  if (group_ && config_.head_norm == HeadNorm::Whole) {
    throw InvalidArgument("model: a model of type " + std::string(family_name(config_.family)) +
                          " norms all heads of a layer together, and is not split over ranks (" +
                          std::to_string(group_->size()) + " were asked for)");
  }
  const int ranks = group_ ? group_->size() : 1;
  const std::vector<ModelShard> plan = plan_shards(config_, ranks);
  shard_ = plan[static_cast<size_t>(group_ ? group_->rank() : 0)];
  notes_ = config_.notes;
  const std::vector<std::string> of_plan = empty_shard_notes(plan);
  notes_.insert(notes_.end(), of_plan.begin(), of_plan.end());
}

TensorCheck check_tensors(const std::string& directory, DType dtype) {
  LoadOptions options;
  options.dtype = dtype;
  options.map_files = false;
  return ModelLoader(directory, options).check_values();
}

void Model::check_files() const {
  for (const auto& file : mapped_files_) file->check_unchanged();
}

std::shared_ptr<const Model> Model::load(const std::string& directory, const LoadOptions& options) {
  return ModelLoader(directory, options).load();
}

}  // namespace anyaccel::llm
