// The Tecorigin interface of the simulator: libsdaart.so, by its real name in a folder of its own. No complete header of
// it is published: prototypes and numbers are those of an early header, and of three programs that use the runtime
// (PaddlePaddle's backend the most). It is shaped like HIP, whose rules stand where nothing is known; each of them is
// named in simulators/README.md.
#include <map>
#include <string>
#include <utility>

#include "simulators/queue_face/queue_face.h"

namespace sim::tecorigin {

using queue_face::Handle;
using queue_face::HostFunction;
using queue_face::Result;

enum : Result {
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kBadDirection = 21,
  kInsufficientDriver = 35,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kEccUncorrectable = 214,
  kPeerUnsupported = 217,
  kInvalidHandle = 400,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchFailure = 719,
  kNotSupported = 801,
  kUnknown = 999,
};

namespace {

struct ErrorText {
  const char *name, *text;
};
ErrorText text_of(Result code) {
  static const std::map<Result, ErrorText> texts = {
      {queue_face::kSuccess, {"sdaaSuccess", "no error"}},
      {kInvalidValue, {"sdaaErrorInvalidValue", "invalid argument"}},
      {kOutOfMemory, {"sdaaErrorOutOfMemory", "out of memory"}},
      {kNotInitialized, {"sdaaErrorNotInitialized", "not initialized"}},
      {kBadDirection, {"sdaaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"}},
      {kInsufficientDriver, {"sdaaErrorInsufficientDriver", "the driver is too old for the runtime"}},
      {kNoDevice, {"sdaaErrorNoDevice", "no device is detected"}},
      {kInvalidDevice, {"sdaaErrorInvalidDevice", "invalid device ordinal"}},
      {kInvalidContext, {"sdaaErrorInvalidContext", "invalid device context"}},
      {kEccUncorrectable, {"sdaaErrorECCNotCorrectable", "uncorrectable ECC error"}},
      {kPeerUnsupported, {"sdaaErrorPeerAccessUnsupported", "devices do not reach each other's memory"}},
      {kInvalidHandle, {"sdaaErrorInvalidHandle", "invalid resource handle"}},
      {kNotReady, {"sdaaErrorNotReady", "not ready"}},
      {kIllegalAddress, {"sdaaErrorIllegalAddress", "illegal memory access"}},
      {kLaunchFailure, {"sdaaErrorLaunchFailure", "unspecified launch failure"}},
      {kNotSupported, {"sdaaErrorNotSupported", "operation not supported"}},
  };
  const auto found = texts.find(code);
  return found == texts.end() ? ErrorText{"sdaaErrorUnknown", "unknown error"} : found->second;
}

}  // namespace
}  // namespace sim::tecorigin

namespace sim::queue_face {

const Vendor& vendor() {
  static const Vendor vendor = [] {
    using namespace tecorigin;  // NOLINT: the numbers
    Vendor v{};
    Codes& c = v.codes;
    c.invalid_argument = c.already_registered = c.not_registered = kInvalidValue;
    c.invalid_handle = c.wrong_context = c.timing = kInvalidHandle;
    c.invalid_device = kInvalidDevice;
    c.not_initialized = tecorigin::kNotInitialized;
    c.no_device = kNoDevice;
    c.no_context = kInvalidContext;
    c.bad_direction = kBadDirection;
    c.host_to_host = kSuccess;
    c.not_supported = kNotSupported;
    c.out_of_memory = kOutOfMemory;
    c.not_ready = tecorigin::kNotReady;
    c.no_peer = kPeerUnsupported;
    c.callback = c.unknown = kUnknown;
    c.stub = kInsufficientDriver;
    c.failed = c.bad_access = kIllegalAddress;
    c.device_lost = c.launch_failed = kLaunchFailure;
    c.uncorrectable = kEccUncorrectable;
    v.error_scope = ErrorScope::device;
    v.visible_variable = "SDAA_VISIBLE_DEVICES";
    v.visible = visible_like_cuda;
    v.pageable = Pageable::synchronous;
    v.text = [](Result code) { return std::string(text_of(code).text); };
    return v;
  }();
  return vendor;
}

}  // namespace sim::queue_face

namespace sim::tecorigin {

using namespace queue_face;  // NOLINT: the functions below are a layer over it

// sdaaMemcpyKind
static bool direction_of(int kind, Direction* direction) {
  switch (kind) {
    case 0: *direction = Direction::host_to_host; return true;
    case 1: *direction = Direction::host_to_device; return true;
    case 2: *direction = Direction::device_to_host; return true;
    case 3: *direction = Direction::device_to_device; return true;
    case 4: *direction = Direction::any; return true;
    default: return false;
  }
}

// ---- devices, errors
// --------------------------------------------------------------------------------------------------------------

FACE_FUNCTION(sdaaRuntimeGetVersion, Need::nothing, (int* version), (version)) {
  FACE_REQUIRE(version != nullptr, kInvalidValue, "bad-argument", "the result is null");
  *version = 3020;
  return kSuccess;
}

FACE_FUNCTION(sdaaDriverGetVersion, Need::nothing, (int* version), (version)) {
  FACE_REQUIRE(version != nullptr, kInvalidValue, "bad-argument", "the result is null");
  *version = 3020;
  return kSuccess;
}

FACE_FUNCTION(sdaaGetDeviceCount, Need::started, (int* count), (count)) {
  FACE_REQUIRE(count != nullptr, kInvalidValue, "bad-argument", "the result is null");
  *count = static_cast<int>(state().visible.size());
  return *count == 0 ? kNoDevice : kSuccess;
}

FACE_FUNCTION(sdaaSetDevice, Need::started, (int device), (device)) { return set_device(device, false); }

FACE_FUNCTION(sdaaGetDevice, Need::started, (int* device), (device)) { return get_device(device); }

FACE_FUNCTION(sdaaDeviceReset, Need::context, (), ()) {
  return give_back_device(ordinal_of(thread_state().context->device), true);
}

FACE_FUNCTION(sdaaDeviceSynchronize, Need::healthy, (), ()) { return synchronize_device(); }

FACE_FUNCTION(sdaaGetDeviceProperties, Need::started, (void* properties, int device), (properties, device)) {
  return device_properties(properties, device, "SDAA simulated");
}

FACE_QUESTION(const char*, sdaaGetErrorString, (Result code), (code)) { return text_of(code).text; }
FACE_QUESTION(const char*, sdaaGetErrorName, (Result code), (code)) { return text_of(code).name; }
FACE_QUESTION(Result, sdaaGetLastError, (), ()) { return std::exchange(thread_state().last_error, kSuccess); }
FACE_QUESTION(Result, sdaaPeekAtLastError, (), ()) { return thread_state().last_error; }

// ---- memory
// ------------------------------------------------------------------------------------------------------------

FACE_FUNCTION(sdaaMemGetInfo, Need::healthy, (std::size_t * free, std::size_t* total), (free, total)) {
  return memory_info(free, total);
}

FACE_FUNCTION(sdaaMalloc, Need::healthy, (void** pointer, std::size_t bytes), (pointer, bytes)) {
  return allocate(MemoryKind::device, pointer, bytes, 256);
}

FACE_FUNCTION(sdaaFree, Need::context, (void* pointer), (pointer)) { return release(MemoryKind::device, pointer); }

FACE_FUNCTION(sdaaMallocHost, Need::healthy, (void** pointer, std::size_t bytes), (pointer, bytes)) {
  return allocate(MemoryKind::host, pointer, bytes, 64);
}

FACE_FUNCTION(sdaaFreeHost, Need::context, (void* pointer), (pointer)) { return release(MemoryKind::host, pointer); }

FACE_FUNCTION(sdaaMemcpy, Need::healthy, (void* to, const void* from, std::size_t bytes, int kind),
              (to, from, bytes, kind)) {
  Direction direction = Direction::any;
  FACE_REQUIRE(direction_of(kind, &direction), kBadDirection, "bad-argument", "unknown kind");
  return copy_now(to, from, bytes, direction);
}

FACE_FUNCTION(sdaaMemcpyAsync, Need::healthy, (void* to, const void* from, std::size_t bytes, int kind, Handle stream),
              (to, from, bytes, kind, stream)) {
  Direction direction = Direction::any;
  FACE_REQUIRE(direction_of(kind, &direction), kBadDirection, "bad-argument", "unknown kind");
  return copy_async(to, from, bytes, direction, stream);
}

FACE_FUNCTION(sdaaMemset, Need::healthy, (void* to, int value, std::size_t bytes), (to, value, bytes)) {
  return fill_now(to, value, bytes);
}

FACE_FUNCTION(sdaaMemsetAsync, Need::healthy, (void* to, int value, std::size_t bytes, Handle stream),
              (to, value, bytes, stream)) {
  return fill_async(to, value, bytes, stream);
}

// ---- streams and events
// -------------------------------------------------------------------------------------------------------------

FACE_FUNCTION(sdaaStreamCreate, Need::healthy, (Handle * stream), (stream)) { return create_stream(stream); }

// It is not known whether a stream without the flag 1 waits for the default stream: none does here.
FACE_FUNCTION(sdaaStreamCreateWithFlags, Need::healthy, (Handle * stream, unsigned flags), (stream, flags)) {
  FACE_REQUIRE(flags <= 1, kInvalidValue, "bad-argument", "unknown flags");
  return create_stream(stream);
}

FACE_FUNCTION(sdaaStreamDestroy, Need::context, (Handle stream), (stream)) {
  return destroy_stream(stream, Ending::goes_on);
}

FACE_FUNCTION(sdaaStreamSynchronize, Need::healthy, (Handle stream), (stream)) {
  return wait_for_stream(stream, kForever);
}

FACE_FUNCTION(sdaaStreamQuery, Need::healthy, (Handle stream), (stream)) { return wait_for_stream(stream, 0); }

FACE_FUNCTION(sdaaStreamWaitEvent, Need::healthy, (Handle stream, Handle event, unsigned flags),
              (stream, event, flags)) {
  FACE_REQUIRE(flags == 0, kInvalidValue, "bad-argument", "the flags must be 0");
  return stream_wait_event(stream, event);
}

FACE_FUNCTION(sdaaLaunchHostFunc, Need::healthy, (Handle stream, HostFunction function, void* data),
              (stream, function, data)) {
  return launch_host_function(stream, function, data);
}

FACE_FUNCTION(sdaaEventCreate, Need::healthy, (Handle * event), (event)) { return create_event(event, {}); }

FACE_FUNCTION(sdaaEventCreateWithFlags, Need::healthy, (Handle * event, unsigned flags), (event, flags)) {
  FACE_REQUIRE(flags <= 3, kInvalidValue, "bad-argument", "unknown flags");
  return create_event(event, {(flags & 2) == 0, true, true});
}

FACE_FUNCTION(sdaaEventDestroy, Need::context, (Handle event), (event)) { return destroy_event(event); }

FACE_FUNCTION(sdaaEventRecord, Need::healthy, (Handle event, Handle stream), (event, stream)) {
  return record_event(event, stream);
}

FACE_FUNCTION(sdaaEventQuery, Need::healthy, (Handle event), (event)) { return wait_for_event(event, 0); }

FACE_FUNCTION(sdaaEventSynchronize, Need::healthy, (Handle event), (event)) { return wait_for_event(event, kForever); }

FACE_FUNCTION(sdaaEventElapsedTime, Need::healthy, (float* milliseconds, Handle start, Handle end),
              (milliseconds, start, end)) {
  return elapsed_time(milliseconds, start, end);
}

}  // namespace sim::tecorigin

extern "C" __attribute__((visibility("default"))) int sdaa_is_simulator() { return 1; }
