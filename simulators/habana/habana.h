// Shared by the parts of the simulated libSynapse.so: the numbers of synStatus, and the state of the device that the
// process has acquired.
#pragma once

#include "simulators/queue_face/queue_face.h"

namespace sim::habana {

// synStatus, of the published source (HabanaAI/Intel_Gaudi3_Software, synapse_common_types.h).
enum Status : queue_face::Result {
  kSuccess = 0,
  kInvalidArgument = 1,
  kOutOfHostMemory = 3,
  kOutOfDeviceMemory = 4,
  kObjectNotInitialized = 6,
  kNoDeviceFound = 8,
  kDeviceReset = 17,
  kUnsupported = 18,
  kDeviceAlreadyAcquired = 20,
  kBusy = 22,
  kFail = 26,
  kUninitialized = 28,
  kAlreadyInitialized = 29,
  kInvalidEventHandle = 33,
  kMappingNotFound = 34,
};

inline constexpr int kGaudi2 = 4;  // synDeviceType of all devices
// A process has one device at a time, and its synDeviceId is 0 (device_manager.cpp).
inline constexpr std::uint32_t kDeviceId = 0;

}  // namespace sim::habana
