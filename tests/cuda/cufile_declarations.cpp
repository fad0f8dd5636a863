// Compiled, never run: what src/accelerators/cuda declares of cuFile, and what its simulator does, against NVIDIA's own
// header.
#include <cufile.h>

#include <cstddef>
#include <type_traits>

#include "accelerators/cuda/libraries/cufile.h"

namespace {

using namespace anyaccel;

// An argument or result is passed alike: the same type, two pointers, two numbers of one size and kind, or two structs
// of one size. What the structs contain is compared below.
template <class Ours, class Theirs>
constexpr bool passes() {
  if constexpr (std::is_same_v<Ours, Theirs> || (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>)) {
    return true;
  } else if constexpr (std::is_class_v<Ours> && std::is_class_v<Theirs>) {
    return sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);
  } else {
    return std::is_integral_v<Ours> && std::is_integral_v<Theirs> && sizeof(Ours) == sizeof(Theirs);
  }
}

template <class Result, class... Ours, class There, class... Theirs>
constexpr bool same_call(Result (*)(Ours...), There (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) != sizeof...(Theirs)) {
    return false;
  } else {
    return passes<Result, There>() && (passes<Ours, Theirs>() && ...);
  }
}

template <class Ours, class Theirs>
constexpr bool fits = same_call(static_cast<Ours>(nullptr), static_cast<Theirs*>(nullptr));

static_assert(fits<decltype(cuda::CuFile::driver_open), decltype(::cuFileDriverOpen)>);
static_assert(fits<decltype(cuda::CuFile::driver_properties), decltype(::cuFileDriverGetProperties)>);
static_assert(fits<decltype(cuda::CuFile::handle_register), decltype(::cuFileHandleRegister)>);
static_assert(fits<decltype(cuda::CuFile::handle_deregister), decltype(::cuFileHandleDeregister)>);
static_assert(fits<decltype(cuda::CuFile::buffer_register), decltype(::cuFileBufRegister)>);
static_assert(fits<decltype(cuda::CuFile::buffer_deregister), decltype(::cuFileBufDeregister)>);
static_assert(fits<decltype(cuda::CuFile::read), decltype(::cuFileRead)>);
static_assert(fits<decltype(cuda::CuFile::write), decltype(::cuFileWrite)>);
static_assert(fits<decltype(cuda::CuFile::get_version), decltype(::cuFileGetVersion)>);

// The enums of both sides are of different types.
#define ANYACCEL_SAME(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs))

static_assert(sizeof(cuda::CuFileStatus) == sizeof(CUfileError_t));
static_assert(offsetof(cuda::CuFileStatus, cuda_error) == offsetof(CUfileError_t, cu_err));
static_assert(sizeof(cuda::CuFileDescription) == sizeof(CUfileDescr_t));
static_assert(offsetof(cuda::CuFileDescription, descriptor) == offsetof(CUfileDescr_t, handle));
static_assert(offsetof(cuda::CuFileDescription, file_system) == offsetof(CUfileDescr_t, fs_ops));
ANYACCEL_SAME(cuda::cufile_type_descriptor, CU_FILE_HANDLE_TYPE_OPAQUE_FD);
static_assert(offsetof(cuda::CuFileProperties, reserved) == sizeof(CUfileDrvProps_t));
static_assert(offsetof(cuda::CuFileProperties, nvfs.max_direct_io) ==
              offsetof(CUfileDrvProps_t, nvfs.max_direct_io_size));
static_assert(offsetof(cuda::CuFileProperties, nvfs.status_flags) == offsetof(CUfileDrvProps_t, nvfs.dstatusflags));
static_assert(offsetof(cuda::CuFileProperties, feature_flags) == offsetof(CUfileDrvProps_t, fflags));
static_assert(offsetof(cuda::CuFileProperties, max_batch_timeout) ==
              offsetof(CUfileDrvProps_t, max_batch_io_timeout_msecs));
ANYACCEL_SAME(cuda::cufile_status_nvme_p2p, CU_FILE_NVME_P2P_SUPPORTED);

ANYACCEL_SAME(cuda::cufile_success, CU_FILE_SUCCESS);
ANYACCEL_SAME(cuda::cufile_base_error, CUFILEOP_BASE_ERR);
ANYACCEL_SAME(cuda::cufile_driver_not_initialized, CU_FILE_DRIVER_NOT_INITIALIZED);
ANYACCEL_SAME(cuda::cufile_driver_version_mismatch, CU_FILE_DRIVER_VERSION_MISMATCH);
ANYACCEL_SAME(cuda::cufile_platform_not_supported, CU_FILE_PLATFORM_NOT_SUPPORTED);
ANYACCEL_SAME(cuda::cufile_io_not_supported, CU_FILE_IO_NOT_SUPPORTED);
ANYACCEL_SAME(cuda::cufile_device_not_supported, CU_FILE_DEVICE_NOT_SUPPORTED);
ANYACCEL_SAME(cuda::cufile_cuda_driver_error, CU_FILE_CUDA_DRIVER_ERROR);
ANYACCEL_SAME(cuda::cufile_invalid_file_type, CU_FILE_INVALID_FILE_TYPE);
ANYACCEL_SAME(cuda::cufile_invalid_file_open_flag, CU_FILE_INVALID_FILE_OPEN_FLAG);
ANYACCEL_SAME(cuda::cufile_dio_not_set, CU_FILE_DIO_NOT_SET);
ANYACCEL_SAME(cuda::cufile_invalid_value, CU_FILE_INVALID_VALUE);
ANYACCEL_SAME(cuda::cufile_memory_already_registered, CU_FILE_MEMORY_ALREADY_REGISTERED);
ANYACCEL_SAME(cuda::cufile_memory_not_registered, CU_FILE_MEMORY_NOT_REGISTERED);
ANYACCEL_SAME(cuda::cufile_permission_denied, CU_FILE_PERMISSION_DENIED);
ANYACCEL_SAME(cuda::cufile_nvfs_setup_error, CU_FILE_NVFS_SETUP_ERROR);
ANYACCEL_SAME(cuda::cufile_io_disabled, CU_FILE_IO_DISABLED);
ANYACCEL_SAME(cuda::cufile_gpu_memory_pinning_failed, CU_FILE_GPU_MEMORY_PINNING_FAILED);

}  // namespace
