#include "llm/model/load_plan.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/comm/process_group.h"
#include "anyaccel/error.h"
#include "anyaccel/format_bytes.h"
#include "anyaccel/ops/inference.h"
#include "base/block_format.h"
#include "llm/model/tensor_parallel.h"
#include "llm/quantize/whole_numbers.h"

namespace anyaccel::llm {

namespace {

bool computes(const Accelerator& accelerator, DType dtype) {
  const std::vector<DType> supported = accelerator.supported_dtypes();
  return is_op_float(dtype) && std::find(supported.begin(), supported.end(), dtype) != supported.end();
}

// Returns the size of a tensor whose values are decoded to a dtype.
uint64_t decoded_bytes(const TensorView& view, DType dtype) {
  if (view.packed != nullptr) {
    return static_cast<uint64_t>(view.packed->rows() * view.packed->columns()) * dtype_size(dtype);
  }
  if (view.format == nullptr) return view.bytes;
  return view.bytes / view.format->bytes * view.format->values * dtype_size(dtype);
}

}  // namespace

void check_computes(const Accelerator& accelerator, DType dtype) {
  if (dtype == DType::None || computes(accelerator, dtype)) return;
  std::string names;
  for (const DType known : accelerator.supported_dtypes()) {
    if (is_op_float(known)) names += (names.empty() ? "" : ", ") + std::string(dtype_name(known));
  }
  throw InvalidArgument("model: dtype " + std::string(dtype_name(dtype)) + " cannot be computed with on " +
                        accelerator.name() + "; expected one of " + names);
}

MatrixType quantization_asked_for(const LoadOptions& options, const Accelerator& accelerator,
                                  const ops::Inference& ops) {
  if (options.quantize.empty()) return {};
  const MatrixType wanted = type_to_load(options.quantize);
  if (options.dtype != DType::None) {
    throw InvalidArgument("model: quantized weights and the dtype " + std::string(dtype_name(options.dtype)) +
                          " were both asked for; expected one of them");
  }
  if (!ops.takes_quantized_weights()) {
    throw InvalidArgument("model: the accelerator " + accelerator.name() +
                          " has no ops for quantized weights (quantized_linear), so none are made while a model loads");
  }
  return wanted;
}

TensorView row_slice(TensorView view, int64_t rows, const Slice& held) {
  const uint64_t row_bytes = view.bytes / static_cast<uint64_t>(rows);
  const uint64_t skipped = row_bytes * static_cast<uint64_t>(held.begin);
  if (view.data != nullptr) view.data += skipped;
  view.offset += skipped;
  view.bytes = row_bytes * static_cast<uint64_t>(held.size());
  return view;
}

LoadPlan::LoadPlan(const ModelFiles& files, const LoadOptions& options, const ops::Inference& ops, const Model& model,
                   const MatrixType& wanted)
    : files_(files),
      options_(options),
      model_(model),
      wanted_(wanted),
      takes_blocks_(ops.takes_quantized_weights()),
      shards_(model.shards()),
      rank_(static_cast<size_t>(model.shard().rank)) {
  align_shards();
  choose_dtype();
}

void LoadPlan::align_shards() {
  if (!model_.group() || options_.dtype != DType::None || !takes_blocks_) return;
  ShardPolicy policy;
  policy.whole_rows = model_.shard().hidden.size() > 0;
  for (const TensorSlot& slot : files_.slots()) {
    const bool of_experts = slot.split == SplitBy::Expert || slot.split == SplitBy::SharedExpert;
    if (slot.kind != TensorKind::Matrix || slot.split_dim != 1) continue;
    if (slot.split != SplitBy::Intermediate && !of_experts) continue;
    const TensorView& view = files_.at(slot);
    const BlockFormat* format = is_quantized(view) ? block_format(view) : format_asked_for(view, slot);
    if (format != nullptr) policy.grain = std::max<int64_t>(policy.grain, format->values);
  }
  shards_ = plan_shards(model_.config(), model_.group()->size(), policy);
}

void LoadPlan::choose_dtype() {
  dtype_ = options_.dtype;
  if (options_.dtype != DType::None) return;
  uint64_t most = 0;
  DType dtype = DType::F32;
  for (const DType candidate : {DType::F32, DType::BF16, DType::F16}) {
    uint64_t bytes = 0;
    for (const TensorSlot& slot : files_.slots()) {
      const TensorView& view = files_.at(slot);
      // Decoded weights have fewer digits than bf16. If matrices stay quantized, the dtype is that of keys and
      // values, for which bf16 would cost more than the rest of the computation.
      const DType stored = format_asked_for(view, slot) != nullptr                        ? DType::F16
                           : !is_quantized(view)                                          ? view.dtype
                           : stays_quantized(view, slot)                                  ? DType::F16
                           : view.packed != nullptr && view.packed->dtype() != DType::F32 ? view.packed->dtype()
                                                                                          : DType::BF16;
      if (slot.kind == TensorKind::Matrix && stored == candidate) bytes += decoded_bytes(view, stored);
    }
    if (bytes > most) dtype = candidate;
    most = std::max(most, bytes);
  }
  dtype_ = computes(model_.accelerator(), dtype) ? dtype : DType::F32;
}

bool LoadPlan::stays_quantized(const TensorView& view, const TensorSlot& slot) const {
  const BlockFormat* format = block_format(view);
  if (format == nullptr || slot.kind != TensorKind::Matrix || options_.dtype != DType::None) return false;
  return takes_blocks_ && !slot.part && !slot.divides_rows && holds_whole_blocks(slot, *format);
}

bool LoadPlan::holds_whole_blocks(const TensorSlot& slot, const BlockFormat& format) const {
  const Slice part = held(slot);
  const int64_t values = format.values;
  return slot.split_dim == 0 || (part.begin % values == 0 && part.end % values == 0);
}

const BlockFormat* LoadPlan::format_asked_for(const TensorView& view, const TensorSlot& slot) const {
  if (wanted_.format == nullptr || is_quantized(view) || slot.kind != TensorKind::Matrix) return nullptr;
  if (slot.is_gathered() || slot.is_of_router() || slot.part || slot.divides_rows) return nullptr;
  if (wanted_.whole_numbers) {
    const bool fits = slot.layer >= 0 && slot.shape[1] % wanted_.format->values == 0;
    return fits ? wanted_.format : nullptr;
  }
  return format_of_matrix(*wanted_.format, wanted_.mixed, slot, slot.shape[1], model_.config());
}

const BlockFormat* LoadPlan::format_to_make(const TensorView& view, const TensorSlot& slot) const {
  const BlockFormat* format = format_asked_for(view, slot);
  return format != nullptr && holds_whole_blocks(slot, *format) ? format : nullptr;
}

const BlockFormat* LoadPlan::format_to_round_to(const TensorView& view, const TensorSlot& slot) const {
  const BlockFormat* format = format_asked_for(view, slot);
  return format != nullptr && !holds_whole_blocks(slot, *format) ? format : nullptr;
}

std::optional<DType> LoadPlan::number_scales(const TensorView& view) const {
  return wanted_.whole_numbers ? std::optional(scale_dtype(view.dtype)) : std::nullopt;
}

bool LoadPlan::rotates_pairs(const TensorSlot& of) const {
  const ModelConfig& config = model_.config();
  if (config.qkv_bias || config.qk_norm || !config.is_plain() || config.rope.rotary_dim != config.head_dim)
    return false;
  return std::ranges::all_of(files_.slots(), [&](const TensorSlot& slot) {
    if (slot.layer != of.layer || (slot.layer_member != &LayerWeights::q && slot.layer_member != &LayerWeights::k)) {
      return true;
    }
    const TensorView& view = files_.at(slot);
    return view.paired_rows == config.head_dim && stays_quantized(view, slot);
  });
}

std::string LoadPlan::describe(std::vector<std::string>& notes) const {
  uint64_t stored = 0;
  uint64_t decoded = 0;
  uint64_t made_of = 0;  // the matrices that are quantized while they load
  uint64_t made_bytes = 0;
  std::set<std::string_view> names;
  std::set<std::string_view> kept;
  for (const TensorSlot& slot : files_.slots()) {
    const TensorView& view = files_.at(slot);
    const auto bytes_as = [&view](const BlockFormat& format) {
      return view.bytes / dtype_size(view.dtype) / format.values * format.bytes;
    };
    if (const BlockFormat* made = format_to_make(view, slot)) {
      kept.insert(made->name);
      made_of += view.bytes;
      made_bytes += bytes_as(*made);
      continue;
    }
    if (const BlockFormat* cut = format_to_round_to(view, slot)) {
      names.insert(cut->name);
      stored += bytes_as(*cut);
      decoded += view.bytes / dtype_size(view.dtype) * dtype_size(held_dtype(slot));
      continue;
    }
    if (!is_quantized(view)) continue;
    if (stays_quantized(view, slot)) {
      kept.insert(block_format(view)->name);
      continue;
    }
    names.insert(view.packed != nullptr ? std::string_view(model_.config().quantization->method) : view.format->name);
    stored += view.bytes;
    decoded += decoded_bytes(view, held_dtype(slot));
  }
  const auto list = [](const std::set<std::string_view>& formats) {
    std::string text;
    for (const std::string_view name : formats) text += (text.empty() ? "" : ", ") + std::string(name);
    return text;
  };
  if (made_bytes > 0) {
    notes.push_back("weights are quantized while they load: " + format_bytes(made_of) + " become " +
                    format_bytes(made_bytes));
  }
  if (!kept.empty() && options_.activations == Activations::BF16) {
    throw InvalidArgument("model: activations in bf16 were asked for, and the weights are quantized (" + list(kept) +
                          "); expected --activations auto or fp32, or --dtype bf16, which decodes the weights");
  }
  if (names.empty()) return list(kept);
  notes.push_back("quantized weights (" + list(names) + ") are decoded to " + std::string(dtype_name(dtype_)) +
                  " while they load, and take " + format_bytes(decoded) + " instead of " + format_bytes(stored));
  return list(kept);
}

TensorView LoadPlan::part_to_read(const TensorSlot& slot) const {
  const TensorView& view = files_.at(slot);
  const Slice part = held(slot);
  if (view.packed != nullptr || slot.is_gathered()) {
    TensorView some = view;
    some.bytes = part.size() > 0 ? view.bytes : 0;
    return some;
  }
  if (slot.split_dim == 0 || part.size() == 0) return row_slice(view, slot.shape[slot.split_dim], part);
  return view;
}

bool LoadPlan::uses_columns_in_place(const TensorSlot& slot) const {
  const Accelerator& accelerator = model_.accelerator();
  const TensorView& view = files_.at(slot);
  // Products of the CPU read rows with gaps between them at 0.82 to 0.86 of the speed of others (halves of rows on a Zen 5),
  // but copies would take memory. Experts have such columns, and models with fewer rows than ranks: ranks that share
  // memory, which are those of one host, split other matrices by rows.
  if (!model_.group() || model_.group()->backend() != "shm") return false;
  if ((accelerator.device_properties(model_.device().index).caps & AA_CAP_IS_HOST) == 0) return false;
  return slot.kind == TensorKind::Matrix && slot.split_dim == 1 && !slot.is_gathered() && view.data != nullptr &&
         !is_quantized(view) && format_asked_for(view, slot) == nullptr && view.dtype == held_dtype(slot) &&
         view.paired_rows == 0;
}

void LoadPlan::set_apart_the_rest(const TensorSlot& slot) const {
  const Checkpoint& checkpoint = files_.checkpoint();
  const TensorView& whole = files_.at(slot);
  if (whole.packed != nullptr || slot.is_gathered()) return;
  const Slice part = held(slot);
  const int64_t rows = slot.shape[0];
  if (part.size() == slot.shape[slot.split_dim]) return;
  if (slot.split_dim != 0) {
    // What is copied is not read from the file again.
    if (!uses_columns_in_place(slot)) checkpoint.set_apart(whole);
    return;
  }
  checkpoint.set_apart(row_slice(whole, rows, {0, part.begin}));
  checkpoint.set_apart(row_slice(whole, rows, {part.end, rows}));
}

}  // namespace anyaccel::llm
