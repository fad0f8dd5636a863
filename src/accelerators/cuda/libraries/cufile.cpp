// Implements cufile.h: NVIDIA's library for transfers between disks and device memory.
#include "accelerators/cuda/libraries/cufile.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <type_traits>

#include "accelerators/cuda/libraries/loading.h"
#include "accelerators/cuda/platform/platform.h"
#include "anyaccel/log.h"

namespace anyaccel::cuda {
namespace {

constexpr const char* kernel_module_file = "/proc/driver/nvidia-fs/version";

struct ErrorName {
  int error;
  const char* name;
  const char* words;
};
constexpr ErrorName error_names[] = {
    {cufile_driver_not_initialized, "CU_FILE_DRIVER_NOT_INITIALIZED", "the kernel module nvidia-fs is not loaded"},
    {cufile_driver_version_mismatch, "CU_FILE_DRIVER_VERSION_MISMATCH",
     "the kernel module nvidia-fs does not fit the library"},
    {cufile_platform_not_supported, "CU_FILE_PLATFORM_NOT_SUPPORTED", "not supported on this platform"},
    {cufile_io_not_supported, "CU_FILE_IO_NOT_SUPPORTED", "not supported for this file or its file system"},
    {cufile_device_not_supported, "CU_FILE_DEVICE_NOT_SUPPORTED", "not supported on this GPU"},
    {cufile_cuda_driver_error, "CU_FILE_CUDA_DRIVER_ERROR", "the CUDA driver reported an error"},
    {cufile_invalid_file_type, "CU_FILE_INVALID_FILE_TYPE", "not supported for this type of file"},
    {cufile_invalid_file_open_flag, "CU_FILE_INVALID_FILE_OPEN_FLAG", "not supported for how the file was opened"},
    {cufile_dio_not_set, "CU_FILE_DIO_NOT_SET", "the file was not opened with O_DIRECT"},
    {cufile_invalid_value, "CU_FILE_INVALID_VALUE", "an argument is not valid"},
    {cufile_memory_already_registered, "CU_FILE_MEMORY_ALREADY_REGISTERED", "the memory is registered already"},
    {cufile_memory_not_registered, "CU_FILE_MEMORY_NOT_REGISTERED", "the memory is not registered"},
    {cufile_permission_denied, "CU_FILE_PERMISSION_DENIED", "this user may not access the file or nvidia-fs"},
    {cufile_nvfs_setup_error, "CU_FILE_NVFS_SETUP_ERROR", "the library could not be initialized"},
    {cufile_io_disabled, "CU_FILE_IO_DISABLED", "disabled for this file by cuFile's configuration"},
    {cufile_gpu_memory_pinning_failed, "CU_FILE_GPU_MEMORY_PINNING_FAILED",
     "no more memory of the GPU can be registered"},
};

bool says_true(const char* variable) {
  const char* value = std::getenv(variable);
  const std::string_view text = value ? value : "";
  return text == "true" || text == "1";
}

struct OpenedCuFile {
  CuFile library;
  std::string problem;  // empty: it can be used

  OpenedCuFile() {
    if (access(kernel_module_file, F_OK) != 0 && !says_true("CUFILE_USE_PCIP2PDMA")) {
      problem = "the kernel module nvidia-fs is not loaded (no " + std::string(kernel_module_file) +
                "), without which cuFile would copy through the host's memory: load it (modprobe nvidia-fs), or set "
                "CUFILE_USE_PCIP2PDMA=true where NVMe disks and GPUs can reach each other without it";
    } else if (bind_cufile(library, problem)) {
      start_cufile(library, problem);
    }
    log_info("cuda: files " + (problem.empty() ? "by " + library.description() : "through host memory: " + problem));
  }
};

}  // namespace

std::string CuFile::description() const {
  std::string text = "cuFile";
  if (version > 0) {
    text += " " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) + "." +
            std::to_string(version % 10);
  }
  return text + " (" + path + ")";
}

std::string cufile_error_text(int error) {
  for (const ErrorName& known : error_names) {
    if (known.error == error) return std::string(known.name) + " (" + std::to_string(error) + "): " + known.words;
  }
  return "cuFile error " + std::to_string(error);
}

bool bind_cufile(CuFile& library, std::string& problem) {
  std::string tried;
  void* handle = open_library(Runtime::cuda, {"libcufile.so.0"}, tried);
  if (!handle) {
    problem = "no cuFile: " + tried;
    return false;
  }
  library.path = library_path(handle);
  std::string missing;
  const auto bind = [&](auto& function, const char* name, bool needed = true) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (!function && needed && missing.empty()) missing = name;
  };
  bind(library.driver_open, "cuFileDriverOpen");
  bind(library.driver_properties, "cuFileDriverGetProperties");
  bind(library.handle_register, "cuFileHandleRegister");
  bind(library.handle_deregister, "cuFileHandleDeregister");
  bind(library.buffer_register, "cuFileBufRegister");
  bind(library.buffer_deregister, "cuFileBufDeregister");
  bind(library.read, "cuFileRead");
  bind(library.write, "cuFileWrite");
  bind(library.get_version, "cuFileGetVersion", false);
  if (!missing.empty()) {
    problem = library.path + " cannot be used: it lacks " + missing;
    return false;
  }
  if (library.get_version && library.get_version(&library.version).error != cufile_success) library.version = 0;
  return true;
}

bool start_cufile(const CuFile& library, std::string& problem) {
  const CuFileStatus opened = library.driver_open();
  if (opened.error != cufile_success) {
    problem = library.description() + " cannot be started: cuFileDriverOpen gave " + cufile_error_text(opened.error) +
              "; see cufile.log in the working directory, and `gdscheck -p`";
    return false;
  }
  CuFileProperties properties{};
  const CuFileStatus told = library.driver_properties(&properties);
  if (told.error != cufile_success) {
    problem =
        library.description() + " cannot be used: cuFileDriverGetProperties gave " + cufile_error_text(told.error);
    return false;
  }
  if (properties.nvfs.major_version == 0 && !(properties.nvfs.status_flags & (1u << cufile_status_nvme_p2p))) {
    problem = library.description() +
              " has only its compatibility mode here, which copies through the host's memory: `gdscheck -p` tells what "
              "is missing";
    return false;
  }
  return true;
}

const CuFile* cufile(std::string& problem) {
  // Never destroyed, and never closed: files that end with the process are still open. cuFile closes itself at exit.
  static const OpenedCuFile& opened = *new OpenedCuFile;
  problem = opened.problem;
  return problem.empty() ? &opened.library : nullptr;
}

}  // namespace anyaccel::cuda
