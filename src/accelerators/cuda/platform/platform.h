// Finds the vendor's runtime, and its devices without opening them.
#pragma once

#include <string>
#include <vector>

#include "accelerators/cuda/platform/gpu_api.h"
#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::cuda {

// Folders, separated by colons, in which the vendor's libraries (libcuda.so.1, libnvidia-ml.so.1, libnvrtc.so.*,
// libcublasLt.so.*) are looked for before anywhere else. When it is set, no device node is asked for.
inline constexpr const char* library_path_variable = "ANYACCEL_CUDA_LIBRARY_PATH";
// The number of devices to show, spread over the real ones, so that several ranks can be tested on one GPU.
inline constexpr const char* device_count_variable = "ANYACCEL_CUDA_DEVICES";

// The result of a probe, which does not start the vendor's driver (cuInit), so that the process can still fork.
struct Discovery {
  aa_probe_state state = AA_PROBE_ABSENT;
  std::string reason;
  int32_t device_count = 0;
  Runtime runtime = Runtime::cuda;
};
// Looks for NVIDIA's driver first, then for ROCm. Never throws because of what it finds; costs microseconds if neither
// is installed.
Discovery discover();

struct DeviceFacts {
  DeviceOrdinal ordinal = 0;  // the vendor's; several devices have the same one under ANYACCEL_CUDA_DEVICES
  int shares = 1;             // how many devices share it
  std::string name;           // "NVIDIA H200"
  Uuid uuid{};
  bool is_mig = false;
  std::string pci_bus_id;  // "0000:18:00.0", or empty
  std::string arch;        // "sm_90"; HIP: "gfx942"
  int major = 0, minor = 0;
  int multiprocessors = 0;
  int warp_size = 32;
  int max_threads_per_block = 1024;
  int shared_per_block = 49152;        // bytes without a special request
  int shared_per_block_optin = 49152;  // bytes at most
  int shared_per_multiprocessor = 49152;
  int l2_bytes = 0;
  bool managed_memory = false;
  bool virtual_memory = false;
  bool virtual_memory_rdma = false;  // disks and network cards can access it, if that is asked for when it is made
  size_t total_memory = 0;           // bytes of this device's share
};

// The started runtime. One per process; lives until the process ends.
struct Platform {
  const Api* api = nullptr;
  int driver_version = 0;  // 13000
  std::vector<DeviceFacts> devices;
  double start_seconds = 0;  // that the vendor's calls took
};
// Starts the runtime (cuInit) and reads the facts. Throws abi::Failure AA_UNAVAILABLE with the text that discover() gives
// or the runtime's own error. In a child made by fork() after it was started: AA_FAILED_PRECONDITION that says so.
const Platform& start_platform();

// True in a child, made by fork(), of a process that had called start_platform(). Costs a load and a compare.
bool is_forked_child() noexcept;

// "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered", as the runtime words it.
std::string result_text(const Api& api, Result result);
aa_code code_of(Result result);

// Free and total bytes of a physical device as NVML tells (for all processes); false where NVML or the device is missing.
bool nvml_memory_info(const DeviceFacts& facts, int64_t& free, int64_t& total);

// Opens a library that is found at run time: ANYACCEL_CUDA_LIBRARY_PATH, then folders of the installation (CUDA_HOME,
// CUDA_PATH, /usr/local/cuda; ROCM_PATH, /opt/rocm), then the loader's own search. `names` in order of preference. Never
// opens anything below a folder called "stubs". Null when there is none; `tried` then says what was looked for and where.
void* open_library(Runtime runtime, const std::vector<std::string>& names, std::string& tried);

}  // namespace anyaccel::cuda
