// Tables as the host uses them: checked once, of full size, without null members.
//
// A driver may leave functions out, or be older than this host and have a smaller table. The host calls through a copy
// of its own, where such functions are stubs that return AA_UNIMPLEMENTED and leave out parameters alone. So callers
// never test for null, and a call is one indirect call. Every function here may be called from any thread.
#pragma once

#include <string>
#include <string_view>

#include "runtime/driver/table_members.h"

namespace anyaccel {

// More devices than any machine has: a larger number is garbage.
constexpr int32_t max_devices = 65535;

// The host's copy of a driver's table; lives until the process ends, and is the same for the same table. `origin` (a
// file name, "built in") appears in messages. Throws UnavailableError with code AA_INCOMPATIBLE when the table is null,
// of another major version, of an absurd size, lacks required functions (all are named), or has no valid name.
const abi::DriverCalls* complete_table(const aa_driver* raw, std::string_view origin);

// The host's copy of an extension table (one overload for each); lives until the process ends. Null, after a warning in
// the log, when `raw` is null, its size or version is absurd, or it lacks a required function: the driver is then used
// without the extension.
#define ANYACCEL_COMPLETE_EXTENSION(member, table, name, version, functions) \
  const abi::Calls<table>* complete_extension(const table* raw, std::string_view driver_name);
ANYACCEL_EXTENSIONS(ANYACCEL_COMPLETE_EXTENSION)
#undef ANYACCEL_COMPLETE_EXTENSION

// Tables in which every function only returns AA_UNAVAILABLE: for calls made while the process exits, when the vendor's
// runtime may have shut down already.
const abi::DriverCalls* ended_driver_table() noexcept;
const ExtensionTables& ended_extension_tables() noexcept;

// Returns true if `name` may name an accelerator: 1 to 63 lower-case letters, digits and '.', beginning with a letter.
bool is_valid_driver_name(std::string_view name) noexcept;

// "1.0" for AA_ABI_VERSION(1, 0).
std::string abi_version_text(uint32_t version);

}  // namespace anyaccel
