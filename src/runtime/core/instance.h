// The vendor's runtime, opened: the driver's table, its instance, and its extension tables.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/driver/driver_options.h"
#include "runtime/driver/host_services.h"
#include "runtime/driver/table_members.h"

namespace anyaccel {

// The vendor's runtime, initialized, and its extension tables, completed.
struct DriverInstance : ExtensionTables {
  const abi::DriverCalls* driver = nullptr;
  std::string name;
  DriverOptions options;
  aa_instance* instance = nullptr;

  ~DriverInstance();
  // From now on the driver is not called any more: every call returns an error.
  void end() noexcept;
};

// Opens the runtime. `origin` is the plugin's file, or "built in". Writes the properties of its devices, of which there
// is at least one. Throws UnavailableError, or the error that the driver reports.
std::shared_ptr<DriverInstance> open_instance(const abi::DriverCalls* driver, const std::string& origin,
                                              std::vector<aa_device_props>& props);

}  // namespace anyaccel
