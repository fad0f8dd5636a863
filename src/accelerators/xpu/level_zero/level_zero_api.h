// The part of Level Zero that anyaccel uses, declared from its public specification (1.0 to 1.4): functions as pointers in
// one table, structs, and constants. Names, values and layouts are the specification's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anyaccel::xpu::level_zero {

// ze_result_t.
using Result = uint32_t;
inline constexpr Result success = 0;
inline constexpr Result not_ready = 1;
inline constexpr Result error_device_lost = 0x70000001;
inline constexpr Result error_out_of_host_memory = 0x70000002;
inline constexpr Result error_out_of_device_memory = 0x70000003;
inline constexpr Result error_module_build_failure = 0x70000004;
inline constexpr Result error_module_link_failure = 0x70000005;
inline constexpr Result error_device_requires_reset = 0x70000006;
inline constexpr Result error_insufficient_permissions = 0x70010000;
inline constexpr Result error_not_available = 0x70010001;
inline constexpr Result error_dependency_unavailable = 0x70020000;
inline constexpr Result error_uninitialized = 0x78000001;
inline constexpr Result error_unsupported_version = 0x78000002;
inline constexpr Result error_unsupported_feature = 0x78000003;
inline constexpr Result error_unsupported_size = 0x78000009;
inline constexpr Result error_invalid_enumeration = 0x7800000c;
inline constexpr Result error_unsupported_enumeration = 0x7800000d;
inline constexpr Result error_invalid_kernel_name = 0x78000011;
inline constexpr Result first_invalid =
    0x78000004;  // this and what follows: a wrong argument, with the exceptions above
inline constexpr Result last_invalid = 0x7800001a;

using DriverHandle = struct DriverTag*;
using DeviceHandle = struct DeviceTag*;
using ContextHandle = struct ContextTag*;
using QueueHandle = struct QueueTag*;
using ListHandle = struct ListTag*;
using PoolHandle = struct PoolTag*;
using EventHandle = struct EventTag*;
using FenceHandle = struct FenceTag*;
using ModuleHandle = struct ModuleTag*;
using BuildLogHandle = struct BuildLogTag*;
using KernelHandle = struct KernelTag*;

// ze_structure_type_t: the values of `type` in the structs below.
enum StructType : uint32_t {
  type_device_properties = 0x3,
  type_device_compute_properties = 0x4,
  type_device_module_properties = 0x5,
  type_queue_group_properties = 0x6,
  type_device_memory_properties = 0x7,
  type_device_memory_access_properties = 0x8,
  type_context_desc = 0xd,
  type_queue_desc = 0xe,
  type_list_desc = 0xf,
  type_event_pool_desc = 0x10,
  type_event_desc = 0x11,
  type_fence_desc = 0x12,
  type_device_memory_desc = 0x15,
  type_host_memory_desc = 0x16,
  type_memory_properties = 0x17,
  type_module_desc = 0x1b,
  type_kernel_desc = 0x1d,
  type_kernel_properties = 0x1e,
  type_pci_properties = 0x10008,
  type_device_properties_1_2 = 0x20006,  // the same struct; timer_resolution in cycles per second, not nanoseconds
};

inline constexpr uint32_t init_gpu_only = 1u << 0;
inline constexpr uint32_t device_type_gpu = 1;
inline constexpr uint32_t queue_group_compute = 1u << 0;
inline constexpr uint32_t queue_in_order = 1u << 1;  // of immediate lists; every driver of 1.9 has it
inline constexpr uint32_t queue_asynchronous = 2;
inline constexpr uint32_t priority_normal = 0;
inline constexpr uint32_t priority_low = 1;
inline constexpr uint32_t priority_high = 2;
inline constexpr uint32_t pool_host_visible = 1u << 0;
inline constexpr uint32_t pool_kernel_timestamp = 1u << 2;
inline constexpr uint32_t scope_host = 1u << 2;
inline constexpr uint32_t memory_access_rw = 1u << 0;
inline constexpr uint32_t memory_host = 1;
inline constexpr uint32_t memory_device = 2;
inline constexpr uint32_t memory_shared = 3;
inline constexpr uint32_t module_fp16 = 1u << 0;
inline constexpr uint32_t module_fp64 = 1u << 1;
inline constexpr uint32_t format_spirv = 0;
inline constexpr uint32_t version_1_2 = (1u << 16) | 2;
inline constexpr uint32_t version_1_9 = (1u << 16) | 9;

struct DeviceProperties {
  uint32_t type;
  void* next;
  uint32_t device_type;
  uint32_t vendor_id;
  uint32_t device_id;
  uint32_t flags;
  uint32_t subdevice_id;
  uint32_t core_clock_rate;
  uint64_t max_allocation;
  uint32_t max_hardware_contexts;
  uint32_t max_queue_priority;
  uint32_t threads_per_eu;
  uint32_t simd_width;
  uint32_t eus_per_subslice;
  uint32_t subslices_per_slice;
  uint32_t slices;
  uint64_t timer_resolution;
  uint32_t timestamp_valid_bits;
  uint32_t kernel_timestamp_valid_bits;
  uint8_t uuid[16];
  char name[256];
};

struct ComputeProperties {
  uint32_t type;
  void* next;
  uint32_t max_group_size;
  uint32_t max_group_size_xyz[3];
  uint32_t max_group_count_xyz[3];
  uint32_t max_local_memory;
  uint32_t subgroup_size_count;
  uint32_t subgroup_sizes[8];
};

struct ModuleProperties {
  uint32_t type;
  void* next;
  uint32_t spirv_version;
  uint32_t flags;
  uint32_t fp16_flags;
  uint32_t fp32_flags;
  uint32_t fp64_flags;
  uint32_t max_arguments_size;
  uint32_t printf_buffer_size;
  uint8_t native_kernel_uuid[16];
};

struct MemoryProperties {
  uint32_t type;
  void* next;
  uint32_t flags;
  uint32_t max_clock_rate;
  uint32_t max_bus_width;
  uint64_t total_size;
  char name[256];
};

struct MemoryAccessProperties {
  uint32_t type;
  void* next;
  uint32_t host;
  uint32_t device;
  uint32_t shared_single_device;
  uint32_t shared_cross_device;
  uint32_t shared_system;
};

struct QueueGroupProperties {
  uint32_t type;
  void* next;
  uint32_t flags;
  size_t max_fill_pattern_size;
  uint32_t queue_count;
};

struct PciProperties {
  uint32_t type;
  void* next;
  uint32_t domain, bus, device, function;
  int32_t generation, width;
  int64_t max_bandwidth;
};

struct ContextDesc {
  uint32_t type;
  const void* next;
  uint32_t flags;
};

struct QueueDesc {
  uint32_t type;
  const void* next;
  uint32_t ordinal;
  uint32_t index;
  uint32_t flags;
  uint32_t mode;
  uint32_t priority;
};

struct ListDesc {
  uint32_t type;
  const void* next;
  uint32_t ordinal;
  uint32_t flags;
};

struct EventPoolDesc {
  uint32_t type;
  const void* next;
  uint32_t flags;
  uint32_t count;
};

struct EventDesc {
  uint32_t type;
  const void* next;
  uint32_t index;
  uint32_t signal_scope;
  uint32_t wait_scope;
};

struct FenceDesc {
  uint32_t type;
  const void* next;
  uint32_t flags;
};

struct DeviceMemoryDesc {
  uint32_t type;
  const void* next;
  uint32_t flags;
  uint32_t ordinal;
};

struct HostMemoryDesc {
  uint32_t type;
  const void* next;
  uint32_t flags;
};

struct AllocationProperties {
  uint32_t type;
  void* next;
  uint32_t memory_type;
  uint64_t id;
  uint64_t page_size;
};

struct ModuleDesc {
  uint32_t type;
  const void* next;
  uint32_t format;
  size_t input_size;
  const uint8_t* input;
  const char* build_flags;
  const void* constants;
};

struct KernelDesc {
  uint32_t type;
  const void* next;
  uint32_t flags;
  const char* name;
};

struct KernelProperties {
  uint32_t type;
  void* next;
  uint32_t argument_count;
  uint32_t required_group_size[3];
  uint32_t required_subgroup_count;
  uint32_t required_subgroup_size;
  uint32_t max_subgroup_size;
  uint32_t max_subgroup_count;
  uint32_t local_memory;
  uint32_t private_memory;
  uint32_t spill_memory;
  uint8_t kernel_uuid[16];
  uint8_t module_uuid[16];
};

struct GroupCount {
  uint32_t x, y, z;
};

// Start and end in ticks of the device's timer, of which kernel_timestamp_valid_bits count.
struct KernelTimestamp {
  uint64_t global_start, global_end;
  uint64_t context_start, context_end;
};

// Functions that every version has: X(name, parameters).
#define ANYACCEL_LEVEL_ZERO_FUNCTIONS(X)                                                                             \
  X(zeInit, (uint32_t flags))                                                                                        \
  X(zeDriverGet, (uint32_t * count, DriverHandle * drivers))                                                         \
  X(zeDriverGetApiVersion, (DriverHandle driver, uint32_t * version))                                                \
  X(zeDeviceGet, (DriverHandle driver, uint32_t * count, DeviceHandle * devices))                                    \
  X(zeDeviceGetProperties, (DeviceHandle device, DeviceProperties * properties))                                     \
  X(zeDeviceGetComputeProperties, (DeviceHandle device, ComputeProperties * properties))                             \
  X(zeDeviceGetModuleProperties, (DeviceHandle device, ModuleProperties * properties))                               \
  X(zeDeviceGetMemoryProperties, (DeviceHandle device, uint32_t * count, MemoryProperties * properties))             \
  X(zeDeviceGetMemoryAccessProperties, (DeviceHandle device, MemoryAccessProperties * properties))                   \
  X(zeDeviceGetCommandQueueGroupProperties,                                                                          \
    (DeviceHandle device, uint32_t * count, QueueGroupProperties * properties))                                      \
  X(zeContextCreate, (DriverHandle driver, const ContextDesc* desc, ContextHandle* context))                         \
  X(zeContextDestroy, (ContextHandle context))                                                                       \
  X(zeMemAllocDevice, (ContextHandle context, const DeviceMemoryDesc* desc, size_t size, size_t alignment,           \
                       DeviceHandle device, void** pointer))                                                         \
  X(zeMemAllocHost,                                                                                                  \
    (ContextHandle context, const HostMemoryDesc* desc, size_t size, size_t alignment, void** pointer))              \
  X(zeMemAllocShared, (ContextHandle context, const DeviceMemoryDesc* device_desc, const HostMemoryDesc* host_desc,  \
                       size_t size, size_t alignment, DeviceHandle device, void** pointer))                          \
  X(zeMemFree, (ContextHandle context, void* pointer))                                                               \
  X(zeMemGetAllocProperties,                                                                                         \
    (ContextHandle context, const void* pointer, AllocationProperties* properties, DeviceHandle* device))            \
  X(zeMemGetAddressRange, (ContextHandle context, const void* pointer, void** base, size_t* size))                   \
  X(zeCommandQueueCreate, (ContextHandle context, DeviceHandle device, const QueueDesc* desc, QueueHandle* queue))   \
  X(zeCommandQueueDestroy, (QueueHandle queue))                                                                      \
  X(zeCommandQueueSynchronize, (QueueHandle queue, uint64_t timeout))                                                \
  X(zeCommandQueueExecuteCommandLists, (QueueHandle queue, uint32_t count, ListHandle * lists, FenceHandle fence))   \
  X(zeFenceCreate, (QueueHandle queue, const FenceDesc* desc, FenceHandle* fence))                                   \
  X(zeFenceDestroy, (FenceHandle fence))                                                                             \
  X(zeFenceHostSynchronize, (FenceHandle fence, uint64_t timeout_ns))                                                \
  X(zeCommandListCreate, (ContextHandle context, DeviceHandle device, const ListDesc* desc, ListHandle* list))       \
  X(zeCommandListCreateImmediate,                                                                                    \
    (ContextHandle context, DeviceHandle device, const QueueDesc* desc, ListHandle* list))                           \
  X(zeCommandListDestroy, (ListHandle list))                                                                         \
  X(zeCommandListClose, (ListHandle list))                                                                           \
  X(zeCommandListAppendBarrier, (ListHandle list, EventHandle signal, uint32_t wait_count, EventHandle * waits))     \
  X(zeCommandListAppendEventReset, (ListHandle list, EventHandle event))                                             \
  X(zeCommandListAppendMemoryCopy, (ListHandle list, void* destination, const void* source, size_t size,             \
                                    EventHandle signal, uint32_t wait_count, EventHandle* waits))                    \
  X(zeCommandListAppendMemoryFill, (ListHandle list, void* pointer, const void* pattern, size_t pattern_size,        \
                                    size_t size, EventHandle signal, uint32_t wait_count, EventHandle* waits))       \
  X(zeCommandListAppendLaunchKernel, (ListHandle list, KernelHandle kernel, const GroupCount* groups,                \
                                      EventHandle signal, uint32_t wait_count, EventHandle* waits))                  \
  X(zeEventPoolCreate, (ContextHandle context, const EventPoolDesc* desc, uint32_t device_count,                     \
                        DeviceHandle* devices, PoolHandle* pool))                                                    \
  X(zeEventPoolDestroy, (PoolHandle pool))                                                                           \
  X(zeEventCreate, (PoolHandle pool, const EventDesc* desc, EventHandle* event))                                     \
  X(zeEventDestroy, (EventHandle event))                                                                             \
  X(zeEventHostSignal, (EventHandle event))                                                                          \
  X(zeEventHostReset, (EventHandle event))                                                                           \
  X(zeEventHostSynchronize, (EventHandle event, uint64_t timeout_ns))                                                \
  X(zeEventQueryStatus, (EventHandle event))                                                                         \
  X(zeEventQueryKernelTimestamp, (EventHandle event, KernelTimestamp * timestamp))                                   \
  X(zeModuleCreate,                                                                                                  \
    (ContextHandle context, DeviceHandle device, const ModuleDesc* desc, ModuleHandle* module, BuildLogHandle* log)) \
  X(zeModuleDestroy, (ModuleHandle module))                                                                          \
  X(zeModuleBuildLogGetString, (BuildLogHandle log, size_t * size, char* text))                                      \
  X(zeModuleBuildLogDestroy, (BuildLogHandle log))                                                                   \
  X(zeKernelCreate, (ModuleHandle module, const KernelDesc* desc, KernelHandle* kernel))                             \
  X(zeKernelDestroy, (KernelHandle kernel))                                                                          \
  X(zeKernelGetProperties, (KernelHandle kernel, KernelProperties * properties))                                     \
  X(zeKernelSetGroupSize, (KernelHandle kernel, uint32_t x, uint32_t y, uint32_t z))                                 \
  X(zeKernelSetArgumentValue, (KernelHandle kernel, uint32_t index, size_t size, const void* value))

// Functions that are null when the loader lacks them.
#define ANYACCEL_LEVEL_ZERO_OPTIONAL_FUNCTIONS(X)                                   \
  X(zeCommandListHostSynchronize, (ListHandle list, uint64_t timeout_ns))           \
  X(zeDevicePciGetPropertiesExt, (DeviceHandle device, PciProperties * properties)) \
  X(zeDriverGetLastErrorDescription, (DriverHandle driver, const char** text))      \
  X(zeDeviceCanAccessPeer, (DeviceHandle device, DeviceHandle peer, uint8_t * value))

struct Api {
#define ANYACCEL_MEMBER(name, parameters) Result(*name) parameters = nullptr;
  ANYACCEL_LEVEL_ZERO_FUNCTIONS(ANYACCEL_MEMBER)
  ANYACCEL_LEVEL_ZERO_OPTIONAL_FUNCTIONS(ANYACCEL_MEMBER)
#undef ANYACCEL_MEMBER
};

}  // namespace anyaccel::xpu::level_zero
