// NVIDIA's library for transfers between disks and device memory, opened when it is first needed. Functions, numbers and
// structures are declared here from its documentation
// (https://docs.nvidia.com/gpudirect-storage/api-reference-guide/index.html); no header of the vendor's is needed, and a
// test compares them with the vendor's.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace anyaccel::cuda {

using CuFileHandle = void*;  // CUfileHandle_t

// CUfileError_t
struct CuFileStatus {
  int error;       // cufile_success or above cufile_base_error
  int cuda_error;  // CUresult, with cufile_cuda_driver_error
};
// CUfileOpError
enum : int {
  cufile_success = 0,
  cufile_base_error = 5000,
  cufile_driver_not_initialized = 5001,
  cufile_driver_version_mismatch = 5004,
  cufile_platform_not_supported = 5007,
  cufile_io_not_supported = 5008,
  cufile_device_not_supported = 5009,
  cufile_cuda_driver_error = 5011,
  cufile_invalid_file_type = 5018,
  cufile_invalid_file_open_flag = 5019,
  cufile_dio_not_set = 5020,
  cufile_invalid_value = 5022,
  cufile_memory_already_registered = 5023,
  cufile_memory_not_registered = 5024,
  cufile_permission_denied = 5025,
  cufile_nvfs_setup_error = 5033,
  cufile_io_disabled = 5034,
  cufile_gpu_memory_pinning_failed = 5036,
};

// CUfileDescr_t
struct CuFileDescription {
  int type;  // cufile_type_descriptor
  union {
    int descriptor;
    void* handle;
  };
  const void* file_system;  // null: the kernel's
};
static_assert(sizeof(CuFileDescription) == 24);
inline constexpr int cufile_type_descriptor = 1;

// CUfileDrvProps_t
struct CuFileProperties {
  struct {
    unsigned major_version, minor_version;  // of the kernel module nvidia-fs; 0 if it is not loaded
    size_t poll_threshold, max_direct_io;   // KiB
    unsigned status_flags;                  // 1 << cufile_status_nvme_p2p, ...
    unsigned control_flags;
  } nvfs;
  unsigned feature_flags;
  unsigned max_device_cache;   // KiB
  unsigned per_buffer_cache;   // KiB
  unsigned max_device_pinned;  // KiB
  unsigned max_batch;
  unsigned max_batch_timeout;  // milliseconds
  unsigned reserved[32];       // in case that a later version writes more
};
inline constexpr unsigned cufile_status_nvme_p2p = 11;  // CU_FILE_NVME_P2P_SUPPORTED

struct CuFile {
  std::string path;
  int version = 0;  // 1140: 1.14.0; 0: a version before 1.8, which does not tell

  CuFileStatus (*driver_open)() = nullptr;
  CuFileStatus (*driver_properties)(CuFileProperties* properties) = nullptr;
  CuFileStatus (*handle_register)(CuFileHandle* handle, CuFileDescription* description) = nullptr;
  void (*handle_deregister)(CuFileHandle handle) = nullptr;
  CuFileStatus (*buffer_register)(const void* pointer, size_t bytes, int flags) = nullptr;
  CuFileStatus (*buffer_deregister)(const void* pointer) = nullptr;
  // Return bytes; -1 with errno; or the negative of a CUfileOpError.
  ssize_t (*read)(CuFileHandle handle, void* base, size_t bytes, off_t file_offset, off_t base_offset) = nullptr;
  ssize_t (*write)(CuFileHandle handle, const void* base, size_t bytes, off_t file_offset, off_t base_offset) = nullptr;
  CuFileStatus (*get_version)(int* version) = nullptr;  // may be missing

  // "cuFile 1.14.0 (/usr/local/cuda/lib64/libcufile.so.0)"
  std::string description() const;
};

// Opens the library without starting it, and binds its functions. False when there is none that can be used; `problem`
// then says why, and what was looked for.
bool bind_cufile(CuFile& library, std::string& problem);

// Starts the library, with a context current on this thread. False when it cannot be started, or when it would only
// copy through the host's memory (its "compatibility mode"); `problem` then says why.
bool start_cufile(const CuFile& library, std::string& problem);

// Both, once per process, and logged once: the library when transfers can go directly between disks and devices, else
// null with the reason. Without the kernel module nvidia-fs the library is not opened, since it would write a log file
// into the working directory only to say so; CUFILE_USE_PCIP2PDMA=true asks for transfers that need no such module.
const CuFile* cufile(std::string& problem);

// "CU_FILE_IO_NOT_SUPPORTED (5008): ...", in words of our own.
std::string cufile_error_text(int error);

}  // namespace anyaccel::cuda
