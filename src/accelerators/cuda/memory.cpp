// Implements memory.h: device memory and page-locked host memory, and a registry of all ranges.
#include "accelerators/cuda/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

namespace anyaccel::cuda {
namespace {

constexpr int location_device = 1, allocation_pinned = 1, access_read_write = 3;
constexpr Result error_operating_system = 304;
constexpr unsigned pointer_type_host = 1, pointer_type_device = 2;

enum class Origin {
  allocated,        // cuMemAlloc
  mapped,           // cuMemCreate and cuMemMap
  managed,          // cuMemAllocManaged
  host_allocated,   // cuMemHostAlloc
  registered,       // the caller's memory
  host_registered,  // our own pages
};

struct Range {
  size_t size;  // bytes, as rounded
  Origin origin;
  const DeviceState* device;  // whose call it was
};

int32_t kind_of(Origin origin) {
  switch (origin) {
    case Origin::allocated:
    case Origin::mapped: return AA_MEMORY_DEVICE;
    case Origin::managed: return AA_MEMORY_MANAGED;
    default: return AA_MEMORY_PINNED;
  }
}

// Returns the address at which kernels reach a byte of registered host memory; null if they cannot.
void* mapped_address(const DeviceState& device, const void* pointer) {
  device.bind_surely();
  const RelaxedCaptureMode relaxed(device.api());
  DevicePointer address = 0;
  const Result result =
      device.api().pointer_attribute(&address, pointer_device_pointer, reinterpret_cast<DevicePointer>(pointer));
  return result == success ? reinterpret_cast<void*>(address) : nullptr;
}

// All ranges and open devices of the process. Only raw allocations pass here, a few for each segment of the caching
// allocator, so a map under a lock is fine.
struct Registry {
  std::shared_mutex mutex;
  std::map<uintptr_t, Range> ranges;
  std::vector<DeviceState*> devices;
};
Registry& registry() {
  static auto* all = new Registry();
  return *all;
}

void remember(const void* pointer, const Range& range) {
  Registry& all = registry();
  const std::unique_lock lock(all.mutex);
  all.ranges[reinterpret_cast<uintptr_t>(pointer)] = range;
}

// Removes the range that begins at `pointer` from the registry, if it is of the kind.
std::optional<Range> forget(const void* pointer, int32_t kind, bool registered) {
  Registry& all = registry();
  const std::unique_lock lock(all.mutex);
  const auto found = all.ranges.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == all.ranges.end() || kind_of(found->second.origin) != kind ||
      (found->second.origin == Origin::registered) != registered) {
    return std::nullopt;
  }
  const Range range = found->second;
  all.ranges.erase(found);
  return range;
}

size_t round_up(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

bool reaches(const DeviceState& from, const DeviceState& to) {
  if (!from.api().has_peer || from.facts().ordinal == to.facts().ordinal) return false;
  int can = 0;
  return from.api().can_access_peer(&can, from.facts().ordinal, to.facts().ordinal) == success && can != 0;
}

AllocationProperties properties_of(const DeviceFacts& facts) {
  AllocationProperties properties{};
  properties.type = allocation_pinned;
  properties.location = {location_device, facts.ordinal};
  properties.gpu_direct_rdma_capable = facts.virtual_memory_rdma;
  return properties;
}

// The memory of a lost device was freed with its context; address ranges and host memory were not. The vendor's errors
// are ignored.
void release_lost(const DeviceState& device, const Range& range, void* pointer) {
  const Api& api = device.api();
  const auto address = reinterpret_cast<DevicePointer>(pointer);
  ContextHandle current = nullptr;
  const bool bound = api.context_get_current(&current) == success && current == device.context();
  switch (range.origin) {
    case Origin::mapped:
      api.memory_unmap(address, range.size);
      api.address_free(address, range.size);
      break;
    case Origin::host_allocated:
      if (bound) api.host_free(pointer);
      break;
    case Origin::host_registered:
      if (bound) api.host_unregister(pointer);
      munmap(pointer, range.size);
      break;
    case Origin::allocated:
    case Origin::managed:
    case Origin::registered: break;
  }
}

}  // namespace

int32_t numa_node_of(const std::string& pci_bus_id) {
  std::string address = pci_bus_id;
  std::transform(address.begin(), address.end(), address.begin(),
                 [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c; });
  std::ifstream stream("/sys/bus/pci/devices/" + address + "/numa_node");
  int32_t node = -1;
  return !address.empty() && stream >> node ? node : -1;
}

DeviceMemory::DeviceMemory(DeviceState& device) : device_(device) {
  if (device.facts().virtual_memory && device.api().has_virtual_memory) {
    const AllocationProperties properties = properties_of(device.facts());
    size_t granularity = 0;
    if (device.api().allocation_granularity(&granularity, &properties, 0) == success) granularity_ = granularity;
  }
  reach_peers();
}

DeviceMemory::~DeviceMemory() {
  Registry& all = registry();
  const std::unique_lock lock(all.mutex);
  std::erase(all.devices, &device_);
  // Memory that the host has not freed was freed with the context.
  std::erase_if(all.ranges, [this](const auto& entry) { return entry.second.device == &device_; });
}

// ---- peers -----------------------------------------------------------------------------------------------------------

// Lets `other` use memory of this device.
void DeviceMemory::grant(DevicePointer pointer, size_t size, const DeviceState& other) {
  const AccessDescription access{{location_device, other.facts().ordinal}, access_read_write};
  // Without access, copies between the two are staged through the host.
  device_.api().memory_set_access(pointer, size, &access, 1);
}

// Enables access between a newly opened device and those open already, in both directions, so that copies between them
// are direct. Does nothing if it is the only one.
void DeviceMemory::reach_peers() {
  Registry& all = registry();
  const std::unique_lock lock(all.mutex);
  for (DeviceState* other : all.devices) {
    if (other->lost()) continue;
    if (reaches(*other, device_)) {
      other->bind_surely();
      device_.api().enable_peer_access(device_.context(), 0);
    }
    if (reaches(device_, *other)) {
      device_.bind_surely();
      device_.api().enable_peer_access(other->context(), 0);
      for (const auto& [base, range] : all.ranges) {
        if (range.device == other && range.origin == Origin::mapped) {
          other->memory().grant(base, range.size, device_);
        }
      }
    }
  }
  all.devices.push_back(&device_);
  device_.bind_surely();
}

// ---- device memory ---------------------------------------------------------------------------------------------------

void DeviceMemory::exhausted(const char* call, Result result, size_t size) {
  int64_t free = 0, total = 0;
  std::string text = device_.label() + " has no " + std::to_string(size) + " bytes of memory left";
  if (result != success) text += std::string(": ") + call + " gave " + result_text(device_.api(), result);
  try {
    info(free, total);
    text += "; " + std::to_string(free) + " of " + std::to_string(total) + " bytes are free";
  } catch (const abi::Failure&) {
    // The counters are informational only.
  }
  text += ", this process holds " + std::to_string(used_.load());
  if (device_.facts().shares > 1) {
    text += " (the device is one of " + std::to_string(device_.facts().shares) + " shares of a GPU, see " +
            device_count_variable + ")";
  }
  throw abi::Failure(AA_RESOURCE_EXHAUSTED, text, result);
}

// A virtual device may not take more than its share; others would find less than they were promised.
void DeviceMemory::take_share(size_t bytes) {
  const size_t before = used_.fetch_add(bytes);
  if (bytes <= device_.facts().total_memory &&
      (device_.facts().shares == 1 || before <= device_.facts().total_memory - bytes)) {
    return;
  }
  used_ -= bytes;
  exhausted("", success, bytes);
}

DevicePointer DeviceMemory::map_device(size_t size, Result& result, const char*& call) {
  const Api& api = device_.api();
  const AllocationProperties properties = properties_of(device_.facts());
  DevicePointer pointer = 0;
  call = "cuMemAddressReserve";
  result = api.address_reserve(&pointer, size, 0, 0, 0);
  if (result != success) return 0;
  AllocationHandle memory = 0;
  call = "cuMemCreate";
  result = api.allocation_create(&memory, size, &properties, 0);
  if (result == success) {
    call = "cuMemMap";
    result = api.memory_map(pointer, size, 0, memory, 0);
    const bool mapped = result == success;
    if (mapped) {
      call = "cuMemSetAccess";
      const AccessDescription access{properties.location, access_read_write};
      result = api.memory_set_access(pointer, size, &access, 1);
    }
    // The mapping keeps the memory from here on.
    api.allocation_release(memory);
    if (mapped && result != success) api.memory_unmap(pointer, size);
  }
  if (result != success) {
    api.address_free(pointer, size);
    return 0;
  }
  return pointer;
}

void* DeviceMemory::allocate_device(size_t size) {
  const bool mapped = granularity_ != 0 && size >= granularity_;
  // A size near the end of the numbers must not wrap round.
  if (size > device_.facts().total_memory) exhausted("", success, size);
  const size_t rounded = round_up(size, mapped ? granularity_ : memory_alignment);
  take_share(rounded);
  Result result = success;
  const char* call = "cuMemAlloc";
  DevicePointer pointer = 0;
  if (mapped) {
    pointer = map_device(rounded, result, call);
  } else {
    result = device_.api().memory_alloc(&pointer, rounded);
  }
  if (result != success) {
    used_ -= rounded;
    if (result == error_out_of_memory) exhausted(call, result, size);
    device_.check(result, call);
  }
  Registry& all = registry();
  const std::unique_lock lock(all.mutex);
  for (const DeviceState* other : all.devices) {
    if (mapped && other != &device_ && reaches(*other, device_)) grant(pointer, rounded, *other);
  }
  all.ranges[pointer] = {rounded, mapped ? Origin::mapped : Origin::allocated, &device_};
  return reinterpret_cast<void*>(pointer);
}

void* DeviceMemory::allocate(int32_t kind, size_t size) {
  device_.bind_surely();
  const Api& api = device_.api();
  const RelaxedCaptureMode relaxed(api);
  if (kind == AA_MEMORY_DEVICE) return allocate_device(size);
  if (kind == AA_MEMORY_PINNED) {
    void* pointer = nullptr;
    const Result result = api.host_alloc(&pointer, size, host_alloc_portable);
    refuse_failed_lock(result, "cuMemHostAlloc", size);
    remember(pointer, {size, Origin::host_allocated, &device_});
    return pointer;
  }
  if (kind == AA_MEMORY_MANAGED && device_.facts().managed_memory) {
    DevicePointer pointer = 0;
    const Result result = api.memory_alloc_managed(&pointer, size, mem_attach_global);
    if (result == error_out_of_memory) exhausted("cuMemAllocManaged", result, size);
    device_.check(result, "cuMemAllocManaged");
    remember(reinterpret_cast<void*>(pointer), {size, Origin::managed, &device_});
    return reinterpret_cast<void*>(pointer);
  }
  throw abi::Failure(AA_UNIMPLEMENTED, device_.label() + " has no memory of kind " + std::to_string(kind));
}

void DeviceMemory::free(int32_t kind, void* pointer) {
  if (is_forked_child()) device_.usable();
  const std::optional<Range> range = forget(pointer, kind, false);
  if (!range) {
    throw abi::Failure(AA_INVALID_ARGUMENT, device_.label() + ": memory of kind " + std::to_string(kind) +
                                                " was to be freed that mem_alloc never gave, or that was freed before");
  }
  if (kind == AA_MEMORY_DEVICE) used_ -= range->size;
  if (device_.lost()) return release_lost(device_, *range, pointer);
  device_.bind_surely();
  const Api& api = device_.api();
  const RelaxedCaptureMode relaxed(api);
  const auto address = reinterpret_cast<DevicePointer>(pointer);
  switch (range->origin) {
    case Origin::mapped:
      device_.check(api.memory_unmap(address, range->size), "cuMemUnmap");
      device_.check(api.address_free(address, range->size), "cuMemAddressFree");
      break;
    case Origin::allocated:
    case Origin::managed: device_.check(api.memory_free(address), "cuMemFree"); break;
    case Origin::host_allocated: device_.check(api.host_free(pointer), "cuMemFreeHost"); break;
    case Origin::host_registered:
      device_.check(api.host_unregister(pointer), "cuMemHostUnregister");
      munmap(pointer, range->size);
      break;
    case Origin::registered: break;  // forget() gives none
  }
}

void DeviceMemory::info(int64_t& free, int64_t& total) {
  device_.bind_surely();
  const DeviceFacts& facts = device_.facts();
  if (!nvml_memory_info(facts, free, total)) {
    size_t free_bytes = 0, total_bytes = 0;
    const RelaxedCaptureMode relaxed(device_.api());
    device_.check(device_.api().memory_info(&free_bytes, &total_bytes), "cuMemGetInfo");
    free = static_cast<int64_t>(free_bytes);
    total = static_cast<int64_t>(total_bytes);
  }
  if (facts.shares > 1) {
    total = static_cast<int64_t>(facts.total_memory);
    free = std::min(free, total - static_cast<int64_t>(std::min(facts.total_memory, used_.load())));
  }
  free = std::clamp<int64_t>(free, 0, total);
}

// ---- host memory -----------------------------------------------------------------------------------------------------

// The limit on locked memory can be changed by the user, so the message names it.
void DeviceMemory::refuse_failed_lock(Result result, const char* call, size_t size) {
  if (result == success) return;
  if (result != error_out_of_memory && result != error_operating_system) device_.check(result, call);
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string found = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur) + " bytes";
  throw abi::Failure(
      AA_RESOURCE_EXHAUSTED,
      device_.label() + ": " + call + " gave " + result_text(device_.api(), result) + ": cannot lock " +
          std::to_string(size) +
          " bytes of the host's memory. The limit on locked memory of this "
          "process is " +
          found +
          "; raise it with `ulimit -l` (in KiB, or unlimited) or in /etc/security/limits.conf (memlock), "
          "and look how much memory the machine has left",
      result);
}

void DeviceMemory::register_range(void* pointer, size_t size) {
  device_.bind_surely();
  const RelaxedCaptureMode relaxed(device_.api());
  const Result result = device_.api().host_register(pointer, size, host_register_portable);
  if (result == error_host_memory_already_registered) {
    throw abi::Failure(AA_ALREADY_EXISTS,
                       device_.label() + ": part of the memory range is registered, or allocated as pinned, already",
                       result);
  }
  refuse_failed_lock(result, "cuMemHostRegister", size);
  remember(pointer, {size, Origin::registered, &device_});
}

void DeviceMemory::unregister_range(void* pointer) {
  if (is_forked_child()) device_.usable();
  if (!forget(pointer, AA_MEMORY_PINNED, true)) {
    throw abi::Failure(AA_NOT_FOUND, device_.label() + ": the memory range was not registered");
  }
  if (device_.lost()) return;
  device_.bind_surely();
  const RelaxedCaptureMode relaxed(device_.api());
  device_.check(device_.api().host_unregister(pointer), "cuMemHostUnregister");
}

void* DeviceMemory::device_address(const void* pointer) const { return mapped_address(device_, pointer); }

void* DeviceMemory::allocate_on_node(size_t size, int32_t numa_node) {
  device_.bind_surely();
  const size_t rounded = round_up(size, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  void* pointer = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pointer == MAP_FAILED) {
    throw abi::Failure(AA_RESOURCE_EXHAUSTED,
                       "the operating system has no " + std::to_string(rounded) + " bytes of memory for this process");
  }
  const int32_t node = numa_node >= 0 ? numa_node : numa_node_of(device_.facts().pci_bus_id);
  constexpr int32_t most_nodes = 1024;
  if (node >= 0 && node < most_nodes) {
    // A preference only: if the node is full, or the kernel has no nodes, the pages are allocated elsewhere.
    constexpr int preferred = 1;  // MPOL_PREFERRED of linux/mempolicy.h
    constexpr size_t bits = 8 * sizeof(unsigned long);
    unsigned long mask[most_nodes / bits] = {};
    mask[static_cast<size_t>(node) / bits] = 1ul << (static_cast<size_t>(node) % bits);
    syscall(SYS_mbind, pointer, rounded, preferred, mask, static_cast<unsigned long>(most_nodes), 0u);
  }
  const RelaxedCaptureMode relaxed(device_.api());
  const Result result = device_.api().host_register(pointer, rounded, host_register_portable);
  if (result != success) munmap(pointer, rounded);
  refuse_failed_lock(result, "cuMemHostRegister", rounded);
  remember(pointer, {rounded, Origin::host_registered, &device_});
  return pointer;
}

// ---- what a pointer is -----------------------------------------------------------------------------------------------

bool DeviceMemory::query(const void* pointer, aa_memory_info& info) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  Registry& all = registry();
  const std::shared_lock lock(all.mutex);
  const auto next = all.ranges.upper_bound(address);
  if (next != all.ranges.begin()) {
    const auto& [base, range] = *std::prev(next);
    if (address < base + range.size) {
      info.kind = kind_of(range.origin);
      info.device_index = info.kind == AA_MEMORY_PINNED ? -1 : range.device->index();
      info.base = reinterpret_cast<void*>(base);
      info.size = range.size;
      info.device_address =
          range.origin == Origin::registered ? mapped_address(*range.device, pointer) : const_cast<void*>(pointer);
      return true;
    }
  }
  // Memory of another library in this process.
  const auto open = std::find_if(all.devices.begin(), all.devices.end(), [](const auto* d) { return !d->lost(); });
  if (open == all.devices.end()) return false;
  const DeviceState& device = **open;
  device.bind_surely();
  const Api& api = device.api();
  const RelaxedCaptureMode relaxed(api);
  const auto ask = [&](void* answer, int attribute) {
    return api.pointer_attribute(answer, attribute, address) == success;
  };
  unsigned type = 0;
  if (!ask(&type, pointer_memory_type) || (type != pointer_type_host && type != pointer_type_device)) return false;
  unsigned managed = 0;
  ask(&managed, pointer_is_managed);
  DevicePointer base = address;
  size_t size = 0;
  if (!ask(&base, pointer_range_start) || !ask(&size, pointer_range_size)) return false;
  info.kind = managed ? AA_MEMORY_MANAGED : type == pointer_type_host ? AA_MEMORY_PINNED : AA_MEMORY_DEVICE;
  info.base = reinterpret_cast<void*>(base);
  info.size = size;
  info.device_address = const_cast<void*>(pointer);
  info.device_index = -1;
  int ordinal = -1;
  if (info.kind == AA_MEMORY_PINNED || !ask(&ordinal, pointer_device_ordinal)) return true;
  const std::vector<DeviceFacts>& devices = device.platform().devices;
  const auto owner = std::find_if(devices.begin(), devices.end(), [=](const auto& d) { return d.ordinal == ordinal; });
  if (owner != devices.end()) info.device_index = static_cast<int32_t>(owner - devices.begin());
  return true;
}

}  // namespace anyaccel::cuda
