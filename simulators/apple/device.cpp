// Implements MTLDevice: what it is, and what it makes.
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "simulators/apple/metal.h"

namespace sim::apple {
namespace {

std::mutex devices_mutex;
std::map<int, std::weak_ptr<MetalDevice>>& devices() {
  static auto* all = new std::map<int, std::weak_ptr<MetalDevice>>;
  return *all;
}
Ref<MetalDevice> ref(MetalDevice& self) {
  return Ref<MetalDevice>(std::static_pointer_cast<MetalDevice>(find_object(self.id(), "the device")));
}

// MTLGPUFamily: Apple1 to Apple9 are 1001 to 1009, Mac2 2002, Common1 to 3 3001 to 3003, Metal3 5001. SIM_METAL_FAMILY is the last
// Apple family, 1007 (M1) by default.
int newest_family() {
  const char* text = std::getenv("SIM_METAL_FAMILY");
  return text == nullptr || *text == '\0' ? 1007 : std::atoi(text);
}
Boolean supports_family(MetalDevice&, Integer family) {
  if (family > 1000 && family < 2000) return family <= newest_family();
  if (family == 5001) return macos_version() >= 1300;
  return family == 2002 || (family >= 3001 && family <= 3003);
}

Id name_of(MetalDevice& self) { return string_autoreleased("Simulated Apple GPU " + std::to_string(self.index)); }
std::uint64_t registry_id(MetalDevice& self) { return 0x100000400 + static_cast<std::uint64_t>(self.index); }
std::uint64_t working_set(MetalDevice&) { return settings().memory; }
UInteger allocated_size(MetalDevice& self) { return engine().used(self.index); }
Boolean yes(MetalDevice&) { return true; }
Boolean no(MetalDevice&) { return false; }
UInteger most_buffer(MetalDevice&) { return settings().memory; }
Size most_threads(MetalDevice&) { return {kMostThreads, kMostThreads, kMostThreads}; }
UInteger threadgroup_bytes(MetalDevice&) { return kThreadgroupBytes; }
UInteger argument_tier(MetalDevice&) { return 1; }  // MTLArgumentBuffersTier2
UInteger location(MetalDevice&) { return 0; }       // built in

struct Architecture : Instance {
  Architecture() : Instance("MTLArchitecture") {}
};
Id architecture_of(MetalDevice&) { return autorelease(create<Architecture>()); }
Id architecture_name(Architecture&) { return string_autoreleased("applegpu_simulated"); }
PROTOCOL("MTLArchitecture", "NSObject")
SURE_METHOD("MTLArchitecture", "name", architecture_name)

void sample_timestamps(MetalDevice&, std::uint64_t* cpu, std::uint64_t* gpu) {
  APPLE_REQUIRE(cpu != nullptr && gpu != nullptr, , "bad-argument", "a place for the result is null");
  *cpu = *gpu = now_ns();
}

Id new_queue_of(MetalDevice& self, UInteger most) {
  APPLE_REQUIRE(most > 0, nullptr, "bad-argument", "a queue without command buffers");
  return create<CommandQueue>(ref(self), most)->id();
}
Id new_queue(MetalDevice& self) { return new_queue_of(self, 64); }

Id new_event(MetalDevice& self) { return create<MetalEvent>("MTLEvent", ref(self))->id(); }
Id new_shared_event(MetalDevice& self) { return create<MetalEvent>("MTLSharedEvent", ref(self))->id(); }
Id new_fence(MetalDevice& self) { return create<Fence>(ref(self))->id(); }

std::shared_ptr<MetalDevice> shared(MetalDevice& self) { return ref(self).shared(); }
Id new_buffer(MetalDevice& self, UInteger length, UInteger options) {
  const auto buffer = make_buffer(shared(self), length, options, nullptr);
  return buffer == nullptr ? nullptr : buffer->id();
}
Id new_buffer_of_bytes(MetalDevice& self, const void* bytes, UInteger length, UInteger options) {
  APPLE_REQUIRE(bytes != nullptr, nullptr, "bad-argument", "the bytes are null");
  const auto buffer = make_buffer(shared(self), length, options, nullptr);
  if (buffer == nullptr) return nullptr;
  std::memcpy(buffer->memory->alias, bytes, length);
  return buffer->id();
}

// Memory of the program, known to the engine as long as buffers are on it.
struct Adopted {
  std::shared_ptr<const Allocation> memory;
  int buffers = 0;
};
std::mutex adopted_mutex;
std::map<const void*, Adopted>& adopted() {
  static auto* all = new std::map<const void*, Adopted>;
  return *all;
}

// Returns which part of [first, end) is no memory, or memory that the documentation excludes ("typically allocated with
// vm_allocate or mmap; memory allocated by malloc is specifically disallowed"): the heap of this process, as far as its
// map names it.
std::string unfit(const char* first, const char* end) {
  std::ifstream maps("/proc/self/maps");
  auto at = reinterpret_cast<std::uintptr_t>(first);
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, stop = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &stop) != 2 || stop <= at) continue;
    if (begin > at) break;
    if (line.find("[heap]") != std::string::npos) return "it is memory of malloc";
    at = stop;
    if (at >= reinterpret_cast<std::uintptr_t>(end)) return {};
  }
  return "not all of it is mapped";
}

Id new_buffer_no_copy(MetalDevice& self, void* pointer, UInteger length, UInteger options, Id deallocator) {
  const auto page = static_cast<UInteger>(::sysconf(_SC_PAGESIZE));
  StorageMode storage = kShared;
  bool tracked = true;
  if (!resource_options(options, &storage, &tracked, false)) return nullptr;
  APPLE_REQUIRE(storage == kShared, nullptr, "bad-argument", "memory of the program can be shared alone");
  APPLE_REQUIRE(pointer != nullptr && length > 0, nullptr, "bad-argument", "no memory");
  // The documentation: a page-aligned pointer, a length that makes a page-aligned region; nil otherwise (ggml-metal, MLX: nil).
  if (reinterpret_cast<std::uintptr_t>(pointer) % page != 0 || length % page != 0) return nullptr;
  const auto* first = static_cast<const char*>(pointer);
  const std::string problem = unfit(first, first + length);
  APPLE_REQUIRE(problem.empty(), nullptr, "bad-argument", "the memory cannot be used: " + problem);
  Block* block = nullptr;
  if (deallocator != nullptr && (block = copy_block(deallocator)) == nullptr) return nullptr;
  auto buffer = std::make_shared<Buffer>(ref(self));
  {
    const std::lock_guard lock(adopted_mutex);
    Adopted& known = adopted()[pointer];
    if (known.buffers > 0 && known.memory->size == length) {
      buffer->memory = known.memory;
    } else if (known.buffers == 0) {
      known.memory = engine().memory().adopt(pointer, length);
      buffer->memory = known.memory;
      if (known.memory == nullptr) adopted().erase(pointer);
    }
    if (buffer->memory == nullptr) {
      violation("bad-argument", "buffers that share parts of their memory are not simulated");
      release_block(block);
      return nullptr;
    }
    ++known.buffers;
  }
  buffer->length = length;
  buffer->options = options;
  buffer->tracked = tracked;
  buffer->adopted = true;
  buffer->deallocator = block;
  return add(buffer);
}

PROTOCOL("MTLDevice", "NSObject")
SURE_METHOD("MTLDevice", "name", name_of)
METHOD("MTLDevice", "registryID", registry_id)
METHOD("MTLDevice", "recommendedMaxWorkingSetSize", working_set)
METHOD("MTLDevice", "currentAllocatedSize", allocated_size)
METHOD("MTLDevice", "hasUnifiedMemory", yes)
METHOD("MTLDevice", "isLowPower", no)
METHOD("MTLDevice", "isRemovable", no)
METHOD("MTLDevice", "isHeadless", no)
METHOD("MTLDevice", "location", location)
METHOD("MTLDevice", "maxBufferLength", most_buffer)
METHOD("MTLDevice", "maxThreadsPerThreadgroup", most_threads)
METHOD("MTLDevice", "maxThreadgroupMemoryLength", threadgroup_bytes)
METHOD("MTLDevice", "argumentBuffersSupport", argument_tier)
METHOD("MTLDevice", "supportsFamily:", supports_family)
METHOD_SINCE(1400, "MTLDevice", "architecture", architecture_of)
METHOD("MTLDevice", "sampleTimestamps:gpuTimestamp:", sample_timestamps)
METHOD("MTLDevice", "newCommandQueue", new_queue)
METHOD("MTLDevice", "newCommandQueueWithMaxCommandBufferCount:", new_queue_of)
METHOD("MTLDevice", "newEvent", new_event)
METHOD("MTLDevice", "newSharedEvent", new_shared_event)
METHOD("MTLDevice", "newFence", new_fence)
METHOD("MTLDevice", "newBufferWithLength:options:", new_buffer)
METHOD("MTLDevice", "newBufferWithBytes:length:options:", new_buffer_of_bytes)
METHOD("MTLDevice", "newBufferWithBytesNoCopy:length:options:deallocator:", new_buffer_no_copy)

// ---- MTLBuffer -----------------------------------------------------------------------------------------------------------

void* contents_of(Buffer& self) { return self.storage == kPrivate ? nullptr : self.memory->pointer; }
UInteger length_of(Buffer& self) { return self.length; }
std::uint64_t address_of(Buffer& self) { return self.gpu_address(); }
UInteger storage_of(Buffer& self) { return self.storage; }
UInteger options_of(Buffer& self) { return self.options; }
UInteger cache_mode_of(Buffer& self) { return self.options & 0xf; }
UInteger tracking_of(Buffer& self) { return self.tracked ? 2 : 1; }
UInteger pages_of(Buffer& self) {
  const auto page = static_cast<UInteger>(::sysconf(_SC_PAGESIZE));
  return (self.length + page - 1) / page * page;
}
Id heap_of(Buffer& self) { return self.heap ? autoreleased(self.heap.shared()) : nullptr; }
void modified_range(Buffer&, Range) {
  violation("bad-argument", "didModifyRange is for buffers of managed storage alone");
}
UInteger purgeable(Buffer&, UInteger wanted) {
  APPLE_REQUIRE(wanted == 1 || wanted == 2, 2, "bad-argument", "memory that may be taken away is not simulated");
  return 2;  // MTLPurgeableStateNonVolatile
}

PROTOCOL("MTLObject", "NSObject")  // of a device, with a label
PROTOCOL("MTLBuffer", "MTLObject")
SURE_METHOD("MTLBuffer", "contents", contents_of)
METHOD("MTLBuffer", "length", length_of)
METHOD_SINCE(1300, "MTLBuffer", "gpuAddress", address_of)
METHOD("MTLBuffer", "storageMode", storage_of)
METHOD("MTLBuffer", "resourceOptions", options_of)
METHOD("MTLBuffer", "cpuCacheMode", cache_mode_of)
METHOD("MTLBuffer", "hazardTrackingMode", tracking_of)
METHOD("MTLBuffer", "allocatedSize", pages_of)
SURE_METHOD("MTLBuffer", "heap", heap_of)
METHOD("MTLBuffer", "didModifyRange:", modified_range)
METHOD("MTLBuffer", "setPurgeableState:", purgeable)

Id device_of(OfDevice& self) { return self.device->id(); }
Id label_of(OfDevice& self) { return self.label.empty() ? nullptr : string_autoreleased(self.label); }
void set_label(OfDevice& self, Id label) {
  self.label.clear();
  if (label != nullptr) text_of(label, "the label", &self.label);
}
SURE_METHOD("MTLObject", "device", device_of)
SURE_METHOD("MTLObject", "label", label_of)
METHOD("MTLObject", "setLabel:", set_label)
PROTOCOL("MTLFence", "MTLObject")

// ---- MTLHeap -------------------------------------------------------------------------------------------------------------

struct HeapDescriptor : Instance {
  HeapDescriptor() : Instance("MTLHeapDescriptor") {}
  UInteger size = 0, storage = kPrivate, type = 0, tracking = 0, options = 0;
};
void set_heap_size(HeapDescriptor& self, UInteger size) { self.size = size; }
UInteger heap_descriptor_size(HeapDescriptor& self) { return self.size; }
void set_heap_storage(HeapDescriptor& self, UInteger mode) { self.storage = mode; }
void set_heap_type(HeapDescriptor& self, Integer type) { self.type = static_cast<UInteger>(type); }
void set_heap_tracking(HeapDescriptor& self, UInteger mode) { self.tracking = mode; }
void set_heap_options(HeapDescriptor& self, UInteger options) {
  self.storage = (options >> 4) & 0xf;
  self.tracking = (options >> 8) & 3;
}
void set_heap_cache(HeapDescriptor&, UInteger) {}
CLASS("MTLHeapDescriptor", "NSObject", &make_instance<HeapDescriptor>)
METHOD("MTLHeapDescriptor", "size", heap_descriptor_size)
METHOD("MTLHeapDescriptor", "setSize:", set_heap_size)
METHOD("MTLHeapDescriptor", "setStorageMode:", set_heap_storage)
METHOD("MTLHeapDescriptor", "setType:", set_heap_type)
METHOD("MTLHeapDescriptor", "setHazardTrackingMode:", set_heap_tracking)
METHOD("MTLHeapDescriptor", "setResourceOptions:", set_heap_options)
METHOD("MTLHeapDescriptor", "setCpuCacheMode:", set_heap_cache)

// Its size is accounted for; the memory of its buffers is each one's own.
Id new_heap(MetalDevice& self, Id id) {
  const auto descriptor = get<HeapDescriptor>(id, "the descriptor");
  if (descriptor == nullptr) return nullptr;
  APPLE_REQUIRE(descriptor->size > 0, nullptr, "bad-argument", "a heap of no bytes");
  APPLE_REQUIRE(descriptor->type == 0, nullptr, "bad-argument",
                "heaps of other types than automatic are not simulated");
  APPLE_REQUIRE(descriptor->storage == kShared || descriptor->storage == kPrivate, nullptr, "bad-argument",
                "a heap's storage is shared or private");
  if (descriptor->size > settings().memory - engine().used(self.index)) return nullptr;
  const auto heap = create<Heap>(ref(self));
  heap->size = descriptor->size;
  heap->options = descriptor->storage << 4 | descriptor->tracking << 8;
  return heap->id();
}
METHOD("MTLDevice", "newHeapWithDescriptor:", new_heap)

struct SizeAndAlign {
  UInteger size, align;
};
constexpr UInteger kHeapAlignment = 256;
UInteger heap_bytes(UInteger length) { return (length + kHeapAlignment - 1) / kHeapAlignment * kHeapAlignment; }
SizeAndAlign heap_size_and_align(MetalDevice&, UInteger length, UInteger) {
  return {heap_bytes(length), kHeapAlignment};
}
METHOD("MTLDevice", "heapBufferSizeAndAlignWithLength:options:", heap_size_and_align)

Id heap_buffer(Heap& self, UInteger length, UInteger options) {
  StorageMode storage = kShared;
  bool tracked = true;
  if (!resource_options(options, &storage, &tracked, true)) return nullptr;
  APPLE_REQUIRE(static_cast<UInteger>(storage) == ((self.options >> 4) & 0xf), nullptr, "bad-argument",
                "the storage of the buffer is not its heap's");
  if (self.used + heap_bytes(length) > self.size) return nullptr;  // the documentation: nil when the heap is full
  // Hazards of a heap's buffers are tracked as the heap's, by default not at all.
  const bool heap_tracked = ((self.options >> 8) & 3) == 2;
  const auto buffer =
      make_buffer(self.device.shared(), length, (options & 0xff) | (heap_tracked ? 2u : 1u) << 8, &self);
  return buffer == nullptr ? nullptr : buffer->id();
}
UInteger heap_size(Heap& self) { return self.size; }
UInteger heap_used(Heap& self) { return self.used; }
UInteger heap_available(Heap& self, UInteger alignment) {
  const UInteger left = self.size - self.used;
  return alignment == 0 ? left : left / std::max(alignment, kHeapAlignment) * std::max(alignment, kHeapAlignment);
}
PROTOCOL("MTLHeap", "MTLObject")
METHOD("MTLHeap", "newBufferWithLength:options:", heap_buffer)
METHOD("MTLHeap", "size", heap_size)
METHOD("MTLHeap", "usedSize", heap_used)
METHOD("MTLHeap", "currentAllocatedSize", heap_size)
METHOD("MTLHeap", "maxAvailableSizeWithAlignment:", heap_available)

// ---- MTLResidencySet -----------------------------------------------------------------------------------------------------

struct ResidencySetDescriptor : OfDevice {
  ResidencySetDescriptor() : OfDevice("MTLResidencySetDescriptor", {}) {}
  UInteger capacity = 0;
};
void set_capacity(ResidencySetDescriptor& self, UInteger capacity) { self.capacity = capacity; }
CLASS_SINCE(1500, "MTLResidencySetDescriptor", "NSObject", &make_instance<ResidencySetDescriptor>)
METHOD("MTLResidencySetDescriptor", "setInitialCapacity:", set_capacity)
METHOD("MTLResidencySetDescriptor", "setLabel:", set_label)

Id new_residency_set(MetalDevice& self, Id descriptor, Id*) {
  if (get<ResidencySetDescriptor>(descriptor, "the descriptor") == nullptr) return nullptr;
  return create<ResidencySet>(ref(self))->id();
}
METHOD_SINCE(1500, "MTLDevice", "newResidencySetWithDescriptor:error:", new_residency_set)

// Buffers and heaps. Changes count from the next commit on.
void add_allocation(ResidencySet& self, Id id) {
  const auto object = get<OfDevice>(id, "the allocation");
  if (object == nullptr) return;
  APPLE_REQUIRE(dynamic_cast<Buffer*>(object.get()) != nullptr || dynamic_cast<Heap*>(object.get()) != nullptr, ,
                "bad-argument", "only buffers, textures and heaps are allocations");
  const std::lock_guard lock(self.mutex);
  self.staged.emplace(id, Ref<Instance>(object));
}
void remove_allocation(ResidencySet& self, Id id) {
  Ref<Instance> last;
  const std::lock_guard lock(self.mutex);
  const auto found = self.staged.find(id);
  if (found == self.staged.end()) return;
  last = std::move(found->second);
  self.staged.erase(found);
}
void add_allocations(ResidencySet& self, const Id* ids, UInteger count) {
  for (UInteger i = 0; i < count; ++i) add_allocation(self, ids[i]);
}
void remove_allocations(ResidencySet& self, const Id* ids, UInteger count) {
  for (UInteger i = 0; i < count; ++i) remove_allocation(self, ids[i]);
}
void remove_all(ResidencySet& self) {
  decltype(self.staged) last;
  const std::lock_guard lock(self.mutex);
  last.swap(self.staged);
}
void commit_set(ResidencySet& self) {
  decltype(self.staged) last;
  const std::lock_guard lock(self.mutex);
  last.swap(self.committed);
  self.committed = self.staged;
}
void nothing_to_do(ResidencySet&) {}
UInteger allocation_count(ResidencySet& self) {
  const std::lock_guard lock(self.mutex);
  return self.staged.size();
}
Boolean contains(ResidencySet& self, Id id) {
  const std::lock_guard lock(self.mutex);
  return self.staged.count(id) != 0;
}
std::uint64_t set_bytes(ResidencySet& self) {
  const std::lock_guard lock(self.mutex);
  std::uint64_t bytes = 0;
  for (const auto& [id, object] : self.committed) {
    if (auto* buffer = dynamic_cast<Buffer*>(object.get())) bytes += pages_of(*buffer);
    if (const auto* heap = dynamic_cast<const Heap*>(object.get())) bytes += heap->size;
  }
  return bytes;
}
PROTOCOL("MTLResidencySet", "MTLObject")
METHOD("MTLResidencySet", "addAllocation:", add_allocation)
METHOD("MTLResidencySet", "addAllocations:count:", add_allocations)
METHOD("MTLResidencySet", "removeAllocation:", remove_allocation)
METHOD("MTLResidencySet", "removeAllocations:count:", remove_allocations)
METHOD("MTLResidencySet", "removeAllAllocations", remove_all)
METHOD("MTLResidencySet", "containsAllocation:", contains)
METHOD("MTLResidencySet", "allocationCount", allocation_count)
METHOD("MTLResidencySet", "allocatedSize", set_bytes)
METHOD("MTLResidencySet", "commit", commit_set)
METHOD("MTLResidencySet", "requestResidency", nothing_to_do)
METHOD("MTLResidencySet", "endResidency", nothing_to_do)

}  // namespace

std::shared_ptr<MetalDevice> metal_device(int index) {
  const std::lock_guard lock(devices_mutex);
  std::shared_ptr<MetalDevice> known = devices()[index].lock();
  if (known != nullptr && known->alive()) {
    retain(*known);
    return known;
  }
  auto made = create<MetalDevice>(index);
  devices()[index] = made;
  return made;
}

bool resource_options(UInteger options, StorageMode* storage, bool* tracked, bool heap) {
  const UInteger cache = options & 0xf, mode = (options >> 4) & 0xf, tracking = (options >> 8) & 3;
  APPLE_REQUIRE(cache <= 1 && mode <= kMemoryless && tracking <= 2 && options >> 10 == 0, false, "bad-argument",
                "unknown resource options " + std::to_string(options));
  APPLE_REQUIRE(mode != kMemoryless, false, "bad-argument", "a buffer cannot be memoryless");
  APPLE_REQUIRE(mode != kManaged, false, "bad-argument",
                "managed storage is not simulated: the device has unified memory");
  *storage = static_cast<StorageMode>(mode);
  *tracked = tracking == 0 ? !heap : tracking == 2;
  return true;
}

std::shared_ptr<Buffer> make_buffer(const std::shared_ptr<MetalDevice>& device, UInteger length, UInteger options,
                                    Heap* heap) {
  StorageMode storage = kShared;
  bool tracked = true;
  if (!resource_options(options, &storage, &tracked, heap != nullptr)) return nullptr;
  // Metal's validation stops the program at both.
  APPLE_REQUIRE(length > 0, nullptr, "bad-argument", "a buffer of no bytes");
  APPLE_REQUIRE(length <= settings().memory, nullptr, "bad-argument",
                "a buffer of " + std::to_string(length) + " bytes, above maxBufferLength");
  std::shared_ptr<const Allocation> memory;
  const auto kind = storage == kPrivate ? MemoryKind::device : MemoryKind::shared;
  if (engine().allocate(kind, device->index, device->token, length, 256, &memory) != Status::ok) return nullptr;
  // The documentation of newBufferWithLength:options: "creates a buffer the method clears with zero values". It says nothing of
  // heaps' buffers.
  if (heap == nullptr) std::memset(memory->alias, 0, length);
  auto buffer = std::make_shared<Buffer>(Ref<MetalDevice>(device));
  buffer->memory = std::move(memory);
  buffer->length = length;
  buffer->options = options;
  buffer->storage = storage;
  buffer->tracked = tracked;
  if (heap != nullptr) {
    buffer->heap = Ref<Heap>(std::static_pointer_cast<Heap>(find_object(heap->id(), "the heap")));
    heap->used += heap_bytes(length);
    const std::lock_guard lock(heap->mutex);
    heap->buffers.push_back(buffer);
  }
  add(buffer);
  return buffer;
}

void Buffer::dealloc() {
  if (loans > 0) {
    violation("free-while-in-use",
              memory->text() + " is deallocated while a command buffer that does not retain it has not completed");
  }
  // Whoever let it go last, the command buffers that used it have completed.
  engine().forget(memory->pointer, memory->size);
  if (adopted) {
    {
      const std::lock_guard lock(adopted_mutex);
      const auto known = sim::apple::adopted().find(memory->pointer);
      if (--known->second.buffers == 0) {
        engine().memory().disown(*memory);
        sim::apple::adopted().erase(known);
      }
    }
    if (deallocator != nullptr) {
      call_block(deallocator, static_cast<void*>(memory->pointer), length);
      release_block(deallocator);
    }
  } else {
    engine().free(memory->pointer, memory->owner);
    if (heap) heap->used -= heap_bytes(length);
  }
  heap = {};
  OfDevice::dealloc();
}

std::string outside(const Buffer& buffer, UInteger offset, UInteger bytes) {
  if (offset <= buffer.length && bytes <= buffer.length - offset) return {};
  return std::to_string(bytes) + " bytes from byte " + std::to_string(offset) + " of a buffer of " +
         std::to_string(buffer.length);
}

}  // namespace sim::apple
