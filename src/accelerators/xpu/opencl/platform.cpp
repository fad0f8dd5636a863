// Finding OpenCL on this machine.
#include "accelerators/xpu/opencl/platform.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string_view>

#include "accelerators/xpu/opencl/objects.h"
#include "accelerators/xpu/runtime.h"

namespace anyaccel::xpu::opencl {
namespace {

namespace fs = std::filesystem;

void* open_library(const std::string& name) {
  static std::mutex mutex;
  static auto* libraries = new std::map<std::string, void*>;  // never closed
  std::lock_guard lock(mutex);
  void*& library = (*libraries)[name];
  if (!library) library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw abi::Failure(AA_UNAVAILABLE, std::string("it cannot be opened: ") + dlerror());
  return library;
}

// "OpenCL 3.0 ..." to 300.
int version_number(const std::string& text) {
  int major = 0;
  int minor = 0;
  return std::sscanf(text.c_str(), "OpenCL %d.%d", &major, &minor) == 2 ? major * 100 + minor * 10 : 0;
}

// Reads the functions of a platform of at least OpenCL 2.0; the tables of older ones are shorter. Returns the name of a
// missing function, or null.
const char* bind_functions(void* const* table, Api& api) {
#define ANYACCEL_OPENCL_BIND(place, result, function, parameters)      \
  api.function = reinterpret_cast<result(*) parameters>(table[place]); \
  if (!api.function) return "cl" #function;
  ANYACCEL_OPENCL_FUNCTIONS(ANYACCEL_OPENCL_BIND)
#undef ANYACCEL_OPENCL_BIND
  return nullptr;
}

Platform open_platform(cl_platform_id id) {
  void* const* table = *reinterpret_cast<void* const* const*>(id);
  Platform platform;
  platform.id = id;
  constexpr size_t info_place = 1;
  const auto info = reinterpret_cast<decltype(Api::GetPlatformInfo)>(table[info_place]);
  const auto text = [&](cl_uint what) {
    return text_of([&](size_t size, void* value, size_t* out) { return info(id, what, size, value, out); });
  };
  platform.name = text(CL_PLATFORM_NAME);
  const std::string version = text(CL_PLATFORM_VERSION);
  if (version_number(version) < 200) {
    throw abi::Failure(AA_UNAVAILABLE, "platform \"" + platform.name + "\" is of \"" + version +
                                           "\"; shared virtual memory came with OpenCL 2.0");
  }
  if (const char* missing = bind_functions(table, platform.api)) {
    throw abi::Failure(AA_UNAVAILABLE, "platform \"" + platform.name + "\" lacks the function " + missing);
  }
  return platform;
}

template <class Value>
Value fact(const Api& api, cl_device_id device, cl_uint what) {
  Value value{};
  if (api.GetDeviceInfo(device, what, sizeof(value), &value, nullptr) != CL_SUCCESS) return Value{};
  return value;
}

std::string text_fact(const Api& api, cl_device_id device, cl_uint what) {
  return text_of(
      [&](size_t size, void* value, size_t* out) { return api.GetDeviceInfo(device, what, size, value, out); });
}

bool has_word(const std::string& list, std::string_view word) {
  return (" " + list + " ").find(" " + std::string(word) + " ") != std::string::npos;
}

// The widest sub-group of 32 or less. Only where a kernel can ask for its width: otherwise the compiler chooses one, and
// the kernels' lanes would not be a sub-group.
int32_t subgroup_width(const Api& api, cl_device_id device, const std::string& extensions) {
  if (!has_word(extensions, "cl_khr_subgroups") || !has_word(extensions, "cl_intel_required_subgroup_size")) return 0;
  std::array<size_t, 16> widths{};
  size_t bytes = 0;
  if (api.GetDeviceInfo(device, CL_DEVICE_SUB_GROUP_SIZES_INTEL, sizeof(widths), widths.data(), &bytes) != CL_SUCCESS) {
    return 0;
  }
  size_t best = 0;
  for (size_t i = 0; i < std::min(widths.size(), bytes / sizeof(size_t)); ++i) {
    if (widths[i] <= 32) best = std::max(best, widths[i]);
  }
  return static_cast<int32_t>(best);
}

// Throws abi::Failure, AA_UNAVAILABLE, when the device cannot be used.
DeviceFacts facts_of(const Platform& platform, cl_device_id id, DeviceType type) {
  const Api& api = platform.api;
  DeviceFacts facts;
  facts.api = api;
  facts.id = id;
  facts.type = type;
  facts.platform = platform.name;
  facts.name = text_fact(api, id, CL_DEVICE_NAME);
  facts.vendor = text_fact(api, id, CL_DEVICE_VENDOR);
  facts.version = text_fact(api, id, CL_DEVICE_VERSION);
  facts.driver_version = text_fact(api, id, CL_DRIVER_VERSION);
  facts.global_memory = static_cast<int64_t>(fact<cl_ulong>(api, id, CL_DEVICE_GLOBAL_MEM_SIZE));
  facts.max_allocation = static_cast<int64_t>(fact<cl_ulong>(api, id, CL_DEVICE_MAX_MEM_ALLOC_SIZE));
  facts.local_memory = static_cast<int64_t>(fact<cl_ulong>(api, id, CL_DEVICE_LOCAL_MEM_SIZE));
  facts.compute_units = static_cast<int32_t>(fact<cl_uint>(api, id, CL_DEVICE_MAX_COMPUTE_UNITS));
  facts.max_group =
      static_cast<int32_t>(std::min<size_t>(fact<size_t>(api, id, CL_DEVICE_MAX_WORK_GROUP_SIZE), 1u << 30));
  const std::string extensions = text_fact(api, id, CL_DEVICE_EXTENSIONS);
  facts.subgroup = subgroup_width(api, id, extensions);
  facts.f16 = has_word(extensions, "cl_khr_fp16");
  facts.f64 = has_word(extensions, "cl_khr_fp64");
  facts.exact_division =
      (fact<cl_ulong>(api, id, CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
  const auto shared = fact<cl_ulong>(api, id, CL_DEVICE_SVM_CAPABILITIES);
  facts.fine_grained = (shared & CL_DEVICE_SVM_FINE_GRAIN_BUFFER) != 0;

  const auto refuse = [&](const std::string& why) {
    throw abi::Failure(AA_UNAVAILABLE, "device \"" + facts.name + "\" of \"" + facts.platform + "\" " + why);
  };
  if (!fact<cl_uint>(api, id, CL_DEVICE_AVAILABLE)) refuse("says that it is not available");
  if (!fact<cl_uint>(api, id, CL_DEVICE_COMPILER_AVAILABLE)) refuse("has no compiler, which the kernels need");
  if (!(shared & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER)) {
    refuse("has no shared virtual memory, which plain pointers to device memory need");
  }
  // Reductions over a group of 256 items need 1 KiB; tiles use whatever there is.
  constexpr int64_t least_local_memory = 16384;
  if (facts.local_memory < least_local_memory) {
    refuse("has " + std::to_string(facts.local_memory) + " bytes of local memory; the kernels need " +
           std::to_string(least_local_memory));
  }
  return facts;
}

std::vector<cl_device_id> device_ids(const Platform& platform, DeviceType type) {
  const cl_ulong kind = type == DeviceType::cpu ? CL_DEVICE_TYPE_CPU : CL_DEVICE_TYPE_GPU;
  cl_uint count = 0;
  const cl_int error = platform.api.GetDeviceIDs(platform.id, kind, 0, nullptr, &count);
  if (error == CL_DEVICE_NOT_FOUND || (error == CL_SUCCESS && count == 0)) return {};
  check(error, "clGetDeviceIDs");
  std::vector<cl_device_id> ids(count);
  check(platform.api.GetDeviceIDs(platform.id, kind, count, ids.data(), nullptr), "clGetDeviceIDs");
  return ids;
}

}  // namespace

DeviceType device_type(bool forced) {
  const char* text = std::getenv(device_type_variable);
  const std::string value = text ? text : "";
  if (value.empty() || value == "gpu") return DeviceType::gpu;
  if (value != "cpu") {
    throw abi::Failure(AA_INVALID_ARGUMENT,
                       std::string(device_type_variable) + " is \"" + value + "\"; expected gpu (the default) or cpu");
  }
  if (!forced) {
    throw abi::Failure(AA_INVALID_ARGUMENT, std::string(device_type_variable) + "=cpu counts only together with " +
                                                runtime_variable + "=opencl, which is not set");
  }
  return DeviceType::cpu;
}

bool gpu_node_exists() {
  const auto any = [](const char* folder, std::string_view prefix) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().filename().string().starts_with(prefix)) return true;
    }
    return false;
  };
  return any("/dev/dri", "renderD") || any("/dev", "mali") || any("/dev", "kgsl");
}

std::vector<Icd> installed_icds(std::string& where) {
  const char* chosen = std::getenv("OCL_ICD_VENDORS");
  where = chosen && *chosen ? chosen : "/etc/OpenCL/vendors";
  std::vector<Icd> icds;
  const auto add = [&](const fs::path& file) {
    std::ifstream stream(file);
    Icd icd{file.string(), ""};
    if (std::getline(stream, icd.library)) {
      icd.library.erase(icd.library.find_last_not_of(" \t\r") + 1);
      if (!icd.library.empty()) icds.push_back(icd);
    }
  };
  std::error_code error;
  if (where.ends_with(".icd") && fs::is_regular_file(where, error)) {
    add(where);
  } else {
    for (const auto& entry : fs::directory_iterator(where, error)) {
      if (entry.path().extension() == ".icd") add(entry.path());
    }
  }
  std::sort(icds.begin(), icds.end(), [](const Icd& a, const Icd& b) { return a.file < b.file; });
  return icds;
}

bool is_cpu_only(const Icd& icd) {
  const std::string name = fs::path(icd.library).filename().string();
  constexpr std::array<std::string_view, 3> cpu_only{"libpocl.so", "libintelocl.so", "liboclgrind-rt-icd.so"};
  return std::any_of(cpu_only.begin(), cpu_only.end(),
                     [&](std::string_view library) { return name.starts_with(library); });
}

std::vector<Platform> open_platforms(const Icd& icd) {
  void* library = open_library(icd.library);
  const auto find = reinterpret_cast<GetExtensionFunctionAddress>(dlsym(library, "clGetExtensionFunctionAddress"));
  const auto get = find ? reinterpret_cast<IcdGetPlatformIds>(find("clIcdGetPlatformIDsKHR")) : nullptr;
  if (!get) throw abi::Failure(AA_UNAVAILABLE, "it is not an OpenCL driver (it has no clIcdGetPlatformIDsKHR)");
  cl_uint count = 0;
  const cl_int error = get(0, nullptr, &count);
  constexpr cl_int no_platform = -1001;  // CL_PLATFORM_NOT_FOUND_KHR
  if (error == no_platform || (error == CL_SUCCESS && count == 0)) {
    throw abi::Failure(AA_UNAVAILABLE, "it lists no platform");
  }
  std::vector<cl_platform_id> ids(count);
  if (error == CL_SUCCESS) check(get(count, ids.data(), nullptr), "clIcdGetPlatformIDsKHR");
  check(error, "clIcdGetPlatformIDsKHR");
  std::vector<Platform> platforms;
  for (cl_platform_id id : ids) platforms.push_back(open_platform(id));
  return platforms;
}

Search find_devices(DeviceType type) {
  Search search;
  const char* kind = type == DeviceType::cpu ? "CPU" : "GPU";
  const auto report = [&](const std::string& text) { search.report += (search.report.empty() ? "" : "; ") + text; };
  std::string where;
  const std::vector<Icd> icds = installed_icds(where);
  if (icds.empty()) report("no OpenCL driver is installed (no *.icd file in " + where + ")");
  for (const Icd& icd : icds) {
    if (type == DeviceType::gpu && is_cpu_only(icd)) {
      report(icd.file + " is passed over because " + icd.library + " offers CPU devices only");
      continue;
    }
    try {
      for (const Platform& platform : open_platforms(icd)) {
        search.found_library = true;
        const std::vector<cl_device_id> ids = device_ids(platform, type);
        if (ids.empty())
          report("platform \"" + platform.name + "\" (" + icd.library + ") lists no " + kind + " device");
        for (cl_device_id id : ids) {
          try {
            if (type == DeviceType::gpu || search.devices.empty())
              search.devices.push_back(facts_of(platform, id, type));
          } catch (const abi::Failure& failure) {
            report(failure.what());
          }
        }
      }
    } catch (const abi::Failure& failure) {
      search.found_library = true;
      report(icd.library + " (" + icd.file + "): " + failure.what());
    }
  }
  return search;
}

}  // namespace anyaccel::xpu::opencl
