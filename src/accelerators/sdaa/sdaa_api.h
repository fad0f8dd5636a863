// Declares the part of Tecorigin's runtime (libsdaart.so) that this accelerator uses: facts about its calling
// convention as shown by public programs that use it; none of Tecorigin's headers is needed. Its interface resembles
// HIP's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anyaccel::sdaa {

using SdaaResult = int;
using SdaaStream = void*;
using SdaaEvent = void*;

inline constexpr SdaaResult not_ready = 600;
inline constexpr SdaaResult no_device = 100;

// sdaaMemcpyKind, by aa_copy_direction.
inline constexpr int memcpy_kinds[] = {1, 2, 3};

inline constexpr unsigned stream_non_blocking = 1, event_timed = 0, event_untimed = 2;
// sdaaDeviceProp_t begins with the name; the rest is not known.
inline constexpr size_t properties_bytes = 16384, properties_name_bytes = 256;

// X(name, parameters); all functions return an SdaaResult. sdaaGetDeviceCount also distinguishes this library from
// others.
#define ANYACCEL_SDAA_FUNCTIONS(X)                                                           \
  X(sdaaGetDeviceCount, (int* count))                                                        \
  X(sdaaSetDevice, (int device))                                                             \
  X(sdaaGetDevice, (int* device))                                                            \
  X(sdaaGetDeviceProperties, (void* properties, int device))                                 \
  X(sdaaMemGetInfo, (size_t * free, size_t * total))                                         \
  X(sdaaMalloc, (void** pointer, size_t size))                                               \
  X(sdaaFree, (void* pointer))                                                               \
  X(sdaaMallocHost, (void** pointer, size_t size))                                           \
  X(sdaaFreeHost, (void* pointer))                                                           \
  X(sdaaMemcpyAsync, (void* to, const void* from, size_t size, int kind, SdaaStream stream)) \
  X(sdaaMemsetAsync, (void* pointer, int value, size_t size, SdaaStream stream))             \
  X(sdaaStreamCreateWithFlags, (SdaaStream * stream, unsigned flags))                        \
  X(sdaaStreamDestroy, (SdaaStream stream))                                                  \
  X(sdaaStreamSynchronize, (SdaaStream stream))                                              \
  X(sdaaStreamQuery, (SdaaStream stream))                                                    \
  X(sdaaStreamWaitEvent, (SdaaStream stream, SdaaEvent event, unsigned flags))               \
  X(sdaaEventCreateWithFlags, (SdaaEvent * event, unsigned flags))                           \
  X(sdaaEventDestroy, (SdaaEvent event))                                                     \
  X(sdaaEventRecord, (SdaaEvent event, SdaaStream stream))                                   \
  X(sdaaEventQuery, (SdaaEvent event))                                                       \
  X(sdaaEventSynchronize, (SdaaEvent event))                                                 \
  X(sdaaEventElapsedTime, (float* milliseconds, SdaaEvent start, SdaaEvent end))

#define ANYACCEL_SDAA_OPTIONAL_FUNCTIONS(X) \
  X(sdaaLaunchHostFunc, (SdaaStream stream, void (*function)(void* user), void* user))

struct Api {
#define ANYACCEL_DECLARE(name, parameters) SdaaResult(*name) parameters = nullptr;
  ANYACCEL_SDAA_FUNCTIONS(ANYACCEL_DECLARE)
  ANYACCEL_SDAA_OPTIONAL_FUNCTIONS(ANYACCEL_DECLARE)
#undef ANYACCEL_DECLARE
  const char* (*sdaaGetErrorName)(SdaaResult result) = nullptr;
  const char* (*sdaaGetErrorString)(SdaaResult result) = nullptr;
};

}  // namespace anyaccel::sdaa
