// Finds Level Zero: the loader library, a driver with GPUs, and the properties of its devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "accelerators/xpu/level_zero/level_zero_api.h"
#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::xpu::level_zero {

// The first driver that lists a GPU, and its devices: those that ZE_AFFINITY_MASK, read by the driver itself, lets through.
struct Platform {
  const Api* api = nullptr;
  DriverHandle driver = nullptr;
  uint32_t version = 0;  // of the driver's interface: major << 16 | minor
  std::vector<DeviceHandle> devices;
};

struct Discovery {
  aa_probe_state state = AA_PROBE_ABSENT;
  std::string reason;
  Platform platform;  // filled in when usable
};

// Looks for a device node, then the library, then a driver, then devices, and stops at the first that is missing. Opens no
// library without a device node, unless one of the loader's own variables names a driver. Creates no context.
Discovery discover();

// From now on only this process may use Level Zero: calls in children made by fork() are errors.
void claim_process();
// True in a child, made by fork(), of the process that called claim_process().
bool is_forked_child();

// "ZE_RESULT_ERROR_DEVICE_LOST (0x70000001)".
std::string result_text(Result result);
aa_code code_of(Result result);
// Throws: the call, its result, and the driver's error message where there is one.
[[noreturn]] void raise(const Platform& platform, Result result, const char* call);
inline void check(const Platform& platform, Result result, const char* call) {
  if (result != success) [[unlikely]]
    raise(platform, result, call);
}

struct DeviceFacts {
  DeviceProperties properties{};
  ComputeProperties compute{};
  ModuleProperties module{};
  MemoryAccessProperties access{};
  uint64_t total_memory = 0;
  uint32_t queue_ordinal = 0;  // of the queues that take kernels
  uint32_t queue_count = 1;
  std::string pci_address;          // empty when unknown
  double nanoseconds_per_tick = 1;  // of kernel timestamps
};

DeviceFacts read_facts(const Platform& platform, DeviceHandle device);

}  // namespace anyaccel::xpu::level_zero
