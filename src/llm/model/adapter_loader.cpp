// Checks adapters against a model, and places their factors beside its matrices.
#include "llm/model/adapter_loader.h"

#include <algorithm>
#include <set>
#include <utility>

#include "anyaccel/error.h"
#include "base/text/json.h"

namespace anyaccel::llm {

namespace {

// Returns those rows of a factor [out, rank] of the file's tensor that are the slot's.
Tensor rows_of_slot(const Tensor& b, const TensorSlot& slot) {
  if (!slot.source) return b;
  const TensorSource& source = *slot.source;
  Tensor result = Tensor::empty({slot.shape[0], b.size(1)}, b.dtype());
  int64_t from = source.first;
  for (int64_t to = 0; to < slot.shape[0]; to += source.block, from += source.stride) {
    result.slice(0, to, to + source.block).copy_from(b.slice(0, from, from + source.block));
  }
  return result;
}

// Reorders rows as files store them in which rows 2 i and 2 i + 1 of a head are rotated together; WeightPlacer's unpaired()
// does the reverse.
Tensor paired(const Tensor& rows, int64_t head_rows) {
  Tensor result = Tensor::empty(rows.shape(), rows.dtype());
  for (int64_t to = 0; to < rows.size(0); ++to) {
    const int64_t within = to % head_rows;
    result.select(0, to).copy_from(rows.select(0, to - within + within % 2 * (head_rows / 2) + within / 2));
  }
  return result;
}

}  // namespace

LowRank LayerAdapters::*adapters_of(const TensorSlot& slot) {
  if (slot.expert_member != nullptr || slot.layer_member == nullptr || (slot.source && slot.source->count != 0)) {
    return nullptr;
  }
  constexpr std::pair<Tensor LayerWeights::*, LowRank LayerAdapters::*> places[] = {
      {&LayerWeights::q, &LayerAdapters::q},       {&LayerWeights::k, &LayerAdapters::k},
      {&LayerWeights::v, &LayerAdapters::v},       {&LayerWeights::o, &LayerAdapters::o},
      {&LayerWeights::gate, &LayerAdapters::gate}, {&LayerWeights::up, &LayerAdapters::up},
      {&LayerWeights::down, &LayerAdapters::down}};
  for (const auto& [matrix, place] : places) {
    if (slot.layer_member == matrix) return place;
  }
  return nullptr;
}

AdapterLoader::AdapterLoader(const std::vector<NamedAdapter>& adapters, const std::vector<TensorSlot>& slots) {
  std::set<std::string> names;
  for (const NamedAdapter& given : adapters) {
    if (given.name.empty() || !names.insert(given.name).second) {
      throw InvalidArgument("model: the adapters' names have " + quote_text(given.name) +
                            (given.name.empty() ? "" : " twice") + "; expected a different name for each");
    }
    adapters_.push_back({given.name, LoraAdapter(given.directory)});
    const LoraAdapter& adapter = adapters_.back().adapter;
    const int64_t begin = ranks_.empty() ? 0 : ranks_.back().end;
    ranks_.push_back({begin, begin + adapter.rank()});
    const std::vector<std::string> changed = adapter.tensors();
    std::set<std::string> left(changed.begin(), changed.end());
    for (const TensorSlot& slot : slots) {
      if (!adapter.changes(slot.name)) continue;
      left.erase(slot.name);
      if (slot.kind != TensorKind::Matrix) {
        throw CheckpointError(adapter.path() + ": the adapter changes " + quote_text(slot.name) +
                              ", which is not a matrix of this model; expected the adapter of this model");
      }
      if (adapters_of(slot) == nullptr) {
        throw NotImplementedError(adapter.path() + ": the adapter changes " + quote_text(slot.name) +
                                  ", and only matrices of attention and of feed-forward blocks without experts can "
                                  "have adapters kept apart; expected one without it, or to add it while loading "
                                  "(LoadOptions::adapter)");
      }
      const Shape whole = slot.source ? slot.source->shape : slot.shape;
      adapter.check_shape(slot.name, whole[0], whole[1], slot.source && slot.source->transposed);
    }
    if (!left.empty()) {
      throw CheckpointError(adapter.path() + ": the adapter changes " + quote_text(*left.begin()) +
                            ", which this model does not have as a matrix of its own; expected the adapter of this "
                            "model");
    }
  }
}

std::vector<std::string> AdapterLoader::names() const {
  std::vector<std::string> names;
  for (const Loaded& loaded : adapters_) names.push_back(loaded.name);
  return names;
}

std::vector<std::string> AdapterLoader::notes() const {
  std::vector<std::string> notes;
  for (const auto& [name, adapter] : adapters_) {
    notes.push_back("the adapter " + name + " changes " + std::to_string(adapter.tensors().size()) +
                    " matrices for texts that choose it");
    notes.insert(notes.end(), adapter.notes().begin(), adapter.notes().end());
  }
  return notes;
}

LowRank AdapterLoader::place(const TensorSlot& slot, const Slice& part, int64_t paired_rows, DType dtype,
                             Device device) const {
  const bool changed =
      std::ranges::any_of(adapters_, [&](const Loaded& loaded) { return loaded.adapter.changes(slot.name); });
  if (!changed || part.size() == 0) return {};
  const bool by_rows = slot.split_dim == 0;
  const int64_t rank = ranks_.back().end;
  Tensor a = Tensor::zeros({rank, slot.shape[1]}, DType::F32), b = Tensor::zeros({slot.shape[0], rank}, DType::F32);
  for (size_t i = 0; i < adapters_.size(); ++i) {
    const LoraAdapter& adapter = adapters_[i].adapter;
    if (!adapter.changes(slot.name)) continue;
    const auto [left, right] = adapter.factors(slot.name);
    const int64_t begin = ranks_[i].begin, end = begin + left.size(0);
    a.slice(0, begin, end).copy_from(left);
    b.slice(1, begin, end).copy_from(rows_of_slot(right, slot));
  }
  if (paired_rows > 0) b = paired(b, paired_rows);
  (by_rows ? b : a) = (by_rows ? b : a).slice(by_rows ? 0 : 1, part.begin, part.end);
  const auto placed = [&](const Tensor& values) {
    Tensor result = Tensor::empty(values.shape(), dtype, device);
    result.copy_from(values);
    return result;
  };
  return {placed(a), placed(b)};
}

}  // namespace anyaccel::llm
