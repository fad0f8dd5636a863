// The rules of the validate layer, function by function.
//
// Each function of the tables has up to four overloads, selected by Function<Member>:
//   before    under the lock of the state, after handles and pointers have been checked: the rules. What is to be
//             destroyed leaves the books here already, because its address may be given out again on another thread
//             before the call returns.
//   ask       without the lock: rules that need an answer of the driver
//   forward   the call itself
//   after     without the lock: enters what a successful call made into the books
#pragma once

#include <string>
#include <utility>

#include "runtime/layers/layer_tables.h"
#include "runtime/layers/layers.h"
#include "runtime/layers/parameter_names.h"
#include "runtime/layers/validate_state.h"

namespace anyaccel::layers {

// A violated rule; converts to true if there is one.
struct Problem {
  aa_code code = AA_OK;
  std::string rule;
  explicit operator bool() const noexcept { return code != AA_OK; }
};

inline Problem wrong(std::string rule) { return {AA_INVALID_ARGUMENT, std::move(rule)}; }
inline Problem wrong_now(std::string rule) { return {AA_FAILED_PRECONDITION, std::move(rule)}; }

template <auto Member>
struct Function {};

struct Validate {
  using State = ValidateState;
  template <auto Member, class... Args>
  static aa_status* call(LayerState<Validate>& layer, Args... args);
};
using ValidateLayer = LayerState<Validate>;

// True while this thread runs a function of stream_host_call.
inline thread_local bool inside_host_call = false;

// ---- functions without rules of their own ----

template <auto Member, class... Args>
Problem before(Function<Member>, ValidateState&, Args...) {
  return {};
}
template <auto Member, class... Args>
Problem ask(Function<Member>, ValidateLayer&, Args...) {
  return {};
}
template <auto Member, class... Args>
aa_status* forward(Function<Member>, ValidateLayer& layer, Args... args) {
  return layer.next<Member>(args...);
}
template <auto Member, class... Args>
void after(Function<Member>, ValidateLayer&, bool, Args...) {}

// ---- life ----

Problem before(Function<&aa_driver::shutdown>, ValidateState& state, aa_instance* instance);
aa_status* forward(Function<&aa_driver::query_extension>, ValidateLayer& layer, aa_instance* instance, const char* name,
                   uint32_t min_version, const void** out_table);
void after(Function<&aa_driver::initialize>, ValidateLayer& layer, bool ok, const aa_initialize_params* params,
           aa_instance** out_instance);
void after(Function<&aa_driver::device_open>, ValidateLayer& layer, bool ok, aa_instance* instance,
           const aa_device_open_params* params, aa_device** out_device);
Problem before(Function<&aa_driver::device_close>, ValidateState& state, aa_device* device);

// ---- memory ----

Problem before(Function<&aa_driver::mem_alloc>, ValidateState& state, aa_device* device, const aa_alloc* what,
               aa_allocation* out);
void after(Function<&aa_driver::mem_alloc>, ValidateLayer& layer, bool ok, aa_device* device, const aa_alloc* what,
           aa_allocation* out);
Problem before(Function<&aa_driver::mem_free>, ValidateState& state, aa_device* device, const aa_allocation* what);
Problem before(Function<&aa_driver::copy_async>, ValidateState& state, aa_stream* stream, const aa_copy* what);
Problem before(Function<&aa_peer_table::copy_async>, ValidateState& state, aa_stream* stream, const aa_peer_copy* what);
Problem before(Function<&aa_driver::fill_async>, ValidateState& state, aa_stream* stream, const aa_fill* what);
Problem before(Function<&aa_host_memory_table::register_range>, ValidateState& state, aa_device* device,
               const aa_register* what, aa_registration* out);
void after(Function<&aa_host_memory_table::register_range>, ValidateLayer& layer, bool ok, aa_device* device,
           const aa_register* what, aa_registration* out);
Problem before(Function<&aa_host_memory_table::unregister_range>, ValidateState& state, aa_device* device,
               void* pointer);

// ---- streams ----

void after(Function<&aa_driver::stream_create>, ValidateLayer& layer, bool ok, aa_device* device,
           const aa_stream_params* params, aa_stream** out_stream);
Problem before(Function<&aa_driver::stream_destroy>, ValidateState& state, aa_stream* stream);
Problem before(Function<&aa_driver::stream_synchronize>, ValidateState& state, aa_stream* stream);
aa_status* forward(Function<&aa_driver::stream_host_call>, ValidateLayer& layer, aa_stream* stream,
                   void (*function)(void*), void* user);

// ---- events ----

void after(Function<&aa_driver::event_create>, ValidateLayer& layer, bool ok, aa_device* device,
           const aa_event_params* params, aa_event** out_event);
Problem before(Function<&aa_driver::event_destroy>, ValidateState& state, aa_event* event);
Problem before(Function<&aa_driver::event_record>, ValidateState& state, aa_event* event, aa_stream* stream);
void after(Function<&aa_driver::event_record>, ValidateLayer& layer, bool ok, aa_event* event, aa_stream* stream);
Problem before(Function<&aa_driver::event_query>, ValidateState& state, aa_event* event, int32_t* out_done);
Problem before(Function<&aa_driver::event_synchronize>, ValidateState& state, aa_event* event);
Problem before(Function<&aa_driver::event_elapsed>, ValidateState& state, aa_event* start, aa_event* end,
               double* out_milliseconds);
Problem ask(Function<&aa_driver::event_elapsed>, ValidateLayer& layer, aa_event* start, aa_event* end,
            double* out_milliseconds);

// ---- device code ----

Problem before(Function<&aa_driver::module_load>, ValidateState& state, aa_device* device,
               const aa_module_params* params, aa_module** out_module);
void after(Function<&aa_driver::module_load>, ValidateLayer& layer, bool ok, aa_device* device,
           const aa_module_params* params, aa_module** out_module);
Problem before(Function<&aa_driver::module_unload>, ValidateState& state, aa_module* module);
void after(Function<&aa_driver::kernel_get>, ValidateLayer& layer, bool ok, aa_module* module, const char* name,
           aa_kernel** out_kernel, aa_kernel_info* out_info);
Problem before(Function<&aa_driver::kernel_launch>, ValidateState& state, aa_stream* stream, aa_kernel* kernel,
               const aa_launch* launch);

// ---- graphs ----

Problem before(Function<&aa_graph_table::capture_begin>, ValidateState& state, aa_stream* stream);
void after(Function<&aa_graph_table::capture_begin>, ValidateLayer& layer, bool ok, aa_stream* stream);
Problem before(Function<&aa_graph_table::capture_end>, ValidateState& state, aa_stream* stream, aa_graph** out_graph);
void after(Function<&aa_graph_table::capture_end>, ValidateLayer& layer, bool ok, aa_stream* stream,
           aa_graph** out_graph);
Problem before(Function<&aa_graph_table::launch>, ValidateState& state, aa_graph* graph, aa_stream* stream);
Problem before(Function<&aa_graph_table::destroy>, ValidateState& state, aa_graph* graph);

// ---- steps: validate_threads.cpp ----

Problem before(Function<&aa_lazy_table::step_begin>, ValidateState& state, aa_stream* stream, const aa_step* step);
void after(Function<&aa_lazy_table::step_begin>, ValidateLayer& layer, bool ok, aa_stream* stream, const aa_step* step);
Problem before(Function<&aa_lazy_table::step_end>, ValidateState& state, aa_stream* stream);

// ---- collectives: validate_collectives_rules.cpp ----

Problem before(Function<&aa_collectives_table::comm_create>, ValidateState& state, aa_device* device, const void* id,
               int32_t rank, int32_t size, aa_comm** out_comm);
void after(Function<&aa_collectives_table::comm_create>, ValidateLayer& layer, bool ok, aa_device* device,
           const void* id, int32_t rank, int32_t size, aa_comm** out_comm);
Problem before(Function<&aa_collectives_table::comm_destroy>, ValidateState& state, aa_comm* comm);
Problem before(Function<&aa_collectives_table::comm_abort>, ValidateState& state, aa_comm* comm);
void after(Function<&aa_collectives_table::group_begin>, ValidateLayer& layer, bool ok, aa_instance* instance);
Problem before(Function<&aa_collectives_table::group_end>, ValidateState& state, aa_instance* instance);
void after(Function<&aa_collectives_table::group_end>, ValidateLayer& layer, bool ok, aa_instance* instance);
Problem before(Function<&aa_collectives_table::all_reduce>, ValidateState& state, aa_comm* comm, aa_stream* stream,
               const void* send, void* recv, size_t count, int32_t dtype, int32_t op);
Problem before(Function<&aa_collectives_table::reduce>, ValidateState& state, aa_comm* comm, aa_stream* stream,
               const void* send, void* recv, size_t count, int32_t dtype, int32_t op, int32_t root);
Problem before(Function<&aa_collectives_table::broadcast>, ValidateState& state, aa_comm* comm, aa_stream* stream,
               const void* send, void* recv, size_t count, int32_t dtype, int32_t root);
Problem before(Function<&aa_collectives_table::all_gather>, ValidateState& state, aa_comm* comm, aa_stream* stream,
               const void* send, void* recv, size_t count, int32_t dtype);
Problem before(Function<&aa_collectives_table::reduce_scatter>, ValidateState& state, aa_comm* comm, aa_stream* stream,
               const void* send, void* recv, size_t count, int32_t dtype, int32_t op);
Problem before(Function<&aa_collectives_table::send>, ValidateState& state, aa_comm* comm, aa_stream* stream,
               const void* data, size_t count, int32_t dtype, int32_t peer);
Problem before(Function<&aa_collectives_table::recv>, ValidateState& state, aa_comm* comm, aa_stream* stream,
               void* data, size_t count, int32_t dtype, int32_t peer);

// ---- ops ----

void after(Function<&aa_ops_table::find>, ValidateLayer& layer, bool ok, aa_instance* instance, const char* name,
           int32_t* out_op);
Problem before(Function<&aa_ops_table::supports>, ValidateState& state, aa_device* device, const aa_op_call* call,
               int32_t* out_supported);
Problem before(Function<&aa_ops_table::enqueue>, ValidateState& state, aa_stream* stream, const aa_op_call* call,
               int32_t* out_taken);
Problem before(Function<&aa_ops_table::packed_size>, ValidateState& state, aa_device* device, const aa_pack* what,
               size_t* out_bytes);
Problem before(Function<&aa_ops_table::pack>, ValidateState& state, aa_stream* stream, const aa_pack* what,
               const aa_tensor* weight, const aa_allocation* into, aa_packed** out_packed);
void after(Function<&aa_ops_table::pack>, ValidateLayer& layer, bool ok, aa_stream* stream, const aa_pack* what,
           const aa_tensor* weight, const aa_allocation* into, aa_packed** out_packed);
Problem before(Function<&aa_ops_table::unpack>, ValidateState& state, aa_stream* stream, aa_packed* packed,
               const aa_tensor* out_weight);
Problem before(Function<&aa_ops_table::packed_destroy>, ValidateState& state, aa_packed* packed);

// ---- files ----

Problem before(Function<&aa_files_table::memory_register>, ValidateState& state, aa_device* device,
               const aa_file_memory* what);
Problem before(Function<&aa_files_table::file_open>, ValidateState& state, aa_device* device,
               const aa_file_params* params, aa_file** out_file);
void after(Function<&aa_files_table::file_open>, ValidateLayer& layer, bool ok, aa_device* device,
           const aa_file_params* params, aa_file** out_file);
Problem before(Function<&aa_files_table::file_close>, ValidateState& state, aa_file* file);
Problem before(Function<&aa_files_table::read>, ValidateState& state, aa_file* file, const aa_file_transfer* what,
               size_t* out_bytes);
Problem before(Function<&aa_files_table::write>, ValidateState& state, aa_file* file, const aa_file_transfer* what,
               size_t* out_bytes);

}  // namespace anyaccel::layers
