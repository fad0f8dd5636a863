// The Ascend interface of the simulator: libascendcl.so, by its real name in a folder of its own. Functions have the
// names that the real library exports. Rules are those of the open CANN runtime's documentation (docs/zh/api_ref) and
// source; what neither says is named where it is decided here, and in simulators/README.md.
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "simulators/ascend/types.h"

namespace sim::queue_face {
namespace {

// The runtime reads numbers up to the first token that is none, or no device; each must be greater than the one before,
// else there are no devices at all.
std::vector<int> visible_list(const std::string& list, int count) {
  std::vector<int> chosen;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string token = list.substr(begin, end - begin);
    begin = end + 1;
    if (token.empty() || token.size() > 6 || token.find_first_not_of("0123456789") != std::string::npos) break;
    const int device = std::atoi(token.c_str());
    if (device >= count) break;
    if (!chosen.empty() && device <= chosen.back()) return {};
    chosen.push_back(device);
    if (chosen.size() == static_cast<std::size_t>(count)) break;
  }
  return chosen;
}

std::string error_text(Result code) {
  static const std::map<Result, const char*> texts = {
      {ascend::kInvalidParam, "an argument is invalid"},
      {ascend::kUninitialized, "aclInit was not called"},
      {ascend::kRepeatInitialize, "aclInit was called already"},
      {ascend::kRepeatFinalize, "aclFinalize was called already"},
      {ascend::kStubLibrary, "this is a library to compile with, not the runtime"},
      {ascend::kParamInvalid, "param invalid"},
      {ascend::kInvalidDevice, "invalid device id"},
      {ascend::kContextNull, "current context null"},
      {ascend::kStreamContext, "stream not in current context"},
      {ascend::kTimestampInvalid, "event timestamp invalid"},
      {ascend::kInvalidHandle, "invalid handle"},
      {ascend::kCaptureDependency, "capture dependency failure"},
      {ascend::kStreamUnjoined, "invalid capture model: a stream is not joined"},
      {ascend::kStreamCaptured, "stream is captured"},
      {ascend::kEventCaptured, "event is captured"},
      {ascend::kStreamNotCaptured, "stream is not in capture status"},
      {ascend::kCaptureModeNotSupported, "a stream is captured, and this call is not allowed then"},
      {ascend::kCaptureImplicit, "the default stream takes no part in captures"},
      {ascend::kCaptureConflict, "streams of different captures depend on each other"},
      {ascend::kCaptureUnmatched, "the capture was not initiated in this stream"},
      {ascend::kCaptureWrongThread, "the capture ends in another thread than it began"},
      {ascend::kFeatureNotSupported, "feature not support"},
      {ascend::kMemoryAllocation, "memory allocation error"},
      {ascend::kNoDevice, "no device"},
      {ascend::kInternalError, "runtime internal error"},
      {ascend::kLostHeartbeat, "ts lost heartbeat"},
      {ascend::kAicoreException, "aicore exception"},
      {ascend::kStreamSyncTimeout, "stream sync time out"},
      {ascend::kMultiBitEccError, "hbm Multi-bit ECC error"},
      {ascend::kDriverInternalError, "drv internal error"},
      {ascend::kCaptureInvalidated, "capture status is invalidated"},
      {ascend::kHostMemoryAlreadyRegistered, "host memory range already registered"},
      {ascend::kHostMemoryNotRegistered, "host memory has not been registered"},
  };
  const auto found = texts.find(code);
  return found == texts.end() ? "unknown error " + std::to_string(code) : found->second;
}

}  // namespace

const Vendor& vendor() {
  static const Vendor vendor = [] {
    Vendor v{};
    Codes& c = v.codes;
    c.invalid_argument = c.bad_direction = ascend::kParamInvalid;
    c.invalid_handle = ascend::kInvalidHandle;
    c.invalid_device = ascend::kInvalidDevice;
    c.not_initialized = ascend::kUninitialized;
    c.no_device = ascend::kNoDevice;
    c.no_context = ascend::kContextNull;
    c.wrong_context = ascend::kStreamContext;
    c.host_to_host = c.not_supported = ascend::kFeatureNotSupported;
    c.out_of_memory = ascend::kMemoryAllocation;
    c.not_ready = ascend::kStreamSyncTimeout;
    c.no_peer = ascend::kDriverInternalError;  // the number is a guess: the documentation names none
    c.timing = ascend::kTimestampInvalid;
    c.already_registered = ascend::kHostMemoryAlreadyRegistered;
    c.not_registered = ascend::kHostMemoryNotRegistered;
    c.callback = ascend::kInternalError;
    c.stub = ascend::kStubLibrary;
    c.unknown = ascend::kInternalError;
    c.device_lost = ascend::kLostHeartbeat;
    c.failed = c.bad_access = c.launch_failed = ascend::kAicoreException;
    c.uncorrectable = ascend::kMultiBitEccError;
    c.captured = c.already_capturing = ascend::kStreamCaptured;
    c.capture_unsafe = ascend::kCaptureModeNotSupported;
    c.capture_pageable = ascend::kParamInvalid;
    c.not_capturing = ascend::kStreamNotCaptured;
    c.invalidated = ascend::kCaptureInvalidated;
    c.merge = ascend::kCaptureConflict;
    c.unmatched = ascend::kCaptureUnmatched;
    c.unjoined = ascend::kStreamUnjoined;
    c.isolation = ascend::kCaptureDependency;
    c.implicit = ascend::kCaptureImplicit;
    c.captured_event = ascend::kEventCaptured;
    c.wrong_thread = ascend::kCaptureWrongThread;
    v.error_scope = ErrorScope::stream;
    v.visible_variable = "ASCEND_RT_VISIBLE_DEVICES";
    v.visible = visible_list;
    v.must_start = v.must_set_device = v.streams_are_tied = true;
    v.pageable = Pageable::synchronous;
    v.peers_are_enabled = v.peers_exist = true;
    v.text = error_text;
    return v;
  }();
  return vendor;
}

}  // namespace sim::queue_face

namespace sim::ascend {

using namespace queue_face;  // NOLINT: the functions below are a layer over it

namespace {

// aclrtMemcpyKind
bool direction_of(int kind, Direction* direction) {
  switch (kind) {
    case 0: *direction = Direction::host_to_host; return true;
    case 1: *direction = Direction::host_to_device; return true;
    case 2: *direction = Direction::device_to_host; return true;
    case 3:
    case 6:  // within a device
    case 7: *direction = Direction::device_to_device; return true;
    case 4: *direction = Direction::any; return true;
    default: return false;  // 5, a buffer of the host that may be freed at once, is not simulated
  }
}

Result check_copy(std::size_t most, std::size_t bytes, int kind, Direction* direction) {
  FACE_REQUIRE(bytes <= most, kParamInvalid, "bad-argument",
               "the count " + std::to_string(bytes) + " is greater than the destination's " + std::to_string(most));
  FACE_REQUIRE(direction_of(kind, direction), kParamInvalid, "bad-argument", "unknown kind " + std::to_string(kind));
  return kSuccess;
}

std::uint64_t nanoseconds(int milliseconds) {
  return milliseconds < 0 ? kForever : static_cast<std::uint64_t>(milliseconds) * 1000000;
}

}  // namespace

// ---- the process, devices
// --------------------------------------------------------------------------------------------------------------

FACE_FUNCTION(aclInit, Need::nothing, (const char* configuration), (configuration)) {
  FACE_REQUIRE(configuration == nullptr || *configuration == '\0' || configuration[0] == '/', kInvalidParam,
               "bad-argument", "configurations are files");
  if (is_started()) return kRepeatInitialize;
  return start();
}

FACE_FUNCTION(aclFinalize, Need::nothing, (), ()) { return is_started() ? stop() : kRepeatFinalize; }

FACE_FUNCTION(aclrtGetVersion, Need::nothing, (std::int32_t * major, std::int32_t* minor, std::int32_t* patch),
              (major, minor, patch)) {
  FACE_REQUIRE(major != nullptr && minor != nullptr && patch != nullptr, kInvalidParam, "bad-argument",
               "a result is null");
  *major = 1;
  *minor = 15;
  *patch = 0;
  return kSuccess;
}

FACE_QUESTION(const char*, aclrtGetSocName, (), ()) { return "Ascend910B4"; }

// A list of visible devices that is out of order, or names none, is an error of this call.
FACE_FUNCTION(aclrtGetDeviceCount, Need::started, (std::uint32_t * count), (count)) {
  FACE_REQUIRE(count != nullptr, kInvalidParam, "bad-argument", "the result is null");
  *count = static_cast<std::uint32_t>(state().visible.size());
  return *count == 0 ? kNoDevice : kSuccess;
}

FACE_FUNCTION(aclrtSetDevice, Need::started, (std::int32_t device), (device)) { return set_device(device, true); }

FACE_FUNCTION(aclrtGetDevice, Need::started, (std::int32_t * device), (device)) {
  FACE_REQUIRE(device != nullptr, kInvalidParam, "bad-argument", "the result is null");
  const auto& context = thread_state().context;
  if (context == nullptr || context->destroyed) return kContextNull;  // a question that may be asked
  *device = ordinal_of(context->device);
  return kSuccess;
}

FACE_FUNCTION(aclrtResetDevice, Need::started, (std::int32_t device), (device)) {
  return give_back_device(device, false);
}

FACE_FUNCTION(aclrtResetDeviceForce, Need::started, (std::int32_t device), (device)) {
  return give_back_device(device, true);
}

FACE_FUNCTION(aclrtGetCurrentContext, Need::started, (Handle * context), (context)) {
  FACE_REQUIRE(context != nullptr, kInvalidParam, "bad-argument", "the result is null");
  const auto& mine = thread_state().context;
  if (mine == nullptr || mine->destroyed) return kContextNull;
  *context = reinterpret_cast<Handle>(mine->token);
  return kSuccess;
}

FACE_FUNCTION(aclrtSetCurrentContext, Need::started, (Handle context), (context)) {
  auto object = get<Context>(context, "context");
  if (object == nullptr) return kContextNull;
  thread_state().context = std::move(object);
  return kSuccess;
}

FACE_FUNCTION(aclrtSynchronizeDevice, Need::healthy, (), ()) { return synchronize_device(); }

// The numbers are few, as for a small device; which they are does not matter to a program.
FACE_FUNCTION(aclrtGetDeviceInfo, Need::started, (std::uint32_t device, int attribute, std::int64_t* value),
              (device, attribute, value)) {
  int index = 0;
  FACE_TRY(check_device(static_cast<int>(device), &index));
  FACE_REQUIRE(value != nullptr, kInvalidParam, "bad-argument", "the result is null");
  switch (attribute) {
    case 101:  // AI cores
    case 102: *value = 4; return kSuccess;
    case 201: *value = 8; return kSuccess;                                             // vector cores
    case 301: *value = static_cast<std::int64_t>(settings().memory); return kSuccess;  // bytes of global memory
    case 302: *value = 192 << 20; return kSuccess;                                     // bytes of the second cache
    case 601: *value = 2201; return kSuccess;                                          // architecture
    default: return kFeatureNotSupported;
  }
}

FACE_FUNCTION(aclGetDeviceCapability, Need::started, (std::uint32_t device, int what, std::int64_t* value),
              (device, what, value)) {
  int index = 0;
  FACE_TRY(check_device(static_cast<int>(device), &index));
  FACE_REQUIRE(value != nullptr && what >= 0 && what <= 2, kInvalidParam, "bad-argument", "unknown capability");
  *value = what == 0 ? 4 : what == 1 ? 8 : 192 << 20;
  return kSuccess;
}

FACE_FUNCTION(aclGetCannAttribute, Need::started, (int attribute, std::int32_t* value), (attribute, value)) {
  FACE_REQUIRE(value != nullptr && attribute >= 0 && attribute <= 2, kInvalidParam, "bad-argument",
               "unknown attribute");
  *value = 1;
  return kSuccess;
}

FACE_FUNCTION(aclrtDeviceCanAccessPeer, Need::started, (std::int32_t * can, std::int32_t device, std::int32_t peer),
              (can, device, peer)) {
  int from = 0, to = 0;
  FACE_TRY(check_device(device, &from));
  FACE_TRY(check_device(peer, &to));
  FACE_REQUIRE(can != nullptr, kInvalidParam, "bad-argument", "the result is null");
  *can = from != to && settings().fault("no_peer") == nullptr;
  return kSuccess;
}

FACE_FUNCTION(aclrtDeviceEnablePeerAccess, Need::healthy, (std::int32_t peer, std::uint32_t flags), (peer, flags)) {
  FACE_REQUIRE(flags == 0, kParamInvalid, "bad-argument", "the flags must be 0");
  return enable_peer(peer);
}

// ---- errors
// ------------------------------------------------------------------------------------------------------------

FACE_QUESTION(const char*, aclGetRecentErrMsg, (), ()) {
  ThreadState& mine = thread_state();
  if (mine.message.empty()) return nullptr;
  mine.returned = std::move(mine.message);
  mine.message.clear();
  return mine.returned.c_str();
}

FACE_QUESTION(Result, aclrtGetLastError, (int level), (level)) {
  if (level != 0) return kParamInvalid;
  return std::exchange(thread_state().last_error, kSuccess);
}

FACE_QUESTION(Result, aclrtPeekAtLastError, (int level), (level)) {
  return level != 0 ? Result{kParamInvalid} : thread_state().last_error;
}

// ---- memory
// ------------------------------------------------------------------------------------------------------------

FACE_FUNCTION(aclrtGetMemInfo, Need::healthy, (int attribute, std::size_t* free, std::size_t* total),
              (attribute, free, total)) {
  FACE_REQUIRE(attribute >= 0 && attribute <= 11, kParamInvalid, "bad-argument", "unknown attribute");
  FACE_TRY(memory_info(free, total));
  if (attribute != 1) *free = *total = 0;  // all of the simulated memory is HBM
  return kSuccess;
}

FACE_FUNCTION(aclrtMalloc, Need::healthy, (void** pointer, std::size_t bytes, int), (pointer, bytes, 0)) {
  return allocate(MemoryKind::device, pointer, bytes, 64);
}

// Waits for nothing, as the documentation says.
FACE_FUNCTION(aclrtFree, Need::context, (void* pointer), (pointer)) { return release(MemoryKind::device, pointer); }

FACE_FUNCTION(aclrtMallocHost, Need::healthy, (void** pointer, std::size_t bytes), (pointer, bytes)) {
  return allocate(MemoryKind::host, pointer, bytes, 64);
}

FACE_FUNCTION(aclrtFreeHost, Need::context, (void* pointer), (pointer)) { return release(MemoryKind::host, pointer); }

FACE_FUNCTION(aclrtHostRegisterV2, Need::healthy, (void* pointer, std::uint64_t bytes, std::uint32_t),
              (pointer, bytes, 0)) {
  return register_host(pointer, bytes);
}

FACE_FUNCTION(aclrtHostUnregister, Need::context, (void* pointer), (pointer)) { return unregister_host(pointer); }

FACE_FUNCTION(aclrtMemcpy, Need::healthy, (void* to, std::size_t most, const void* from, std::size_t bytes, int kind),
              (to, most, from, bytes, kind)) {
  Direction direction = Direction::any;
  FACE_TRY(check_copy(most, bytes, kind, &direction));
  // The kind is reserved: the pointers say what is copied.
  return copy_now(to, from, bytes, Direction::any);
}

FACE_FUNCTION(aclrtMemcpyAsync, Need::healthy,
              (void* to, std::size_t most, const void* from, std::size_t bytes, int kind, Handle stream),
              (to, most, from, bytes, kind, stream)) {
  Direction direction = Direction::any;
  FACE_TRY(check_copy(most, bytes, kind, &direction));
  return copy_async(to, from, bytes, direction, stream);
}

FACE_FUNCTION(aclrtMemset, Need::healthy, (void* to, std::size_t most, std::int32_t value, std::size_t bytes),
              (to, most, value, bytes)) {
  FACE_REQUIRE(bytes <= most, kParamInvalid, "bad-argument", "the count is greater than the destination's size");
  return fill_now(to, value, bytes);
}

FACE_FUNCTION(aclrtMemsetAsync, Need::healthy,
              (void* to, std::size_t most, std::int32_t value, std::size_t bytes, Handle stream),
              (to, most, value, bytes, stream)) {
  FACE_REQUIRE(bytes <= most, kParamInvalid, "bad-argument", "the count is greater than the destination's size");
  return fill_async(to, value, bytes, stream);
}

// ---- streams
// -----------------------------------------------------------------------------------------------------------

FACE_FUNCTION(aclrtCreateStream, Need::healthy, (Handle * stream), (stream)) { return create_stream(stream); }

// The priority is reserved, and other flags are taken as none.
FACE_FUNCTION(aclrtCreateStreamWithConfig, Need::healthy, (Handle * stream, std::uint32_t, std::uint32_t),
              (stream, 0, 0)) {
  return create_stream(stream);
}

FACE_FUNCTION(aclrtDestroyStream, Need::context, (Handle stream), (stream)) {
  return destroy_stream(stream, Ending::waits);
}

FACE_FUNCTION(aclrtDestroyStreamForce, Need::context, (Handle stream), (stream)) {
  return destroy_stream(stream, Ending::drops);
}

FACE_FUNCTION(aclrtSynchronizeStream, Need::healthy, (Handle stream), (stream)) {
  return wait_for_stream(stream, kForever);
}

FACE_FUNCTION(aclrtSynchronizeStreamWithTimeout, Need::healthy, (Handle stream, std::int32_t milliseconds),
              (stream, milliseconds)) {
  FACE_REQUIRE(milliseconds > 0 || milliseconds == -1, kParamInvalid, "bad-argument",
               "the timeout must be -1 or greater than 0");
  return wait_for_stream(stream, nanoseconds(milliseconds));
}

FACE_FUNCTION(aclrtStreamQuery, Need::healthy, (Handle stream, int* status), (stream, status)) {
  FACE_REQUIRE(status != nullptr, kInvalidParam, "bad-argument", "the result is null");
  const Result result = wait_for_stream(stream, 0);
  *status = result == kSuccess ? kStreamComplete : kStreamNotReady;
  return result == codes().not_ready ? kSuccess : result;
}

FACE_FUNCTION(aclrtStreamWaitEvent, Need::healthy, (Handle stream, Handle event), (stream, event)) {
  return stream_wait_event(stream, event);
}

FACE_FUNCTION(aclrtLaunchHostFunc, Need::healthy, (Handle stream, HostFunction function, void* data),
              (stream, function, data)) {
  return launch_host_function(stream, function, data);
}

// ---- events
// ------------------------------------------------------------------------------------------------------------

FACE_FUNCTION(aclrtCreateEventExWithFlag, Need::healthy, (Handle * event, std::uint32_t flags), (event, flags)) {
  constexpr std::uint32_t known = kEventSync | kEventCaptureStreamProgress | kEventTimeLine;
  FACE_REQUIRE(flags != 0 && (flags & ~known) == 0, kParamInvalid, "bad-argument",
               "no flag, unknown ones, or one that is not simulated: " + std::to_string(flags));
  return create_event(event, {(flags & kEventTimeLine) != 0, (flags & kEventSync) != 0, true});
}

FACE_FUNCTION(aclrtCreateEventWithFlag, Need::healthy, (Handle * event, std::uint32_t flags), (event, flags)) {
  constexpr std::uint32_t known = kEventSync | kEventCaptureStreamProgress | kEventTimeLine;
  FACE_REQUIRE(flags != 0 && (flags & ~known) == 0, kParamInvalid, "bad-argument",
               "no flag, unknown ones, or one that is not simulated: " + std::to_string(flags));
  return create_event(event, {(flags & kEventTimeLine) != 0, (flags & kEventSync) != 0, false});
}

FACE_FUNCTION(aclrtCreateEvent, Need::healthy, (Handle * event), (event)) {
  return create_event(event, {true, true, false});
}

FACE_FUNCTION(aclrtDestroyEvent, Need::context, (Handle event), (event)) { return destroy_event(event); }

FACE_FUNCTION(aclrtRecordEvent, Need::healthy, (Handle event, Handle stream), (event, stream)) {
  return record_event(event, stream);
}

FACE_FUNCTION(aclrtResetEvent, Need::healthy, (Handle event, Handle stream), (event, stream)) {
  return reset_event(event, stream);
}

FACE_FUNCTION(aclrtQueryEventStatus, Need::healthy, (Handle event, int* status), (event, status)) {
  FACE_REQUIRE(status != nullptr, kInvalidParam, "bad-argument", "the result is null");
  const Result result = wait_for_event(event, 0);
  *status = result == kSuccess ? kRecordedComplete : kRecordedNotReady;
  return result == codes().not_ready ? kSuccess : result;
}

FACE_FUNCTION(aclrtSynchronizeEvent, Need::healthy, (Handle event), (event)) { return wait_for_event(event, kForever); }

FACE_FUNCTION(aclrtEventElapsedTime, Need::healthy, (float* milliseconds, Handle start, Handle end),
              (milliseconds, start, end)) {
  const Result result = elapsed_time(milliseconds, start, end);
  return result == codes().not_ready ? Result{kTimestampInvalid} : result;
}

// ---- captures
// ----------------------------------------------------------------------------------------------------------

FACE_FUNCTION(aclmdlRICaptureBegin, Need::healthy, (Handle stream, int mode), (stream, mode)) {
  FACE_REQUIRE(stream != nullptr, kParamInvalid, "bad-argument", "the stream is null");
  return begin_capture(stream, mode);
}

// The model is made when the capture ends: a handle before that is not simulated.
FACE_FUNCTION(aclmdlRICaptureGetInfo, Need::healthy, (Handle stream, int* status, Handle* model),
              (stream, status, model)) {
  FACE_REQUIRE(stream != nullptr && status != nullptr, kParamInvalid, "bad-argument", "stream or status is null");
  if (model != nullptr) return kFeatureNotSupported;
  CaptureStatus found = CaptureStatus::none;
  FACE_TRY(capture_status(stream, &found));
  *status = static_cast<int>(found);
  return kSuccess;
}

// The captured work runs unchanged: there is no step between the capture and the model.
FACE_FUNCTION(aclmdlRICaptureEnd, Need::healthy, (Handle stream, Handle* model), (stream, model)) {
  FACE_REQUIRE(stream != nullptr, kParamInvalid, "bad-argument", "the stream is null");
  Handle graph = nullptr;
  FACE_TRY(end_capture(stream, &graph));
  const Result result = instantiate(model, graph);
  FACE_TRY(destroy_graph(graph));
  return result;
}

FACE_FUNCTION(aclmdlRICaptureThreadExchangeMode, Need::healthy, (int* mode), (mode)) {
  return exchange_capture_mode(mode);
}

FACE_FUNCTION(aclmdlRIExecuteAsync, Need::healthy, (Handle model, Handle stream), (model, stream)) {
  return launch_graph(model, stream);
}

// The runtime waits for a launch that still runs, up to ten seconds.
FACE_FUNCTION(aclmdlRIDestroy, Need::context, (Handle model), (model)) {
  const auto object = get<GraphObject>(model, "model");
  if (object == nullptr) return kInvalidHandle;
  std::shared_ptr<Event> last;
  {
    const std::lock_guard lock(face_lock());
    last = object->runs->last_launch();
  }
  if (last != nullptr) engine().wait(*last, kForever);
  return destroy_graph(model);
}

}  // namespace sim::ascend

extern "C" __attribute__((visibility("default"))) int acl_is_simulator() { return 1; }
