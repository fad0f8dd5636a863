// Implements memory of devices and of the host, copies and fills.
#include <cstring>

#include "simulators/queue_face/queue_face.h"

namespace sim::queue_face {
namespace {

using AllocationPointer = std::shared_ptr<const Allocation>;

// Returns what is wrong with the bytes that a call names, if they are memory that the runtime knows. `*found` is the
// allocation; null for the program's own memory.
Result check_range(const char* what, const void* pointer, std::size_t bytes, AllocationPointer* found) {
  const auto* p = static_cast<const char*>(pointer);
  FACE_REQUIRE(p != nullptr, codes().invalid_argument, "bad-argument", std::string(what) + " is null");
  *found = engine().memory().find(p);
  if (*found == nullptr) {
    FACE_REQUIRE(!engine().memory().owns(p), codes().invalid_argument, "bad-pointer",
                 std::string(what) + " is an address of the runtime's at which there is no memory");
    return kSuccess;
  }
  const Allocation& allocation = **found;
  FACE_REQUIRE(!allocation.freed, codes().invalid_argument, "use-after-free",
               std::string(what) + " is in freed " + allocation.text());
  const Extent extent = engine().memory().extent(allocation, p, kAnyDevice, false);
  FACE_REQUIRE(p >= extent.begin && bytes <= static_cast<std::size_t>(extent.end - p), codes().invalid_argument,
               "out-of-bounds",
               std::to_string(bytes) + " bytes from byte " + std::to_string(p - allocation.pointer) + " of " +
                   allocation.text());
  return kSuccess;
}

bool on_device(const AllocationPointer& allocation) {
  return allocation != nullptr && allocation->kind == MemoryKind::device;
}

struct Copy {
  AllocationPointer to, from;
  bool pageable = false;  // between a device and memory that the runtime does not know
  bool on_host = false;   // both ends
  Node node;
};

Result prepare(void* to, const void* from, std::size_t bytes, Direction direction, Copy* copy) {
  FACE_REQUIRE(bytes > 0, codes().invalid_argument, "bad-argument", "the size is 0");
  FACE_TRY(check_range("the destination", to, bytes, &copy->to));
  FACE_TRY(check_range("the source", from, bytes, &copy->from));
  auto* target = static_cast<char*>(to);
  const auto* origin = static_cast<const char*>(from);
  FACE_REQUIRE(target == origin || target + bytes <= origin || origin + bytes <= target, codes().invalid_argument,
               "bad-argument", "the ranges overlap");
  const bool to_device = on_device(copy->to), from_device = on_device(copy->from);
  const Direction actual = from_device ? (to_device ? Direction::device_to_device : Direction::device_to_host)
                                       : (to_device ? Direction::host_to_device : Direction::host_to_host);
  FACE_REQUIRE(direction == Direction::any || direction == actual, codes().bad_direction, "bad-argument",
               "the copy's direction does not fit its pointers");
  if (to_device && from_device && copy->to->device != copy->from->device) {
    const int a = copy->to->device, b = copy->from->device;
    FACE_REQUIRE(vendor().peers_exist, codes().no_peer, "no-peer-access", "devices do not reach each other");
    FACE_REQUIRE(engine().reaches(a, b) || engine().reaches(b, a), codes().no_peer, "no-peer-access",
                 "access between devices " + std::to_string(a) + " and " + std::to_string(b) + " is not enabled");
  }
  copy->on_host = actual == Direction::host_to_host;
  copy->pageable = !copy->on_host && (copy->to == nullptr || copy->from == nullptr);
  copy->node.what = current_function();
  copy->node.run = [target, origin, bytes](Execution& execution) {
    const char* read = execution.read(origin, bytes, true);
    char* at = execution.write(target, bytes, true);
    if (read != nullptr && at != nullptr) std::memmove(at, read, bytes);
  };
  return kSuccess;
}

// Runs in the order of no stream, and is waited for.
Result run_now(Node node) {
  std::shared_ptr<Stream> direct;
  {
    const std::lock_guard lock(face_lock());
    FACE_TRY(refuse_unsafe());
    direct = thread_state().context->direct;
    Command command;
    command.what = node.what;
    command.run = std::move(node.run);
    FACE_TRY(result_of(direct->submit({std::make_shared<const Command>(std::move(command))})));
  }
  return result_of(direct->wait(kForever));
}

Result prepare_fill(void* to, std::uint32_t value, std::size_t width, std::size_t bytes, Node* node) {
  FACE_REQUIRE(bytes > 0, codes().invalid_argument, "bad-argument", "the size is 0");
  AllocationPointer found;
  FACE_TRY(check_range("the destination", to, bytes, &found));
  FACE_REQUIRE(found != nullptr, codes().invalid_argument, "bad-pointer",
               "the destination is no memory of a device, nor host memory of the runtime");
  node->what = current_function();
  node->run = [to, value, width, bytes](Execution& execution) {
    char* at = execution.write(to, bytes, true);
    if (at == nullptr) return;
    // The lower bytes come first in memory.
    for (std::size_t i = 0; i < bytes; i += width) std::memcpy(at + i, &value, width);
  };
  return kSuccess;
}

}  // namespace

Result allocate(MemoryKind kind, void** pointer, std::size_t bytes, std::size_t alignment) {
  FACE_REQUIRE(pointer != nullptr, codes().invalid_argument, "bad-argument", "the result is null");
  FACE_REQUIRE(bytes > 0, codes().invalid_argument, "bad-argument", "the size is 0");
  const auto context = thread_state().context;
  const bool device = kind == MemoryKind::device;
  AllocationPointer allocation;
  FACE_TRY(result_of(engine().allocate(kind, device ? context->device : -1, device ? context->token : 0, bytes,
                                       alignment, &allocation)));
  *pointer = allocation->pointer;
  return kSuccess;
}

// Any device may be current: whether a vendor minds is not known.
Result release(MemoryKind kind, void* pointer) {
  FACE_REQUIRE(pointer != nullptr, codes().invalid_argument, "bad-argument", "the pointer is null");
  const auto allocation = engine().memory().find(pointer);
  FACE_REQUIRE(allocation == nullptr || (allocation->kind == kind && !allocation->registered), codes().invalid_argument,
               "bad-free", "this function frees another kind of memory");
  return result_of(engine().free(pointer, allocation == nullptr ? 0 : allocation->owner));
}

Result register_host(void* pointer, std::size_t bytes) {
  FACE_REQUIRE(pointer != nullptr && bytes > 0, codes().invalid_argument, "bad-argument",
               "there is nothing to register");
  return engine().memory().adopt(pointer, bytes) == nullptr ? codes().already_registered : kSuccess;
}

Result unregister_host(void* pointer) {
  const auto allocation = engine().memory().find(pointer);
  if (allocation == nullptr || !allocation->registered || allocation->pointer != pointer) {
    return codes().not_registered;
  }
  engine().check_unused(pointer, allocation->size, allocation->text() + " is unregistered");
  engine().forget(pointer, allocation->size);
  engine().memory().disown(*allocation);
  return kSuccess;
}

Result memory_info(std::size_t* free, std::size_t* total) {
  FACE_REQUIRE(free != nullptr && total != nullptr, codes().invalid_argument, "bad-argument", "a result is null");
  *total = settings().memory;
  *free = settings().memory - engine().used(thread_state().context->device);
  return kSuccess;
}

Result copy_now(void* to, const void* from, std::size_t bytes, Direction direction) {
  Copy copy;
  FACE_TRY(prepare(to, from, bytes, direction, &copy));
  return run_now(std::move(copy.node));
}

Result copy_async(void* to, const void* from, std::size_t bytes, Direction direction, Handle stream) {
  Copy copy;
  FACE_TRY(prepare(to, from, bytes, direction, &copy));
  if (copy.on_host && codes().host_to_host != kSuccess) return codes().host_to_host;
  FACE_REQUIRE(!copy.pageable || vendor().pageable != Pageable::refused, codes().not_mapped, "bad-pointer",
               "the host memory is not mapped to the device");
  std::shared_ptr<Stream> wait_for;
  {
    const std::lock_guard lock(face_lock());
    Result bad = kSuccess;
    const auto object = get_stream(stream, &bad);
    if (object == nullptr) return bad;
    if (copy.pageable && vendor().pageable == Pageable::synchronous) {
      FACE_REQUIRE(object->capture == nullptr, codes().capture_pageable, "capture",
                   "a copy of pageable memory on a stream that captures");
      FACE_TRY(refuse_unsafe());
      wait_for = object->stream;
    }
    FACE_TRY(submit(*object, std::move(copy.node)));
  }
  return wait_for == nullptr ? kSuccess : result_of(wait_for->wait(kForever));
}

Result fill_now(void* to, int value, std::size_t bytes) {
  Node node;
  FACE_TRY(prepare_fill(to, static_cast<std::uint32_t>(value), 1, bytes, &node));
  return run_now(std::move(node));
}

Result fill_async(void* to, int value, std::size_t bytes, Handle stream) {
  return fill_elements_async(to, static_cast<std::uint32_t>(value), 1, bytes, stream);
}

Result fill_elements_async(void* to, std::uint32_t value, std::size_t width, std::size_t count, Handle stream) {
  Node node;
  FACE_TRY(prepare_fill(to, value, width, count * width, &node));
  const std::lock_guard lock(face_lock());
  Result bad = kSuccess;
  const auto object = get_stream(stream, &bad);
  return object == nullptr ? bad : submit(*object, std::move(node));
}

}  // namespace sim::queue_face
