// Stubs for functions that a driver leaves out, and the counting of calls.
//
// The functions of a table get no pointer to it, so what stands behind them is kept in variables of the process, one for
// each kind of table.
#include "conformance/tables.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string_view>
#include <tuple>

namespace anyaccel::conformance {
namespace {

const aa_host* current_host = nullptr;

// A member of a table by its name.
template <auto Member>
struct Function {
  const char* name;
};

template <class Table>
struct Members;

#define MEMBER(function) \
  Function<&Table::function> { #function }

template <>
struct Members<aa_driver> {
  using Table = aa_driver;
  static constexpr const char* name = "driver";
  static constexpr std::tuple list{MEMBER(probe),
                                   MEMBER(initialize),
                                   MEMBER(shutdown),
                                   MEMBER(query_extension),
                                   MEMBER(device_count),
                                   MEMBER(device_props),
                                   MEMBER(device_open),
                                   MEMBER(device_close),
                                   MEMBER(device_synchronize),
                                   MEMBER(device_memory_info),
                                   MEMBER(mem_alloc),
                                   MEMBER(mem_free),
                                   MEMBER(mem_query),
                                   MEMBER(copy_async),
                                   MEMBER(fill_async),
                                   MEMBER(stream_create),
                                   MEMBER(stream_destroy),
                                   MEMBER(stream_query),
                                   MEMBER(stream_synchronize),
                                   MEMBER(stream_wait_event),
                                   MEMBER(stream_native),
                                   MEMBER(stream_host_call),
                                   MEMBER(event_create),
                                   MEMBER(event_destroy),
                                   MEMBER(event_record),
                                   MEMBER(event_query),
                                   MEMBER(event_synchronize),
                                   MEMBER(event_elapsed),
                                   MEMBER(module_load),
                                   MEMBER(module_unload),
                                   MEMBER(kernel_get),
                                   MEMBER(kernel_launch)};
};

template <>
struct Members<aa_graph_table> {
  using Table = aa_graph_table;
  static constexpr const char* name = AA_GRAPH_EXTENSION;
  static constexpr std::tuple list{MEMBER(capture_begin), MEMBER(capture_end), MEMBER(capture_status),
                                   MEMBER(launch),        MEMBER(node_count),  MEMBER(destroy)};
};

template <>
struct Members<aa_host_memory_table> {
  using Table = aa_host_memory_table;
  static constexpr const char* name = AA_HOST_MEMORY_EXTENSION;
  static constexpr std::tuple list{MEMBER(register_range), MEMBER(unregister_range), MEMBER(alloc_on_node)};
};

template <>
struct Members<aa_host_code_table> {
  using Table = aa_host_code_table;
  static constexpr const char* name = AA_HOST_CODE_EXTENSION;
  static constexpr std::tuple list{MEMBER(target), MEMBER(threads), MEMBER(run)};
};

template <>
struct Members<aa_ops_table> {
  using Table = aa_ops_table;
  static constexpr const char* name = AA_OPS_EXTENSION;
  static constexpr std::tuple list{MEMBER(find), MEMBER(supports), MEMBER(enqueue)};
};

template <>
struct Members<aa_compiler_table> {
  using Table = aa_compiler_table;
  static constexpr const char* name = AA_COMPILER_EXTENSION;
  static constexpr std::tuple list{MEMBER(languages), MEMBER(fingerprint), MEMBER(compile), MEMBER(release),
                                   MEMBER(kernel_tuning)};
};

template <>
struct Members<aa_profiler_table> {
  using Table = aa_profiler_table;
  static constexpr const char* name = AA_PROFILER_EXTENSION;
  static constexpr std::tuple list{MEMBER(range_push), MEMBER(range_pop), MEMBER(mark)};
};

template <>
struct Members<aa_ceilings_table> {
  using Table = aa_ceilings_table;
  static constexpr const char* name = AA_CEILINGS_EXTENSION;
  static constexpr std::tuple list{MEMBER(measure)};
};

template <>
struct Members<aa_collectives_table> {
  using Table = aa_collectives_table;
  static constexpr const char* name = AA_COLLECTIVES_EXTENSION;
  static constexpr std::tuple list{
      MEMBER(library),      MEMBER(id_size),        MEMBER(id_create),   MEMBER(comm_create),
      MEMBER(comm_destroy), MEMBER(comm_abort),     MEMBER(async_error), MEMBER(group_begin),
      MEMBER(group_end),    MEMBER(all_reduce),     MEMBER(reduce),      MEMBER(broadcast),
      MEMBER(all_gather),   MEMBER(reduce_scatter), MEMBER(send),        MEMBER(recv)};
};

#undef MEMBER

using Extensions = std::tuple<aa_graph_table, aa_host_memory_table, aa_host_code_table, aa_ops_table, aa_compiler_table,
                              aa_profiler_table, aa_ceilings_table, aa_collectives_table>;

// The driver's table, completed, and the one that counts.
template <class Table>
struct Tables {
  static inline Table next{};
  static inline Table counting{};
};

template <auto Member>
struct Count {
  static inline std::atomic<int64_t> calls{0};
  static inline std::atomic<int64_t> unimplemented{0};
};

template <auto Member>
struct Calls;

template <class Table, class... Args, aa_status* (*Table::*Member)(Args...)>
struct Calls<Member> {
  static aa_status* stub(Args...) {
    constexpr std::string_view message = "the driver leaves this function out";
    return current_host->status_create(AA_UNIMPLEMENTED, 0, message.data(), message.size());
  }

  static aa_status* counting(Args... args) {
    Count<Member>::calls.fetch_add(1, std::memory_order_relaxed);
    aa_status* status = (Tables<Table>::next.*Member)(args...);
    if (status && current_host->status_code(status) == AA_UNIMPLEMENTED) {
      Count<Member>::unimplemented.fetch_add(1, std::memory_order_relaxed);
    }
    return status;
  }
};

template <class Table, class Visit>
void for_each_member(const Visit& visit) {
  std::apply([&](const auto&... members) { (visit(members), ...); }, Members<Table>::list);
}

template <class Table>
const Table* counted_table(const Table& raw) noexcept {
  const size_t known = std::min<size_t>(raw.struct_size, sizeof(Table));
  Table& next = Tables<Table>::next;
  std::memset(static_cast<void*>(&next), 0, sizeof(Table));
  std::memcpy(static_cast<void*>(&next), &raw, known);
  next.struct_size = sizeof(Table);
  Table& counting = Tables<Table>::counting;
  counting = next;
  for_each_member<Table>([&]<auto Member>(const Function<Member>&) {
    if (!(next.*Member)) next.*Member = &Calls<Member>::stub;
    counting.*Member = &Calls<Member>::counting;
  });
  return &counting;
}

template <class Table>
bool count_extension(const char* name, const void** table) noexcept {
  if (std::strcmp(name, Members<Table>::name) != 0) return false;
  const auto& raw = *static_cast<const Table*>(*table);
  // A table that cannot be one stays as it is; the cases say what is wrong with it.
  if (raw.struct_size >= 2 * sizeof(uint32_t) && raw.struct_size < 65536) *table = counted_table(raw);
  return true;
}

aa_status* query_extension(aa_instance* instance, const char* name, uint32_t min_version, const void** out_table) {
  aa_status* status = Calls<&aa_driver::query_extension>::counting(instance, name, min_version, out_table);
  if (!status && *out_table) {
    std::apply([&](const auto&... table) { (count_extension<std::decay_t<decltype(table)>>(name, out_table) || ...); },
               Extensions{});
  }
  return status;
}

template <class Table>
void reset() noexcept {
  for_each_member<Table>([]<auto Member>(const Function<Member>&) {
    Count<Member>::calls = 0;
    Count<Member>::unimplemented = 0;
  });
}

template <class Table>
void append(std::vector<FunctionCoverage>& list) {
  for_each_member<Table>([&]<auto Member>(const Function<Member>& function) {
    list.push_back({Members<Table>::name, function.name, Count<Member>::calls, Count<Member>::unimplemented});
  });
}

}  // namespace

const aa_driver* counted(const aa_driver& raw, const aa_host* host) noexcept {
  current_host = host;
  reset<aa_driver>();
  std::apply([](const auto&... table) { (reset<std::decay_t<decltype(table)>>(), ...); }, Extensions{});
  counted_table(raw);
  Tables<aa_driver>::counting.query_extension = &query_extension;
  return &Tables<aa_driver>::counting;
}

std::vector<FunctionCoverage> coverage() {
  std::vector<FunctionCoverage> list;
  append<aa_driver>(list);
  std::apply([&](const auto&... table) { (append<std::decay_t<decltype(table)>>(list), ...); }, Extensions{});
  return list;
}

}  // namespace anyaccel::conformance
