// Finds the implementation of an op of ops::Inference, and runs it.
#include <array>
#include <string>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "ops/dispatch/fallback.h"
#include "ops/dispatch/inference_impl.h"
#include "ops/host/host_accelerator.h"
#include "runtime/driver/host_services.h"
#include "runtime/layers/layers.h"

namespace anyaccel::ops {

// A call in the driver's form, with the storage of its tensors. Their devices are checked here; their dtypes and shapes
// are checked by OpSchema::check.
struct Inference::Impl::Call {
  std::array<aa_tensor, AA_OP_MAX_TENSORS> tensors;
  std::array<aa_packed*, AA_OP_MAX_TENSORS> packed;  // set once there is one
  aa_op_call call{};
  int device = 0;
  bool has_part_of_packed = false;  // a view of a packed weight, which no driver accepts

  Call(const OpSchema& schema, std::span<const Tensor* const> list, const void* params, uint32_t params_size,
       Accelerator& accelerator) {
    call.struct_size = sizeof(call);
    call.tensors = tensors.data();
    call.tensor_count = static_cast<uint32_t>(list.size());
    call.params = params;
    call.params_size = params_size;
    bool first = true;
    for (size_t i = 0; i < list.size(); ++i) {
      tensors[i] = list[i]->view_for_driver();
      if (!*list[i]) continue;
      if (list[i]->is_packed()) [[unlikely]]
        add_packed(i, *list[i]);
      const Device place = list[i]->device();
      if (place.accelerator == &accelerator) {
        if (first) device = place.index;
        first = false;
        if (place.index == device) continue;
      } else if (place.is_host() && accelerator.is_host_coherent()) {
        continue;
      }
      const bool foreign = !place.is_host() && place.accelerator != &accelerator;
      throw InvalidArgument(std::string(schema.name) + ": tensor \"" + schema.tensors[i].name + "\" lies on " +
                            place.name() + (foreign ? " of another accelerator" : "") + ", expected " +
                            accelerator.device_name(device) + "; copy it with Tensor::to()");
    }
  }

  void add_packed(size_t i, const Tensor& tensor) {
    if (!call.packed) packed.fill(nullptr);
    packed[i] = tensor.storage()->packed();
    call.packed = packed.data();
    if (!tensor.storage()->is_all_of(tensor)) has_part_of_packed = true;
  }
};

namespace {

// Checks the calls of ops for the validate layer.
aa_status* validate_op_call(const char* op, const aa_op_call* call) {
  const OpSchema* schema = find_op_schema(op);
  if (!schema) return nullptr;  // a driver may have ops of its own
  try {
    schema->check(*call);
    return nullptr;
  } catch (...) {
    return status_from_current_exception();
  }
}

}  // namespace

thread_local constinit int Inference::Impl::by_row_scopes = 0;
thread_local constinit ProductObserver* ProductObserver::active = nullptr;

Inference::Impl::Impl(Accelerator& active) : accelerator(active) {
  set_op_validator(validate_op_call);
  for (size_t i = 0; i < op_count; ++i) {
    const auto op = static_cast<Op>(i);
    slots[i].native = accelerator.find_op(op_name(op));
    if (const auto by_row = form_by_row(op)) slots[i].by_row = accelerator.find_op(op_name(*by_row));
  }
  fallback_forbidden = fallback_is_error();
}

OpHandle Inference::Impl::resolve(Op op, const Call& call) {
  const OpSchema& schema = op_schemas()[static_cast<size_t>(op)];
  // The parameters of these ops differ in every call.
  if (op == Op::Random || op == Op::Dropout) {
    schema.check(call.call);
    return accelerator.resolve_op(call.call, call.device);
  }
  const ResolvedCalls::Class call_class(call.call, call.device, schema.written);
  if (const std::optional<OpHandle> known = resolved_.find(call_class)) [[likely]]
    return *known;
  schema.check(call.call);
  const OpHandle handle = accelerator.resolve_op(call.call, call.device);
  resolved_.remember(call_class, handle);
  return handle;
}

bool Inference::Impl::run_native(Op op, std::span<const Tensor* const> tensors, const void* params,
                                 uint32_t params_size) {
  const int32_t number = number_of(op);
  if (number < 0) return false;
  Call call(op_schemas()[static_cast<size_t>(op)], tensors, params, params_size, accelerator);
  call.call.op = number;
  if (call.has_part_of_packed) return false;
  const OpHandle handle = resolve(op, call);
  if (!handle) return false;
  accelerator.enqueue_op(handle, call.call, call.device);
  return true;
}

void Inference::Impl::check_sequence(Op op, std::span<const Tensor* const> tensors) const {
  std::array<aa_tensor, AA_OP_MAX_TENSORS> views;
  for (size_t i = 0; i < tensors.size(); ++i) views[i] = tensors[i]->view_for_driver();
  aa_op_call call{};
  call.struct_size = sizeof(call);
  call.tensors = views.data();
  call.tensor_count = static_cast<uint32_t>(tensors.size());
  check_memory(op_schemas()[static_cast<size_t>(op)], call);
}

void Inference::Impl::run(Op op, std::span<const Tensor* const> tensors, const void* params, uint32_t params_size) {
  Call call(op_schemas()[static_cast<size_t>(op)], tensors, params, params_size, accelerator);
  const int32_t number = number_of(op);
  if (call.has_part_of_packed) return run_unpacked(op, tensors, params, params_size);
  if (number >= 0) [[likely]] {
    call.call.op = number;
    if (const OpHandle handle = resolve(op, call)) [[likely]] {
      accelerator.enqueue_op(handle, call.call, call.device);
      return;
    }
  } else {
    op_schemas()[static_cast<size_t>(op)].check(call.call);
  }
  if (call.call.packed) return run_unpacked(op, tensors, params, params_size);
  fall_back(op, tensors, call);
}

void Inference::Impl::run_unpacked(Op op, std::span<const Tensor* const> tensors, const void* params,
                                   uint32_t params_size) {
  if (!slots[static_cast<size_t>(op)].unpacks.exchange(true)) {
    log_warning(accelerator.name() + " does not run this call of \"" + std::string(op_name(op)) +
                "\" with the weights that it has packed; their ordinary form is made, and kept beside them");
  }
  std::array<Tensor, AA_OP_MAX_TENSORS> plain;
  std::array<const Tensor*, AA_OP_MAX_TENSORS> list;
  for (size_t i = 0; i < tensors.size(); ++i) {
    plain[i] = tensors[i]->unpacked(/*keep=*/true);
    list[i] = &plain[i];
  }
  run(op, std::span(list).first(tensors.size()), params, params_size);
}

void Inference::Impl::note_fallback(Op op) {
  Slot& slot = slots[static_cast<size_t>(op)];
  const std::string name(op_name(by_row() ? form_by_row(op).value_or(op) : op));
  const std::string what =
      number_of(op) < 0 ? " has no op \"" + name + "\"" : " does not support this call of \"" + name + "\"";
  if (fallback_forbidden) {
    throw NotImplementedError(accelerator.name() + what +
                              ", and ANYACCEL_FALLBACK=error forbids running it on the CPU");
  }
  if (slot.fallbacks++ == 0) {
    log_warning(accelerator.name() + what +
                "; it runs on the CPU, with copies there and back (ANYACCEL_FALLBACK=error forbids that)");
  }
}

void Inference::Impl::fall_back(Op op, std::span<const Tensor* const> tensors, Call& call) {
  note_fallback(op);
  const OpSchema& schema = op_schemas()[static_cast<size_t>(op)];
  check_not_capturing(accelerator, call.device, std::string(schema.name));
  Accelerator& host = host_accelerator();
  call.call.op = host.find_op(op_name(by_row() ? form_by_row(op).value_or(op) : op));

  if (accelerator.is_host_coherent()) {
    // The CPU can use the tensors in place, once the work on them is complete.
    accelerator.current_stream(call.device).synchronize();
    host.enqueue_op(host.resolve_op(call.call, 0), call.call, 0);
    return;
  }
  std::array<Tensor, AA_OP_MAX_TENSORS> staged;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!*tensors[i]) continue;
    staged[i] = schema.tensors[i].role == Role::Out ? Tensor::empty(tensors[i]->shape(), tensors[i]->dtype())
                                                    : tensors[i]->to(Device{});
    call.tensors[i] = staged[i].view_for_driver();
  }
  host.enqueue_op(host.resolve_op(call.call, 0), call.call, 0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (*tensors[i] && schema.tensors[i].role != Role::In) tensors[i]->copy_from(staged[i]);
  }
}

}  // namespace anyaccel::ops
