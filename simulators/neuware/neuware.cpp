// The Cambricon interface of the simulator: libcnrt.so, by its real name in a folder of its own. Prototypes, error codes
// and rules are those of the published headers of CNRT 6.0.2 and 6.14.1; what they leave open is named where it is
// decided here, and in simulators/README.md.
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "simulators/queue_face/queue_face.h"

namespace sim::neuware {

using queue_face::Handle;
using queue_face::HostFunction;
using queue_face::Result;

enum : Result {
  kNotReady = 1,
  kInit = 100002,
  kNoDevice = 100004,
  kDeviceInvalid = 100005,
  kArgsInvalid = 100006,
  kInvalidHandle = 100014,
  kIllegalState = 100015,
  kNotSupported = 100050,
  kNotPermitted = 100051,
  kNoMemory = 100100,
  kKernelTrap = 100132,
  kCaptureUnsupported = 100360,
  kCaptureInvalidated = 100361,
  kCaptureWrongThread = 100362,
  kCaptureMerged = 100363,
  kCaptureUnjoined = 100364,
  kCaptureIsolation = 100365,
  kCaptureUnmatched = 100366,
  kOtherDevice = 632006,
  kNoAttribute = 632009,
  kBadDirection = 632013,
  kBusy = 632014,
  kDriverCall = 632015,
  kUnknown = 999991,
};

namespace {

struct ErrorText {
  const char *name, *text;
};
const std::map<Result, ErrorText>& error_texts() {
  static const std::map<Result, ErrorText> texts = {
      {queue_face::kSuccess, {"cnrtSuccess", "no error"}},
      {kNotReady, {"cnrtErrorNotReady", "operations are still being executed"}},
      {kInit, {"cnrtErrorInit", "the runtime is not initialized"}},
      {kNoDevice, {"cnrtErrorNoDevice", "no device is found"}},
      {kDeviceInvalid, {"cnrtErrorDeviceInvalid", "invalid device ordinal"}},
      {kArgsInvalid, {"cnrtErrorArgsInvalid", "invalid argument"}},
      {kInvalidHandle, {"cnrtErrorInvalidResourceHandle", "invalid resource handle"}},
      {kIllegalState, {"cnrtErrorIllegalState", "a resource is not in a valid state"}},
      {kNotSupported, {"cnrtErrorNotSupport", "not supported"}},
      {kNotPermitted, {"cnrtErrorOpsNotPermitted", "operation not permitted"}},
      {kNoMemory, {"cnrtErrorNoMem", "out of device memory"}},
      {kKernelTrap, {"cnrtErrorKernelTrap", "a kernel ran into a trap"}},
      {kCaptureUnsupported, {"cnrtErrorQueueCaptureUnsupported", "not permitted when the queue is capturing"}},
      {kCaptureInvalidated, {"cnrtErrorQueueCaptureInvalidated", "the capture is invalid after an error"}},
      {kCaptureWrongThread, {"cnrtErrorQueueCaptureWrongThread", "the capture ends in a different thread"}},
      {kCaptureMerged, {"cnrtErrorQueueCaptureMerged", "two independent captures are merged"}},
      {kCaptureUnjoined, {"cnrtErrorQueueCaptureUnjoined", "a fork of the capture is not joined"}},
      {kCaptureIsolation, {"cnrtErrorQueueCaptureIsolation", "a dependency crosses the capture's boundary"}},
      {kCaptureUnmatched, {"cnrtErrorQueueCaptureUnmatched", "the queue is not the one captured first"}},
      {kOtherDevice, {"cnrtErrorDevice", "the resource is not from the current device"}},
      {kNoAttribute, {"cnrtErrorNoAttribute", "there is no such attribute"}},
      {kBadDirection, {"cnrtErrorMemcpyDirectionInvalid", "invalid memcpy direction"}},
      {kBusy, {"cnrtErrorBusy", "the device or resource is busy"}},
      {kDriverCall, {"cnrtErrorCndrvFuncCall", "a call of the driver has failed"}},
  };
  return texts;
}
ErrorText text_of(Result code) {
  const auto found = error_texts().find(code);
  return found == error_texts().end() ? ErrorText{"cnrtErrorUnknown", "unknown error"} : found->second;
}

// ten thousand times the major version, a hundred times the minor one, and the patch
int version() {
  const char* text = std::getenv("SIM_CNRT_VERSION");
  return text == nullptr || *text == '\0' ? 61401 : std::atoi(text);
}

}  // namespace
}  // namespace sim::neuware

namespace sim::queue_face {

const Vendor& vendor() {
  static const Vendor vendor = [] {
    using namespace neuware;  // NOLINT: the numbers
    Vendor v{};
    Codes& c = v.codes;
    c.invalid_argument = c.timing = kArgsInvalid;
    c.invalid_handle = kInvalidHandle;
    c.invalid_device = kDeviceInvalid;
    c.not_initialized = kInit;
    c.no_device = kNoDevice;
    c.no_context = 632019;
    c.wrong_context = kOtherDevice;
    c.bad_direction = c.host_to_host = kBadDirection;
    c.not_supported = kNotSupported;
    c.out_of_memory = kNoMemory;
    c.not_ready = neuware::version() < 61000 ? kBusy : neuware::kNotReady;
    c.no_peer = c.already_registered = c.not_registered = kDriverCall;
    c.callback = kNotPermitted;
    c.stub = c.unknown = kUnknown;
    // The headers name a kernel's trap and a call of the driver that failed; which of them a failure is, they do not say.
    c.failed = c.bad_access = c.launch_failed = kKernelTrap;
    c.device_lost = c.uncorrectable = kDriverCall;
    c.captured = c.capture_unsafe = c.capture_pageable = c.implicit = c.captured_event = kCaptureUnsupported;
    c.not_capturing = c.already_capturing = kIllegalState;
    c.invalidated = kCaptureInvalidated;
    c.merge = kCaptureMerged;
    c.unmatched = kCaptureUnmatched;
    c.unjoined = kCaptureUnjoined;
    c.isolation = kCaptureIsolation;
    c.wrong_thread = kCaptureWrongThread;
    v.error_scope = ErrorScope::stream;
    v.visible_variable = "MLU_VISIBLE_DEVICES";
    v.visible = visible_like_cuda;
    v.streams_are_tied = v.default_stream_per_thread = true;
    v.pageable = Pageable::when_run;
    v.refusal_invalidates = true;
    v.peers_exist = true;
    v.text = [](Result code) { return std::string(text_of(code).text); };
    return v;
  }();
  return vendor;
}

}  // namespace sim::queue_face

namespace sim::neuware {

using namespace queue_face;  // NOLINT: the functions below are a layer over it

namespace {

// cnrtMemTransDir_t
bool direction_of(int kind, Direction* direction) {
  switch (kind) {
    case 0: *direction = Direction::host_to_device; return true;
    case 1: *direction = Direction::device_to_device; return true;
    case 2: *direction = Direction::device_to_host; return true;
    case 3: *direction = Direction::host_to_host; return true;
    case 4: *direction = Direction::device_to_device; return true;  // between two devices
    case 5: *direction = Direction::any; return true;
    default: return false;
  }
}

int device_at(const void* pointer) {
  const auto allocation = engine().memory().find(pointer);
  return allocation == nullptr ? -1 : allocation->device;
}

Result check_copy(const void* to, const void* from, int kind, Direction* direction) {
  FACE_REQUIRE(direction_of(kind, direction), kBadDirection, "bad-argument", "unknown direction");
  const bool between = device_at(to) >= 0 && device_at(from) >= 0 && device_at(to) != device_at(from);
  FACE_REQUIRE(!between || kind == 4 || kind == 5, kBadDirection, "bad-argument",
               "the copy's direction is within one device, and its pointers are of two");
  return kSuccess;
}

Result check_peers(const void* to, int to_ordinal, const void* from, int from_ordinal) {
  int to_device = 0, from_device = 0;
  FACE_TRY(check_device(to_ordinal, &to_device));
  FACE_TRY(check_device(from_ordinal, &from_device));
  FACE_REQUIRE(device_at(to) == to_device && device_at(from) == from_device, kArgsInvalid, "bad-pointer",
               "a pointer is no memory of the device that is given with it");
  return kSuccess;
}

Result copy_on_queue(void* to, void* from, std::size_t bytes, Handle queue, int kind) {
  Direction direction = Direction::any;
  FACE_TRY(check_copy(to, from, kind, &direction));
  return copy_async(to, from, bytes, direction, queue);
}

}  // namespace

// ---- devices, errors
// --------------------------------------------------------------------------------------------------------------

FACE_FUNCTION(cnrtGetLibVersion, Need::nothing, (int* major, int* minor, int* patch), (major, minor, patch)) {
  FACE_REQUIRE(major != nullptr && minor != nullptr && patch != nullptr, kArgsInvalid, "bad-argument",
               "a result is null");
  *major = version() / 10000;
  *minor = version() / 100 % 100;
  *patch = version() % 100;
  return kSuccess;
}

FACE_FUNCTION(cnrtGetDeviceCount, Need::started, (unsigned* count), (count)) {
  FACE_REQUIRE(count != nullptr, kArgsInvalid, "bad-argument", "the result is null");
  *count = static_cast<unsigned>(state().visible.size());
  return *count == 0 ? kNoDevice : kSuccess;
}

FACE_FUNCTION(cnrtSetDevice, Need::started, (int device), (device)) { return set_device(device, false); }

FACE_FUNCTION(cnrtGetDevice, Need::started, (int* device), (device)) { return get_device(device); }

FACE_FUNCTION(cnrtDeviceReset, Need::context, (), ()) {
  return give_back_device(ordinal_of(thread_state().context->device), true);
}

FACE_FUNCTION(cnrtSyncDevice, Need::healthy, (), ()) { return synchronize_device(); }

FACE_FUNCTION(cnrtGetDeviceProperties, Need::started, (void* properties, int device), (properties, device)) {
  return device_properties(properties, device, "MLU simulated");
}

// The numbers are few, as for a small device; which they are does not matter to a program.
FACE_FUNCTION(cnrtDeviceGetAttribute, Need::started, (int* value, int attribute, int device),
              (value, attribute, device)) {
  int index = 0;
  FACE_TRY(check_device(device, &index));
  FACE_REQUIRE(value != nullptr, kArgsInvalid, "bad-argument", "the result is null");
  switch (attribute) {
    case 0x01: *value = 5; return kSuccess;  // version of the hardware
    case 0x02: *value = 9; return kSuccess;
    case 0x03: *value = 0; return kSuccess;  // sparse
    case 0x04:                               // fp16, int4, int8, bf16, tf32
    case 0x05:
    case 0x06:
    case 0x07:
    case 0x08: *value = 1; return kSuccess;
    case 0x101: *value = 4096; return kSuccess;       // queues
    case 0x205: *value = 2; return kSuccess;          // clusters
    case 0x206: *value = 4; return kSuccess;          // cores of each
    case 0x301: *value = 96 << 20; return kSuccess;   // bytes of the second cache
    case 0x302: *value = 512 << 10; return kSuccess;  // bytes of a core's own memory
    case 0x405: *value = static_cast<int>(settings().memory >> 20); return kSuccess;
    case 0x406: *value = 0x20 + index; return kSuccess;  // PCI bus, device, domain
    case 0x407:
    case 0x408: *value = 0; return kSuccess;
    default: return kNoAttribute;
  }
}

FACE_FUNCTION(cnrtGetPeerAccessibility, Need::started, (unsigned* can, int device, int peer), (can, device, peer)) {
  int from = 0, to = 0;
  FACE_TRY(check_device(device, &from));
  FACE_TRY(check_device(peer, &to));
  FACE_REQUIRE(can != nullptr, kArgsInvalid, "bad-argument", "the result is null");
  *can = from != to && engine().reaches(from, to) ? 1 : 0;
  return kSuccess;
}

FACE_QUESTION(const char*, cnrtGetErrorStr, (Result code), (code)) { return text_of(code).text; }
FACE_QUESTION(const char*, cnrtGetErrorName, (Result code), (code)) { return text_of(code).name; }
FACE_QUESTION(Result, cnrtGetLastError, (), ()) { return std::exchange(thread_state().last_error, kSuccess); }
FACE_QUESTION(Result, cnrtPeekAtLastError, (), ()) { return thread_state().last_error; }

// ---- memory
// ------------------------------------------------------------------------------------------------------------

FACE_FUNCTION(cnrtMemGetInfo, Need::healthy, (std::size_t * free, std::size_t* total), (free, total)) {
  return memory_info(free, total);
}

FACE_FUNCTION(cnrtMalloc, Need::healthy, (void** pointer, std::size_t bytes), (pointer, bytes)) {
  return allocate(MemoryKind::device, pointer, bytes, 256);
}

FACE_FUNCTION(cnrtFree, Need::context, (void* pointer), (pointer)) { return release(MemoryKind::device, pointer); }

FACE_FUNCTION(cnrtHostMalloc, Need::healthy, (void** pointer, std::size_t bytes), (pointer, bytes)) {
  return allocate(MemoryKind::host, pointer, bytes, 64);
}

FACE_FUNCTION(cnrtFreeHost, Need::context, (void* pointer), (pointer)) { return release(MemoryKind::host, pointer); }

FACE_FUNCTION(cnrtMemcpy, Need::healthy, (void* to, void* from, std::size_t bytes, int kind), (to, from, bytes, kind)) {
  Direction direction = Direction::any;
  FACE_TRY(check_copy(to, from, kind, &direction));
  return copy_now(to, from, bytes, direction);
}

FACE_FUNCTION(cnrtMemcpyAsync, Need::healthy, (void* to, void* from, std::size_t bytes, Handle queue, int kind),
              (to, from, bytes, queue, kind)) {
  return copy_on_queue(to, from, bytes, queue, kind);
}

FACE_FUNCTION(cnrtMemcpyAsync_V2, Need::healthy, (void* to, void* from, std::size_t bytes, Handle queue, int kind),
              (to, from, bytes, queue, kind)) {
  return copy_on_queue(to, from, bytes, queue, kind);
}

FACE_FUNCTION(cnrtMemcpyPeer, Need::healthy, (void* to, int to_device, void* from, int from_device, std::size_t bytes),
              (to, to_device, from, from_device, bytes)) {
  FACE_TRY(check_peers(to, to_device, from, from_device));
  return copy_now(to, from, bytes, Direction::device_to_device);
}

FACE_FUNCTION(cnrtMemcpyPeerAsync, Need::healthy,
              (void* to, int to_device, void* from, int from_device, std::size_t bytes, Handle queue),
              (to, to_device, from, from_device, bytes, queue)) {
  FACE_TRY(check_peers(to, to_device, from, from_device));
  return copy_async(to, from, bytes, Direction::device_to_device, queue);
}

FACE_FUNCTION(cnrtMemset, Need::healthy, (void* to, int value, std::size_t bytes), (to, value, bytes)) {
  return fill_now(to, value, bytes);
}

FACE_FUNCTION(cnrtMemsetAsync, Need::healthy, (void* to, int value, std::size_t bytes, Handle queue),
              (to, value, bytes, queue)) {
  return fill_async(to, value, bytes, queue);
}

// ---- queues and notifiers
// ---------------------------------------------------------------------------------------------------------------

FACE_FUNCTION(cnrtDeviceGetQueuePriorityRange, Need::healthy, (int* lowest, int* highest), (lowest, highest)) {
  if (lowest != nullptr) *lowest = 7;
  if (highest != nullptr) *highest = 0;
  return kSuccess;
}

FACE_FUNCTION(cnrtQueueCreate, Need::healthy, (Handle * queue), (queue)) { return create_stream(queue); }

FACE_FUNCTION(cnrtQueueCreateWithPriority, Need::healthy, (Handle * queue, unsigned flags, int), (queue, flags, 0)) {
  FACE_REQUIRE(flags == 0, kArgsInvalid, "bad-argument", "the flags must be 0");
  return create_stream(queue);
}

// Returns at once; what the queue still has to do runs to its end (6.0.2).
FACE_FUNCTION(cnrtQueueDestroy, Need::context, (Handle queue), (queue)) {
  return destroy_stream(queue, Ending::goes_on);
}

FACE_FUNCTION(cnrtQueueSync, Need::healthy, (Handle queue), (queue)) { return wait_for_stream(queue, kForever); }

FACE_FUNCTION(cnrtQueueQuery, Need::healthy, (Handle queue), (queue)) { return wait_for_stream(queue, 0); }

FACE_FUNCTION(cnrtQueueWaitNotifier, Need::healthy, (Handle notifier, Handle queue, unsigned flags),
              (notifier, queue, flags)) {
  FACE_REQUIRE(flags == 0, kArgsInvalid, "bad-argument", "the flags must be 0");
  return stream_wait_event(queue, notifier);
}

FACE_FUNCTION(cnrtInvokeHostFunc, Need::healthy, (Handle queue, HostFunction function, void* data),
              (queue, function, data)) {
  return launch_host_function(queue, function, data);
}

FACE_FUNCTION(cnrtNotifierCreate, Need::healthy, (Handle * notifier), (notifier)) { return create_event(notifier, {}); }

FACE_FUNCTION(cnrtNotifierCreateWithFlags, Need::healthy, (Handle * notifier, unsigned flags), (notifier, flags)) {
  FACE_REQUIRE(flags == 0 || flags == 2, kArgsInvalid, "bad-argument", "unknown flags");
  return create_event(notifier, {flags == 0, true, true});
}

FACE_FUNCTION(cnrtNotifierDestroy, Need::context, (Handle notifier), (notifier)) { return destroy_event(notifier); }

FACE_FUNCTION(cnrtPlaceNotifier, Need::healthy, (Handle notifier, Handle queue), (notifier, queue)) {
  return record_event(notifier, queue);
}

FACE_FUNCTION(cnrtQueryNotifier, Need::healthy, (Handle notifier), (notifier)) { return wait_for_event(notifier, 0); }

FACE_FUNCTION(cnrtWaitNotifier, Need::healthy, (Handle notifier), (notifier)) {
  return wait_for_event(notifier, kForever);
}

FACE_FUNCTION(cnrtNotifierElapsedTime, Need::healthy, (Handle start, Handle end, float* milliseconds),
              (start, end, milliseconds)) {
  return elapsed_time(milliseconds, start, end);
}

FACE_FUNCTION(cnrtNotifierDuration, Need::healthy, (Handle start, Handle end, float* microseconds),
              (start, end, microseconds)) {
  FACE_TRY(elapsed_time(microseconds, start, end));
  *microseconds *= 1000;
  return kSuccess;
}

// ---- captures
// ----------------------------------------------------------------------------------------------------------

FACE_FUNCTION(cnrtQueueBeginCapture, Need::healthy, (Handle queue, int mode), (queue, mode)) {
  return begin_capture(queue, mode);
}

FACE_FUNCTION(cnrtQueueIsCapturing, Need::healthy, (Handle queue, int* status), (queue, status)) {
  FACE_REQUIRE(status != nullptr, kArgsInvalid, "bad-argument", "the result is null");
  CaptureStatus found = CaptureStatus::none;
  FACE_TRY(capture_status(queue, &found));
  *status = static_cast<int>(found);
  return kSuccess;
}

FACE_FUNCTION(cnrtQueueEndCapture, Need::healthy, (Handle queue, Handle* topo), (queue, topo)) {
  return end_capture(queue, topo);
}

FACE_FUNCTION(cnrtTaskTopoInstantiate, Need::healthy, (Handle * entity, Handle topo, Handle*, char*, std::size_t),
              (entity, topo, nullptr, nullptr, 0)) {
  return instantiate(entity, topo);
}

FACE_FUNCTION(cnrtTaskTopoEntityInvoke, Need::healthy, (Handle entity, Handle queue), (entity, queue)) {
  return launch_graph(entity, queue);
}

FACE_FUNCTION(cnrtTaskTopoEntityDestroy, Need::context, (Handle entity), (entity)) { return destroy_graph(entity); }

FACE_FUNCTION(cnrtTaskTopoDestroy, Need::context, (Handle topo), (topo)) { return destroy_graph(topo); }

}  // namespace sim::neuware

extern "C" __attribute__((visibility("default"))) int cnrt_is_simulator() { return 1; }
