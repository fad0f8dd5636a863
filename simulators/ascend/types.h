// The simulated part of CANN's runtime, declared from the documentation and the headers of the open CANN runtime
// (hicann/runtime, include/external/acl): no header of Huawei's is needed to build.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simulators/queue_face/queue_face.h"

namespace sim::ascend {

using queue_face::Handle;
using queue_face::HostFunction;
using queue_face::Result;

// acl_base.h and error_codes/rt_error_codes.h
enum : Result {
  kInvalidParam = 100000,
  kUninitialized = 100001,
  kRepeatInitialize = 100002,
  kRepeatFinalize = 100037,
  kStubLibrary = 100039,
  kParamInvalid = 107000,
  kInvalidDevice = 107001,
  kContextNull = 107002,
  kStreamContext = 107003,
  kTimestampInvalid = 107006,
  kInvalidHandle = 107017,
  kCaptureDependency = 107024,
  kStreamUnjoined = 107025,
  kStreamCaptured = 107027,
  kEventCaptured = 107028,
  kStreamNotCaptured = 107029,
  kCaptureModeNotSupported = 107030,
  kCaptureImplicit = 107031,
  kCaptureConflict = 107032,
  kCaptureUnmatched = 107036,
  kCaptureWrongThread = 107038,
  kFeatureNotSupported = 207000,
  kMemoryAllocation = 207001,
  kNoDevice = 207004,
  kInternalError = 507000,
  kLostHeartbeat = 507010,
  kAicoreException = 507015,
  kStreamSyncTimeout = 507046,
  kMultiBitEccError = 507054,
  kDriverInternalError = 507899,
  kCaptureInvalidated = 507903,
  kHostMemoryAlreadyRegistered = 507910,
  kHostMemoryNotRegistered = 507911,
};

inline constexpr std::uint32_t kEventSync = 1, kEventCaptureStreamProgress = 2, kEventTimeLine = 8;
enum RecordedStatus { kRecordedNotReady = 0, kRecordedComplete = 1 };  // aclrtEventRecordedStatus
enum StreamStatus { kStreamComplete = 0, kStreamNotReady = 1 };        // aclrtStreamStatus

}  // namespace sim::ascend
