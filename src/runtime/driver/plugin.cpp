// Opens plugins: shared libraries that export a driver table.
#include <dlfcn.h>

#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "base/elf_file.h"
#include "base/trusted_path.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"
#include "runtime/layers/layers.h"

namespace anyaccel {

namespace {

// Opens the file, if it can be nobody else's. Not a copy of it, as of ops that were compiled: it may find further files beside
// its own name, and debuggers and profilers go by that.
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
  try {
    raw = query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services());
  } catch (const std::exception& thrown) {
    throw UnavailableError(asked + "its query function threw an exception (" + thrown.what() +
                           "); no exception may cross the plugin boundary");
  } catch (...) {
    throw UnavailableError(asked + "its query function threw an exception; none may cross the plugin boundary");
  }
  if (!raw) {
    throw UnavailableError(asked + "speaks no plugin interface version that this program does (" +
                               std::to_string(AA_ABI_MAJOR) + ".0 to " + std::to_string(AA_ABI_MAJOR) + "." +
                               std::to_string(AA_ABI_MINOR) + "); rebuild it for this version",
                           AA_INCOMPATIBLE);
  }
  return {apply_layers_from_environment(complete_table(raw, file)), file};
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
    candidate.reason = std::string("its probe failed: ") + host_services()->status_message(status);
    host_services()->status_release(status);
    return candidate;
  }
  probe.reason[AA_PROBE_REASON_SIZE - 1] = '\0';
  candidate.reason = probe.reason;
  const bool known_state = probe.state >= AA_PROBE_ABSENT && probe.state <= AA_PROBE_USABLE;
  const bool count_fits = (probe.state == AA_PROBE_USABLE) == (probe.device_count > 0) && probe.device_count < 65536;
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
