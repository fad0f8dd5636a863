// Simulates NVIDIA's management library (libnvidia-ml.so.1). It reports the same device properties as the simulated
// driver and, like the real library, ignores CUDA_VISIBLE_DEVICES. Memory in use is what this process has allocated. No
// device is in MIG mode. https://docs.nvidia.com/deploy/nvml-api/
#include <cstdio>
#include <cstring>
#include <string>

#include "simulators/cuda/facts.h"
#include "simulators/libraries/library.h"

namespace sim_library {

enum nvmlReturn_t : int {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_UNKNOWN = 999,
};
using nvmlDevice_t = void*;
struct nvmlMemory_t {
  unsigned long long total, free, used;
};
struct nvmlMemory_v2_t {
  unsigned version;  // size of the struct, and 2 in the highest byte
  unsigned long long total, reserved, free, used;
};
struct nvmlUtilization_t {
  unsigned gpu, memory;  // percent
};

namespace {

constexpr unsigned kMemoryVersion2 = static_cast<unsigned>(sizeof(nvmlMemory_v2_t)) | (2U << 24);
constexpr unsigned kMostMigDevices = 7;  // of a device with all its slices
constexpr int kTopologyNode = 40;        // connected within one NUMA node

std::atomic<int> users = 0;  // nvmlInit less nvmlShutdown

int device_count() { return settings().devices; }

// Handles are numbers that are no addresses.
constexpr std::uint64_t kHandle = std::uint64_t{0xE6} << 56;
nvmlDevice_t handle_of(int device) {
  return reinterpret_cast<nvmlDevice_t>(kHandle + static_cast<std::uint64_t>(device));
}

// The device of a handle, or an error in `result`.
int device_of(nvmlDevice_t handle, const char* function, nvmlReturn_t* result) {
  const auto number = reinterpret_cast<std::uint64_t>(handle) - kHandle;
  *result = NVML_SUCCESS;
  if (users <= 0) {
    violation("not-initialized", std::string(function) + " before nvmlInit or after nvmlShutdown");
    *result = NVML_ERROR_UNINITIALIZED;
  } else if (number >= static_cast<std::uint64_t>(device_count())) {
    violation("bad-handle", std::string(function) + ": the handle is that of no device");
    *result = NVML_ERROR_INVALID_ARGUMENT;
  }
  return static_cast<int>(number);
}

nvmlReturn_t copy_text(const std::string& text, char* out, unsigned length) {
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (text.size() + 1 > length) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return NVML_SUCCESS;
}

unsigned long long used_bytes(int device) { return driver() != nullptr ? driver()->used(device) : 0; }

// The first device that `matches` says yes to.
template <typename Matches>
nvmlReturn_t find_device(nvmlDevice_t* handle, const Matches& matches) {
  if (users <= 0) return NVML_ERROR_UNINITIALIZED;
  if (handle == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (int device = 0; device < device_count(); ++device) {
    if (!matches(device)) continue;
    *handle = handle_of(device);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

}  // namespace

#define SIM_DEVICE(device, handle)                                                   \
  nvmlReturn_t device##_result = NVML_SUCCESS;                                       \
  [[maybe_unused]] const int device = device_of(handle, __func__, &device##_result); \
  if (device##_result != NVML_SUCCESS) return device##_result

nvmlReturn_t nvmlInit_v2() {
  ++users;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlShutdown() {
  if (users <= 0) {
    violation("not-initialized", "nvmlShutdown without nvmlInit");
    return NVML_ERROR_UNINITIALIZED;
  }
  --users;
  return NVML_SUCCESS;
}

const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    default: return "Unknown Error";
  }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned length) {
  if (users <= 0) return NVML_ERROR_UNINITIALIZED;
  return copy_text(sim::cuda::driver_text(), version, length);
}

// The one function that works before nvmlInit.
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (version == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *version = sim::cuda::driver_version();
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  if (users <= 0) return NVML_ERROR_UNINITIALIZED;
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = static_cast<unsigned>(device_count());
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* handle) {
  const nvmlReturn_t result = find_device(handle, [&](int device) { return static_cast<unsigned>(device) == index; });
  return result == NVML_ERROR_NOT_FOUND ? NVML_ERROR_INVALID_ARGUMENT : result;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* handle) {
  if (uuid == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return find_device(handle, [&](int device) { return sim::cuda::uuid_text(sim::cuda::device_uuid(device)) == uuid; });
}

// "domain:bus:device.function" in hexadecimal digits, the domain with four or eight of them.
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* text, nvmlDevice_t* handle) {
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  if (text == nullptr || std::sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  return find_device(handle, [&](int device) {
    return domain == 0 && slot == 0 && function == 0 && bus == static_cast<unsigned>(sim::cuda::pci_bus(device));
  });
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char* uuid, unsigned length) {
  SIM_DEVICE(device, handle);
  return copy_text(sim::cuda::uuid_text(sim::cuda::device_uuid(device)), uuid, length);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char* name, unsigned length) {
  SIM_DEVICE(device, handle);
  return copy_text(sim::cuda::device_name(device), name, length);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t* memory) {
  SIM_DEVICE(device, handle);
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const unsigned long long used = used_bytes(device);
  *memory = {settings().memory, settings().memory - used, used};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t* memory) {
  SIM_DEVICE(device, handle);
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (memory->version != kMemoryVersion2) {
    violation("bad-argument", "nvmlDeviceGetMemoryInfo_v2: the version of the struct is not set");
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  const unsigned long long used = used_bytes(device);
  *memory = {kMemoryVersion2, settings().memory, 0, settings().memory - used, used};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned* current, unsigned* pending) {
  SIM_DEVICE(device, handle);
  if (current == nullptr || pending == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  // Slices came with compute capability 8.0.
  if (sim::cuda::architecture() < 80) return NVML_ERROR_NOT_SUPPORTED;
  *current = *pending = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t handle, unsigned* count) {
  SIM_DEVICE(device, handle);
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = sim::cuda::architecture() < 80 ? 0 : kMostMigDevices;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t handle, unsigned index, nvmlDevice_t* slice) {
  SIM_DEVICE(device, handle);
  if (slice == nullptr || index >= kMostMigDevices) return NVML_ERROR_INVALID_ARGUMENT;
  return NVML_ERROR_NOT_FOUND;
}

// Numbers within a sliced device: of slices only.
nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t handle, unsigned* id) {
  SIM_DEVICE(device, handle);
  return id == nullptr ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
}
nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t handle, unsigned* id) {
  SIM_DEVICE(device, handle);
  return id == nullptr ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t* rates) {
  SIM_DEVICE(device, handle);
  if (rates == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *rates = {0, 0};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t first_handle, nvmlDevice_t second_handle, int* level) {
  SIM_DEVICE(first, first_handle);
  SIM_DEVICE(second, second_handle);
  if (level == nullptr || first == second) return NVML_ERROR_INVALID_ARGUMENT;
  *level = kTopologyNode;
  return NVML_SUCCESS;
}

}  // namespace sim_library

SIM_EXPORT(nvmlInit_v2, sim_library::NVML_ERROR_UNKNOWN)
SIM_EXPORT(nvmlShutdown, sim_library::NVML_ERROR_UNKNOWN)
SIM_EXPORT(nvmlErrorString, nullptr)
SIM_EXPORT(nvmlSystemGetDriverVersion, sim_library::NVML_ERROR_UNKNOWN)
SIM_EXPORT(nvmlSystemGetCudaDriverVersion_v2, sim_library::NVML_ERROR_UNKNOWN)
SIM_EXPORT(nvmlDeviceGetCount_v2, sim_library::NVML_ERROR_UNKNOWN)
SIM_EXPORT(nvmlDeviceGetHandleByIndex_v2, sim_library::NVML_ERROR_UNKNOWN)
SIM_EXPORT(nvmlDeviceGetHandleByUUID, sim_library::NVML_ERROR_UNKNOWN)
SIM_EXPORT(nvmlDeviceGetHandleByPciBusId_v2, sim_library::NVML_ERROR_UNKNOWN)
SIM_EXPORT(nvmlDeviceGetUUID, sim_library::NVML_ERROR_UNKNOWN)
SIM_EXPORT(nvmlDeviceGetName, sim_library::NVML_ERROR_UNKNOWN)
SIM_EXPORT(nvmlDeviceGetMemoryInfo, sim_library::NVML_ERROR_UNKNOWN)
SIM_EXPORT(nvmlDeviceGetMemoryInfo_v2, sim_library::NVML_ERROR_UNKNOWN)
SIM_EXPORT(nvmlDeviceGetMigMode, sim_library::NVML_ERROR_UNKNOWN)
SIM_EXPORT(nvmlDeviceGetMaxMigDeviceCount, sim_library::NVML_ERROR_UNKNOWN)
SIM_EXPORT(nvmlDeviceGetMigDeviceHandleByIndex, sim_library::NVML_ERROR_UNKNOWN)
SIM_EXPORT(nvmlDeviceGetGpuInstanceId, sim_library::NVML_ERROR_UNKNOWN)
SIM_EXPORT(nvmlDeviceGetComputeInstanceId, sim_library::NVML_ERROR_UNKNOWN)
SIM_EXPORT(nvmlDeviceGetUtilizationRates, sim_library::NVML_ERROR_UNKNOWN)
SIM_EXPORT(nvmlDeviceGetTopologyCommonAncestor, sim_library::NVML_ERROR_UNKNOWN)
