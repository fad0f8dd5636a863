// The names of the parameters of every table function, as the headers have them; for messages of the layers.
//
// Comma-separated. A '?' marks a pointer that may be null.
#pragma once

#include <string_view>

#include "runtime/driver/table_members.h"

namespace anyaccel::layers {

template <auto Member>
inline constexpr std::string_view parameter_names = "";

#define ANYACCEL_PARAMETERS(member, names) \
  template <>                              \
  inline constexpr std::string_view parameter_names<&member> = names
ANYACCEL_PARAMETERS(aa_driver::probe, "out_probe");
ANYACCEL_PARAMETERS(aa_driver::initialize, "params,out_instance");
ANYACCEL_PARAMETERS(aa_driver::shutdown, "instance");
ANYACCEL_PARAMETERS(aa_driver::query_extension, "instance,name,min_version,out_table");
ANYACCEL_PARAMETERS(aa_driver::device_count, "instance,out_count");
ANYACCEL_PARAMETERS(aa_driver::device_props, "instance,index,out_props");
ANYACCEL_PARAMETERS(aa_driver::device_open, "instance,params,out_device");
ANYACCEL_PARAMETERS(aa_driver::device_close, "device");
ANYACCEL_PARAMETERS(aa_driver::device_synchronize, "device");
ANYACCEL_PARAMETERS(aa_driver::device_memory_info, "device,out_free,out_total");
ANYACCEL_PARAMETERS(aa_driver::device_native, "device,what,out_handle");
ANYACCEL_PARAMETERS(aa_driver::mem_alloc, "device,what,out_allocation");
ANYACCEL_PARAMETERS(aa_driver::mem_free, "device,what");
ANYACCEL_PARAMETERS(aa_driver::mem_query, "instance,pointer?,out_info");
ANYACCEL_PARAMETERS(aa_driver::copy_async, "stream,what");
ANYACCEL_PARAMETERS(aa_driver::fill_async, "stream,what");
ANYACCEL_PARAMETERS(aa_driver::stream_create, "device,params,out_stream");
ANYACCEL_PARAMETERS(aa_driver::stream_destroy, "stream");
ANYACCEL_PARAMETERS(aa_driver::stream_query, "stream,out_done");
ANYACCEL_PARAMETERS(aa_driver::stream_synchronize, "stream");
ANYACCEL_PARAMETERS(aa_driver::stream_wait_event, "stream,event");
ANYACCEL_PARAMETERS(aa_driver::stream_native, "stream,out_handle");
ANYACCEL_PARAMETERS(aa_driver::stream_host_call, "stream,function,user?");
ANYACCEL_PARAMETERS(aa_driver::event_create, "device,params,out_event");
ANYACCEL_PARAMETERS(aa_driver::event_destroy, "event");
ANYACCEL_PARAMETERS(aa_driver::event_record, "event,stream");
ANYACCEL_PARAMETERS(aa_driver::event_query, "event,out_done");
ANYACCEL_PARAMETERS(aa_driver::event_synchronize, "event");
ANYACCEL_PARAMETERS(aa_driver::event_elapsed, "start,end,out_milliseconds");
ANYACCEL_PARAMETERS(aa_driver::module_load, "device,params,out_module");
ANYACCEL_PARAMETERS(aa_driver::module_unload, "module");
ANYACCEL_PARAMETERS(aa_driver::kernel_get, "module,name,out_kernel,out_info?");
ANYACCEL_PARAMETERS(aa_driver::kernel_launch, "stream,kernel,launch");
ANYACCEL_PARAMETERS(aa_graph_table::capture_begin, "stream");
ANYACCEL_PARAMETERS(aa_graph_table::capture_end, "stream,out_graph?");
ANYACCEL_PARAMETERS(aa_graph_table::capture_status, "stream,out_capturing");
ANYACCEL_PARAMETERS(aa_graph_table::launch, "graph,stream");
ANYACCEL_PARAMETERS(aa_graph_table::node_count, "graph,out_count");
ANYACCEL_PARAMETERS(aa_graph_table::destroy, "graph");
ANYACCEL_PARAMETERS(aa_host_memory_table::register_range, "device,what,out_registration");
ANYACCEL_PARAMETERS(aa_host_memory_table::unregister_range, "device,pointer");
ANYACCEL_PARAMETERS(aa_host_code_table::target, "instance,out_target");
ANYACCEL_PARAMETERS(aa_host_code_table::threads, "instance,out_threads");
ANYACCEL_PARAMETERS(aa_host_code_table::run, "instance,body,context?");
ANYACCEL_PARAMETERS(aa_ops_table::find, "instance,name,out_op");
ANYACCEL_PARAMETERS(aa_ops_table::supports, "device,call,out_supported");
ANYACCEL_PARAMETERS(aa_ops_table::enqueue, "stream,call,out_taken");
ANYACCEL_PARAMETERS(aa_ops_table::packed_size, "device,what,out_bytes");
ANYACCEL_PARAMETERS(aa_ops_table::pack, "stream,what,weight,into,out_packed");
ANYACCEL_PARAMETERS(aa_ops_table::unpack, "stream,packed,out_weight");
ANYACCEL_PARAMETERS(aa_ops_table::packed_destroy, "packed");
ANYACCEL_PARAMETERS(aa_compiler_table::languages, "device,out_languages");
ANYACCEL_PARAMETERS(aa_compiler_table::fingerprint, "device,out_text,size");
ANYACCEL_PARAMETERS(aa_compiler_table::compile, "device,what,out_result");
ANYACCEL_PARAMETERS(aa_compiler_table::release, "result");
ANYACCEL_PARAMETERS(aa_compiler_table::kernel_tuning, "device,out_tuning");
ANYACCEL_PARAMETERS(aa_compiler_table::dialect, "device,language,out_folder");
ANYACCEL_PARAMETERS(aa_profiler_table::range_push, "instance,message,domain,category");
ANYACCEL_PARAMETERS(aa_profiler_table::range_pop, "instance,domain");
ANYACCEL_PARAMETERS(aa_profiler_table::mark, "instance,message,domain");
ANYACCEL_PARAMETERS(aa_ceilings_table::measure, "device,kind,bytes,seconds,out_value");
ANYACCEL_PARAMETERS(aa_collectives_table::library, "instance,out_name,out_version");
ANYACCEL_PARAMETERS(aa_collectives_table::id_size, "instance,out_size");
ANYACCEL_PARAMETERS(aa_collectives_table::id_create, "instance,out_id");
ANYACCEL_PARAMETERS(aa_collectives_table::comm_create, "device,id,rank,size,out_comm");
ANYACCEL_PARAMETERS(aa_collectives_table::comm_destroy, "comm");
ANYACCEL_PARAMETERS(aa_collectives_table::comm_abort, "comm");
ANYACCEL_PARAMETERS(aa_collectives_table::async_error, "comm");
ANYACCEL_PARAMETERS(aa_collectives_table::group_begin, "instance");
ANYACCEL_PARAMETERS(aa_collectives_table::group_end, "instance");
ANYACCEL_PARAMETERS(aa_collectives_table::all_reduce, "comm,stream,send?,recv?,count,dtype,op");
ANYACCEL_PARAMETERS(aa_collectives_table::reduce, "comm,stream,send?,recv?,count,dtype,op,root");
ANYACCEL_PARAMETERS(aa_collectives_table::broadcast, "comm,stream,send?,recv?,count,dtype,root");
ANYACCEL_PARAMETERS(aa_collectives_table::all_gather, "comm,stream,send?,recv?,count,dtype");
ANYACCEL_PARAMETERS(aa_collectives_table::reduce_scatter, "comm,stream,send?,recv?,count,dtype,op");
ANYACCEL_PARAMETERS(aa_collectives_table::send, "comm,stream,data?,count,dtype,peer");
ANYACCEL_PARAMETERS(aa_collectives_table::recv, "comm,stream,data?,count,dtype,peer");
ANYACCEL_PARAMETERS(aa_lazy_table::flush, "stream");
ANYACCEL_PARAMETERS(aa_lazy_table::step_begin, "stream,step");
ANYACCEL_PARAMETERS(aa_lazy_table::step_end, "stream");
ANYACCEL_PARAMETERS(aa_peer_table::can_copy, "destination,source,out_possible");
ANYACCEL_PARAMETERS(aa_peer_table::copy_async, "stream,what");
ANYACCEL_PARAMETERS(aa_memory_kinds_table::count, "device,out_count");
ANYACCEL_PARAMETERS(aa_memory_kinds_table::info, "device,index,out_info");
ANYACCEL_PARAMETERS(aa_memory_kinds_table::usage, "device,kind,out_free,out_total");
ANYACCEL_PARAMETERS(aa_files_table::info, "device,out_info");
ANYACCEL_PARAMETERS(aa_files_table::memory_register, "device,what");
ANYACCEL_PARAMETERS(aa_files_table::memory_unregister, "device,pointer");
ANYACCEL_PARAMETERS(aa_files_table::file_open, "device,params,out_file");
ANYACCEL_PARAMETERS(aa_files_table::file_close, "file");
ANYACCEL_PARAMETERS(aa_files_table::read, "file,what,out_bytes");
ANYACCEL_PARAMETERS(aa_files_table::write, "file,what,out_bytes");
ANYACCEL_PARAMETERS(aa_fault_table::inject, "stream,code,native_code");
ANYACCEL_PARAMETERS(aa_fault_table::executed, "stream,out_items");
#undef ANYACCEL_PARAMETERS

// Removes the next name from a list; `may_be_null` is set if the name had the '?'.
constexpr std::string_view next_parameter(std::string_view& names, bool& may_be_null) noexcept {
  const size_t comma = names.find(',');
  std::string_view name = names.substr(0, comma);
  names = comma == std::string_view::npos ? std::string_view() : names.substr(comma + 1);
  may_be_null = name.ends_with('?');
  if (may_be_null) name.remove_suffix(1);
  return name;
}

}  // namespace anyaccel::layers
