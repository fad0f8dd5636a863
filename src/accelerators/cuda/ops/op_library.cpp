// Implements op_library.h: the extension "ops" of one opened device.
#include "accelerators/cuda/ops/op_library.h"

#include <string>
#include <string_view>

namespace anyaccel::cuda {

// Every op that a group names; a group that names another one is refused when it is made.
struct OpNames {
  static constexpr std::array<const char*, OpLibrary::op_count> all = {
      "embedding",   "rms_norm",     "layer_norm",        "gated_activation", "add",
      "linear",      "linear_multi", "gated_linear",      "attention",        "argmax",
      "norm_linear", "sample",       "norm_gated_linear", "norm_qkv_rope"};
};

int OpLibrary::find(const char* name) {
  for (size_t i = 0; i < op_count; ++i) {
    if (std::string_view(OpNames::all[i]) == name) return static_cast<int>(i);
  }
  return -1;
}

const char* OpLibrary::name_of(int op) { return OpNames::all.at(static_cast<size_t>(op)); }

void OpLibrary::make_groups() {
  // The kernels use instructions of compute capability 8.0, and of NVIDIA.
  if (device_.api().runtime != Runtime::cuda || device_.facts().major < 8) return;
  for (auto& entries : entries_) entries.clear();  // of a first try that failed
  groups_.clear();
  using Make = std::unique_ptr<OpGroup> (*)(DeviceState&);
  constexpr Make in_order[] = {make_decode_products, make_library_products, make_decode_attention,
                               make_prefill_attention, make_row_ops};
  for (const Make make : in_order) {
    groups_.push_back(make(device_));
    OpGroup& group = *groups_.back();
    const std::span<const char* const> names = group.ops();
    for (size_t i = 0; i < names.size(); ++i) {
      const int op = find(names[i]);
      if (op < 0) throw abi::Failure(AA_INTERNAL, std::string("ops/op_library.cpp has no op \"") + names[i] + "\"");
      entries_[static_cast<size_t>(op)].push_back({&group, i});
    }
  }
}

const OpLibrary::Entry* OpLibrary::choose(int op, const aa_op_call& call) {
  std::call_once(made_, [&] { make_groups(); });
  for (const Entry& entry : entries_.at(static_cast<size_t>(op))) {
    if (entry.group->supports(entry.op, call)) return &entry;
  }
  return nullptr;
}

bool OpLibrary::supports(int op, const aa_op_call& call) { return choose(op, call) != nullptr; }

void OpLibrary::enqueue(int op, const aa_op_call& call, Stream& stream) {
  const Entry* entry = choose(op, call);
  if (!entry) {
    throw abi::Failure(AA_UNIMPLEMENTED, std::string("this call of op \"") + name_of(op) +
                                             "\" is not among those that supports() accepts");
  }
  entry->group->enqueue(entry->op, call, stream);
}

}  // namespace anyaccel::cuda
