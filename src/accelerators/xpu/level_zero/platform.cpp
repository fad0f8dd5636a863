// Implements platform.h: finding Level Zero.
#include "accelerators/xpu/level_zero/platform.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace anyaccel::xpu::level_zero {
namespace {

constexpr const char* library_name = "libze_loader.so.1";

std::atomic<bool> claimed{false};
std::atomic<bool> forked_after_claim{false};

// The loader's variables that name a driver which needs no device node.
const char* driver_variable() {
  for (const char* name : {"ZE_ENABLE_ALT_DRIVERS", "ZE_ENABLE_NULL_DRIVER"}) {
    const char* value = std::getenv(name);
    if (value && *value && std::string(value) != "0") return name;
  }
  return nullptr;
}

// The device nodes of GPUs, of whatever vendor.
std::vector<std::string> gpu_nodes() {
  std::vector<std::string> nodes;
  for (const auto& [folder, prefix] : {std::pair("/dev/dri", "renderD"), std::pair("/dev/accel", "accel")}) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      if (entry.path().filename().string().starts_with(prefix)) nodes.push_back(entry.path().string());
    }
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

struct Library {
  Api api;
  std::string problem;    // empty when every function is there
  bool is_there = false;  // the file could be opened
};

const Library& library() {
  static const Library loaded = [] {
    Library result;
    // Never closed: the drivers behind it start threads and register handlers.
    void* file = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (!file) {
      const char* why = dlerror();
      result.problem = std::string(library_name) + " cannot be opened (" + (why ? why : "no reason given") +
                       "); install the Level Zero loader (Debian package libze1)";
      return result;
    }
    result.is_there = true;
    const char* missing = nullptr;
#define ANYACCEL_BIND(name, parameters)                                              \
  result.api.name = reinterpret_cast<decltype(result.api.name)>(dlsym(file, #name)); \
  if (!result.api.name && !missing) missing = #name;
    ANYACCEL_LEVEL_ZERO_FUNCTIONS(ANYACCEL_BIND)
#undef ANYACCEL_BIND
#define ANYACCEL_BIND(name, parameters) \
  result.api.name = reinterpret_cast<decltype(result.api.name)>(dlsym(file, #name));
    ANYACCEL_LEVEL_ZERO_OPTIONAL_FUNCTIONS(ANYACCEL_BIND)
#undef ANYACCEL_BIND
    if (missing) {
      result.problem = std::string(library_name) + " lacks the function " + missing +
                       "; it is not a Level Zero loader of version 1.0 or later";
    }
    return result;
  }();
  return loaded;
}

Discovery unusable(std::string reason) { return {AA_PROBE_UNUSABLE, std::move(reason), {}}; }

struct ResultName {
  Result result;
  const char* name;
};
constexpr ResultName result_names[] = {
    {not_ready, "ZE_RESULT_NOT_READY"},
    {error_device_lost, "ZE_RESULT_ERROR_DEVICE_LOST"},
    {error_out_of_host_memory, "ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY"},
    {error_out_of_device_memory, "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"},
    {error_module_build_failure, "ZE_RESULT_ERROR_MODULE_BUILD_FAILURE"},
    {error_module_link_failure, "ZE_RESULT_ERROR_MODULE_LINK_FAILURE"},
    {error_device_requires_reset, "ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET"},
    {error_insufficient_permissions, "ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS"},
    {error_not_available, "ZE_RESULT_ERROR_NOT_AVAILABLE"},
    {error_dependency_unavailable, "ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE"},
    {error_uninitialized, "ZE_RESULT_ERROR_UNINITIALIZED"},
    {error_unsupported_version, "ZE_RESULT_ERROR_UNSUPPORTED_VERSION"},
    {error_unsupported_feature, "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE"},
    {0x78000004, "ZE_RESULT_ERROR_INVALID_ARGUMENT"},
    {0x78000005, "ZE_RESULT_ERROR_INVALID_NULL_HANDLE"},
    {0x78000006, "ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE"},
    {0x78000007, "ZE_RESULT_ERROR_INVALID_NULL_POINTER"},
    {0x78000008, "ZE_RESULT_ERROR_INVALID_SIZE"},
    {error_unsupported_size, "ZE_RESULT_ERROR_UNSUPPORTED_SIZE"},
    {0x7800000a, "ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT"},
    {0x7800000b, "ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT"},
    {error_invalid_enumeration, "ZE_RESULT_ERROR_INVALID_ENUMERATION"},
    {error_unsupported_enumeration, "ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION"},
    {0x7800000f, "ZE_RESULT_ERROR_INVALID_NATIVE_BINARY"},
    {error_invalid_kernel_name, "ZE_RESULT_ERROR_INVALID_KERNEL_NAME"},
    {0x78000013, "ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION"},
    {0x78000014, "ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION"},
    {0x78000015, "ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX"},
    {0x78000016, "ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE"},
    {0x78000018, "ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED"},
    {0x78000019, "ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE"},
    {0x7800001a, "ZE_RESULT_ERROR_OVERLAPPING_REGIONS"},
};

// "0000:18:00.0"; empty when the driver does not tell.
std::string pci_address(const Api& api, DeviceHandle device) {
  PciProperties pci{};
  pci.type = type_pci_properties;
  if (!api.zeDevicePciGetPropertiesExt || api.zeDevicePciGetPropertiesExt(device, &pci) != success) return {};
  char text[48];
  std::snprintf(text, sizeof(text), "%04x:%02x:%02x.%x", pci.domain, pci.bus, pci.device, pci.function);
  return text;
}

}  // namespace

Discovery discover() {
  const char* variable = driver_variable();
  const std::vector<std::string> nodes = gpu_nodes();
  if (!variable && nodes.empty()) {
    return {AA_PROBE_ABSENT,
            "no GPU (looked for /dev/dri/renderD* and /dev/accel/accel*; neither ZE_ENABLE_ALT_DRIVERS nor "
            "ZE_ENABLE_NULL_DRIVER is set)",
            {}};
  }
  const Library& opened = library();
  if (!opened.problem.empty()) {
    return {opened.is_there ? AA_PROBE_UNUSABLE : AA_PROBE_ABSENT, opened.problem, {}};
  }
  if (!variable && std::none_of(nodes.begin(), nodes.end(),
                                [](const std::string& node) { return access(node.c_str(), R_OK | W_OK) == 0; })) {
    return unusable("this user may not open " + nodes.front() + (nodes.size() > 1 ? " or another device node" : "") +
                    "; add it to the group of these files (usually render), and in a container pass the devices on");
  }
  if (is_forked_child()) {
    return unusable(
        "this process was made by fork() after its parent had opened Level Zero, which does not survive that; start "
        "children with exec, or before the accelerator is first used");
  }
  const char* mask = std::getenv("ZE_AFFINITY_MASK");
  const std::string masked = mask ? std::string("; ZE_AFFINITY_MASK is \"") + mask + "\"" : std::string();
  Platform platform;
  platform.api = &opened.api;
  const Api& api = opened.api;
  // Usable devices cannot be counted without zeInit: device nodes do not tell whether the driver supports the card, or
  // what ZE_AFFINITY_MASK hides. zeInit creates no context, and the specification allows fork() after it: "each forked
  // process must call this function", which discover() does.
  if (const Result result = api.zeInit(init_gpu_only); result != success) {
    // The loader 1.20 counts the devices here, 1.16 does not.
    return unusable(std::string(library_name) + " is there, but zeInit gives " + result_text(result) +
                    (result == error_uninitialized
                         ? ": it found no driver that works, or none lists a GPU" + masked +
                               "; install the GPU's driver (Debian package intel-level-zero-gpu or "
                               "libze-intel-gpu1) and see that this user may open /dev/dri/renderD*"
                         : ""));
  }
  uint32_t driver_count = 0;
  Result result = api.zeDriverGet(&driver_count, nullptr);
  std::vector<DriverHandle> drivers(driver_count);
  if (result == success && driver_count > 0) result = api.zeDriverGet(&driver_count, drivers.data());
  if (result != success) return unusable("zeDriverGet gives " + result_text(result));
  for (DriverHandle driver : drivers) {
    uint32_t count = 0;
    if (api.zeDeviceGet(driver, &count, nullptr) != success || count == 0) continue;
    std::vector<DeviceHandle> devices(count);
    if (api.zeDeviceGet(driver, &count, devices.data()) != success) continue;
    for (DeviceHandle device : devices) {
      DeviceProperties properties{};
      properties.type = type_device_properties;
      if (api.zeDeviceGetProperties(device, &properties) != success) continue;
      if (properties.device_type == device_type_gpu) platform.devices.push_back(device);
    }
    if (platform.devices.empty()) continue;
    platform.driver = driver;
    if (api.zeDriverGetApiVersion(driver, &platform.version) != success) platform.version = 1u << 16;
    break;
  }
  if (platform.devices.empty()) {
    return unusable(std::to_string(driver_count) + " Level Zero driver(s), but none lists a GPU" + masked);
  }
  const uint32_t version = platform.version;
  const std::string list = mask ? mask : "";
  const auto commas = static_cast<size_t>(std::count(list.begin(), list.end(), ','));
  const bool shortened = !list.empty() && platform.devices.size() < commas + 1;
  return {AA_PROBE_USABLE,
          std::to_string(platform.devices.size()) + " device(s) of a Level Zero " + std::to_string(version >> 16) +
              "." + std::to_string(version & 0xffff) + " driver" +
              (variable ? std::string(", named by ") + variable : std::string()) +
              (shortened ? "; these are all that the driver takes of ZE_AFFINITY_MASK=\"" + list +
                               "\": it expects numbers of devices, separated by commas, each once"
                         : std::string()),
          std::move(platform)};
}

void claim_process() {
  if (claimed.exchange(true)) return;
  pthread_atfork(nullptr, nullptr, [] { forked_after_claim.store(true, std::memory_order_relaxed); });
}

bool is_forked_child() { return forked_after_claim.load(std::memory_order_relaxed); }

std::string result_text(Result result) {
  char number[16];
  std::snprintf(number, sizeof(number), "0x%08x", result);
  for (const ResultName& row : result_names) {
    if (row.result == result) return std::string(row.name) + " (" + number + ")";
  }
  return std::string("result ") + number;
}

aa_code code_of(Result result) {
  switch (result) {
    case error_device_lost:
    case error_device_requires_reset: return AA_DEVICE_LOST;
    case error_out_of_host_memory:
    case error_out_of_device_memory: return AA_RESOURCE_EXHAUSTED;
    case error_insufficient_permissions: return AA_PERMISSION_DENIED;
    case error_not_available:
    case error_dependency_unavailable:
    case error_uninitialized: return AA_UNAVAILABLE;
    case error_unsupported_version: return AA_INCOMPATIBLE;
    case error_unsupported_feature:
    case error_unsupported_size:
    case error_unsupported_enumeration: return AA_UNIMPLEMENTED;
    case error_module_build_failure:
    case error_module_link_failure: return AA_INVALID_ARGUMENT;
    default: return result >= first_invalid && result <= last_invalid ? AA_INVALID_ARGUMENT : AA_UNKNOWN;
  }
}

void raise(const Platform& platform, Result result, const char* call) {
  std::string message = std::string(call) + ": " + result_text(result);
  const char* words = nullptr;
  if (platform.api->zeDriverGetLastErrorDescription &&
      platform.api->zeDriverGetLastErrorDescription(platform.driver, &words) == success && words && *words) {
    message += std::string(": ") + words;
  }
  throw abi::Failure(code_of(result), message, result);
}

DeviceFacts read_facts(const Platform& platform, DeviceHandle device) {
  const Api& api = *platform.api;
  DeviceFacts facts;
  const bool cycles = platform.version >= version_1_2;
  facts.properties.type = cycles ? type_device_properties_1_2 : type_device_properties;
  check(platform, api.zeDeviceGetProperties(device, &facts.properties), "zeDeviceGetProperties");
  if (const auto resolution = static_cast<double>(facts.properties.timer_resolution); resolution > 0) {
    facts.nanoseconds_per_tick = cycles ? 1e9 / resolution : resolution;
  }
  facts.compute.type = type_device_compute_properties;
  check(platform, api.zeDeviceGetComputeProperties(device, &facts.compute), "zeDeviceGetComputeProperties");
  facts.module.type = type_device_module_properties;
  check(platform, api.zeDeviceGetModuleProperties(device, &facts.module), "zeDeviceGetModuleProperties");
  facts.access.type = type_device_memory_access_properties;
  check(platform, api.zeDeviceGetMemoryAccessProperties(device, &facts.access), "zeDeviceGetMemoryAccessProperties");

  uint32_t count = 0;
  check(platform, api.zeDeviceGetMemoryProperties(device, &count, nullptr), "zeDeviceGetMemoryProperties");
  std::vector<MemoryProperties> memories(count);
  for (MemoryProperties& memory : memories) memory.type = type_device_memory_properties;
  check(platform, api.zeDeviceGetMemoryProperties(device, &count, memories.data()), "zeDeviceGetMemoryProperties");
  for (const MemoryProperties& memory : memories) facts.total_memory += memory.total_size;

  count = 0;
  check(platform, api.zeDeviceGetCommandQueueGroupProperties(device, &count, nullptr),
        "zeDeviceGetCommandQueueGroupProperties");
  std::vector<QueueGroupProperties> groups(count);
  for (QueueGroupProperties& group : groups) group.type = type_queue_group_properties;
  check(platform, api.zeDeviceGetCommandQueueGroupProperties(device, &count, groups.data()),
        "zeDeviceGetCommandQueueGroupProperties");
  bool found = false;
  for (uint32_t i = 0; i < count && !found; ++i) {
    found = (groups[i].flags & queue_group_compute) && groups[i].queue_count > 0;
    if (found) {
      facts.queue_ordinal = i;
      facts.queue_count = groups[i].queue_count;
    }
  }
  if (!found) {
    throw abi::Failure(AA_UNAVAILABLE, std::string(facts.properties.name) +
                                           " has no queue that takes kernels (queue groups: " + std::to_string(count) +
                                           ")");
  }
  facts.pci_address = pci_address(api, device);
  return facts;
}

}  // namespace anyaccel::xpu::level_zero
