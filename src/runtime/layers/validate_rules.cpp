// The rules of the validate layer for lifetimes, streams, events, device code and graphs.
#include "runtime/layers/validate_rules.h"

#include <cstring>
#include <memory>
#include <thread>

namespace anyaccel::layers {
namespace {

Problem check_no_children(const ValidateState& state, ObjectKind kind, const void* handle) {
  const std::string children = state.living_children(kind, handle);
  return children.empty() ? Problem{}
                          : wrong_now("leak: the " + std::string(kind_name(kind)) + " still has " + children);
}

const void* device_of(ValidateState& state, ObjectKind kind, const void* handle) {
  const TrackedObject* object = state.find(kind, handle);
  return object ? object->device : nullptr;
}

void enter(ValidateLayer& layer, ObjectKind kind, const void* handle, const void* parent, const void* device) {
  std::lock_guard lock(layer.state.mutex);
  layer.state.add(kind, handle, parent, device);
}

Problem check_not_capturing(ValidateState& state, aa_stream* stream, const char* what) {
  return state.find(ObjectKind::stream, stream)->capturing
             ? wrong_now("the stream captures a graph and cannot be " + std::string(what))
             : Problem{};
}

Problem check_outside_capture(ValidateState& state, aa_event* event) {
  return state.find(ObjectKind::event, event)->in_capture
             ? wrong_now("the event was recorded while its stream captured a graph; it is never reached by itself")
             : Problem{};
}

void run_host_call(void* pointer) {
  auto* call = static_cast<HostCall*>(pointer);
  const HostCall copy = *call;
  if (!copy.keep) delete call;
  inside_host_call = true;
  copy.function(copy.user);
  inside_host_call = false;
}

}  // namespace

// ---- life ----

Problem before(Function<&aa_driver::shutdown>, ValidateState& state, aa_instance* instance) {
  if (Problem problem = check_no_children(state, ObjectKind::instance, instance)) return problem;
  state.remove(ObjectKind::instance, instance);
  return {};
}

aa_status* forward(Function<&aa_driver::query_extension>, ValidateLayer& layer, aa_instance* instance, const char* name,
                   uint32_t min_version, const void** out_table) {
  return layer.find_extension(instance, name, min_version, out_table);
}

void after(Function<&aa_driver::initialize>, ValidateLayer& layer, bool ok, const aa_initialize_params*,
           aa_instance** out_instance) {
  if (ok) enter(layer, ObjectKind::instance, *out_instance, nullptr, nullptr);
}

void after(Function<&aa_driver::device_open>, ValidateLayer& layer, bool ok, aa_instance* instance,
           const aa_device_open_params* params, aa_device** out_device) {
  if (!ok) return;
  aa_device_props props{};
  props.struct_size = sizeof(props);
  const StatusRef status(layer.below.driver->device_props(instance, params->index, &props));
  std::lock_guard lock(layer.state.mutex);
  TrackedObject& object = layer.state.add(ObjectKind::device, *out_device, instance, *out_device);
  object.host_coherent = status.ok() && (props.caps & AA_CAP_HOST_COHERENT) != 0;
  object.grid_only = status.ok() && (props.caps & AA_CAP_GRID_ONLY) != 0;
}

Problem before(Function<&aa_driver::device_close>, ValidateState& state, aa_device* device) {
  if (Problem problem = check_no_children(state, ObjectKind::device, device)) return problem;
  state.remove(ObjectKind::device, device);
  return {};
}

// ---- streams ----

void after(Function<&aa_driver::stream_create>, ValidateLayer& layer, bool ok, aa_device* device,
           const aa_stream_params*, aa_stream** out_stream) {
  if (ok) enter(layer, ObjectKind::stream, *out_stream, device, device);
}

Problem before(Function<&aa_driver::stream_destroy>, ValidateState& state, aa_stream* stream) {
  if (Problem problem = check_not_capturing(state, stream, "destroyed")) return problem;
  state.remove(ObjectKind::stream, stream);
  return {};
}

Problem before(Function<&aa_driver::stream_synchronize>, ValidateState& state, aa_stream* stream) {
  return check_not_capturing(state, stream, "synchronized");
}

aa_status* forward(Function<&aa_driver::stream_host_call>, ValidateLayer& layer, aa_stream* stream,
                   void (*function)(void*), void* user) {
  bool capturing = false;
  {
    std::lock_guard lock(layer.state.mutex);
    const TrackedObject* object = layer.state.find(ObjectKind::stream, stream);
    capturing = object && object->capturing;
  }
  auto call = std::make_unique<HostCall>(HostCall{function, user, capturing});
  aa_status* status = layer.below.driver->stream_host_call(stream, run_host_call, call.get());
  if (status) return status;
  if (capturing) {
    std::lock_guard lock(layer.state.mutex);
    layer.state.recorded_calls.push_back(std::move(call));
  } else {
    (void)call.release();  // deleted when it has run
  }
  return nullptr;
}

// ---- events ----

void after(Function<&aa_driver::event_create>, ValidateLayer& layer, bool ok, aa_device* device,
           const aa_event_params* params, aa_event** out_event) {
  if (!ok) return;
  std::lock_guard lock(layer.state.mutex);
  layer.state.add(ObjectKind::event, *out_event, device, device).timing = (params->flags & AA_EVENT_TIMING) != 0;
}

Problem before(Function<&aa_driver::event_destroy>, ValidateState& state, aa_event* event) {
  state.remove(ObjectKind::event, event);
  return {};
}

Problem before(Function<&aa_driver::event_record>, ValidateState& state, aa_event* event, aa_stream* stream) {
  if (device_of(state, ObjectKind::event, event) != device_of(state, ObjectKind::stream, stream)) {
    return wrong("event and stream belong to different devices");
  }
  return {};
}

void after(Function<&aa_driver::event_record>, ValidateLayer& layer, bool ok, aa_event* event, aa_stream* stream) {
  if (!ok) return;
  std::lock_guard lock(layer.state.mutex);
  TrackedObject* recorded = layer.state.find(ObjectKind::event, event);
  const TrackedObject* on = layer.state.find(ObjectKind::stream, stream);
  if (!recorded || !on) return;
  recorded->recorded = true;
  recorded->in_capture = on->capturing;
}

Problem before(Function<&aa_driver::event_query>, ValidateState& state, aa_event* event, int32_t*) {
  return check_outside_capture(state, event);
}

Problem before(Function<&aa_driver::event_synchronize>, ValidateState& state, aa_event* event) {
  return check_outside_capture(state, event);
}

Problem before(Function<&aa_driver::event_elapsed>, ValidateState& state, aa_event* start, aa_event* end, double*) {
  for (const auto& [event, name] : {std::pair(start, "start"), std::pair(end, "end")}) {
    const TrackedObject& object = *state.find(ObjectKind::event, event);
    if (!object.timing) return wrong_now(std::string(name) + " was made without AA_EVENT_TIMING");
    if (!object.recorded) return wrong_now(std::string(name) + " was never recorded");
    if (object.in_capture) return wrong_now(std::string(name) + " was recorded while its stream captured a graph");
  }
  return {};
}

Problem ask(Function<&aa_driver::event_elapsed>, ValidateLayer& layer, aa_event* start, aa_event* end, double*) {
  for (const auto& [event, name] : {std::pair(start, "start"), std::pair(end, "end")}) {
    int32_t done = 1;
    const StatusRef status(layer.below.driver->event_query(event, &done));
    if (status.ok() && !done) return wrong_now(std::string(name) + " is not complete yet");
  }
  return {};
}

// ---- device code ----

Problem before(Function<&aa_driver::module_load>, ValidateState&, aa_device*, const aa_module_params* params,
               aa_module**) {
  if (!AA_HAS_MEMBER(params, aa_module_params, format)) return wrong("params->struct_size covers too little");
  if (!params->image || !params->format) return wrong("image or format is null");
  return params->size == 0 ? wrong("size is 0") : Problem{};
}

void after(Function<&aa_driver::module_load>, ValidateLayer& layer, bool ok, aa_device* device, const aa_module_params*,
           aa_module** out_module) {
  if (ok) enter(layer, ObjectKind::module, *out_module, device, device);
}

Problem before(Function<&aa_driver::module_unload>, ValidateState& state, aa_module* module) {
  state.remove_children(ObjectKind::kernel, module);
  state.remove(ObjectKind::module, module);
  return {};
}

void after(Function<&aa_driver::kernel_get>, ValidateLayer& layer, bool ok, aa_module* module, const char*,
           aa_kernel** out_kernel, aa_kernel_info*) {
  if (!ok) return;
  std::lock_guard lock(layer.state.mutex);
  layer.state.add(ObjectKind::kernel, *out_kernel, module, device_of(layer.state, ObjectKind::module, module));
}

Problem before(Function<&aa_driver::kernel_launch>, ValidateState& state, aa_stream* stream, aa_kernel* kernel,
               const aa_launch* launch) {
  if (!AA_HAS_MEMBER(launch, aa_launch, memories)) return wrong("launch->struct_size covers too little");
  for (int i = 0; i < 3; ++i) {
    if (launch->grid[i] == 0) return wrong("a dimension of the grid is 0");
    if (launch->block[i] == 0 &&
        !state.find(ObjectKind::device, device_of(state, ObjectKind::stream, stream))->grid_only) {
      return wrong("a dimension of the block is 0");
    }
  }
  if (launch->argument_count > 0 && (!launch->arguments || !launch->argument_sizes || !launch->argument_kinds)) {
    return wrong("arguments, argument_sizes or argument_kinds is null");
  }
  for (uint32_t i = 0; i < launch->argument_count; ++i) {
    const std::string name = "arguments[" + std::to_string(i) + "]";
    if (!launch->arguments[i]) return wrong(name + " is null");
    if (launch->argument_kinds[i] > AA_ARGUMENT_POINTER) return wrong(name + " is of an unknown kind");
    if (launch->argument_kinds[i] != AA_ARGUMENT_POINTER) continue;
    if (launch->argument_sizes[i] != sizeof(void*)) return wrong(name + " is a pointer of another size");
    const void* pointer = nullptr;
    std::memcpy(&pointer, launch->arguments[i], sizeof(pointer));
    if (!pointer) continue;
    const std::string error = state.device_range_error(device_of(state, ObjectKind::stream, stream), pointer, 1);
    if (!error.empty()) return wrong(name + ": " + error);
  }
  if (device_of(state, ObjectKind::kernel, kernel) != device_of(state, ObjectKind::stream, stream)) {
    return wrong("kernel and stream belong to different devices");
  }
  return {};
}

// ---- graphs ----

Problem before(Function<&aa_graph_table::capture_begin>, ValidateState& state, aa_stream* stream) {
  return state.find(ObjectKind::stream, stream)->capturing ? wrong_now("the stream captures already") : Problem{};
}

void after(Function<&aa_graph_table::capture_begin>, ValidateLayer& layer, bool ok, aa_stream* stream) {
  std::lock_guard lock(layer.state.mutex);
  if (TrackedObject* object = layer.state.find(ObjectKind::stream, stream); ok && object) {
    object->capturing = true;
    object->only_thread = std::this_thread::get_id();
  }
}

Problem before(Function<&aa_graph_table::capture_end>, ValidateState& state, aa_stream* stream, aa_graph**) {
  return state.find(ObjectKind::stream, stream)->capturing ? Problem{} : wrong_now("the stream does not capture");
}

void after(Function<&aa_graph_table::capture_end>, ValidateLayer& layer, bool ok, aa_stream* stream,
           aa_graph** out_graph) {
  std::lock_guard lock(layer.state.mutex);
  TrackedObject* object = layer.state.find(ObjectKind::stream, stream);
  if (!object) return;
  object->capturing = false;
  if (!object->in_step) object->only_thread = {};
  const void* device = object->device;
  if (ok && out_graph) layer.state.add(ObjectKind::graph, *out_graph, device, device);
}

Problem before(Function<&aa_graph_table::launch>, ValidateState& state, aa_graph* graph, aa_stream* stream) {
  if (device_of(state, ObjectKind::graph, graph) != device_of(state, ObjectKind::stream, stream)) {
    return wrong("graph and stream belong to different devices");
  }
  return {};
}

Problem before(Function<&aa_graph_table::destroy>, ValidateState& state, aa_graph* graph) {
  state.remove(ObjectKind::graph, graph);
  return {};
}

}  // namespace anyaccel::layers
