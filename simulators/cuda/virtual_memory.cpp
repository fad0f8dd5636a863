// Implements virtual memory: address ranges, memory, and mappings, whose lifetimes are independent.
#include <unistd.h>

#include <cstring>

#include "simulators/cuda/cuda_face.h"

namespace sim::cuda {
namespace {

constexpr std::size_t kGranularity = std::size_t{2} << 20;

Result check_properties(const AllocationProperties* properties, int* device) {
  CUDA_REQUIRE(properties != nullptr, kInvalidValue, "bad-argument", "the properties are null");
  CUDA_REQUIRE(properties->type == 1, kInvalidValue, "bad-argument", "the type of allocation must be 1 (pinned)");
  CUDA_REQUIRE(properties->location.type == 1, kInvalidValue, "bad-argument", "the location must be 1 (a device)");
  *device = device_of(properties->location.id);
  CUDA_REQUIRE(*device >= 0, kInvalidDevice, "bad-argument", "the location is no device");
  if (properties->handle_types != 0 || properties->compression_type != 0) return kNotSupported;
  return kSuccess;
}

// The reservation that holds [pointer, pointer + bytes), all of it multiples of the granularity.
Result find_reservation(DevicePointer pointer, std::size_t bytes, std::shared_ptr<const Allocation>* reservation) {
  CUDA_REQUIRE(bytes > 0 && pointer % kGranularity == 0 && bytes % kGranularity == 0, kInvalidValue, "bad-argument",
               "address and size must be multiples of 2 MiB");
  const char* p = reinterpret_cast<const char*>(pointer);
  auto found = engine().memory().find(p);
  CUDA_REQUIRE(found != nullptr && found->reservation() && !found->freed && p >= found->pointer &&
                   bytes <= static_cast<std::size_t>(found->pointer + found->size - p),
               kInvalidValue, "mapping-state", "the range is in no reservation of addresses");
  *reservation = std::move(found);
  return kSuccess;
}

std::size_t offset_in(const Allocation& reservation, DevicePointer pointer) {
  return static_cast<std::size_t>(reinterpret_cast<const char*>(pointer) - reservation.pointer);
}

// Memory lives while its handle or a mapping does: this is the deleter of the shared ownership.
struct ReleaseMemory {
  std::shared_ptr<const Allocation> memory;
  void operator()(const Allocation*) const { engine().free_unmapped(*memory); }
};

}  // namespace

CUDA_FUNCTION(cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity", 10020, Need::started,
              (std::size_t * bytes, const AllocationProperties* properties, int option), (bytes, properties, option)) {
  int device = 0;
  CUDA_TRY(check_properties(properties, &device));
  CUDA_REQUIRE(bytes != nullptr && (option == 0 || option == 1), kInvalidValue, "bad-argument", "unknown option");
  *bytes = kGranularity;
  return kSuccess;
}

CUDA_FUNCTION(cuMemAddressReserve, "cuMemAddressReserve", 10020, Need::started,
              (DevicePointer * pointer, std::size_t bytes, std::size_t alignment, DevicePointer address,
               std::uint64_t flags),
              (pointer, bytes, alignment, address, flags)) {
  CUDA_REQUIRE(pointer != nullptr && flags == 0, kInvalidValue, "bad-argument", "no result, or flags that are not 0");
  CUDA_REQUIRE(bytes > 0 && bytes % kGranularity == 0, kInvalidValue, "bad-argument",
               "the size must be a multiple of 2 MiB");
  CUDA_REQUIRE((alignment & (alignment - 1)) == 0, kInvalidValue, "bad-argument",
               "the alignment must be a power of two");
  static_cast<void>(address);  // a hint
  const auto reservation = engine().memory().reserve(0, bytes, std::max(alignment, kGranularity));
  if (reservation == nullptr) return kOutOfMemory;
  *pointer = reinterpret_cast<DevicePointer>(reservation->pointer);
  return kSuccess;
}

CUDA_FUNCTION(cuMemAddressFree, "cuMemAddressFree", 10020, Need::started, (DevicePointer pointer, std::size_t bytes),
              (pointer, bytes)) {
  std::shared_ptr<const Allocation> reservation;
  CUDA_TRY(find_reservation(pointer, bytes, &reservation));
  CUDA_REQUIRE(offset_in(*reservation, pointer) == 0 && bytes == reservation->size, kInvalidValue, "mapping-state",
               "only a whole reservation can be freed");
  CUDA_REQUIRE(!engine().memory().has_mappings(*reservation), kInvalidValue, "mapping-state",
               "memory is still mapped to the reservation");
  engine().memory().release_reservation(*reservation);
  return kSuccess;
}

CUDA_FUNCTION(cuMemCreate, "cuMemCreate", 10020, Need::started,
              (std::uint64_t * handle, std::size_t bytes, const AllocationProperties* properties, std::uint64_t flags),
              (handle, bytes, properties, flags)) {
  int device = 0;
  CUDA_TRY(check_properties(properties, &device));
  CUDA_REQUIRE(handle != nullptr && flags == 0, kInvalidValue, "bad-argument", "no result, or flags that are not 0");
  CUDA_REQUIRE(bytes > 0 && bytes % kGranularity == 0, kInvalidValue, "bad-argument",
               "the size must be a multiple of 2 MiB");
  CUDA_TRY(sticky_error(device));
  {
    const std::lock_guard lock(face_lock());
    CUDA_TRY(refuse_unsafe());
  }
  std::shared_ptr<const Allocation> allocation;
  CUDA_TRY(result_of(engine().allocate(MemoryKind::device, device, 0, bytes, kGranularity, &allocation)));
  auto made = std::make_shared<PhysicalMemory>();
  made->device = device;
  const Allocation* raw = allocation.get();
  made->allocation = std::shared_ptr<const Allocation>(raw, ReleaseMemory{std::move(allocation)});
  *handle = reinterpret_cast<std::uint64_t>(handle_of(made, true));
  return kSuccess;
}

CUDA_FUNCTION(cuMemRelease, "cuMemRelease", 10020, Need::started, (std::uint64_t handle), (handle)) {
  const auto memory = get<PhysicalMemory>(reinterpret_cast<Handle>(handle), "handle");
  if (memory == nullptr) return kInvalidValue;
  engine().handles().remove(*memory);
  return kSuccess;
}

CUDA_FUNCTION(cuMemMap, "cuMemMap", 10020, Need::started,
              (DevicePointer pointer, std::size_t bytes, std::size_t offset, std::uint64_t handle, std::uint64_t flags),
              (pointer, bytes, offset, handle, flags)) {
  const auto memory = get<PhysicalMemory>(reinterpret_cast<Handle>(handle), "handle");
  if (memory == nullptr) return kInvalidValue;
  CUDA_REQUIRE(offset == 0 && flags == 0, kInvalidValue, "bad-argument", "offset and flags must be 0");
  CUDA_REQUIRE(bytes == memory->allocation->size, kInvalidValue, "mapping-state", "the size is not that of the memory");
  std::shared_ptr<const Allocation> reservation;
  CUDA_TRY(find_reservation(pointer, bytes, &reservation));
  CUDA_TRY(sticky_error(memory->device));
  CUDA_REQUIRE(engine().memory().map(*reservation, offset_in(*reservation, pointer), memory->allocation), kInvalidValue,
               "mapping-state", "something is mapped there already");
  return kSuccess;
}

CUDA_FUNCTION(cuMemUnmap, "cuMemUnmap", 10020, Need::started, (DevicePointer pointer, std::size_t bytes),
              (pointer, bytes)) {
  std::shared_ptr<const Allocation> reservation;
  CUDA_TRY(find_reservation(pointer, bytes, &reservation));
  const std::size_t offset = offset_in(*reservation, pointer);
  CUDA_REQUIRE(!engine().memory().mapped(*reservation, offset, bytes).empty(), kInvalidValue, "mapping-state",
               "the range is not made of whole mappings");
  {
    const std::lock_guard lock(face_lock());
    CUDA_TRY(refuse_unsafe());
  }
  const char* p = reinterpret_cast<const char*>(pointer);
  engine().check_unused(p, bytes, "a part of " + reservation->text() + " is unmapped");
  engine().forget(p, bytes);
  engine().memory().unmap(*reservation, offset, bytes);
  return kSuccess;
}

CUDA_FUNCTION(cuMemSetAccess, "cuMemSetAccess", 10020, Need::started,
              (DevicePointer pointer, std::size_t bytes, const AccessDescription* descriptions, std::size_t count),
              (pointer, bytes, descriptions, count)) {
  std::shared_ptr<const Allocation> reservation;
  CUDA_TRY(find_reservation(pointer, bytes, &reservation));
  const std::size_t offset = offset_in(*reservation, pointer);
  CUDA_REQUIRE(descriptions != nullptr && count > 0, kInvalidValue, "bad-argument", "no descriptions of access");
  const auto memories = engine().memory().mapped(*reservation, offset, bytes);
  CUDA_REQUIRE(!memories.empty(), kInvalidValue, "mapping-state", "the range is not made of whole mappings");
  for (std::size_t i = 0; i < count; ++i) {
    const AccessDescription& one = descriptions[i];
    const int device = one.location.type == 1 ? device_of(one.location.id) : -1;
    CUDA_REQUIRE(device >= 0, kInvalidDevice, "bad-argument", "the location is no device");
    CUDA_REQUIRE(one.flags == 0 || one.flags == 1 || one.flags == 3, kInvalidValue, "bad-argument", "unknown flags");
    for (const auto& memory : memories) {
      if (device != memory->device && settings().fault("no_peer") != nullptr) return kInvalidDevice;
    }
    engine().memory().set_access(*reservation, offset, bytes, device, (one.flags & 1) != 0, one.flags == 3);
  }
  return kSuccess;
}

}  // namespace sim::cuda
