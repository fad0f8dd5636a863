// Opens plugins: shared libraries that export a driver table.
#include <dlfcn.h>

#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "base/files/elf_file.h"
#include "base/files/trusted_path.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"
#include "runtime/layers/layers.h"

namespace anyaccel {

namespace {

// Opens the file if no other user could have changed it. Unlike compiled ops it is not copied first: a plugin may look
// for further files next to its own, and debuggers and profilers need the original path.
void* open_plugin(const std::string& file, const std::string& asked) {
  const TrustedPath found = open_trusted_file(file, Trust::program);
  if (found.state == TrustedPath::State::missing) {
    throw UnavailableError(asked + "there is no such file");
  }
  if (found.state == TrustedPath::State::refused) {
    throw UnavailableError(asked + "it is not loaded, because " + found.reason +
                           ", so that another user could put code there. Cure: " + found.cure);
  }
  if (!found.ok()) throw UnavailableError(asked + "it cannot be opened: " + found.reason);
  const std::string damage = damage_of_library(found.descriptor.get());
  if (!damage.empty()) throw UnavailableError(asked + "cannot be opened as a shared library: " + damage);
  // Never closed: threads of the vendor's runtime may run until the process ends.
  void* library = dlopen(found.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    throw UnavailableError(asked + "cannot be opened as a shared library: " + (reason ? reason : "unknown reason"));
  }
  return library;
}

// The aa_host of version 1, whose functions did not take the host as their first argument. A plugin of that version may
// store it and never calls it.
struct HostOfVersion1 {
  uint32_t struct_size, abi_version;
  aa_status* (*status_create)(int32_t code, int64_t native_code, const char* message, size_t length);
  void (*status_release)(aa_status* status);
  int32_t (*status_code)(const aa_status* status);
  int64_t (*status_native_code)(const aa_status* status);
  const char* (*status_message)(const aa_status* status);
  void (*log)(int32_t level, const char* message, size_t length);
};

// Returns the version of a plugin that has none in common with this program. Reads only members whose offsets are the
// same in all versions.
std::string older_version(aa_driver_query_fn query) {
  static constexpr HostOfVersion1 host = {
      .struct_size = sizeof(HostOfVersion1),
      .abi_version = AA_ABI_VERSION(1, 4),
      .status_create = [](int32_t, int64_t, const char*, size_t) -> aa_status* { return nullptr; },
      .status_release = [](aa_status*) {},
      .status_code = [](const aa_status*) -> int32_t { return AA_INTERNAL; },
      .status_native_code = [](const aa_status*) -> int64_t { return 0; },
      .status_message = [](const aa_status*) -> const char* { return ""; },
      .log = [](int32_t, const char*, size_t) {},
  };
  const aa_driver* old = nullptr;
  try {
    old = query(AA_ABI_VERSION(1, 0), AA_ABI_VERSION(1, 4), reinterpret_cast<const aa_host*>(&host));
  } catch (...) {
    old = nullptr;
  }
  if (!old || old->struct_size < offsetof(aa_driver, name))
    return "it speaks no version of the plugin interface that is known";
  return "it speaks version " + abi_version_text(old->abi_version) + " of the plugin interface";
}

}  // namespace

LoadedDriver load_plugin(const std::string& file) {
  const std::string asked = "plugin \"" + file + "\": ";
  void* library = open_plugin(file, asked);
  void* entry = dlsym(library, AA_DRIVER_QUERY_SYMBOL);
  if (!entry) {
    throw UnavailableError(asked + "does not export \"" AA_DRIVER_QUERY_SYMBOL
                                   "\"; it is not a driver for this program");
  }
  if (!is_function(entry)) {
    throw UnavailableError(asked + "its \"" AA_DRIVER_QUERY_SYMBOL "\" is data, not a function");
  }
  const auto query = reinterpret_cast<aa_driver_query_fn>(entry);
  const aa_driver* raw = nullptr;
  const aa_host* services = services_for(file);
  try {
    raw = query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, services);
  } catch (const std::exception& thrown) {
    throw UnavailableError(asked + "its query function threw an exception (" + thrown.what() +
                           "); no exception may cross the plugin boundary");
  } catch (...) {
    throw UnavailableError(asked + "its query function threw an exception; none may cross the plugin boundary");
  }
  if (!raw) {
    throw UnavailableError(asked + older_version(query) + "; this program speaks " + std::to_string(AA_ABI_MAJOR) +
                               ".0 to " + abi_version_text(AA_ABI_CURRENT) +
                               ": rebuild it with this version's headers (docs/new_accelerator.md, \"From version 1 to "
                               "version 2\")",
                           AA_INCOMPATIBLE);
  }
  const abi::DriverCalls* table = complete_table(raw, file);
  name_services(services, table->name);
  return {apply_needed_layers(table), file};
}

Candidate probe_driver(const LoadedDriver& driver) {
  Candidate candidate;
  candidate.name = driver.table->name;
  candidate.origin = driver.origin;
  candidate.probed = true;
  aa_probe probe{};
  probe.struct_size = sizeof(probe);
  aa_status* status = nullptr;
  try {
    status = driver.table->probe(&probe);
  } catch (...) {
    candidate.state = AA_PROBE_UNUSABLE;
    candidate.reason = "its probe threw an exception; none may cross the plugin boundary";
    return candidate;
  }
  if (status) {
    candidate.state = AA_PROBE_UNUSABLE;
    candidate.reason = std::string("its probe failed: ") + status_message(status);
    release_status(status);
    return candidate;
  }
  probe.reason[AA_PROBE_REASON_SIZE - 1] = '\0';
  candidate.reason = probe.reason;
  const bool known_state = probe.state >= AA_PROBE_ABSENT && probe.state <= AA_PROBE_USABLE;
  const bool count_fits =
      (probe.state == AA_PROBE_USABLE) == (probe.device_count > 0) && probe.device_count <= max_devices;
  if (!known_state || !count_fits || probe.device_count < 0) {
    candidate.state = AA_PROBE_UNUSABLE;
    candidate.reason = "its probe gave nonsense: state " + std::to_string(probe.state) + ", " +
                       std::to_string(probe.device_count) + " devices";
    return candidate;
  }
  candidate.state = static_cast<aa_probe_state>(probe.state);
  candidate.device_count = probe.device_count;
  return candidate;
}

}  // namespace anyaccel
