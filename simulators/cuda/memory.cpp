// Implements memory of devices and of the host, pointer attributes, copies and fills.
#include <cstring>
#include <tuple>

#include "simulators/cuda/cuda_face.h"

namespace sim::cuda {

Result check_range(const char* what, DevicePointer pointer, std::size_t bytes,
                   std::shared_ptr<const Allocation>* found) {
  const char* p = reinterpret_cast<const char*>(pointer);
  const auto allocation = engine().memory().find(p);
  *found = allocation;
  CUDA_REQUIRE(p != nullptr, kInvalidValue, "bad-argument", std::string(what) + " is null");
  if (allocation == nullptr) {
    CUDA_REQUIRE(!engine().memory().owns(p), kInvalidValue, "bad-pointer",
                 std::string(what) + " is an address of the driver's at which there is no memory");
    return kSuccess;
  }
  CUDA_REQUIRE(!allocation->freed, kInvalidValue, "use-after-free",
               std::string(what) + " is in freed " + allocation->text());
  const Extent extent = engine().memory().extent(*allocation, p, kAnyDevice, false);
  CUDA_REQUIRE(p >= extent.begin && bytes <= static_cast<std::size_t>(extent.end - p), kInvalidValue, "out-of-bounds",
               std::to_string(bytes) + " bytes from byte " + std::to_string(p - allocation->pointer) + " of " +
                   allocation->text() + extent.why);
  return kSuccess;
}

namespace {

bool pageable(const std::shared_ptr<const Allocation>& allocation) { return allocation == nullptr; }

Result allocate(MemoryKind kind, int device, std::uint64_t owner, std::size_t bytes, void** pointer) {
  CUDA_REQUIRE(pointer != nullptr, kInvalidValue, "bad-argument", "the result is null");
  CUDA_REQUIRE(bytes > 0, kInvalidValue, "bad-argument", "the size is 0");
  {
    const std::lock_guard lock(face_lock());
    CUDA_TRY(refuse_unsafe());
  }
  std::shared_ptr<const Allocation> allocation;
  CUDA_TRY(result_of(engine().allocate(kind, device, owner, bytes, 256, &allocation)));
  *pointer = allocation->pointer;
  return kSuccess;
}

}  // namespace

CUDA_FUNCTION(cuMemGetInfo_v2, "cuMemGetInfo", 3020, Need::healthy, (std::size_t * free, std::size_t* total),
              (free, total)) {
  CUDA_REQUIRE(free != nullptr && total != nullptr, kInvalidValue, "bad-argument", "a result is null");
  *total = settings().memory;
  *free = settings().memory - engine().used(current_context()->device);
  return kSuccess;
}

CUDA_FUNCTION(cuMemAlloc_v2, "cuMemAlloc", 3020, Need::healthy, (DevicePointer * pointer, std::size_t bytes),
              (pointer, bytes)) {
  const auto context = current_context();
  return allocate(MemoryKind::device, context->device, context->token, bytes, reinterpret_cast<void**>(pointer));
}

CUDA_FUNCTION(cuMemAllocManaged, "cuMemAllocManaged", 6000, Need::healthy,
              (DevicePointer * pointer, std::size_t bytes, unsigned flags), (pointer, bytes, flags)) {
  CUDA_REQUIRE(flags == 1 || flags == 2, kInvalidValue, "bad-argument", "the flags must be 1 (global) or 2 (host)");
  const auto context = current_context();
  return allocate(MemoryKind::shared, context->device, context->token, bytes, reinterpret_cast<void**>(pointer));
}

// Frees memory after all work of the context has ended, as the real functions do; a program that must not wait for other
// streams hangs here too. A program that counts on the wait is slow and breaks in a capture, so memory that is still in
// use when the call begins is reported.
static Result free_memory(void* pointer, std::uint64_t owner) {
  {
    const std::lock_guard lock(face_lock());
    CUDA_TRY(refuse_unsafe());
  }
  const auto allocation = engine().memory().find(pointer);
  if (allocation != nullptr && allocation->pointer == pointer && !allocation->freed && allocation->owner == owner) {
    const auto context = current_context();
    if (sticky_error(context->device) == kSuccess) {
      engine().check_unused(pointer, allocation->size, allocation->text() + " is freed");
    }
    static_cast<void>(wait_for_context(*context));  // Call::end gives the error of a device that has failed
  }
  return result_of(engine().free(pointer, owner));
}

CUDA_FUNCTION(cuMemFree_v2, "cuMemFree", 3020, Need::healthy_at_end, (DevicePointer pointer), (pointer)) {
  return free_memory(reinterpret_cast<void*>(pointer), current_context()->token);
}

CUDA_FUNCTION(cuMemHostAlloc, "cuMemHostAlloc", 2020, Need::healthy,
              (void** pointer, std::size_t bytes, unsigned flags), (pointer, bytes, flags)) {
  CUDA_REQUIRE(flags <= 7, kInvalidValue, "bad-argument", "unknown flags");
  return allocate(MemoryKind::host, -1, 0, bytes, pointer);
}

CUDA_FUNCTION(cuMemFreeHost, "cuMemFreeHost", 2000, Need::healthy_at_end, (void* pointer), (pointer)) {
  const auto allocation = engine().memory().find(pointer);
  CUDA_REQUIRE(allocation == nullptr || !allocation->registered, kInvalidValue, "bad-free",
               "registered memory is the program's own");
  return free_memory(pointer, 0);
}

CUDA_FUNCTION(cuMemHostRegister_v2, "cuMemHostRegister", 6050, Need::healthy,
              (void* pointer, std::size_t bytes, unsigned flags), (pointer, bytes, flags)) {
  CUDA_REQUIRE(pointer != nullptr && bytes > 0, kInvalidValue, "bad-argument", "there is nothing to register");
  CUDA_REQUIRE(flags <= 15, kInvalidValue, "bad-argument", "unknown flags");
  if (flags >= 4) return kNotSupported;  // memory of another device, or read-only
  const std::lock_guard lock(face_lock());
  CUDA_TRY(refuse_unsafe());
  return engine().memory().adopt(pointer, bytes) == nullptr ? kHostMemoryAlreadyRegistered : kSuccess;
}

CUDA_FUNCTION(cuMemHostUnregister, "cuMemHostUnregister", 4000, Need::healthy_at_end, (void* pointer), (pointer)) {
  const std::lock_guard lock(face_lock());
  CUDA_TRY(refuse_unsafe());
  const auto allocation = engine().memory().find(pointer);
  if (allocation == nullptr || !allocation->registered || allocation->pointer != pointer) {
    return kHostMemoryNotRegistered;
  }
  engine().check_unused(pointer, allocation->size, allocation->text() + " is unregistered");
  engine().forget(pointer, allocation->size);
  engine().memory().disown(*allocation);
  return kSuccess;
}

// CUpointer_attribute.
CUDA_FUNCTION(cuPointerGetAttribute, "cuPointerGetAttribute", 4000, Need::healthy,
              (void* data, int attribute, DevicePointer pointer), (data, attribute, pointer)) {
  CUDA_REQUIRE(data != nullptr, kInvalidValue, "bad-argument", "the result is null");
  const char* p = reinterpret_cast<const char*>(pointer);
  const auto allocation = engine().memory().find(p);
  const auto put = [&](auto value) {
    std::memcpy(data, &value, sizeof value);
    return kSuccess;
  };
  if (allocation == nullptr || allocation->freed || p < allocation->pointer ||
      p >= allocation->pointer + allocation->size) {
    return kInvalidValue;  // not the driver's: a question that may be asked
  }
  const Extent extent = engine().memory().extent(*allocation, p, kAnyDevice, false);
  int device = allocation->device;
  if (allocation->reservation()) {
    if (extent.begin == extent.end) return kInvalidValue;
    const auto offset = static_cast<std::size_t>(p - allocation->pointer);
    device = engine().memory().device_at(*allocation, offset);
  }
  const bool host = allocation->kind == MemoryKind::host;
  switch (attribute) {
    case 1: return put(host || allocation->reservation() ? std::uint64_t{0} : allocation->owner);
    case 2: return put(unsigned{host ? 1u : 2u});
    case 3: return put(pointer);
    case 4: return allocation->kind == MemoryKind::device ? kInvalidValue : put(pointer);
    case 7: return put(std::uint64_t{allocation->id});
    case 8: return put(unsigned{allocation->kind == MemoryKind::shared});
    case 9: return put(host ? ordinal_of(current_context()->device) : ordinal_of(device));
    case 11: return put(reinterpret_cast<DevicePointer>(extent.begin));
    case 12: return put(static_cast<std::size_t>(extent.end - extent.begin));
    case 13: return put(true);
    default: return kNotSupported;
  }
}

// ---- copies
// ------------------------------------------------------------------------------------------------------------

// The kinds are the pointers' own: memory that the driver does not know is the program's pageable memory. From there
// bytes are taken before the call returns; to there the copy has ended when the call returns.
static Result copy(DevicePointer destination, DevicePointer source, std::size_t bytes, Handle stream) {
  std::shared_ptr<const Allocation> to, from;
  if (bytes == 0) return kSuccess;
  CUDA_TRY(check_range("the destination", destination, bytes, &to));
  CUDA_TRY(check_range("the source", source, bytes, &from));
  CUDA_REQUIRE(destination == source || destination + bytes <= source || source + bytes <= destination, kInvalidValue,
               "bad-argument", "the ranges overlap");
  std::shared_ptr<Stream> wait_for;
  {
    const std::lock_guard lock(face_lock());
    const auto object = get_stream(stream);
    if (object == nullptr) return kInvalidHandle;
    // A captured copy reads and writes the host's memory at every replay, pageable memory too.
    const bool captures = object->capture != nullptr;
    Node node;
    node.what = current_function();
    auto* target = reinterpret_cast<char*>(destination);
    const auto* origin = reinterpret_cast<const char*>(source);
    if (pageable(from) && !pageable(to) && !captures) {
      std::vector<char> staged(origin, origin + bytes);
      node.run = [target, staged = std::move(staged)](Execution& execution) {
        char* at = execution.write(target, staged.size(), true);
        if (at != nullptr) std::memcpy(at, staged.data(), staged.size());
      };
    } else {
      node.run = [target, origin, bytes](Execution& execution) {
        const char* read = execution.read(origin, bytes, true);
        char* at = execution.write(target, bytes, true);
        if (read != nullptr && at != nullptr) std::memmove(at, read, bytes);
      };
    }
    CUDA_TRY(submit(*object, std::move(node)));
    if (pageable(to) && !captures) wait_for = object->stream;
  }
  return wait_for == nullptr ? kSuccess : result_of(wait_for->wait(kForever));
}

CUDA_FUNCTION(cuMemcpyAsync, "cuMemcpyAsync", 4000, Need::healthy,
              (DevicePointer destination, DevicePointer source, std::size_t bytes, Handle stream),
              (destination, source, bytes, stream)) {
  return copy(destination, source, bytes, stream);
}

CUDA_FUNCTION(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", 3020, Need::healthy,
              (DevicePointer destination, const void* source, std::size_t bytes, Handle stream),
              (destination, source, bytes, stream)) {
  const auto to = engine().memory().find(reinterpret_cast<void*>(destination));
  const auto from = engine().memory().find(source);
  CUDA_REQUIRE(to != nullptr && to->kind != MemoryKind::host, kInvalidValue, "bad-pointer",
               "the destination is no memory of a device");
  CUDA_REQUIRE(from == nullptr || from->kind != MemoryKind::device, kInvalidValue, "bad-pointer",
               "the source is memory of a device");
  return copy(destination, reinterpret_cast<DevicePointer>(source), bytes, stream);
}

CUDA_FUNCTION(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", 3020, Need::healthy,
              (void* destination, DevicePointer source, std::size_t bytes, Handle stream),
              (destination, source, bytes, stream)) {
  const auto to = engine().memory().find(destination);
  const auto from = engine().memory().find(reinterpret_cast<void*>(source));
  CUDA_REQUIRE(to == nullptr || to->kind != MemoryKind::device, kInvalidValue, "bad-pointer",
               "the destination is memory of a device");
  CUDA_REQUIRE(from != nullptr && from->kind != MemoryKind::host, kInvalidValue, "bad-pointer",
               "the source is no memory of a device");
  return copy(reinterpret_cast<DevicePointer>(destination), source, bytes, stream);
}

CUDA_FUNCTION(cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", 3020, Need::healthy,
              (DevicePointer destination, DevicePointer source, std::size_t bytes, Handle stream),
              (destination, source, bytes, stream)) {
  for (const DevicePointer pointer : {destination, source}) {
    const auto allocation = engine().memory().find(reinterpret_cast<void*>(pointer));
    CUDA_REQUIRE(allocation != nullptr && allocation->kind != MemoryKind::host, kInvalidValue, "bad-pointer",
                 "a pointer is no memory of a device");
  }
  return copy(destination, source, bytes, stream);
}

// The contexts say which devices the two ranges are of.
CUDA_FUNCTION(cuMemcpyPeerAsync, "cuMemcpyPeerAsync", 4000, Need::healthy,
              (DevicePointer destination, Handle destination_context, DevicePointer source, Handle source_context,
               std::size_t bytes, Handle stream),
              (destination, destination_context, source, source_context, bytes, stream)) {
  const auto device_of = [](const char* p, const Allocation& allocation) {
    if (!allocation.reservation()) return allocation.device;
    const Extent extent = engine().memory().extent(allocation, p, kAnyDevice, false);
    if (extent.begin == extent.end) return -1;
    return engine().memory().device_at(allocation, static_cast<std::size_t>(p - allocation.pointer));
  };
  for (const auto& [pointer, handle, what] :
       {std::tuple(destination, destination_context, "destination"), std::tuple(source, source_context, "source")}) {
    const auto context = find_context(handle);
    if (context == nullptr) return kInvalidContext;
    const auto* p = reinterpret_cast<const char*>(pointer);
    const auto allocation = engine().memory().find(p);
    CUDA_REQUIRE(allocation != nullptr && allocation->kind != MemoryKind::host, kInvalidValue, "bad-pointer",
                 std::string("the ") + what + " is no memory of a device");
    CUDA_REQUIRE(allocation->kind == MemoryKind::shared || device_of(p, *allocation) == context->device, kInvalidValue,
                 "bad-pointer", std::string("the ") + what + " is no memory of the device whose context is given");
  }
  return copy(destination, source, bytes, stream);
}

// ---- fills
// -------------------------------------------------------------------------------------------------------------

template <typename T>
static Result fill(DevicePointer destination, T value, std::size_t pitch, std::size_t width, std::size_t height,
                   Handle stream) {
  CUDA_REQUIRE(destination % sizeof(T) == 0, kInvalidValue, "bad-argument",
               "the destination is not aligned to the element of " + std::to_string(sizeof(T)) + " bytes");
  if (width == 0 || height == 0) return kSuccess;
  CUDA_REQUIRE(height == 1 || (pitch % sizeof(T) == 0 && pitch >= width * sizeof(T)), kInvalidValue, "bad-argument",
               "the pitch is smaller than a row, or no multiple of an element");
  std::shared_ptr<const Allocation> to;
  CUDA_TRY(check_range("the destination", destination, (height - 1) * pitch + width * sizeof(T), &to));
  CUDA_REQUIRE(!pageable(to), kInvalidValue, "bad-pointer", "the destination is no memory that a device reaches");
  const std::lock_guard lock(face_lock());
  const auto object = get_stream(stream);
  if (object == nullptr) return kInvalidHandle;
  Node node;
  node.what = current_function();
  node.run = [destination, value, pitch, width, height](Execution& execution) {
    for (std::size_t row = 0; row < height; ++row) {
      char* at = execution.write(reinterpret_cast<char*>(destination + row * pitch), width * sizeof(T));
      if (at == nullptr) return;
      if constexpr (sizeof(T) == 1) {
        std::memset(at, value, width);
      } else {
        for (std::size_t i = 0; i < width; ++i) std::memcpy(at + i * sizeof(T), &value, sizeof(T));
      }
    }
  };
  return submit(*object, std::move(node));
}

CUDA_FUNCTION(cuMemsetD8Async, "cuMemsetD8Async", 3020, Need::healthy,
              (DevicePointer destination, unsigned char value, std::size_t count, Handle stream),
              (destination, value, count, stream)) {
  return fill(destination, value, 0, count, 1, stream);
}

CUDA_FUNCTION(cuMemsetD16Async, "cuMemsetD16Async", 3020, Need::healthy,
              (DevicePointer destination, unsigned short value, std::size_t count, Handle stream),
              (destination, value, count, stream)) {
  return fill(destination, value, 0, count, 1, stream);
}

CUDA_FUNCTION(cuMemsetD32Async, "cuMemsetD32Async", 3020, Need::healthy,
              (DevicePointer destination, unsigned value, std::size_t count, Handle stream),
              (destination, value, count, stream)) {
  return fill(destination, value, 0, count, 1, stream);
}

CUDA_FUNCTION(cuMemsetD2D32Async, "cuMemsetD2D32Async", 3020, Need::healthy,
              (DevicePointer destination, std::size_t pitch, unsigned value, std::size_t width, std::size_t height,
               Handle stream),
              (destination, pitch, value, width, height, stream)) {
  return fill(destination, value, pitch, width, height, stream);
}

}  // namespace sim::cuda
