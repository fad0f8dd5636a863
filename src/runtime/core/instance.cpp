// Implements instance.h: initializing a driver and finding its extensions.
#include "runtime/core/instance.h"

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "runtime/driver/driver_table.h"

namespace anyaccel {

namespace {

template <class Table>
const abi::Calls<Table>* find_extension(const DriverInstance& holder, const char* extension_name, uint32_t version) {
  const void* raw = nullptr;
  aa_status* status = holder.driver->query_extension(holder.instance, extension_name, version, &raw);
  if (status != nullptr) {
    const aa_code code = status_code(status);
    const std::string message = status_message(status);
    release_status(status);
    if (code != AA_UNIMPLEMENTED) {
      log_warning(holder.name + ": extension \"" + extension_name + "\" cannot be used: " + message);
    }
    return nullptr;
  }
  return complete_extension(static_cast<const Table*>(raw), holder.name);
}

}  // namespace

void DriverInstance::end() noexcept {
  driver = ended_driver_table();
  const ExtensionTables& ended = ended_extension_tables();
#define ANYACCEL_END(field, table, extension_name, version, functions) \
  if (field) field = ended.field;
  ANYACCEL_EXTENSIONS(ANYACCEL_END)
#undef ANYACCEL_END
}

DriverInstance::~DriverInstance() {
  if (instance) release_status(driver->shutdown(instance));
}

std::shared_ptr<DriverInstance> open_instance(const abi::DriverCalls* driver, const std::string& origin,
                                              std::vector<aa_device_props>& props) {
  auto holder = std::make_shared<DriverInstance>();
  holder->driver = driver;
  holder->name = driver->name;
  holder->options = DriverOptions(*driver);
  const std::vector<aa_option> options = holder->options.for_driver();
  auto params = abi::sized<aa_initialize_params>();
  params.options = options.data();
  params.option_count = static_cast<uint32_t>(options.size());
  params.library_path = origin == "built in" ? nullptr : origin.c_str();
  check(driver->initialize(&params, &holder->instance), "initialize", holder->name.c_str());
  check_made(holder->instance, "initialize", holder->name.c_str());

  int32_t count = 0;
  check(driver->device_count(holder->instance, &count), "device_count", holder->name.c_str());
  if (count <= 0) {
    throw UnavailableError(
        holder->name + ": the runtime was opened but offers no device" +
        (*driver->visible_devices_env ? std::string("; check ") + driver->visible_devices_env : std::string()));
  }
  if (count > max_devices) {
    throw Error(holder->name + ": device_count gave " + std::to_string(count) + " devices; at most " +
                    std::to_string(max_devices) + " are possible",
                AA_INTERNAL);
  }
  props.resize(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    props[static_cast<size_t>(i)].struct_size = sizeof(aa_device_props);
    check(driver->device_props(holder->instance, i, &props[static_cast<size_t>(i)]), "device_props",
          holder->name.c_str());
  }
#define ANYACCEL_FIND(member, table, extension_name, version, functions) \
  holder->member = find_extension<table>(*holder, extension_name, version);
  ANYACCEL_EXTENSIONS(ANYACCEL_FIND)
#undef ANYACCEL_FIND
  return holder;
}

}  // namespace anyaccel
