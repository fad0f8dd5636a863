// Finding OpenCL on this machine: vendors' libraries by their .icd files, platforms, and devices that can really be used.
//
// Vendors' libraries are opened one by one, not through libOpenCL.so.1: that loader opens every library that is listed, and
// opening PoCL alone costs 20 ms and brings LLVM into the process, which a machine with a GPU must not pay for a CPU device
// that nobody asked for. An .icd file is one line, the library's name; the library gives its platforms by one function
// (extension cl_khr_icd), and every object begins with the table of the vendor's functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "accelerators/xpu/opencl/opencl_api.h"

namespace anyaccel::xpu::opencl {

// The type of devices that are used; ANYACCEL_OPENCL_DEVICE_TYPE.
enum class DeviceType { gpu, cpu };
inline constexpr const char* device_type_variable = "ANYACCEL_OPENCL_DEVICE_TYPE";
// gpu when unset. AA_INVALID_ARGUMENT for another value, and for cpu unless `forced` (ANYACCEL_XPU_RUNTIME=opencl).
DeviceType device_type(bool forced);

// Device nodes of GPUs in /dev.
bool gpu_node_exists();
inline constexpr const char* gpu_nodes = "/dev/dri/renderD*, /dev/mali*, /dev/kgsl*";

struct Icd {
  std::string file;     // "/etc/OpenCL/vendors/pocl.icd"
  std::string library;  // the file's first line
};

// The .icd files, sorted by name. OCL_ICD_VENDORS names a folder or one file; else /etc/OpenCL/vendors. `where` is that
// place, for messages.
std::vector<Icd> installed_icds(std::string& where);
// Returns true if a library is known to offer CPU devices only.
bool is_cpu_only(const Icd& icd);

// A platform of an opened library. The library stays open until the process ends: vendors' libraries do not survive being
// closed.
struct Platform {
  cl_platform_id id = nullptr;
  Api api{};
  std::string name;
};

// Opens a library (once per process) and returns its platforms; queries no device. Throws abi::Failure, AA_UNAVAILABLE,
// saying why it cannot be used.
std::vector<Platform> open_platforms(const Icd& icd);

// One device and its properties.
struct DeviceFacts {
  Api api{};
  cl_device_id id = nullptr;
  DeviceType type = DeviceType::gpu;
  std::string platform;
  std::string name;
  std::string vendor;
  std::string version;         // "OpenCL 3.0 ..."
  std::string driver_version;  // the vendor's
  int64_t global_memory = 0;
  int64_t max_allocation = 0;
  int64_t local_memory = 0;
  int32_t compute_units = 0;
  int32_t max_group = 0;
  int32_t subgroup = 0;  // 0: no sub-groups
  bool fine_grained = false;
  bool f16 = false;
  bool f64 = false;
  bool exact_division = false;  // divisions and square roots of floats are rounded correctly when asked for
};

// The result of a search.
struct Search {
  std::vector<DeviceFacts> devices;
  bool found_library = false;  // a library exists, whether or not it could be used
  std::string report;          // the libraries and devices that were examined, and why they were rejected
};

// Opens the libraries that may have devices of the type and queries them. For the type cpu only the first device is
// taken: the probe, which does not ask PoCL for its devices, promised one.
Search find_devices(DeviceType type);

}  // namespace anyaccel::xpu::opencl
