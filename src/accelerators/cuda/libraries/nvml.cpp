// Implements nvml.h: NVIDIA's management library, for what the driver does not report before it is started.
#include "accelerators/cuda/libraries/nvml.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <mutex>

#include "accelerators/cuda/platform/platform.h"

namespace anyaccel::cuda {
namespace {

constexpr const char* library_name = "libnvidia-ml.so.1";

using NvmlResult = int;
using NvmlDevice = struct OpaqueNvmlDevice*;

enum : NvmlResult {
  nvml_no_permission = 4,
  nvml_driver_not_loaded = 9,
  nvml_version_mismatch = 18,
};
constexpr unsigned uuid_size = 96;
constexpr unsigned mig_enabled = 1;

struct NvmlMemory {
  unsigned long long total, free, used;  // bytes
};

// X(member, symbol, parameters)
// clang-format off
#define ANYACCEL_NVML_FUNCTIONS(X) \
  X(init, "nvmlInit_v2", ()) \
  X(count, "nvmlDeviceGetCount_v2", (unsigned* count)) \
  X(by_index, "nvmlDeviceGetHandleByIndex_v2", (unsigned index, NvmlDevice* device)) \
  X(by_uuid, "nvmlDeviceGetHandleByUUID", (const char* uuid, NvmlDevice* device)) \
  X(uuid, "nvmlDeviceGetUUID", (NvmlDevice device, char* text, unsigned size)) \
  X(memory, "nvmlDeviceGetMemoryInfo", (NvmlDevice device, NvmlMemory* memory))
#define ANYACCEL_NVML_OPTIONAL_FUNCTIONS(X) \
  X(cuda_version, "nvmlSystemGetCudaDriverVersion_v2", (int* version)) \
  X(driver_version, "nvmlSystemGetDriverVersion", (char* text, unsigned size)) \
  X(mig_mode, "nvmlDeviceGetMigMode", (NvmlDevice device, unsigned* current, unsigned* pending)) \
  X(mig_count, "nvmlDeviceGetMaxMigDeviceCount", (NvmlDevice device, unsigned* count)) \
  X(mig_by_index, "nvmlDeviceGetMigDeviceHandleByIndex", (NvmlDevice device, unsigned index, NvmlDevice* mig)) \
  X(gpu_instance, "nvmlDeviceGetGpuInstanceId", (NvmlDevice mig, unsigned* id)) \
  X(compute_instance, "nvmlDeviceGetComputeInstanceId", (NvmlDevice mig, unsigned* id))
// clang-format on

struct Nvml {
#define ANYACCEL_NVML_MEMBER(member, symbol, parameters) NvmlResult(*member) parameters = nullptr;
  ANYACCEL_NVML_FUNCTIONS(ANYACCEL_NVML_MEMBER)
  ANYACCEL_NVML_OPTIONAL_FUNCTIONS(ANYACCEL_NVML_MEMBER)
#undef ANYACCEL_NVML_MEMBER
  const char* (*error_string)(NvmlResult) = nullptr;
  std::string problem;  // empty: every function that must be there is
};

const Nvml& library() {
  static const Nvml loaded = [] {
    Nvml nvml;
    std::string tried;
    void* handle = open_library(Runtime::cuda, {library_name}, tried);
    if (!handle) {
      nvml.problem = tried;
      return nvml;
    }
#define ANYACCEL_BIND(member, symbol, parameters)                               \
  nvml.member = reinterpret_cast<decltype(nvml.member)>(dlsym(handle, symbol)); \
  if (!nvml.member && nvml.problem.empty()) nvml.problem = std::string(library_name) + " lacks " + (symbol);
    ANYACCEL_NVML_FUNCTIONS(ANYACCEL_BIND)
#undef ANYACCEL_BIND
#define ANYACCEL_BIND(member, symbol, parameters) \
  nvml.member = reinterpret_cast<decltype(nvml.member)>(dlsym(handle, symbol));
    ANYACCEL_NVML_OPTIONAL_FUNCTIONS(ANYACCEL_BIND)
#undef ANYACCEL_BIND
    nvml.error_string = reinterpret_cast<decltype(nvml.error_string)>(dlsym(handle, "nvmlErrorString"));
    return nvml;
  }();
  return loaded;
}

std::string text_of(const Nvml& nvml, NvmlResult result) {
  const char* words = nvml.error_string ? nvml.error_string(result) : nullptr;
  return "NVML error " + std::to_string(result) + (words ? std::string(" (") + words + ")" : std::string());
}

// Once per process, and once more in each child. Never shut down: a second start costs as much as the first.
NvmlResult start(const Nvml& nvml) {
  static std::mutex mutex;
  static pid_t started_by = 0;
  const std::scoped_lock lock(mutex);
  if (started_by == getpid()) return 0;
  const NvmlResult result = nvml.init();
  if (result == 0) started_by = getpid();
  return result;
}

std::string uuid_of(const Nvml& nvml, NvmlDevice device) {
  char text[uuid_size] = {};
  return nvml.uuid(device, text, sizeof(text)) == 0 ? text : "";
}

std::vector<MigDevice> slices_of(const Nvml& nvml, NvmlDevice gpu) {
  std::vector<MigDevice> slices;
  unsigned most = 0;
  if (!nvml.mig_count || !nvml.mig_by_index || nvml.mig_count(gpu, &most) != 0) return slices;
  for (unsigned i = 0; i < most; ++i) {
    NvmlDevice mig = nullptr;
    if (nvml.mig_by_index(gpu, i, &mig) != 0) continue;  // entries may be empty
    MigDevice slice;
    slice.uuid = uuid_of(nvml, mig);
    if (nvml.gpu_instance) nvml.gpu_instance(mig, &slice.gpu_instance);
    if (nvml.compute_instance) nvml.compute_instance(mig, &slice.compute_instance);
    slices.push_back(std::move(slice));
  }
  return slices;
}

std::string init_problem(const Nvml& nvml, NvmlResult result) {
  const std::string said = text_of(nvml, result);
  switch (result) {
    case nvml_driver_not_loaded:
      return "the NVIDIA kernel module is not loaded: " + said + "; load it (modprobe nvidia) or reinstall the driver";
    case nvml_version_mismatch:
      return "the NVIDIA driver's libraries and its loaded kernel module are of different versions: " + said +
             "; after an update of the driver reboot, in a container use the host's libraries";
    case nvml_no_permission:
      return "this user may not talk to the NVIDIA driver: " + said + "; see who may open /dev/nvidiactl";
    default: return said;
  }
}

std::string uuid_text(const Uuid& uuid, const char* prefix) {
  std::string text = prefix;
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", uuid.bytes[i]);
    text += digits;
  }
  return text;
}

}  // namespace

NvmlAnswer ask_nvml() {
  NvmlAnswer answer;
  const Nvml& nvml = library();
  if (!nvml.problem.empty()) {
    answer.problem = nvml.problem;
    return answer;
  }
  if (const NvmlResult result = start(nvml); result != 0) {
    answer.problem = init_problem(nvml, result);
    answer.is_final =
        result == nvml_driver_not_loaded || result == nvml_version_mismatch || result == nvml_no_permission;
    return answer;
  }
  if (nvml.cuda_version && nvml.cuda_version(&answer.cuda_version) != 0) answer.cuda_version = 0;
  char version[80] = {};
  if (nvml.driver_version && nvml.driver_version(version, sizeof(version)) == 0) answer.driver_version = version;
  unsigned count = 0;
  if (const NvmlResult result = nvml.count(&count); result != 0) {
    answer.problem = "nvmlDeviceGetCount_v2: " + text_of(nvml, result);
    return answer;
  }
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    PhysicalGpu gpu;
    // A GPU that fell off the bus has no handle and no place in the driver's list.
    if (nvml.by_index(i, &device) != 0) continue;
    gpu.uuid = uuid_of(nvml, device);
    unsigned current = 0;
    unsigned pending = 0;
    gpu.mig_enabled = nvml.mig_mode && nvml.mig_mode(device, &current, &pending) == 0 && current == mig_enabled;
    if (gpu.mig_enabled) gpu.slices = slices_of(nvml, device);
    answer.gpus.push_back(std::move(gpu));
  }
  answer.answered = true;
  return answer;
}

bool nvml_memory_info(const DeviceFacts& facts, int64_t& free, int64_t& total) {
  if (!facts.arch.starts_with("sm_")) return false;  // not NVIDIA's
  const Nvml& nvml = library();
  if (!nvml.problem.empty() || start(nvml) != 0) return false;
  const std::string uuid = uuid_text(facts.uuid, facts.is_mig ? "MIG-" : "GPU-");
  static std::mutex mutex;
  static std::map<std::string, NvmlDevice> handles;
  NvmlDevice device = nullptr;
  {
    const std::scoped_lock lock(mutex);
    const auto known = handles.find(uuid);
    if (known != handles.end()) {
      device = known->second;
    } else {
      if (nvml.by_uuid(uuid.c_str(), &device) != 0) return false;
      handles.emplace(uuid, device);
    }
  }
  NvmlMemory memory{};
  if (nvml.memory(device, &memory) != 0) return false;
  free = static_cast<int64_t>(memory.free);
  total = static_cast<int64_t>(memory.total);
  return true;
}

}  // namespace anyaccel::cuda
