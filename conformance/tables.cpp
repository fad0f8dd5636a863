// Stubs for functions that a driver leaves out, and the counting of calls.
//
// One driver is tested at a time, so what stands behind the tables is kept in variables of the process, one for each kind of
// table.
#include "conformance/tables.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string_view>

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

aa_status* query_extension(void* self, aa_instance* instance, const char* name, uint32_t min_version,
                           const void** out_table) {
  aa_status* status = Counted<&aa_driver::query_extension>::counting(self, instance, name, min_version, out_table);
  if (status || !*out_table) return status;
  const std::string_view wanted = name;
  // A table that cannot be one stays as it is; the cases say what is wrong with it.
  const auto count = [&]<class Table>(const Table* raw) {
    if (raw->struct_size >= 2 * sizeof(uint32_t) && raw->struct_size < 65536) *out_table = counted_table(*raw);
  };
#define ANYACCEL_COUNT_EXTENSION(field, table, extension_name, version, functions) \
  if (wanted == extension_name) count(static_cast<const table*>(*out_table));
  ANYACCEL_EXTENSIONS(ANYACCEL_COUNT_EXTENSION)
#undef ANYACCEL_COUNT_EXTENSION
  return nullptr;
}

}  // namespace

const abi::DriverCalls* counted(const aa_driver& raw, const aa_host* host) noexcept {
  current_host = host;
#define ANYACCEL_RESET(table, member, need) \
  Count<& table::member>::calls = 0;        \
  Count<& table::member>::unimplemented = 0;
  ANYACCEL_ALL_FUNCTIONS(ANYACCEL_RESET)
#undef ANYACCEL_RESET
  counted_table(raw);
  Tables<aa_driver>::counting.aa_driver::query_extension = &query_extension;
  return &Tables<aa_driver>::counting;
}

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
