// Wrappers to call tables from C++: Calls<aa_driver> is an aa_driver whose functions are called as methods. Each method
// passes `self`, so that driver.stream_query(stream, &done) means driver.stream_query(driver.self, stream, &done).
// Functions that take a struct of arguments can be called with the arguments themselves too:
// driver.stream_create(device, priority, flags, &stream).
//
// For hosts, tests and the conformance suite; a driver does not need it.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "anyaccel/abi/sized.hpp"
#include "anyaccel/abi/table_functions.hpp"

namespace anyaccel::abi {

template <class Table>
struct Calls;

// ---- the forms without a struct; members of the structs that are not named here stay zero ------------------------------------

template <auto Member>
struct Function {};

inline aa_status* call_with(Function<&aa_driver::device_open>, const aa_driver& table, aa_instance* instance,
                            int32_t index, aa_device** out_device) {
  auto params = sized<aa_device_open_params>();
  params.index = index;
  return table.device_open(table.self, instance, &params, out_device);
}

inline aa_status* call_with(Function<&aa_driver::mem_alloc>, const aa_driver& table, aa_device* device, int32_t kind,
                            size_t size, void** out_pointer) {
  auto what = sized<aa_alloc>();
  what.kind = kind;
  what.numa_node = -1;
  what.size = size;
  auto given = sized<aa_allocation>();
  given.pointer = *out_pointer;  // stays what it was where the driver writes nothing
  aa_status* status = table.mem_alloc(table.self, device, &what, &given);
  *out_pointer = given.pointer;
  return status;
}

inline aa_status* call_with(Function<&aa_driver::mem_free>, const aa_driver& table, aa_device* device, int32_t kind,
                            void* pointer, size_t size) {
  auto what = sized<aa_allocation>();
  what.kind = kind;
  what.pointer = pointer;
  what.size = size;
  return table.mem_free(table.self, device, &what);
}

inline aa_status* call_with(Function<&aa_driver::copy_async>, const aa_driver& table, aa_stream* stream,
                            void* destination, const void* source, size_t size, int32_t direction) {
  auto what = sized<aa_copy>();
  what.destination = destination;
  what.source = source;
  what.size = size;
  what.direction = direction;
  return table.copy_async(table.self, stream, &what);
}

// A pattern of more than 8 bytes is truncated, but its full size is passed to the driver.
inline aa_status* call_with(Function<&aa_driver::fill_async>, const aa_driver& table, aa_stream* stream,
                            void* destination, const void* pattern, size_t pattern_size, size_t size) {
  auto what = sized<aa_fill>();
  what.destination = destination;
  what.size = size;
  what.pattern_size = static_cast<uint32_t>(pattern_size);
  std::memcpy(what.pattern, pattern, std::min(pattern_size, sizeof(what.pattern)));
  return table.fill_async(table.self, stream, &what);
}

inline aa_status* call_with(Function<&aa_driver::stream_create>, const aa_driver& table, aa_device* device,
                            int32_t priority, uint32_t flags, aa_stream** out_stream) {
  auto params = sized<aa_stream_params>();
  params.priority = priority;
  params.flags = flags;
  return table.stream_create(table.self, device, &params, out_stream);
}

inline aa_status* call_with(Function<&aa_driver::event_create>, const aa_driver& table, aa_device* device,
                            uint32_t flags, aa_event** out_event) {
  auto params = sized<aa_event_params>();
  params.flags = flags;
  return table.event_create(table.self, device, &params, out_event);
}

inline aa_status* call_with(Function<&aa_driver::module_load>, const aa_driver& table, aa_device* device,
                            const void* image, size_t size, const char* format, aa_module** out_module) {
  auto params = sized<aa_module_params>();
  params.image = image;
  params.size = size;
  params.format = format;
  return table.module_load(table.self, device, &params, out_module);
}

// For calls that `supports` accepted: it does not return whether the driver accepted the call.
inline aa_status* call_with(Function<&aa_ops_table::enqueue>, const aa_ops_table& table, aa_stream* stream,
                            const aa_op_call* call) {
  int32_t taken = 0;
  return table.enqueue(table.self, stream, call, &taken);
}

inline aa_status* call_with(Function<&aa_host_memory_table::register_range>, const aa_host_memory_table& table,
                            aa_device* device, void* pointer, size_t size) {
  auto what = sized<aa_register>();
  what.pointer = pointer;
  what.size = size;
  auto registration = sized<aa_registration>();
  return table.register_range(table.self, device, &what, &registration);
}

inline aa_status* call_with(Function<&aa_compiler_table::compile>, const aa_compiler_table& table, aa_device* device,
                            const char* language, const char* name, const char* source, size_t source_size,
                            const char* const* options, size_t option_count, aa_compile_result* out_result) {
  auto what = sized<aa_compile>();
  what.language = language;
  what.name = name;
  what.source = source;
  what.source_size = source_size;
  what.options = options;
  what.option_count = option_count;
  return table.compile(table.self, device, &what, out_result);
}

// ---- the methods -----------------------------------------------------------------------------------------------------

#define ANYACCEL_CALL_METHOD(table, member, need)                                      \
  template <class... Arguments>                                                        \
  aa_status* member(Arguments&&... arguments) const {                                  \
    if constexpr (std::is_invocable_v<decltype(table::member), void*, Arguments...>) { \
      return table::member(this->self, std::forward<Arguments>(arguments)...);         \
    } else {                                                                           \
      return call_with(Function<&table::member>(), static_cast<const table&>(*this),   \
                       std::forward<Arguments>(arguments)...);                         \
    }                                                                                  \
  }
#define ANYACCEL_CALL_CLASS(field, table, name, table_version, functions) \
  template <>                                                             \
  struct Calls<table> : table {                                           \
    functions(ANYACCEL_CALL_METHOD)                                       \
  };
ANYACCEL_CALL_CLASS(driver, aa_driver, "", 0, ANYACCEL_DRIVER_FUNCTIONS)
ANYACCEL_EXTENSIONS(ANYACCEL_CALL_CLASS)
#undef ANYACCEL_CALL_CLASS
#undef ANYACCEL_CALL_METHOD

using DriverCalls = Calls<aa_driver>;

// A copy of a table whose functions are called as above. A function that is missing from the table must not be called.
template <class Table>
Calls<Table> calls(const Table& table) noexcept {
  Calls<Table> copy{};
  static_cast<Table&>(copy) = table;
  return copy;
}

}  // namespace anyaccel::abi
