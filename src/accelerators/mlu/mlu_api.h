// Declares the part of Cambricon's runtime (CNRT 6 and later, libcnrt.so) that this accelerator uses: facts about its
// calling convention, in our own words; none of Cambricon's headers is needed. CNRT 5 uses other names for most of it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anyaccel::mlu {

using CnrtResult = int;
using CnrtQueue = void*;
using CnrtNotifier = void*;

// The results that mean "not ready"; CNRT 6.0 still returns the second, older number.
inline constexpr CnrtResult not_ready = 1, busy = 632014;
inline constexpr CnrtResult no_device = 100004;

// cnrtMemTransDir_t, by aa_copy_direction: to the device, from it, within it.
inline constexpr int copy_directions[] = {0, 2, 1};

inline constexpr unsigned notifier_timed = 0, notifier_untimed = 2;
inline constexpr int highest_priority = 0;  // the lowest is 7
// The attributes of cnrtDeviceGetAttribute.
inline constexpr int attribute_major = 1, attribute_minor = 2, attribute_bf16 = 7, attribute_clusters = 0x205,
                     attribute_cores_per_cluster = 0x206, attribute_total_megabytes = 0x405;
// cnrtDeviceProp_t begins with the name, and grows with every release.
inline constexpr size_t properties_bytes = 16384, properties_name_bytes = 256;

// X(name, parameters); all functions return a CnrtResult.
#define ANYACCEL_MLU_FUNCTIONS(X)                                                    \
  X(cnrtGetDeviceCount, (unsigned* count))                                           \
  X(cnrtSetDevice, (int device))                                                     \
  X(cnrtGetDevice, (int* device))                                                    \
  X(cnrtGetDeviceProperties, (void* properties, int device))                         \
  X(cnrtDeviceGetAttribute, (int* value, int attribute, int device))                 \
  X(cnrtMemGetInfo, (size_t * free, size_t * total))                                 \
  X(cnrtMalloc, (void** pointer, size_t size))                                       \
  X(cnrtFree, (void* pointer))                                                       \
  X(cnrtHostMalloc, (void** pointer, size_t size))                                   \
  X(cnrtFreeHost, (void* pointer))                                                   \
  X(cnrtMemsetAsync, (void* pointer, int value, size_t size, CnrtQueue queue))       \
  X(cnrtQueueCreate, (CnrtQueue * queue))                                            \
  X(cnrtQueueDestroy, (CnrtQueue queue))                                             \
  X(cnrtQueueSync, (CnrtQueue queue))                                                \
  X(cnrtQueueQuery, (CnrtQueue queue))                                               \
  X(cnrtQueueWaitNotifier, (CnrtNotifier notifier, CnrtQueue queue, unsigned flags)) \
  X(cnrtNotifierCreateWithFlags, (CnrtNotifier * notifier, unsigned flags))          \
  X(cnrtNotifierDestroy, (CnrtNotifier notifier))                                    \
  X(cnrtPlaceNotifier, (CnrtNotifier notifier, CnrtQueue queue))                     \
  X(cnrtQueryNotifier, (CnrtNotifier notifier))                                      \
  X(cnrtWaitNotifier, (CnrtNotifier notifier))                                       \
  X(cnrtNotifierElapsedTime, (CnrtNotifier start, CnrtNotifier end, float* milliseconds))

// One of the two copy functions must exist.
#define ANYACCEL_MLU_OPTIONAL_FUNCTIONS(X)                                                   \
  X(cnrtMemcpyAsync, (void* to, void* from, size_t size, CnrtQueue queue, int direction))    \
  X(cnrtMemcpyAsync_V2, (void* to, void* from, size_t size, CnrtQueue queue, int direction)) \
  X(cnrtQueueCreateWithPriority, (CnrtQueue * queue, unsigned flags, int priority))          \
  X(cnrtInvokeHostFunc, (CnrtQueue queue, void (*function)(void* user), void* user))

// Functions for captures, which are not available if one of them is missing.
inline constexpr int capture_this_thread = 1;  // cnrtQueueCaptureMode_t: calls of other threads do not affect it
#define ANYACCEL_MLU_CAPTURE_FUNCTIONS(X)                                                                    \
  X(cnrtQueueBeginCapture, (CnrtQueue queue, int mode))                                                      \
  X(cnrtQueueEndCapture, (CnrtQueue queue, void** topology))                                                 \
  X(cnrtTaskTopoInstantiate, (void** entity, void* topology, void** error_node, char* log, size_t log_size)) \
  X(cnrtTaskTopoEntityInvoke, (void* entity, CnrtQueue queue))                                               \
  X(cnrtTaskTopoEntityDestroy, (void* entity))                                                               \
  X(cnrtTaskTopoDestroy, (void* topology))

struct Api {
#define ANYACCEL_DECLARE(name, parameters) CnrtResult(*name) parameters = nullptr;
  ANYACCEL_MLU_FUNCTIONS(ANYACCEL_DECLARE)
  ANYACCEL_MLU_OPTIONAL_FUNCTIONS(ANYACCEL_DECLARE)
  ANYACCEL_MLU_CAPTURE_FUNCTIONS(ANYACCEL_DECLARE)
#undef ANYACCEL_DECLARE
  const char* (*cnrtGetErrorName)(CnrtResult result) = nullptr;
  const char* (*cnrtGetErrorStr)(CnrtResult result) = nullptr;
};

}  // namespace anyaccel::mlu
