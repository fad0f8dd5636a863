// Declares the part of CANN's runtime interface (AscendCL, libascendcl.so) that this accelerator uses: facts about its
// calling convention, taken from the documents of Huawei's open CANN runtime; none of its headers is needed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anyaccel::npu {

using AclError = int;
using AclStream = void*;
using AclEvent = void*;

inline constexpr AclError repeated_init = 100002;
inline constexpr AclError stub_mode = 100039;
inline constexpr AclError no_device = 207004;

// aclrtMemcpyKind, by aa_copy_direction.
inline constexpr int memcpy_kinds[] = {1, 2, 3};

inline constexpr int malloc_huge_first = 0;
inline constexpr int memory_ddr = 0, memory_hbm = 1;                                // of aclrtGetMemInfo
inline constexpr uint32_t stream_fast_launch = 1, stream_fast_sync = 2;             // of aclrtCreateStreamWithConfig
inline constexpr uint32_t event_sync = 1, event_progress = 2, event_time_line = 8;  // of aclrtCreateEventExWithFlag
inline constexpr int32_t stream_complete = 0;                                       // of aclrtStreamQuery
inline constexpr int32_t event_complete = 1;                                        // of aclrtQueryEventStatus
inline constexpr int device_ai_cores = 101, device_total_memory = 301;              // of aclrtGetDeviceInfo
inline constexpr int cann_bf16 = 1;                                                 // of aclGetCannAttribute

// X(name, result, parameters). aclrtCreateEventExWithFlag is the newest of the required functions: only its events can
// be recorded again.
#define ANYACCEL_NPU_FUNCTIONS(X)                                                                                   \
  X(aclInit, AclError, (const char* config))                                                                        \
  X(aclrtGetDeviceCount, AclError, (uint32_t * count))                                                              \
  X(aclrtSetDevice, AclError, (int32_t device))                                                                     \
  X(aclrtGetDevice, AclError, (int32_t * device))                                                                   \
  X(aclrtResetDevice, AclError, (int32_t device))                                                                   \
  X(aclrtGetMemInfo, AclError, (int kind, size_t* free, size_t* total))                                             \
  X(aclrtMalloc, AclError, (void** pointer, size_t size, int policy))                                               \
  X(aclrtFree, AclError, (void* pointer))                                                                           \
  X(aclrtMallocHost, AclError, (void** pointer, size_t size))                                                       \
  X(aclrtFreeHost, AclError, (void* pointer))                                                                       \
  X(aclrtMemcpyAsync, AclError, (void* to, size_t room, const void* from, size_t size, int kind, AclStream stream)) \
  X(aclrtMemsetAsync, AclError, (void* pointer, size_t room, int32_t value, size_t size, AclStream stream))         \
  X(aclrtCreateStreamWithConfig, AclError, (AclStream * stream, uint32_t priority, uint32_t flags))                 \
  X(aclrtDestroyStream, AclError, (AclStream stream))                                                               \
  X(aclrtSynchronizeStream, AclError, (AclStream stream))                                                           \
  X(aclrtStreamQuery, AclError, (AclStream stream, int32_t * status))                                               \
  X(aclrtStreamWaitEvent, AclError, (AclStream stream, AclEvent event))                                             \
  X(aclrtCreateEventExWithFlag, AclError, (AclEvent * event, uint32_t flags))                                       \
  X(aclrtDestroyEvent, AclError, (AclEvent event))                                                                  \
  X(aclrtRecordEvent, AclError, (AclEvent event, AclStream stream))                                                 \
  X(aclrtQueryEventStatus, AclError, (AclEvent event, int32_t * status))                                            \
  X(aclrtSynchronizeEvent, AclError, (AclEvent event))                                                              \
  X(aclrtEventElapsedTime, AclError, (float* milliseconds, AclEvent start, AclEvent end))

#define ANYACCEL_NPU_OPTIONAL_FUNCTIONS(X)                                     \
  X(aclGetRecentErrMsg, const char*, ())                                       \
  X(aclrtGetSocName, const char*, ())                                          \
  X(aclrtGetDeviceInfo, AclError, (uint32_t device, int what, int64_t* value)) \
  X(aclGetCannAttribute, AclError, (int what, int32_t* value))                 \
  X(aclrtLaunchHostFunc, AclError, (AclStream stream, void (*function)(void* user), void* user))

// Functions for captures, which are not available if one of them is missing. A captured model can be launched directly.
inline constexpr int capture_this_thread = 1;  // aclmdlRICaptureMode: calls of other threads do not affect it
#define ANYACCEL_NPU_CAPTURE_FUNCTIONS(X)                            \
  X(aclmdlRICaptureBegin, AclError, (AclStream stream, int mode))    \
  X(aclmdlRICaptureEnd, AclError, (AclStream stream, void** model))  \
  X(aclmdlRIExecuteAsync, AclError, (void* model, AclStream stream)) \
  X(aclmdlRIDestroy, AclError, (void* model))

struct Api {
#define ANYACCEL_DECLARE(name, result, parameters) result(*name) parameters = nullptr;
  ANYACCEL_NPU_FUNCTIONS(ANYACCEL_DECLARE)
  ANYACCEL_NPU_OPTIONAL_FUNCTIONS(ANYACCEL_DECLARE)
  ANYACCEL_NPU_CAPTURE_FUNCTIONS(ANYACCEL_DECLARE)
#undef ANYACCEL_DECLARE
};

}  // namespace anyaccel::npu
