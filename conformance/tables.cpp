// Stubs for functions that a driver leaves out.
#include "conformance/tables.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace anyaccel::conformance {
namespace {

const aa_host* stub_host = nullptr;

template <class... Args>
aa_status* stub(Args...) {
  constexpr std::string_view message = "the driver leaves this function out";
  return stub_host->status_create(AA_UNIMPLEMENTED, 0, message.data(), message.size());
}

template <class... Args>
void fill_one(aa_status* (*&function)(Args...)) noexcept {
  if (!function) function = &stub<Args...>;
}

template <class... Functions>
void fill(Functions&... functions) noexcept {
  (fill_one(functions), ...);
}

template <class Table>
Table known_part(const Table& raw) noexcept {
  Table table{};
  std::memcpy(static_cast<void*>(&table), &raw, std::min<size_t>(raw.struct_size, sizeof(Table)));
  return table;
}

}  // namespace

void set_stub_host(const aa_host* host) noexcept { stub_host = host; }

aa_driver completed(const aa_driver& raw) noexcept {
  aa_driver t = known_part(raw);
  fill(t.probe, t.initialize, t.shutdown, t.query_extension);
  fill(t.device_count, t.device_props, t.device_open, t.device_close, t.device_synchronize, t.device_memory_info);
  fill(t.mem_alloc, t.mem_free, t.mem_query, t.copy_async, t.fill_async);
  fill(t.stream_create, t.stream_destroy, t.stream_query, t.stream_synchronize, t.stream_wait_event, t.stream_native,
       t.stream_host_call);
  fill(t.event_create, t.event_destroy, t.event_record, t.event_query, t.event_synchronize, t.event_elapsed);
  fill(t.module_load, t.module_unload, t.kernel_get, t.kernel_launch);
  return t;
}

aa_graph_table completed(const aa_graph_table& raw) noexcept {
  aa_graph_table t = known_part(raw);
  fill(t.capture_begin, t.capture_end, t.capture_status, t.launch, t.node_count, t.destroy);
  return t;
}

aa_host_memory_table completed(const aa_host_memory_table& raw) noexcept {
  aa_host_memory_table t = known_part(raw);
  fill(t.register_range, t.unregister_range, t.alloc_on_node);
  return t;
}

aa_ops_table completed(const aa_ops_table& raw) noexcept {
  aa_ops_table t = known_part(raw);
  fill(t.find, t.supports, t.enqueue);
  return t;
}

aa_compiler_table completed(const aa_compiler_table& raw) noexcept {
  aa_compiler_table t = known_part(raw);
  fill(t.languages, t.fingerprint, t.compile, t.release, t.kernel_tuning);
  return t;
}

aa_profiler_table completed(const aa_profiler_table& raw) noexcept {
  aa_profiler_table t = known_part(raw);
  fill(t.range_push, t.range_pop, t.mark);
  return t;
}

}  // namespace anyaccel::conformance
