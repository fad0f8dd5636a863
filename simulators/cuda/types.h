// The simulated part of CUDA's driver API, declared from NVIDIA's documentation
// (https://docs.nvidia.com/cuda/cuda-driver-api/): no header of theirs is needed to build.
// tests/simulators/cuda_face_test.cpp compares these numbers with cuda.h where that is installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sim::cuda {

using Result = int;
enum : Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kStubLibrary = 34,
  kDeviceUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kEccUncorrectable = 214,
  kPeerAccessUnsupported = 217,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kPeerAccessAlreadyEnabled = 704,
  kPeerAccessNotEnabled = 705,
  kContextIsDestroyed = 709,
  kHostMemoryAlreadyRegistered = 712,
  kHostMemoryNotRegistered = 713,
  kLaunchFailed = 719,
  kCooperativeLaunchTooLarge = 720,
  kNotPermitted = 800,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureMerge = 902,
  kCaptureUnmatched = 903,
  kCaptureUnjoined = 904,
  kCaptureIsolation = 905,
  kCaptureImplicit = 906,
  kCapturedEvent = 907,
  kCaptureWrongThread = 908,
  kUnknown = 999,
};

using DevicePointer = std::uint64_t;
using Ordinal = int;   // CUdevice
using Handle = void*;  // every opaque pointer type
using HostFunction = void (*)(void*);

inline constexpr std::uintptr_t kLegacyStream = 1, kPerThreadStream = 2;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventBlockingSync = 1, kEventDisableTiming = 2, kEventInterprocess = 4;
enum CaptureStatus { kCaptureNone = 0, kCaptureActive = 1, kCaptureIsInvalidated = 2 };
enum QueryResult { kFound = 0, kSymbolNotFound = 1, kVersionNotSufficient = 2 };
inline constexpr std::uint64_t kLegacyStreamFunctions = 1, kPerThreadStreamFunctions = 2;

struct UuidBytes {
  unsigned char bytes[16];
};

struct Location {
  int type;  // 1: device
  int id;
};
struct AllocationProperties {
  int type;  // 1: pinned
  int handle_types;
  Location location;
  void* win32;
  unsigned char compression_type;
  unsigned char gpu_direct_rdma_capable;
  unsigned short usage;
  unsigned char reserved[4];
};
static_assert(sizeof(AllocationProperties) == 32);
struct AccessDescription {
  Location location;
  int flags;  // 0: none, 1: read, 3: read and write
};

struct LaunchAttribute {
  int id;
  char padding[4];
  union {
    char reserved[64];
    int value;
  };
};
static_assert(sizeof(LaunchAttribute) == 72);
inline constexpr int kLaunchCooperative = 2, kLaunchProgrammaticSerialization = 6;
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  Handle stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

}  // namespace sim::cuda
