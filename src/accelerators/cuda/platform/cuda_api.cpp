// NVIDIA's driver library bound to the table (loading.h).
#include <dlfcn.h>

#include "accelerators/cuda/libraries/loading.h"
#include "accelerators/cuda/platform/platform.h"

namespace anyaccel::cuda {
namespace {

constexpr const char* library_name = "libcuda.so.1";
// A flag of cuGetProcAddress: the functions' forms for the legacy default stream, not for the per-thread one.
constexpr uint64_t legacy_default_stream = 1;

using DriverGetVersion = Result (*)(int* version);
using GetProcAddress = Result (*)(const char* symbol, void** function, int version, uint64_t flags);  // 11.3
using GetProcAddressV2 = Result (*)(const char* symbol, void** function, int version, uint64_t flags,
                                    int* status);  // 12.0

class Finder {
 public:
  explicit Finder(void* library)
      : newer_(reinterpret_cast<GetProcAddressV2>(dlsym(library, "cuGetProcAddress_v2"))),
        older_(reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress"))) {}

  bool usable() const { return newer_ || older_; }
  // Null where the driver has no such function of that version.
  void* find(const char* symbol, int version) const {
    void* function = nullptr;
    const Result result = newer_ ? newer_(symbol, &function, version, legacy_default_stream, nullptr)
                                 : older_(symbol, &function, version, legacy_default_stream);
    return result == success ? function : nullptr;
  }

 private:
  GetProcAddressV2 newer_;
  GetProcAddress older_;
};

GpuLibrary load_cuda() {
  GpuLibrary result;
  std::string tried;
  void* library = open_library(Runtime::cuda, {library_name}, tried);
  if (!library) {
    result.problem = "no NVIDIA driver library: " + tried;
    return result;
  }
  result.is_there = true;
  result.path = library_path(library);

  // Needs no cuInit. The stub answers this, as everything else, with its own error.
  const auto get_version = reinterpret_cast<DriverGetVersion>(dlsym(library, "cuDriverGetVersion"));
  const Result asked = get_version ? get_version(&result.version) : error_not_found;
  if (asked == error_stub_library) {
    result.problem = stub_text(result.path);
    return result;
  }
  if (asked != success) result.version = 0;
  if (result.version != 0 && result.version < oldest_cuda_version) {
    result.problem = too_old_text(result.version);
    return result;
  }
  const Finder finder(library);
  if (!finder.usable()) {
    result.problem = result.path + " has no cuGetProcAddress, which every NVIDIA driver since CUDA 11.3 has; " +
                     "anyaccel needs one for CUDA " + cuda_version_text(oldest_cuda_version) +
                     " or newer: update the NVIDIA driver";
    return result;
  }
  BindingRecord record;
#define ANYACCEL_BIND(need, member, cuda_name, since, hip_name, parameters)                         \
  result.api.member = reinterpret_cast<decltype(result.api.member)>(finder.find(cuda_name, since)); \
  record.note(#need, cuda_name, result.api.member != nullptr);
  ANYACCEL_GPU_FUNCTIONS(ANYACCEL_BIND)
#undef ANYACCEL_BIND
  record.set_features(result.api);
  result.api.runtime = Runtime::cuda;
  if (!record.missing_core().empty()) {
    result.problem = result.path + " lacks the function " + record.missing_core() + ", which drivers for CUDA " +
                     cuda_version_text(oldest_cuda_version) + " or newer have: update or reinstall the NVIDIA driver";
  }
  return result;
}

}  // namespace

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string too_old_text(int version) {
  return "the driver supports CUDA " + cuda_version_text(version) + "; anyaccel needs " +
         cuda_version_text(oldest_cuda_version) + " or newer: update the NVIDIA driver";
}

std::string stub_text(const std::string& path) {
  return (path.empty() ? library_name : path) +
         " is the CUDA toolkit's stub library, which programs are linked with where there is no driver: install the "
         "NVIDIA driver, and take the stub's folder out of LD_LIBRARY_PATH";
}

const GpuLibrary& cuda_library() {
  static const GpuLibrary& loaded = *new GpuLibrary(load_cuda());  // used until the process has ended
  return loaded;
}

}  // namespace anyaccel::cuda
