// The rules of the validate layer for memory, copies and op calls.
#include "anyaccel/dtype.h"
#include "runtime/layers/validate_rules.h"

namespace anyaccel::layers {
namespace {

void enter_allocation(ValidateLayer& layer, aa_device* device, int32_t kind, const void* pointer, size_t size) {
  std::lock_guard lock(layer.state.mutex);
  layer.state.add_allocation({reinterpret_cast<uintptr_t>(pointer), size, kind, device});
}

const void* device_of(ValidateState& state, aa_stream* stream) {
  return state.find(ObjectKind::stream, stream)->device;
}

Problem check_tensor(ValidateState& state, const void* device, const aa_tensor& tensor, const std::string& name,
                     bool may_lack_data) {
  if (tensor.dtype == AA_DTYPE_NONE) return tensor.data ? wrong(name + " is absent but has data") : Problem{};
  if (dtype_size(static_cast<DType>(tensor.dtype)) == 0)
    return wrong(name + " has the unknown dtype " + std::to_string(tensor.dtype));
  if (tensor.ndim < 0 || tensor.ndim > AA_MAX_DIMS) return wrong(name + " has ndim " + std::to_string(tensor.ndim));
  for (int i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] < 0) return wrong(name + " has a negative dimension");
  }
  int64_t first = 0;
  int64_t end = 0;
  if (!tensor_span(tensor, first, end)) return wrong(name + " spans more than 2^63 bytes");
  if (end == first || (!tensor.data && may_lack_data)) return {};
  if (!tensor.data) return wrong(name + " has no data");
  const std::string error =
      state.device_range_error(device, static_cast<const char*>(tensor.data) + first, static_cast<size_t>(end - first));
  return error.empty() ? Problem{} : wrong(name + ": " + error);
}

Problem check_op_call(ValidateState& state, const void* device, const aa_op_call& call, bool may_lack_data) {
  if (!AA_HAS_MEMBER(&call, aa_op_call, params)) return wrong("call->struct_size covers too little");
  const auto name = state.op_names.find(call.op);
  if (name == state.op_names.end()) return wrong("op " + std::to_string(call.op) + " was never given by find");
  if (call.tensor_count > AA_OP_MAX_TENSORS) return wrong(std::to_string(call.tensor_count) + " tensors are too many");
  if (call.tensor_count > 0 && !call.tensors) return wrong("call->tensors is null");
  if (call.params_size > 0 && !call.params) return wrong("call->params is null");
  for (uint32_t i = 0; i < call.tensor_count; ++i) {
    const std::string tensor = "\"" + name->second + "\": tensor " + std::to_string(i);
    const aa_packed* packed = call.struct_size > offsetof(aa_op_call, packed) && call.packed ? call.packed[i] : nullptr;
    if (packed) {
      const TrackedObject* object = state.find(ObjectKind::packed, packed);
      if (!object) return wrong(tensor + ": there is no such packed weight");
      if (object->device != device) return wrong(tensor + ": the packed weight is of another device");
      if (call.tensors[i].data) return wrong(tensor + " is packed but has data");
    }
    if (Problem problem = check_tensor(state, device, call.tensors[i], tensor, may_lack_data || packed)) return problem;
  }
  if (const OpValidator validator = op_validator()) {
    const StatusRef status(validator(name->second.c_str(), &call));
    if (!status.ok()) return {status.code(), "\"" + name->second + "\": " + std::string(status.message())};
  }
  return {};
}

Problem check_pack(ValidateState& state, const void* device, const aa_pack& what) {
  if (what.struct_size <= offsetof(aa_pack, example)) return wrong("what->struct_size covers too little");
  if (!what.example) return wrong("what->example is null");
  if (what.tensor >= what.example->tensor_count) {
    return wrong("tensor " + std::to_string(what.tensor) + " of a call with " +
                 std::to_string(what.example->tensor_count));
  }
  return check_op_call(state, device, *what.example, true);
}

Problem check_transfer(ValidateState& state, aa_file* file, const aa_file_transfer* what) {
  if (!AA_HAS_MEMBER(what, aa_file_transfer, file_offset)) return wrong("what->struct_size covers too little");
  if (what->size == 0) return wrong("size is 0");
  if (what->size > size_t{1} << 30) return wrong("size is more than 1 GiB");
  if (what->file_offset < 0) return wrong("file_offset is negative");
  const std::string error =
      state.device_range_error(state.find(ObjectKind::file, file)->device, what->pointer, what->size);
  return error.empty() ? Problem{} : wrong("pointer: " + error);
}

}  // namespace

Problem before(Function<&aa_driver::mem_alloc>, ValidateState&, aa_device*, const aa_alloc* what, aa_allocation*) {
  if (!AA_HAS_MEMBER(what, aa_alloc, size)) return wrong("what->struct_size covers too little");
  return what->size == 0 ? wrong("size is 0") : Problem{};
}

void after(Function<&aa_driver::mem_alloc>, ValidateLayer& layer, bool ok, aa_device* device, const aa_alloc* what,
           aa_allocation* out) {
  if (ok) enter_allocation(layer, device, what->kind, out->pointer, what->size);
}

Problem before(Function<&aa_driver::mem_free>, ValidateState& state, aa_device* device, const aa_allocation* what) {
  if (!AA_HAS_MEMBER(what, aa_allocation, size)) return wrong("what->struct_size covers too little");
  if (!what->pointer) return wrong("pointer is null");
  const Allocation* allocation = state.allocation_at(what->pointer);
  if (!allocation) return wrong("pointer is not the start of a living allocation (freed before?)");
  if (allocation->device != device) return wrong("the memory was allocated on another device");
  if (allocation->size != what->size) {
    return wrong("size is " + std::to_string(what->size) + ", but " + std::to_string(allocation->size) +
                 " bytes were allocated");
  }
  if (allocation->kind != what->kind) {
    return wrong("kind is " + std::to_string(what->kind) + ", but it was allocated as kind " +
                 std::to_string(allocation->kind));
  }
  state.remove_allocation(what->pointer);
  return {};
}

Problem before(Function<&aa_driver::copy_async>, ValidateState& state, aa_stream* stream, const aa_copy* what) {
  if (what->struct_size < sizeof(aa_copy)) return wrong("what->struct_size covers too little");
  if (what->direction < AA_COPY_HOST_TO_DEVICE || what->direction > AA_COPY_DEVICE_TO_DEVICE) {
    return wrong("direction " + std::to_string(what->direction) + " is not an aa_copy_direction");
  }
  const size_t size = what->size;
  const void* device = device_of(state, stream);
  const bool to_host = what->direction == AA_COPY_DEVICE_TO_HOST;
  const bool from_host = what->direction == AA_COPY_HOST_TO_DEVICE;
  std::string error = to_host ? state.host_range_error(device, what->destination, size)
                              : state.device_range_error(device, what->destination, size);
  if (!error.empty()) return wrong("destination: " + error);
  error = from_host ? state.host_range_error(device, what->source, size)
                    : state.device_range_error(device, what->source, size);
  if (!error.empty()) return wrong("source: " + error);
  const auto from = reinterpret_cast<uintptr_t>(what->source);
  const auto to = reinterpret_cast<uintptr_t>(what->destination);
  if (size > 0 && (from < to ? to - from : from - to) < size) return wrong("source and destination overlap");
  return {};
}

Problem before(Function<&aa_peer_table::copy_async>, ValidateState& state, aa_stream* stream,
               const aa_peer_copy* what) {
  if (what->struct_size < sizeof(aa_peer_copy)) return wrong("what->struct_size covers too little");
  const auto is_device = [&](const aa_device* device) { return state.find(ObjectKind::device, device) != nullptr; };
  if (!is_device(what->destination_device)) return wrong("destination_device is not a living device");
  if (!is_device(what->source_device)) return wrong("source_device is not a living device");
  if (what->destination_device == what->source_device)
    return wrong("destination_device and source_device are the same");
  const void* device = device_of(state, stream);
  if (device != what->destination_device && device != what->source_device) {
    return wrong("the stream is of neither device");
  }
  std::string error = state.device_range_error(what->destination_device, what->destination, what->size);
  if (!error.empty()) return wrong("destination: " + error);
  error = state.device_range_error(what->source_device, what->source, what->size);
  return error.empty() ? Problem{} : wrong("source: " + error);
}

Problem before(Function<&aa_driver::fill_async>, ValidateState& state, aa_stream* stream, const aa_fill* what) {
  if (what->struct_size < sizeof(aa_fill)) return wrong("what->struct_size covers too little");
  const uint32_t width = what->pattern_size;
  if (width != 1 && width != 2 && width != 4 && width != 8) {
    return wrong("pattern_size is " + std::to_string(width) + ", not 1, 2, 4 or 8");
  }
  if (what->size % width != 0) {
    return wrong("size " + std::to_string(what->size) + " is not a multiple of pattern_size " + std::to_string(width));
  }
  const std::string error = state.device_range_error(device_of(state, stream), what->destination, what->size);
  return error.empty() ? Problem{} : wrong("destination: " + error);
}

Problem before(Function<&aa_host_memory_table::register_range>, ValidateState&, aa_device*, const aa_register* what,
               aa_registration*) {
  if (!AA_HAS_MEMBER(what, aa_register, size)) return wrong("what->struct_size covers too little");
  if (!what->pointer) return wrong("pointer is null");
  return what->size == 0 ? wrong("size is 0") : Problem{};
}

void after(Function<&aa_host_memory_table::register_range>, ValidateLayer& layer, bool ok, aa_device* device,
           const aa_register* what, aa_registration*) {
  if (!ok) return;
  std::lock_guard lock(layer.state.mutex);
  layer.state.add_registered({reinterpret_cast<uintptr_t>(what->pointer), what->size, AA_MEMORY_PINNED, device});
}

Problem before(Function<&aa_host_memory_table::unregister_range>, ValidateState& state, aa_device* device,
               void* pointer) {
  return state.remove_registered(device, pointer) ? Problem{} : wrong("pointer is not registered with the device");
}

void after(Function<&aa_ops_table::find>, ValidateLayer& layer, bool ok, aa_instance*, const char* name,
           int32_t* out_op) {
  if (!ok) return;
  std::lock_guard lock(layer.state.mutex);
  layer.state.op_names[*out_op] = name;
}

Problem before(Function<&aa_ops_table::supports>, ValidateState& state, aa_device* device, const aa_op_call* call,
               int32_t*) {
  return check_op_call(state, device, *call, true);
}

Problem before(Function<&aa_ops_table::enqueue>, ValidateState& state, aa_stream* stream, const aa_op_call* call,
               int32_t*) {
  return check_op_call(state, device_of(state, stream), *call, false);
}

Problem before(Function<&aa_ops_table::packed_size>, ValidateState& state, aa_device* device, const aa_pack* what,
               size_t*) {
  return check_pack(state, device, *what);
}

Problem before(Function<&aa_ops_table::pack>, ValidateState& state, aa_stream* stream, const aa_pack* what,
               const aa_tensor* weight, const aa_allocation* into, aa_packed**) {
  const void* device = device_of(state, stream);
  if (Problem problem = check_pack(state, device, *what)) return problem;
  if (Problem problem = check_tensor(state, device, *weight, "weight", false)) return problem;
  const std::string error = state.device_range_error(device, into->pointer, into->size);
  return error.empty() ? Problem{} : wrong("into: " + error);
}

void after(Function<&aa_ops_table::pack>, ValidateLayer& layer, bool ok, aa_stream* stream, const aa_pack*,
           const aa_tensor*, const aa_allocation*, aa_packed** out_packed) {
  if (!ok) return;
  std::lock_guard lock(layer.state.mutex);
  const void* device = device_of(layer.state, stream);
  layer.state.add(ObjectKind::packed, *out_packed, device, device);
}

Problem before(Function<&aa_ops_table::unpack>, ValidateState& state, aa_stream* stream, aa_packed* packed,
               const aa_tensor* out_weight) {
  const void* device = device_of(state, stream);
  if (state.find(ObjectKind::packed, packed)->device != device) return wrong("the packed weight is of another device");
  return check_tensor(state, device, *out_weight, "out_weight", false);
}

Problem before(Function<&aa_ops_table::packed_destroy>, ValidateState& state, aa_packed* packed) {
  state.remove(ObjectKind::packed, packed);
  return {};
}

Problem before(Function<&aa_files_table::memory_register>, ValidateState& state, aa_device* device,
               const aa_file_memory* what) {
  if (!AA_HAS_MEMBER(what, aa_file_memory, size)) return wrong("what->struct_size covers too little");
  if (what->size == 0) return wrong("size is 0");
  const std::string error = state.device_range_error(device, what->pointer, what->size);
  return error.empty() ? Problem{} : wrong("pointer: " + error);
}

Problem before(Function<&aa_files_table::file_open>, ValidateState&, aa_device*, const aa_file_params* params,
               aa_file**) {
  if (!AA_HAS_MEMBER(params, aa_file_params, descriptor)) return wrong("params->struct_size covers too little");
  return params->descriptor < 0 ? wrong("descriptor is " + std::to_string(params->descriptor)) : Problem{};
}

void after(Function<&aa_files_table::file_open>, ValidateLayer& layer, bool ok, aa_device* device,
           const aa_file_params*, aa_file** out_file) {
  if (!ok) return;
  std::lock_guard lock(layer.state.mutex);
  layer.state.add(ObjectKind::file, *out_file, device, device);
}

Problem before(Function<&aa_files_table::file_close>, ValidateState& state, aa_file* file) {
  state.remove(ObjectKind::file, file);
  return {};
}

Problem before(Function<&aa_files_table::read>, ValidateState& state, aa_file* file, const aa_file_transfer* what,
               size_t*) {
  return check_transfer(state, file, what);
}

Problem before(Function<&aa_files_table::write>, ValidateState& state, aa_file* file, const aa_file_transfer* what,
               size_t*) {
  return check_transfer(state, file, what);
}

}  // namespace anyaccel::layers
