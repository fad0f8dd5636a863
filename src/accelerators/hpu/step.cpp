// Implements step.h: op calls that are joined into one graph.
#include "accelerators/hpu/step.h"

#include <algorithm>
#include <utility>

namespace anyaccel::hpu {
namespace {

uint64_t bytes_of(const aa_tensor& tensor) {
  uint64_t bytes = tensor.dtype == AA_DTYPE_F32 || tensor.dtype == AA_DTYPE_I32 ? 4 : 2;
  for (int32_t d = 0; d < tensor.ndim; ++d) bytes *= static_cast<uint64_t>(tensor.shape[d]);
  return bytes;
}

bool reads(Use use) { return use == Use::in || use == Use::in_and_out; }
bool writes(Use use) { return use == Use::out || use == Use::in_and_out; }

}  // namespace

bool Step::add(const aa_op_call& call) {
  std::vector<Place> wanted(call.tensor_count);
  for (uint32_t i = 0; i < call.tensor_count; ++i) {
    const Use use = use_of(call, i);
    if (use == Use::absent) continue;
    const aa_tensor& tensor = call.tensors[i];
    wanted[i].address = reinterpret_cast<uint64_t>(tensor.data);
    wanted[i].bytes = bytes_of(tensor);
    wanted[i].type = syn_type(tensor.dtype);
    // Tensors of one call do not overlap, unless they are the same (abi/ops.h).
    for (const Place& place : places_) {
      if (!place.is(wanted[i]) && place.overlaps(wanted[i]) && (writes(use) || place.written)) return false;
    }
  }
  const std::vector<Sizes> sizes = graph_sizes(call);
  std::vector<size_t> numbers(call.tensor_count);
  // What is read comes first: a result may be in the memory of an operand.
  for (const bool writing : {false, true}) {
    for (uint32_t i = 0; i < call.tensor_count; ++i) {
      const Use use = use_of(call, i);
      if (writing ? !writes(use) : !reads(use)) continue;
      const auto found =
          std::find_if(places_.begin(), places_.end(), [&](const Place& place) { return place.is(wanted[i]); });
      numbers[i] = static_cast<size_t>(found - places_.begin());
      if (found == places_.end()) {
        wanted[i].sizes = sizes[i];
        places_.push_back(wanted[i]);
      }
      Place& place = places_[numbers[i]];
      if (!writing) {
        place.read_before |= !place.written;
      } else {
        place.written = true;
        place.sizes = sizes[i];
        place.last_call = calls_.size();
        place.last_tensor = i;
      }
    }
  }
  calls_.push_back(&call);
  place_of_.push_back(std::move(numbers));
  return true;
}

std::vector<int64_t> Step::key() const {
  std::vector<int64_t> key;
  for (size_t c = 0; c < calls_.size(); ++c) {
    add_to_key(*calls_[c], key);
    for (uint32_t i = 0; i < calls_[c]->tensor_count; ++i) {
      key.push_back(use_of(*calls_[c], i) == Use::absent ? -1 : static_cast<int64_t>(place_of_[c][i]));
    }
  }
  return key;
}

std::vector<size_t> Step::persistent_places() const {
  std::vector<size_t> list;
  for (size_t k = 0; k < places_.size(); ++k) list.push_back(k);
  for (size_t k = 0; k < places_.size(); ++k) {
    if (places_[k].read_before && places_[k].written) list.push_back(k);
  }
  return list;
}

std::vector<Sizes> Step::persistent_sizes() const {
  std::vector<Sizes> sizes;
  for (const size_t k : persistent_places()) sizes.push_back(places_[k].sizes);
  return sizes;
}

std::vector<uint64_t> Step::addresses() const {
  std::vector<uint64_t> list;
  for (const size_t k : persistent_places()) list.push_back(places_[k].address);
  return list;
}

void Step::build(Graph& graph) const {
  std::vector<Graph::Tensor> last(places_.size());  // what each place has in the end, if it is written
  Tensors now;                                      // what each place has before the next call
  for (const Place& place : places_) now.push_back(graph.persistent(place.type, place.sizes));
  for (size_t k = 0; k < places_.size(); ++k) {
    if (places_[k].written) last[k] = places_[k].read_before ? graph.replacing(now[k]) : now[k];
  }
  for (size_t c = 0; c < calls_.size(); ++c) {
    const aa_op_call& call = *calls_[c];
    const std::vector<Sizes> sizes = graph_sizes(call);
    Tensors t(call.tensor_count), after(call.tensor_count);
    const auto result = [&](uint32_t i) {
      const Place& place = places_[place_of_[c][i]];
      const bool is_last = place.last_call == c && place.last_tensor == i;
      return is_last ? last[place_of_[c][i]] : graph.between(place.type, sizes[i]);
    };
    for (uint32_t i = 0; i < call.tensor_count; ++i) {
      const Use use = use_of(call, i);
      if (reads(use)) t[i] = graph.reshaped(now[place_of_[c][i]], sizes[i]);
      if (use == Use::out) t[i] = result(i);
      if (use == Use::in_and_out) after[i] = result(i);
    }
    build_call(graph, call, t, after);
    for (uint32_t i = 0; i < call.tensor_count; ++i) {
      const Use use = use_of(call, i);
      if (writes(use)) now[place_of_[c][i]] = use == Use::out ? t[i] : after[i];
    }
  }
}

}  // namespace anyaccel::hpu
