// Implements zeInit, drivers, devices and their properties, and contexts.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "simulators/level_zero/level_zero_face.h"

namespace sim::level_zero {
namespace {

std::atomic<bool> is_initialized = false;
pid_t reporting_process = 0;

// ZE_AFFINITY_MASK: a comma list of `device` or `device.subdevice`; our devices are one tile each, so any sub-device
// but 0 selects nothing. Entries that make no sense are ignored, as drivers do.
std::vector<int> visible_devices(int count) {
  std::vector<int> all, chosen;
  for (int i = 0; i < count; ++i) all.push_back(i);
  const char* mask = std::getenv("ZE_AFFINITY_MASK");
  if (mask == nullptr || *mask == '\0') return all;
  std::string text = mask;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    int device = -1, part = 0, used = 0;
    const std::string entry = text.substr(begin, end - begin);
    if ((std::sscanf(entry.c_str(), "%d.%d%n", &device, &part, &used) == 2 ||
         std::sscanf(entry.c_str(), "%d%n", &device, &used) == 1) &&
        used == static_cast<int>(entry.size()) && device >= 0 && device < count && part == 0) {
      chosen.push_back(device);
    }
    begin = end + 1;
  }
  // The mask selects; it does not reorder.
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

std::uint64_t reported_version() {
  const char* text = std::getenv("SIM_LEVEL_ZERO_VERSION");
  unsigned major = 0, minor = 0;
  if (text == nullptr || std::sscanf(text, "%u.%u", &major, &minor) != 2) return ZE_API_VERSION_CURRENT;
  return ZE_MAKE_VERSION(major, minor);
}

void report_at_exit() {
  if (::getpid() == reporting_process) engine().write_report();
}

}  // namespace

State::State() : engine(Settings::from_environment()), version(reported_version()) {}

State& state() {
  // Never destroyed: workers may still run when the process ends.
  static State* state = [] {
    auto* made = new State;
    reporting_process = ::getpid();
    std::atexit(report_at_exit);
    made->driver = std::make_shared<Driver>();
    made->engine.handles().add(made->driver, false);
    for (const int i : visible_devices(made->engine.settings().devices)) {
      made->devices.push_back(std::make_shared<Device>(i));
      made->engine.handles().add(made->devices.back(), false);
    }
    return made;
  }();
  return *state;
}

bool initialized() { return is_initialized; }

std::uint64_t device_cycles(std::uint64_t nanoseconds) {
  return static_cast<std::uint64_t>(static_cast<double>(nanoseconds) * (static_cast<double>(kTimerFrequency) * 1e-9));
}

ze_result_t result_of(Status status) {
  switch (status) {
    case Status::ok: return ZE_RESULT_SUCCESS;
    case Status::not_ready: return ZE_RESULT_NOT_READY;
    case Status::out_of_memory: return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    case Status::device_lost: return ZE_RESULT_ERROR_DEVICE_LOST;
    case Status::failed:
    case Status::bad_access:
    case Status::launch_failed:
    case Status::uncorrectable: return ZE_RESULT_ERROR_UNKNOWN;
    case Status::refused: return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
  return ZE_RESULT_ERROR_UNKNOWN;
}

ze_result_t refuse(const char* function, ze_result_t code, const char* kind, const std::string& what) {
  engine().report().violation(kind, std::string(function) + ": " + what);
  return code;
}

namespace {

ze_result_t zeInit(ze_init_flags_t flags) {
  SIM_REQUIRE(flags <= 3, ZE_RESULT_ERROR_INVALID_ENUMERATION, "bad-argument", "unknown flags");
  if (engine().settings().fault("init") != nullptr) return ZE_RESULT_ERROR_UNINITIALIZED;
  if (flags == ZE_INIT_FLAG_VPU_ONLY) return ZE_RESULT_ERROR_UNINITIALIZED;
  is_initialized = true;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDriverGet(std::uint32_t* count, ze_driver_handle_t* drivers) {
  SIM_REQUIRE(initialized(), ZE_RESULT_ERROR_UNINITIALIZED, "not-initialized", "zeInit was not called");
  SIM_REQUIRE(count != nullptr, ZE_RESULT_ERROR_INVALID_NULL_POINTER, "bad-argument", "the count is null");
  if (enumerate(count, 1, drivers) == 1) drivers[0] = handle_of<ze_driver_handle_t>(*state().driver);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDriverGetApiVersion(ze_driver_handle_t driver, ze_api_version_t* version) {
  SIM_GET(Driver, object, driver);
  *version = static_cast<ze_api_version_t>(state().version);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDriverGetProperties(ze_driver_handle_t driver, ze_driver_properties_t* properties) {
  SIM_GET(Driver, object, driver);
  SIM_STRUCTURE(properties, ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES);
  std::memset(&properties->uuid, 0x5a, sizeof properties->uuid);
  properties->driverVersion = 1;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDriverGetIpcProperties(ze_driver_handle_t driver, ze_driver_ipc_properties_t* properties) {
  SIM_GET(Driver, object, driver);
  SIM_STRUCTURE(properties, ZE_STRUCTURE_TYPE_DRIVER_IPC_PROPERTIES);
  properties->flags = 0;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDriverGetExtensionProperties(ze_driver_handle_t driver, std::uint32_t* count,
                                           ze_driver_extension_properties_t*) {
  SIM_GET(Driver, object, driver);
  *count = 0;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDeviceGet(ze_driver_handle_t driver, std::uint32_t* count, ze_device_handle_t* devices) {
  SIM_GET(Driver, object, driver);
  SIM_REQUIRE(count != nullptr, ZE_RESULT_ERROR_INVALID_NULL_POINTER, "bad-argument", "the count is null");
  const auto& all = state().devices;
  const std::uint32_t n = enumerate(count, static_cast<std::uint32_t>(all.size()), devices);
  for (std::uint32_t i = 0; i < n; ++i) devices[i] = handle_of<ze_device_handle_t>(*all[i]);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDeviceGetSubDevices(ze_device_handle_t device, std::uint32_t* count, ze_device_handle_t*) {
  SIM_GET(Device, object, device);
  *count = 0;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDeviceGetProperties(ze_device_handle_t device, ze_device_properties_t* p) {
  SIM_GET(Device, object, device);
  SIM_REQUIRE(p != nullptr, ZE_RESULT_ERROR_INVALID_NULL_POINTER, "bad-argument", "a structure is null");
  const bool newer = p->stype == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2;
  SIM_REQUIRE(newer || p->stype == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES, ZE_RESULT_ERROR_INVALID_ARGUMENT,
              "bad-argument", "a structure has a wrong stype");
  p->type = ZE_DEVICE_TYPE_GPU;
  p->vendorId = 0x8086;
  p->deviceId = 0x5151;
  p->flags = 0;
  p->subdeviceId = 0;
  p->coreClockRate = 1000;
  p->maxMemAllocSize = engine().settings().memory;
  p->maxHardwareContexts = 64;
  p->maxCommandQueuePriority = 0;
  p->numThreadsPerEU = 8;
  p->physicalEUSimdWidth = kSubgroup;
  p->numEUsPerSubslice = 4;
  p->numSubslicesPerSlice = 1;
  p->numSlices = 1;
  p->timerResolution = newer ? kTimerFrequency : kTimerNanoseconds;
  p->timestampValidBits = kTimestampBits;
  p->kernelTimestampValidBits = kTimestampBits;
  std::memset(&p->uuid, 0, sizeof p->uuid);
  p->uuid.id[0] = 0x51;
  p->uuid.id[15] = static_cast<std::uint8_t>(object->index);
  std::snprintf(p->name, sizeof p->name, "Simulated GPU %d", object->index);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDeviceGetComputeProperties(ze_device_handle_t device, ze_device_compute_properties_t* p) {
  SIM_GET(Device, object, device);
  SIM_STRUCTURE(p, ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES);
  p->maxTotalGroupSize = p->maxGroupSizeX = p->maxGroupSizeY = p->maxGroupSizeZ = kGroupSize;
  p->maxGroupCountX = p->maxGroupCountY = p->maxGroupCountZ = 0xffffffffu;
  p->maxSharedLocalMemory = kLocalBytes;
  p->numSubGroupSizes = 1;
  std::memset(p->subGroupSizes, 0, sizeof p->subGroupSizes);
  p->subGroupSizes[0] = kSubgroup;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDeviceGetModuleProperties(ze_device_handle_t device, ze_device_module_properties_t* p) {
  SIM_GET(Device, object, device);
  SIM_STRUCTURE(p, ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES);
  p->spirvVersionSupported = ZE_MAKE_VERSION(1, 4);
  p->flags = ZE_DEVICE_MODULE_FLAG_FP16 | ZE_DEVICE_MODULE_FLAG_FP64;
  p->fp16flags = p->fp32flags = p->fp64flags =
      ZE_DEVICE_FP_FLAG_DENORM | ZE_DEVICE_FP_FLAG_INF_NAN | ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST | ZE_DEVICE_FP_FLAG_FMA;
  p->maxArgumentsSize = 2048;
  p->printfBufferSize = 0;
  std::memset(&p->nativeKernelSupported, 0, sizeof p->nativeKernelSupported);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDeviceGetCommandQueueGroupProperties(ze_device_handle_t device, std::uint32_t* count,
                                                   ze_command_queue_group_properties_t* p) {
  SIM_GET(Device, object, device);
  const std::uint32_t n = enumerate(count, 2, p);
  for (std::uint32_t i = 0; i < n; ++i) {
    SIM_STRUCTURE(&p[i], ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES);
    p[i].flags = ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
    if (i == 0) p[i].flags |= ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE;
    p[i].maxMemoryFillPatternSize = i == 0 ? 128 : 1;
    p[i].numQueues = 1;
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDeviceGetMemoryProperties(ze_device_handle_t device, std::uint32_t* count,
                                        ze_device_memory_properties_t* p) {
  SIM_GET(Device, object, device);
  if (enumerate(count, 1, p) == 0) return ZE_RESULT_SUCCESS;
  SIM_STRUCTURE(p, ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES);
  p->flags = 0;
  p->maxClockRate = 1000;
  p->maxBusWidth = 64;
  p->totalSize = engine().settings().memory;
  std::snprintf(p->name, sizeof p->name, "simulated memory");
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDeviceGetMemoryAccessProperties(ze_device_handle_t device, ze_device_memory_access_properties_t* p) {
  SIM_GET(Device, object, device);
  SIM_STRUCTURE(p, ZE_STRUCTURE_TYPE_DEVICE_MEMORY_ACCESS_PROPERTIES);
  p->hostAllocCapabilities = p->deviceAllocCapabilities = p->sharedSingleDeviceAllocCapabilities =
      ZE_MEMORY_ACCESS_CAP_FLAG_RW;
  p->sharedCrossDeviceAllocCapabilities = 0;
  p->sharedSystemAllocCapabilities = 0;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDeviceGetCacheProperties(ze_device_handle_t device, std::uint32_t* count,
                                       ze_device_cache_properties_t* p) {
  SIM_GET(Device, object, device);
  if (enumerate(count, 1, p) == 0) return ZE_RESULT_SUCCESS;
  SIM_STRUCTURE(p, ZE_STRUCTURE_TYPE_DEVICE_CACHE_PROPERTIES);
  p->flags = 0;
  p->cacheSize = std::size_t{4} << 20;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDeviceGetImageProperties(ze_device_handle_t device, ze_device_image_properties_t* p) {
  SIM_GET(Device, object, device);
  SIM_STRUCTURE(p, ZE_STRUCTURE_TYPE_DEVICE_IMAGE_PROPERTIES);
  p->maxImageDims1D = p->maxImageDims2D = p->maxImageDims3D = 0;
  p->maxImageBufferSize = 0;
  p->maxImageArraySlices = p->maxSamplers = p->maxReadImageArgs = p->maxWriteImageArgs = 0;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDeviceGetP2PProperties(ze_device_handle_t device, ze_device_handle_t peer,
                                     ze_device_p2p_properties_t* p) {
  SIM_GET(Device, object, device);
  SIM_GET(Device, other, peer);
  SIM_STRUCTURE(p, ZE_STRUCTURE_TYPE_DEVICE_P2P_PROPERTIES);
  p->flags = engine().reaches(object->index, other->index) ? ZE_DEVICE_P2P_PROPERTY_FLAG_ACCESS : 0;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDeviceCanAccessPeer(ze_device_handle_t device, ze_device_handle_t peer, ze_bool_t* value) {
  SIM_GET(Device, object, device);
  SIM_GET(Device, other, peer);
  *value = engine().reaches(object->index, other->index);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeDeviceGetStatus(ze_device_handle_t device) {
  SIM_GET(Device, object, device);
  return result_of(engine().device_status(object->index));
}

ze_result_t zeDeviceGetGlobalTimestamps(ze_device_handle_t device, std::uint64_t* host, std::uint64_t* cycles) {
  SIM_GET(Device, object, device);
  *host = now_ns();
  *cycles = device_cycles(*host) & ((std::uint64_t{1} << kTimestampBits) - 1);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeContextCreate(ze_driver_handle_t driver, const ze_context_desc_t* desc, ze_context_handle_t* context) {
  SIM_GET(Driver, object, driver);
  SIM_STRUCTURE(desc, ZE_STRUCTURE_TYPE_CONTEXT_DESC);
  *context = handle_of<ze_context_handle_t>(std::make_shared<Context>(), true);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeContextCreateEx(ze_driver_handle_t driver, const ze_context_desc_t* desc, std::uint32_t count,
                              ze_device_handle_t* devices, ze_context_handle_t* context) {
  for (std::uint32_t i = 0; i < count; ++i) {
    SIM_GET(Device, object, devices[i]);
  }
  return level_zero::zeContextCreate(driver, desc, context);
}

ze_result_t zeContextDestroy(ze_context_handle_t context) {
  const auto token = reinterpret_cast<std::uint64_t>(context);
  for (const auto& allocation : engine().memory().live()) {
    if (allocation->owner != token) continue;
    return refuse(__func__, ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, "destroyed-in-use",
                  "the context still has " + allocation->text());
  }
  return destroy<Context>(context, __func__);
}

ze_result_t zeContextGetStatus(ze_context_handle_t context) {
  SIM_GET(Context, object, context);
  for (const auto& device : state().devices) {
    if (engine().device_status(device->index) != Status::ok) return ZE_RESULT_ERROR_DEVICE_LOST;
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t residency(const char* function, ze_context_handle_t context, ze_device_handle_t device, void* pointer) {
  ze_result_t result = ZE_RESULT_SUCCESS;
  if (get<Context>(context, function, &result) == nullptr) return result;
  if (get<Device>(device, function, &result) == nullptr) return result;
  const auto allocation = engine().memory().find(pointer);
  if (allocation == nullptr || allocation->freed) {
    return refuse(function, ZE_RESULT_ERROR_INVALID_ARGUMENT, "bad-pointer",
                  "the pointer is no live memory of a device");
  }
  return ZE_RESULT_SUCCESS;
}
ze_result_t zeContextMakeMemoryResident(ze_context_handle_t context, ze_device_handle_t device, void* pointer,
                                        std::size_t) {
  return residency(__func__, context, device, pointer);
}
ze_result_t zeContextEvictMemory(ze_context_handle_t context, ze_device_handle_t device, void* pointer, std::size_t) {
  return residency(__func__, context, device, pointer);
}

}  // namespace

SIM_TABLE(zeGetGlobalProcAddrTable, ze_global_dditable_t)
SIM_BIND(pfnInit, zeInit);
SIM_TABLE_END

SIM_TABLE(zeGetDriverProcAddrTable, ze_driver_dditable_t)
SIM_BIND(pfnGet, zeDriverGet);
SIM_BIND(pfnGetApiVersion, zeDriverGetApiVersion);
SIM_BIND(pfnGetProperties, zeDriverGetProperties);
SIM_BIND(pfnGetIpcProperties, zeDriverGetIpcProperties);
SIM_BIND(pfnGetExtensionProperties, zeDriverGetExtensionProperties);
SIM_TABLE_END

SIM_TABLE(zeGetDeviceProcAddrTable, ze_device_dditable_t)
SIM_BIND(pfnGet, zeDeviceGet);
SIM_BIND(pfnGetSubDevices, zeDeviceGetSubDevices);
SIM_BIND(pfnGetProperties, zeDeviceGetProperties);
SIM_BIND(pfnGetComputeProperties, zeDeviceGetComputeProperties);
SIM_BIND(pfnGetModuleProperties, zeDeviceGetModuleProperties);
SIM_BIND(pfnGetCommandQueueGroupProperties, zeDeviceGetCommandQueueGroupProperties);
SIM_BIND(pfnGetMemoryProperties, zeDeviceGetMemoryProperties);
SIM_BIND(pfnGetMemoryAccessProperties, zeDeviceGetMemoryAccessProperties);
SIM_BIND(pfnGetCacheProperties, zeDeviceGetCacheProperties);
SIM_BIND(pfnGetImageProperties, zeDeviceGetImageProperties);
SIM_BIND(pfnGetP2PProperties, zeDeviceGetP2PProperties);
SIM_BIND(pfnCanAccessPeer, zeDeviceCanAccessPeer);
SIM_BIND(pfnGetStatus, zeDeviceGetStatus);
SIM_BIND(pfnGetGlobalTimestamps, zeDeviceGetGlobalTimestamps);
SIM_TABLE_END

SIM_TABLE(zeGetContextProcAddrTable, ze_context_dditable_t)
SIM_BIND(pfnCreate, zeContextCreate);
SIM_BIND(pfnCreateEx, zeContextCreateEx);
SIM_BIND(pfnDestroy, zeContextDestroy);
SIM_BIND(pfnGetStatus, zeContextGetStatus);
SIM_BIND(pfnMakeMemoryResident, zeContextMakeMemoryResident);
SIM_BIND(pfnEvictMemory, zeContextEvictMemory);
SIM_TABLE_END

}  // namespace sim::level_zero
