// The vendors' driver libraries, opened once a process and bound to the table of gpu_api.h.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "accelerators/cuda/platform/gpu_api.h"

namespace anyaccel::cuda {

struct GpuLibrary {
  Api api;
  bool is_there = false;  // a library of that name could be opened
  std::string path;       // of the library that was opened
  std::string problem;    // empty when every core function is there
  int version = 0;        // of the driver, as reported before it is started; 0 if it is not reported
};

// Opened at the first call, never closed: the vendors' libraries start threads and register handlers. Neither call starts
// the vendor's driver, so a process can still fork.
const GpuLibrary& cuda_library();
const GpuLibrary& hip_library();

// The oldest driver that is served: cuDeviceGetUuid of MIG devices and cuGraphInstantiateWithFlags came with it.
inline constexpr int oldest_cuda_version = 11040;

// 13000: "13.0".
std::string cuda_version_text(int version);
// Returns the error message for a driver that is older than that, with both versions.
std::string too_old_text(int version);
// Returns the error message for the stub library with which the CUDA toolkit replaces the driver's for linking.
std::string stub_text(const std::string& path);

// "gfx942" of a device of hip_library(); empty when the runtime does not tell.
std::string hip_arch(DeviceOrdinal device);

// Returns the path of a library opened by dlopen.
std::string library_path(void* handle);

// Lists which functions of the table were found.
class BindingRecord {
 public:
  void note(std::string_view need, const char* symbol, bool found) {
    if (found) return;
    if (need != "core") {
      incomplete_.emplace_back(need);
    } else if (missing_core_.empty()) {
      missing_core_ = symbol;
    }
  }
  bool complete(std::string_view need) const {
    return std::find(incomplete_.begin(), incomplete_.end(), need) == incomplete_.end();
  }
  const std::string& missing_core() const noexcept { return missing_core_; }  // empty: none
  void set_features(Api& api) const {
    api.has_graphs = complete("graphs");
    api.has_host_call = complete("host_call");
    api.has_launch_attributes = complete("launch_attributes");
    api.has_dynamic_shared = complete("dynamic_shared");
    api.has_peer = complete("peer");
    api.has_virtual_memory = complete("virtual_memory");
  }

 private:
  std::vector<std::string> incomplete_;
  std::string missing_core_;
};

}  // namespace anyaccel::cuda
