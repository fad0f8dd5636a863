// Completing the tables of drivers: sanity checks, and stubs for what they leave out.
#include "runtime/driver/driver_table.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "runtime/driver/host_services.h"
#include "runtime/driver/table_members.h"

namespace anyaccel {
namespace {

// No table of any version will be larger: beyond it, struct_size is garbage.
constexpr uint32_t max_table_size = 1u << 16;
constexpr size_t max_text = 256;

aa_status* unimplemented(std::string_view table, std::string_view function) noexcept {
  char text[128];
  size_t length = 0;
  for (const std::string_view part : {table, std::string_view(table.empty() ? "" : "."), function,
                                      std::string_view(" is not implemented by this driver")}) {
    length += part.copy(text + length, sizeof(text) - length);
  }
  return make_status(AA_UNIMPLEMENTED, {text, length});
}

// The stub for a function that a driver does not have.
template <auto Member>
struct Stub;

template <class Table, class... Args, aa_status* (*Table::*Member)(Args...)>
struct Stub<Member> {
  static aa_status* call(Args...) noexcept { return unimplemented(table_name<Table>, member_name<Member>); }
};

// Copies as many bytes of `raw` as its size says, and replaces null members by stubs. Every member is read once.
template <class Table>
abi::Calls<Table> copy_known_part(const Table* raw) noexcept {
  abi::Calls<Table> table{};
  std::memcpy(static_cast<void*>(&table), raw, std::min<size_t>(raw->struct_size, sizeof(Table)));
  table.struct_size = sizeof(Table);
  return table;
}

template <auto Member, class Table>
void fill(Table& table) noexcept {
  if (!(table.*Member)) table.*Member = &Stub<Member>::call;
}

// Fills stubs in for missing functions and collects the names of required ones that are missing; the same for every
// table.
#define ANYACCEL_FILL(table_type, member, need) fill<&table_type::member>(table);
#define ANYACCEL_CHECK(table_type, member, need) \
  if (need && !table.member) missing += (missing.empty() ? "" : ", ") + std::string(#member);
#define ANYACCEL_TABLE_FUNCTIONS(member, table_type, name, version, functions)                        \
  void fill_all(table_type& table) noexcept {functions(ANYACCEL_FILL)} std::string missing_functions( \
      const table_type& table) {                                                                      \
    [[maybe_unused]] constexpr bool required = true, optional = false;                                \
    std::string missing;                                                                              \
    functions(ANYACCEL_CHECK) return missing;                                                         \
  }
ANYACCEL_TABLE_FUNCTIONS(driver, aa_driver, "", 0, ANYACCEL_DRIVER_FUNCTIONS)
ANYACCEL_EXTENSIONS(ANYACCEL_TABLE_FUNCTIONS)
#undef ANYACCEL_TABLE_FUNCTIONS
#undef ANYACCEL_CHECK
#undef ANYACCEL_FILL

[[noreturn]] void refuse(std::string_view origin, const std::string& why) {
  throw UnavailableError("the driver table of " + std::string(origin) + " cannot be used: " + why, AA_INCOMPATIBLE);
}

abi::DriverCalls completed(const aa_driver* raw, std::string_view origin) {
  const std::string host = "this host speaks version " + abi_version_text(AA_ABI_CURRENT) + " with a table of " +
                           std::to_string(sizeof(aa_driver)) + " bytes";
  if (!raw)
    refuse(origin, "it offers no version in common with this host, which speaks " + abi_version_text(AA_ABI_CURRENT));
  std::string found = "it says struct_size " + std::to_string(raw->struct_size);
  if (raw->struct_size >= offsetof(aa_driver, name)) found += " and version " + abi_version_text(raw->abi_version);
  if (raw->struct_size < offsetof(aa_driver, name) || raw->struct_size > max_table_size ||
      raw->struct_size % alignof(aa_driver) != 0) {
    refuse(origin, found + ", a size that no version has; " + host);
  }
  if (raw->abi_version >> 16 != AA_ABI_MAJOR) {
    refuse(origin, found + "; " + host + "; the plugin must be built for the same major version");
  }
  abi::DriverCalls table = copy_known_part(raw);
  if (table.abi_draft != AA_ABI_DRAFT) {
    refuse(origin, found + ", draft " + std::to_string(table.abi_draft) + "; this host speaks draft " +
                       std::to_string(AA_ABI_DRAFT) + " of version " + abi_version_text(AA_ABI_CURRENT) +
                       "; rebuild the plugin with this version's headers");
  }
  if (!table.name || !is_valid_driver_name({table.name, strnlen(table.name, max_text)})) {
    refuse(origin, std::string("its name ") +
                       (table.name ? "\"" + std::string(table.name, strnlen(table.name, max_text)) + "\"" : "(null)") +
                       " is not 1 to 63 lower-case letters, digits and '.', beginning with a letter");
  }
  if (table.flags & ~AA_DRIVER_WANTS_MEMORY) {
    refuse(origin, found + ", and flags " + std::to_string(table.flags) +
                       ", of which this host knows only AA_DRIVER_WANTS_MEMORY");
  }
  const std::string missing = missing_functions(table);
  if (!missing.empty()) refuse(origin, "required functions are missing: " + missing + "; " + found + "; " + host);
  for (const char* aa_driver::*text :
       {&aa_driver::vendor, &aa_driver::version, &aa_driver::sanitizer, &aa_driver::communication_backend,
        &aa_driver::visible_devices_env, &aa_driver::export_env_prefixes}) {
    if (!(table.*text)) table.*text = "";
  }
  if (!table.options) table.option_count = 0;
  for (uint32_t i = 0; i < table.option_count; ++i) {
    const aa_option_info& setting = table.options[i];
    if (setting.key && setting.help && setting.fallback) continue;
    refuse(origin, "setting " + std::to_string(i) + " of aa_driver::options" +
                       (setting.key ? " (\"" + std::string(setting.key) + "\")" : "") +
                       " has a text that is null; an empty one is \"\"");
  }
  fill_all(table);
  return table;
}

// Keeps one copy of each distinct table. The copies live until the process ends, because handles and objects with
// static lifetime may use them until then. Tables are compared as bytes: they have no padding.
template <class Table>
const Table* keep(const Table& table) {
  static_assert(std::has_unique_object_representations_v<Table>);
  static std::mutex& mutex = *new std::mutex;
  static auto& copies = *new std::vector<std::unique_ptr<const Table>>;
  std::lock_guard lock(mutex);
  for (const auto& copy : copies) {
    if (std::memcmp(copy.get(), &table, sizeof(Table)) == 0) return copy.get();
  }
  return copies.emplace_back(std::make_unique<const Table>(table)).get();
}

template <class Table>
const abi::Calls<Table>* complete(const Table* raw, std::string_view driver_name) {
  if (!raw) return nullptr;
  if (raw->struct_size < offsetof(Table, self) + sizeof(void*) || raw->struct_size > max_table_size ||
      raw->version == 0) {
    log_warning(std::string(driver_name) + ": extension \"" + table_name<Table> +
                "\" is not used: its table says size " + std::to_string(raw->struct_size) + "; this host's has " +
                std::to_string(sizeof(Table)) + " bytes");
    return nullptr;
  }
  abi::Calls<Table> table = copy_known_part(raw);
  if (const std::string missing = missing_functions(table); !missing.empty()) {
    log_warning(std::string(driver_name) + ": extension \"" + table_name<Table> + "\" is not used: its table lacks " +
                missing + ", which it is of no use without");
    return nullptr;
  }
  fill_all(table);
  return keep(table);
}

// An object that a driver should destroy after its runtime has shut down is left to the end of the process. It stays
// reachable from here, so that leak checkers do not report it.
template <class Argument>
void leave_behind(Argument argument) noexcept {
  if constexpr (std::is_pointer_v<Argument>) {
    static auto& mutex = *new std::mutex;
    static auto& left = *new std::vector<const volatile void*>;
    const std::lock_guard lock(mutex);
    if constexpr (!std::is_function_v<std::remove_pointer_t<Argument>>) left.push_back(argument);
  }
}

// The stub for every function once the process is exiting.
template <auto Member>
struct Ended;

template <class Table, class... Args, aa_status* (*Table::*Member)(Args...)>
struct Ended<Member> {
  static aa_status* call(Args... args) noexcept {
    (leave_behind(args), ...);
    return make_status(AA_UNAVAILABLE, "the process is ending, and the accelerator's runtime with it");
  }
};

struct EndedTables {
  abi::DriverCalls driver{};
#define ANYACCEL_ENDED_TABLE(member, table, name, version, functions) abi::Calls<table> member{};
  ANYACCEL_EXTENSIONS(ANYACCEL_ENDED_TABLE)
#undef ANYACCEL_ENDED_TABLE
  ExtensionTables extensions;

  EndedTables() noexcept {
#define ANYACCEL_END(table_type, function, need) table.function = &Ended<&table_type::function>::call;
#define ANYACCEL_END_TABLE(member, table_type, name, table_version, functions) \
  {                                                                            \
    table_type& table = member;                                                \
    table.struct_size = sizeof(table_type);                                    \
    functions(ANYACCEL_END) extensions.member = &member;                       \
    table.version = table_version;                                             \
  }
    ANYACCEL_EXTENSIONS(ANYACCEL_END_TABLE)
#undef ANYACCEL_END_TABLE
    aa_driver& table = driver;
    ANYACCEL_DRIVER_FUNCTIONS(ANYACCEL_END)
#undef ANYACCEL_END
    table.struct_size = sizeof(aa_driver);
    table.abi_version = AA_ABI_CURRENT;
    table.name = table.vendor = table.version = table.sanitizer = table.communication_backend =
        table.visible_devices_env = table.export_env_prefixes = "";
  }
};

const EndedTables& ended_tables() noexcept {
  static const auto& tables = *new EndedTables;
  return tables;
}

}  // namespace

const abi::DriverCalls* ended_driver_table() noexcept { return &ended_tables().driver; }
const ExtensionTables& ended_extension_tables() noexcept { return ended_tables().extensions; }

const abi::DriverCalls* complete_table(const aa_driver* raw, std::string_view origin) {
  return keep(completed(raw, origin));
}

#define ANYACCEL_COMPLETE(member, table, name, version, functions)                              \
  const abi::Calls<table>* complete_extension(const table* raw, std::string_view driver_name) { \
    return complete(raw, driver_name);                                                          \
  }
ANYACCEL_EXTENSIONS(ANYACCEL_COMPLETE)
#undef ANYACCEL_COMPLETE

bool is_valid_driver_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > 63 || name[0] < 'a' || name[0] > 'z') return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.'; });
}

std::string abi_version_text(uint32_t version) {
  return std::to_string(version >> 16) + "." + std::to_string(version & 0xffffu);
}

}  // namespace anyaccel
