// Stubs for functions that a driver leaves out, and the counting of calls.
//
// One driver is tested at a time, so the state behind the tables is kept in global variables, one for each kind of
// table.
#include "conformance/tables.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <string_view>

#include "runtime/ops/op_list.h"

namespace anyaccel::conformance {
namespace {

const aa_host* current_host = nullptr;

// The driver's table, completed, and the one that counts.
template <class Table>
struct Tables {
  static inline Table next{};
  static inline abi::Calls<Table> counting{};
};

template <auto Member>
struct Count {
  static inline std::atomic<int64_t> calls{0};
  static inline std::atomic<int64_t> unimplemented{0};
};

template <auto Member>
struct Counted;

template <class Table, class... Args, aa_status* (*Table::*Member)(void*, Args...)>
struct Counted<Member> {
  static aa_status* stub(void*, Args...) {
    constexpr std::string_view message = "the driver leaves this function out";
    return current_host->status_create(current_host, AA_UNIMPLEMENTED, 0, message.data(), message.size());
  }

  static aa_status* counting(void*, Args... args) {
    Count<Member>::calls.fetch_add(1, std::memory_order_relaxed);
    const Table& next = Tables<Table>::next;
    aa_status* status = (next.*Member)(next.self, args...);
    if (status && current_host->status_code(current_host, status) == AA_UNIMPLEMENTED) {
      Count<Member>::unimplemented.fetch_add(1, std::memory_order_relaxed);
    }
    return status;
  }
};

// ---- the same for every table, from the list of their functions ----

void complete(aa_driver& next, aa_driver& counting) noexcept {
#define ANYACCEL_COMPLETE(table, member, need)                    \
  if (!next.member) next.member = &Counted<&table::member>::stub; \
  counting.member = &Counted<&table::member>::counting;
  ANYACCEL_DRIVER_FUNCTIONS(ANYACCEL_COMPLETE)
}
#define ANYACCEL_COMPLETE_TABLE(field, table_type, name, version, functions) \
  void complete(table_type& next, table_type& counting) noexcept { functions(ANYACCEL_COMPLETE) }
ANYACCEL_EXTENSIONS(ANYACCEL_COMPLETE_TABLE)
#undef ANYACCEL_COMPLETE_TABLE
#undef ANYACCEL_COMPLETE

template <class Table>
const Table* counted_table(const Table& raw) noexcept {
  Table& next = Tables<Table>::next;
  std::memset(static_cast<void*>(&next), 0, sizeof(Table));
  std::memcpy(static_cast<void*>(&next), &raw, std::min<size_t>(raw.struct_size, sizeof(Table)));
  next.struct_size = sizeof(Table);
  Table& counting = Tables<Table>::counting;
  counting = next;
  counting.self = nullptr;
  complete(next, counting);
  return &counting;
}

// A function of the driver's table that goes through services.h.
template <auto Member, auto Function>
struct Served;

template <class... Args, aa_status* (*aa_driver::*Member)(void*, Args...), auto Function>
struct Served<Member, Function> {
  static aa_status* counting(void*, Args... args) {
    Count<Member>::calls.fetch_add(1, std::memory_order_relaxed);
    return Function(args...);
  }
};

aa_status* capture_begin(void* self, aa_stream* stream) {
  aa_status* status = Counted<&aa_graph_table::capture_begin>::counting(self, stream);
  if (!status) note_capture(stream, true);
  return status;
}

aa_status* capture_end(void* self, aa_stream* stream, aa_graph** out_graph) {
  note_capture(stream, false);
  return Counted<&aa_graph_table::capture_end>::counting(self, stream, out_graph);
}

// By the driver's numbers; -1: none.
std::array<std::atomic<int32_t>, op_count> op_numbers;
std::atomic<uint64_t> ops_that_ran{0};

aa_status* find_op(void* self, aa_instance* instance, const char* name, int32_t* out_op) {
  aa_status* status = Counted<&aa_ops_table::find>::counting(self, instance, name, out_op);
  const auto known = std::ranges::find(op_names, std::string_view(name)) - std::begin(op_names);
  if (!status && known < static_cast<std::ptrdiff_t>(op_count)) op_numbers[static_cast<size_t>(known)] = *out_op;
  return status;
}

aa_status* enqueue_op(void* self, aa_stream* stream, const aa_op_call* call, int32_t* out_taken) {
  const int32_t number = call->op;
  aa_status* status = Counted<&aa_ops_table::enqueue>::counting(self, stream, call, out_taken);
  if (status || *out_taken != 1) return status;
  for (size_t i = 0; i < op_count; ++i) {
    if (op_numbers[i] == number) ops_that_ran |= uint64_t{1} << i;
  }
  return status;
}

aa_status* query_extension(void* self, aa_instance* instance, const char* name, uint32_t min_version,
                           const void** out_table) {
  aa_status* status = Counted<&aa_driver::query_extension>::counting(self, instance, name, min_version, out_table);
  if (status || !*out_table) return status;
  const std::string_view wanted = name;
  // An invalid table is left unchanged; the cases report what is wrong with it.
  const auto count = [&]<class Table>(const Table* raw) {
    if (raw->struct_size >= 2 * sizeof(uint32_t) && raw->struct_size < 65536) *out_table = counted_table(*raw);
  };
#define ANYACCEL_COUNT_EXTENSION(field, table, extension_name, version, functions) \
  if (wanted == extension_name) count(static_cast<const table*>(*out_table));
  ANYACCEL_EXTENSIONS(ANYACCEL_COUNT_EXTENSION)
#undef ANYACCEL_COUNT_EXTENSION
  if (wanted == AA_OPS_EXTENSION) {
    Tables<aa_ops_table>::counting.aa_ops_table::find = &find_op;
    Tables<aa_ops_table>::counting.aa_ops_table::enqueue = &enqueue_op;
  }
  if (wanted == AA_GRAPH_EXTENSION) {
    Tables<aa_graph_table>::counting.aa_graph_table::capture_begin = &capture_begin;
    Tables<aa_graph_table>::counting.aa_graph_table::capture_end = &capture_end;
  }
  return nullptr;
}

}  // namespace

const abi::DriverCalls* counted(const aa_driver& raw, const aa_host* host, const OpenedWith& with) noexcept {
  current_host = host;
#define ANYACCEL_RESET(table, member, need) \
  Count<& table::member>::calls = 0;        \
  Count<& table::member>::unimplemented = 0;
  ANYACCEL_ALL_FUNCTIONS(ANYACCEL_RESET)
#undef ANYACCEL_RESET
  counted_table(raw);
  for (auto& number : op_numbers) number = -1;
  ops_that_ran = 0;
  use_services(&Tables<aa_driver>::next, host, with);
  aa_driver& counting = Tables<aa_driver>::counting;
  counting.query_extension = &query_extension;
  counting.initialize = &Served<&aa_driver::initialize, &initialize_with_services>::counting;
  counting.device_open = &Served<&aa_driver::device_open, &open_with_services>::counting;
  counting.device_close = &Served<&aa_driver::device_close, &close_with_services>::counting;
  counting.stream_create = &Served<&aa_driver::stream_create, &create_stream_with_services>::counting;
  counting.stream_destroy = &Served<&aa_driver::stream_destroy, &destroy_stream_with_services>::counting;
  return &Tables<aa_driver>::counting;
}

uint64_t ops_found() {
  uint64_t found = 0;
  for (size_t i = 0; i < op_count; ++i) {
    if (op_numbers[i] >= 0) found |= uint64_t{1} << i;
  }
  return found;
}

uint64_t ops_run() { return ops_that_ran; }

std::vector<FunctionCoverage> coverage() {
  std::vector<FunctionCoverage> list;
  const char* name = "driver";
#define ANYACCEL_APPEND(table, member, need) \
  list.push_back({name, #member, Count<&table::member>::calls, Count<&table::member>::unimplemented});
  ANYACCEL_DRIVER_FUNCTIONS(ANYACCEL_APPEND)
#define ANYACCEL_APPEND_TABLE(field, table, extension_name, version, functions) \
  name = extension_name;                                                        \
  functions(ANYACCEL_APPEND)
  ANYACCEL_EXTENSIONS(ANYACCEL_APPEND_TABLE)
#undef ANYACCEL_APPEND_TABLE
#undef ANYACCEL_APPEND
  return list;
}

}  // namespace anyaccel::conformance
