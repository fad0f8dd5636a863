// Implements devices and their primary contexts, the contexts of threads, and peer access.
#include <pthread.h>

#include <algorithm>
#include <cstring>

#include "simulators/cuda/cuda_face.h"

namespace sim::cuda {

// The state of a thread until it ends. The main thread's outlives the destructors of static objects, which may still
// close devices.
std::vector<std::shared_ptr<Context>>& context_stack() {
  using Stack = std::vector<std::shared_ptr<Context>>;
  static const pthread_key_t key = [] {
    pthread_key_t made = 0;
    ::pthread_key_create(&made, [](void* stack) { delete static_cast<Stack*>(stack); });
    return made;
  }();
  auto* stack = static_cast<Stack*>(::pthread_getspecific(key));
  if (stack == nullptr) {
    stack = new Stack;
    ::pthread_setspecific(key, stack);
  }
  return *stack;
}

std::shared_ptr<Context> current_context() {
  const auto& stack = context_stack();
  return stack.empty() ? nullptr : stack.back();
}

namespace {

Result check_device(Ordinal ordinal, int* device) {
  *device = device_of(ordinal);
  CUDA_REQUIRE(*device >= 0, kInvalidDevice, "bad-argument", "there is no device " + std::to_string(ordinal));
  return kSuccess;
}

// Everything by the numbers of CUdevice_attribute.
int attribute_of(int attribute, int device) {
  const int arch = state().arch;
  switch (attribute) {
    case 1: return kMaxThreads;
    case 2:
    case 3: return kMaxThreads;
    case 4: return 64;
    case 5: return 2147483647;  // most blocks, x
    case 6:
    case 7: return 65535;
    case 8: return kSharedBytes;
    case 10: return kWarpSize;
    case 12: return 65536;  // registers of a block
    case 13: return kClockKilohertz;
    case 16: return kMultiprocessors;
    case 19: return 1;  // maps host memory
    case 31: return 1;  // concurrent kernels
    case 33: return pci_bus(device);
    case 36: return 3201000;  // memory clock, kHz
    case 37: return 6144;     // width of the bus, bits
    case 38: return kCacheBytes;
    case 39: return 2048;  // threads of a multiprocessor
    case 40: return 3;     // copy engines
    case 41: return 1;     // unified addresses
    case 75: return arch / 10;
    case 76: return arch % 10;
    case 78: return 1;  // priorities of streams
    case 81: return shared_bytes_per_multiprocessor(arch);
    case 82: return 65536;  // registers of a multiprocessor
    case 83: return 1;      // managed memory
    case 89: return 1;      // which the host may touch at the same time
    case 90: return 1;
    case 91: return 1;  // registered host memory by its own address
    case 97: return shared_bytes_optin(arch);
    case 99: return 1;  // registers host memory
    case 102: return state().version >= 10020;
    case 110: return state().version >= 11000;
    case 106: return 32;  // blocks of a multiprocessor
    case 111: return arch >= 80 ? kSharedReservedBytes : 0;
    // Not simulated: cooperative launches (95; groups run one after another), pools (115), clusters (120), sharing
    // between processes, and everything about textures.
    default: return 0;
  }
}

}  // namespace

CUDA_FUNCTION(cuDeviceGetCount, "cuDeviceGetCount", 2000, Need::started, (int* count), (count)) {
  CUDA_REQUIRE(count != nullptr, kInvalidValue, "bad-argument", "the result is null");
  *count = static_cast<int>(state().visible.size());
  return kSuccess;
}

CUDA_FUNCTION(cuDeviceGet, "cuDeviceGet", 2000, Need::started, (Ordinal * device, int ordinal), (device, ordinal)) {
  CUDA_REQUIRE(device != nullptr, kInvalidValue, "bad-argument", "the result is null");
  int index = 0;
  CUDA_TRY(check_device(ordinal, &index));
  *device = ordinal;
  return kSuccess;
}

CUDA_FUNCTION(cuDeviceGetName, "cuDeviceGetName", 2000, Need::started, (char* name, int length, Ordinal device),
              (name, length, device)) {
  int index = 0;
  CUDA_TRY(check_device(device, &index));
  CUDA_REQUIRE(name != nullptr && length > 0, kInvalidValue, "bad-argument", "no room for the name");
  const std::string text = device_name(index);
  const std::size_t bytes = std::min(text.size(), static_cast<std::size_t>(length) - 1);
  std::memcpy(name, text.data(), bytes);
  name[bytes] = '\0';
  return kSuccess;
}

static Result get_uuid(UuidBytes* uuid, Ordinal device) {
  int index = 0;
  CUDA_TRY(check_device(device, &index));
  CUDA_REQUIRE(uuid != nullptr, kInvalidValue, "bad-argument", "the result is null");
  const Uuid bytes = device_uuid(index);
  std::copy(bytes.begin(), bytes.end(), uuid->bytes);
  return kSuccess;
}
CUDA_FUNCTION(cuDeviceGetUuid, "cuDeviceGetUuid", 9020, Need::started, (UuidBytes * uuid, Ordinal device),
              (uuid, device)) {
  return get_uuid(uuid, device);
}
CUDA_FUNCTION(cuDeviceGetUuid_v2, "cuDeviceGetUuid", 11040, Need::started, (UuidBytes * uuid, Ordinal device),
              (uuid, device)) {
  return get_uuid(uuid, device);
}

CUDA_FUNCTION(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, Need::started, (std::size_t * bytes, Ordinal device),
              (bytes, device)) {
  int index = 0;
  CUDA_TRY(check_device(device, &index));
  *bytes = settings().memory;
  return kSuccess;
}

CUDA_FUNCTION(cuDeviceGetAttribute, "cuDeviceGetAttribute", 2000, Need::started,
              (int* value, int attribute, Ordinal device), (value, attribute, device)) {
  int index = 0;
  CUDA_TRY(check_device(device, &index));
  CUDA_REQUIRE(value != nullptr, kInvalidValue, "bad-argument", "the result is null");
  CUDA_REQUIRE(attribute >= 1 && attribute < 148, kInvalidValue, "bad-argument",
               "there is no attribute " + std::to_string(attribute));
  *value = attribute_of(attribute, index);
  return kSuccess;
}

CUDA_FUNCTION(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, Need::started,
              (Handle * context, Ordinal device), (context, device)) {
  int index = 0;
  CUDA_TRY(check_device(device, &index));
  CUDA_REQUIRE(context != nullptr, kInvalidValue, "bad-argument", "the result is null");
  if (settings().fault("busy") != nullptr) return kDeviceUnavailable;
  if (engine().device_status(index) == Status::device_lost) return kDeviceUnavailable;
  CUDA_TRY(sticky_error(index));
  const std::lock_guard lock(face_lock());
  auto& primary = state().primary[static_cast<std::size_t>(index)];
  if (primary == nullptr) {
    primary = std::make_shared<Context>(index);
    handle_of(primary, false);
  }
  ++primary->retained;
  *context = reinterpret_cast<Handle>(primary->token);
  return kSuccess;
}

CUDA_FUNCTION(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, Need::started, (Ordinal device),
              (device)) {
  int index = 0;
  CUDA_TRY(check_device(device, &index));
  const std::lock_guard lock(face_lock());
  auto& primary = state().primary[static_cast<std::size_t>(index)];
  CUDA_REQUIRE(primary != nullptr, kInvalidContext, "bad-argument",
               "the primary context of device " + std::to_string(device) + " is released more often than retained");
  if (--primary->retained > 0) return kSuccess;
  destroy_context(*primary);
  primary = nullptr;
  return kSuccess;
}

std::shared_ptr<Context> find_context(Handle handle) {
  std::string problem;
  auto context = engine().handles().get<Context>(handle, &problem);
  if (context == nullptr) refuse(kInvalidContext, "bad-handle", "the context is bad: " + problem);
  return context;
}

CUDA_FUNCTION(cuCtxSetCurrent, "cuCtxSetCurrent", 4000, Need::started, (Handle context), (context)) {
  auto& stack = context_stack();
  if (context == nullptr) {
    if (!stack.empty()) stack.pop_back();
    return kSuccess;
  }
  auto object = find_context(context);
  if (object == nullptr) return kInvalidContext;
  if (stack.empty()) stack.emplace_back();
  stack.back() = std::move(object);
  return kSuccess;
}

CUDA_FUNCTION(cuCtxPushCurrent_v2, "cuCtxPushCurrent", 4000, Need::started, (Handle context), (context)) {
  auto object = find_context(context);
  if (object == nullptr) return kInvalidContext;
  context_stack().push_back(std::move(object));
  return kSuccess;
}

CUDA_FUNCTION(cuCtxPopCurrent_v2, "cuCtxPopCurrent", 4000, Need::started, (Handle * context), (context)) {
  auto& stack = context_stack();
  CUDA_REQUIRE(!stack.empty(), kInvalidContext, "no-context", "the thread has no current context");
  if (context != nullptr) *context = reinterpret_cast<Handle>(stack.back()->token);
  stack.pop_back();
  return kSuccess;
}

CUDA_FUNCTION(cuCtxGetCurrent, "cuCtxGetCurrent", 4000, Need::started, (Handle * context), (context)) {
  CUDA_REQUIRE(context != nullptr, kInvalidValue, "bad-argument", "the result is null");
  const auto current = current_context();
  *context = current == nullptr ? nullptr : reinterpret_cast<Handle>(current->token);
  return kSuccess;
}

CUDA_FUNCTION(cuCtxGetDevice, "cuCtxGetDevice", 2000, Need::context, (Ordinal * device), (device)) {
  CUDA_REQUIRE(device != nullptr, kInvalidValue, "bad-argument", "the result is null");
  *device = ordinal_of(current_context()->device);
  return kSuccess;
}

CUDA_FUNCTION(cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange", 5050, Need::healthy,
              (int* least, int* greatest), (least, greatest)) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return kSuccess;
}

Result wait_for_context(Context& context) {
  std::vector<std::shared_ptr<Stream>> busy;
  {
    const std::lock_guard lock(face_lock());
    for (const auto& stream : streams_of(context)) busy.push_back(stream->stream);
    busy.insert(busy.end(), context.closing.begin(), context.closing.end());
  }
  Result result = kSuccess;
  for (const auto& stream : busy) {
    const Result one = result_of(stream->wait(kForever));
    if (result == kSuccess) result = one;
  }
  return result;
}

CUDA_FUNCTION(cuCtxSynchronize, "cuCtxSynchronize", 2000, Need::healthy, (), ()) {
  const auto context = current_context();
  {
    const std::lock_guard lock(face_lock());
    for (const auto& stream : streams_of(*context)) CUDA_TRY(refuse_capture(*stream, "a wait for the whole context"));
    CUDA_TRY(refuse_unsafe());
  }
  return wait_for_context(*context);
}

CUDA_FUNCTION(cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", 4000, Need::started,
              (int* can, Ordinal device, Ordinal peer), (can, device, peer)) {
  int from = 0, to = 0;
  CUDA_TRY(check_device(device, &from));
  CUDA_TRY(check_device(peer, &to));
  CUDA_REQUIRE(can != nullptr, kInvalidValue, "bad-argument", "the result is null");
  *can = from != to && settings().fault("no_peer") == nullptr;
  return kSuccess;
}

CUDA_FUNCTION(cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess", 4000, Need::healthy, (Handle peer, unsigned flags),
              (peer, flags)) {
  CUDA_REQUIRE(flags == 0, kInvalidValue, "bad-argument", "the flags must be 0");
  const auto other = find_context(peer);
  if (other == nullptr) return kInvalidContext;
  const auto context = current_context();
  CUDA_REQUIRE(other != context, kInvalidContext, "bad-argument", "the peer is the current context itself");
  if (settings().fault("no_peer") != nullptr) return kPeerAccessUnsupported;
  const std::lock_guard lock(face_lock());
  if (!context->peers.insert(other->device).second) return kPeerAccessAlreadyEnabled;
  engine().allow_peer(context->device, other->device, true);
  return kSuccess;
}

CUDA_FUNCTION(cuCtxDisablePeerAccess, "cuCtxDisablePeerAccess", 4000, Need::healthy, (Handle peer), (peer)) {
  const auto other = find_context(peer);
  if (other == nullptr) return kInvalidContext;
  const auto context = current_context();
  const std::lock_guard lock(face_lock());
  if (context->peers.erase(other->device) == 0) return kPeerAccessNotEnabled;
  engine().allow_peer(context->device, other->device, false);
  return kSuccess;
}

}  // namespace sim::cuda
