// Chooses among the groups of tuned ops.
#include "accelerators/cuda/ops/op_library.h"

#include <optional>
#include <string>

namespace anyaccel::cuda {
namespace {

// Ops that no group has are not listed, so the portable kernels run them.
bool may_run(Op op) {
  switch (op) {
    case Op::Embedding:
    case Op::RmsNorm:
    case Op::LayerNorm:
    case Op::GatedActivation:
    case Op::Add:
    case Op::Rope:
    case Op::CacheWrite:
    case Op::Linear:
    case Op::LinearMulti:
    case Op::GatedLinear:
    case Op::Attention:
    case Op::Argmax:
    case Op::Sample:
    case Op::NormLinear:
    case Op::NormGatedLinear:
    case Op::NormQkvRope:
    case Op::NormQuantizedGatedLinear:
    case Op::NormQuantizedQkvRope:
    case Op::QuantizedLinear:
    case Op::QuantizedCacheWrite:
    case Op::QuantizedAttention: return true;
    default: return false;
  }
}

}  // namespace

int OpLibrary::find(const char* name) {
  const std::optional<Op> op = find_op_by_name(name);
  return op && may_run(*op) ? static_cast<int>(*op) : -1;
}

void OpLibrary::make_groups() {
  // The kernels use NVIDIA's instructions of compute capability 8.0.
  if (device_.api().runtime != Runtime::cuda || device_.facts().major < 8) return;
  groups_.clear();  // of a first try that failed
  for (auto* make : {make_decode_tiles, make_decode_products, make_decode_quantized, make_library_products,
                     make_decode_attention, make_prefill_attention, make_row_ops}) {
    std::unique_ptr<OpGroup> group = make(device_);
    for (const Op op : group->ops()) {
      if (!may_run(op)) throw abi::Failure(AA_INTERNAL, std::string("may_run() lacks op \"") + op_name(op) + "\"");
    }
    groups_.add(std::move(group));
  }
}

OpGroup* OpLibrary::choose(Op op, const aa_op_call& call) {
  if (static_cast<int>(op) < 0 || static_cast<size_t>(op) >= op_form_count) {
    throw abi::Failure(AA_INVALID_ARGUMENT, "there is no op with the number " + std::to_string(static_cast<int>(op)));
  }
  std::call_once(made_, [&] { make_groups(); });
  return groups_.choose(op, call, device_);
}

bool OpLibrary::supports(int op, const aa_op_call& call) { return choose(static_cast<Op>(op), call) != nullptr; }

bool OpLibrary::enqueue(int op, const aa_op_call& call, Stream& stream) {
  OpGroup* const group = choose(static_cast<Op>(op), call);
  if (!group) return false;
  group->enqueue(static_cast<Op>(op), call, stream);
  return true;
}

}  // namespace anyaccel::cuda
