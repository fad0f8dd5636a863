// The functions of the vendor's driver that are used, as one table of pointers. Its members have the names and the
// signatures of CUDA's driver API; AMD's HIP library has nearly the same functions, and where one differs, an adapter
// with CUDA's signature replaces it (hip_api.cpp). So everything above this table serves both.
//
// Declared from the vendors' documentation; no vendor header is needed to build.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anyaccel::cuda {

using Result = int;  // CUresult; hipError_t has the same numbers where both have an error
using DeviceOrdinal = int;
using DevicePointer = uint64_t;
using ContextHandle = struct OpaqueContext*;
using StreamHandle = struct OpaqueStream*;
using EventHandle = struct OpaqueEvent*;
using ModuleHandle = struct OpaqueModule*;
using FunctionHandle = struct OpaqueFunction*;
using GraphHandle = struct OpaqueGraph*;
using GraphExecHandle = struct OpaqueGraphExec*;
using AllocationHandle = uint64_t;  // CUmemGenericAllocationHandle

enum : Result {
  success = 0,
  error_invalid_value = 1,
  error_out_of_memory = 2,
  error_not_initialized = 3,
  error_deinitialized = 4,
  error_stub_library = 34,
  error_device_unavailable = 46,
  error_no_device = 100,
  error_invalid_device = 101,
  error_invalid_image = 200,
  error_invalid_context = 201,
  error_no_binary_for_gpu = 209,
  error_ecc_uncorrectable = 214,
  error_unsupported_ptx_version = 222,
  error_invalid_handle = 400,
  error_not_found = 500,
  error_not_ready = 600,
  error_illegal_address = 700,
  error_launch_out_of_resources = 701,
  error_launch_timeout = 702,
  error_peer_access_already_enabled = 704,
  error_context_is_destroyed = 709,
  error_host_memory_already_registered = 712,
  error_host_memory_not_registered = 713,
  error_hardware_stack = 714,  // to 718: faults of a kernel
  error_misaligned_address = 716,
  error_invalid_program_counter = 718,
  error_launch_failed = 719,
  error_not_permitted = 800,
  error_not_supported = 801,
  error_system_not_ready = 802,
  error_system_driver_mismatch = 803,
  error_compat_not_supported_on_device = 804,
  error_stream_capture_unsupported = 900,
  error_stream_capture_invalidated = 901,
  first_capture_error = 900,
  last_capture_error = 908,
  error_unknown = 999,
};

// CUdevice_attribute; HIP numbers its own (hip_api.cpp translates).
enum DeviceAttribute : int {
  attribute_max_threads_per_block = 1,
  attribute_max_shared_memory_per_block = 8,
  attribute_warp_size = 10,
  attribute_clock_rate = 13,  // kHz
  attribute_multiprocessor_count = 16,
  attribute_compute_mode = 20,
  attribute_pci_bus_id = 33,
  attribute_pci_device_id = 34,
  attribute_l2_cache_size = 38,
  attribute_unified_addressing = 41,
  attribute_pci_domain_id = 50,
  attribute_compute_capability_major = 75,
  attribute_compute_capability_minor = 76,
  attribute_max_shared_memory_per_multiprocessor = 81,
  attribute_managed_memory = 83,
  attribute_pageable_memory_access = 88,
  attribute_concurrent_managed_access = 89,
  attribute_cooperative_launch = 95,
  attribute_max_shared_memory_per_block_optin = 97,
  attribute_virtual_memory_management = 102,
  attribute_virtual_memory_direct_rdma = 110,
  attribute_memory_pools = 115,
};
inline constexpr int compute_mode_prohibited = 2;

enum PointerAttribute : int {
  pointer_memory_type = 2,  // unsigned: 1 host, 2 device
  pointer_device_pointer = 3,
  pointer_host_pointer = 4,
  pointer_is_managed = 8,
  pointer_device_ordinal = 9,
  pointer_range_start = 11,
  pointer_range_size = 12,
};

enum FunctionAttribute : int {
  function_max_threads_per_block = 0,
  function_shared_size_bytes = 1,
  function_local_size_bytes = 3,
  function_registers = 4,
  function_max_dynamic_shared_size_bytes = 8,
};

inline constexpr unsigned stream_non_blocking = 1;
inline constexpr unsigned event_blocking_sync = 1, event_disable_timing = 2;
inline constexpr unsigned host_alloc_portable = 1, host_register_portable = 1;
inline constexpr unsigned mem_attach_global = 1;
inline constexpr int capture_mode_thread_local = 1, capture_mode_relaxed = 2;
inline constexpr int capture_status_none = 0, capture_status_active = 1, capture_status_invalidated = 2;

struct Uuid {
  unsigned char bytes[16];
};

// CUlaunchConfig and CUlaunchAttribute, as cuLaunchKernelEx takes them.
enum LaunchAttributeId : int {
  launch_attribute_cooperative = 2,
  launch_attribute_programmatic_stream_serialization = 6,
};
struct LaunchAttribute {
  int id;
  char padding[4];
  union {
    char reserved[64];
    int value;
  };
};
static_assert(sizeof(LaunchAttribute) == 72);
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  StreamHandle stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

// CUmemLocation, CUmemAllocationProp, CUmemAccessDesc.
struct MemoryLocation {
  int type;  // 1: device
  int id;
};
struct AllocationProperties {
  int type;  // 1: pinned (the only one)
  int handle_types;
  MemoryLocation location;
  void* win32;
  unsigned char compression_type;
  unsigned char gpu_direct_rdma_capable;
  unsigned short usage;
  unsigned char reserved[4];
};
static_assert(sizeof(AllocationProperties) == 32);
struct AccessDescription {
  MemoryLocation location;
  int flags;  // 3: read and write
};

// X(need, member, CUDA's symbol, CUDA version that brought this form (as cuGetProcAddress takes it), HIP's symbol,
//   parameters)
// `need`: `core` functions must be there; a feature's functions are used when all of that feature are. HIP's symbol ""
// means an adapter in hip_api.cpp or a function that HIP lacks (null; never a core one).
// clang-format off
#define ANYACCEL_GPU_FUNCTIONS(X) \
  X(core, init, "cuInit", 2000, "hipInit", (unsigned flags)) \
  X(core, driver_version, "cuDriverGetVersion", 2020, "hipDriverGetVersion", (int* version)) \
  X(core, device_count, "cuDeviceGetCount", 2000, "hipGetDeviceCount", (int* count)) \
  X(core, device_get, "cuDeviceGet", 2000, "hipDeviceGet", (DeviceOrdinal * device, int ordinal)) \
  X(core, device_name, "cuDeviceGetName", 2000, "hipDeviceGetName", (char* name, int length, DeviceOrdinal device)) \
  X(core, device_uuid, "cuDeviceGetUuid", 11040, "", (Uuid * uuid, DeviceOrdinal device)) \
  X(core, device_total_memory, "cuDeviceTotalMem", 3020, "hipDeviceTotalMem", (size_t* bytes, DeviceOrdinal device)) \
  X(core, device_attribute, "cuDeviceGetAttribute", 2000, "", (int* value, int attribute, DeviceOrdinal device)) \
  X(core, error_name, "cuGetErrorName", 6000, "", (Result result, const char** text)) \
  X(core, error_string, "cuGetErrorString", 6000, "", (Result result, const char** text)) \
  X(core, primary_context_retain, "cuDevicePrimaryCtxRetain", 7000, "", (ContextHandle * context, DeviceOrdinal device)) \
  X(core, primary_context_release, "cuDevicePrimaryCtxRelease", 11000, "", (DeviceOrdinal device)) \
  X(core, context_set_current, "cuCtxSetCurrent", 4000, "", (ContextHandle context)) \
  X(core, context_get_current, "cuCtxGetCurrent", 4000, "", (ContextHandle * context)) \
  X(core, context_synchronize, "cuCtxSynchronize", 2000, "hipDeviceSynchronize", ()) \
  X(core, stream_priority_range, "cuCtxGetStreamPriorityRange", 5050, "hipDeviceGetStreamPriorityRange", (int* least, int* greatest)) \
  X(core, memory_info, "cuMemGetInfo", 3020, "hipMemGetInfo", (size_t* free, size_t* total)) \
  X(core, memory_alloc, "cuMemAlloc", 3020, "", (DevicePointer * pointer, size_t bytes)) \
  X(core, memory_free, "cuMemFree", 3020, "", (DevicePointer pointer)) \
  X(core, memory_alloc_managed, "cuMemAllocManaged", 6000, "", (DevicePointer * pointer, size_t bytes, unsigned flags)) \
  X(core, host_alloc, "cuMemHostAlloc", 2020, "hipHostMalloc", (void** pointer, size_t bytes, unsigned flags)) \
  X(core, host_free, "cuMemFreeHost", 2000, "hipHostFree", (void* pointer)) \
  X(core, host_register, "cuMemHostRegister", 6050, "hipHostRegister", (void* pointer, size_t bytes, unsigned flags)) \
  X(core, host_unregister, "cuMemHostUnregister", 4000, "hipHostUnregister", (void* pointer)) \
  X(core, pointer_attribute, "cuPointerGetAttribute", 4000, "", (void* data, int attribute, DevicePointer pointer)) \
  X(core, copy_async, "cuMemcpyAsync", 4000, "", (DevicePointer destination, DevicePointer source, size_t bytes, StreamHandle stream)) \
  X(core, fill_8_async, "cuMemsetD8Async", 3020, "hipMemsetD8Async", (DevicePointer destination, unsigned char value, size_t count, StreamHandle stream)) \
  X(core, fill_16_async, "cuMemsetD16Async", 3020, "hipMemsetD16Async", (DevicePointer destination, unsigned short value, size_t count, StreamHandle stream)) \
  X(core, fill_32_async, "cuMemsetD32Async", 3020, "", (DevicePointer destination, unsigned value, size_t count, StreamHandle stream)) \
  X(core, fill_2d_32_async, "cuMemsetD2D32Async", 3020, "", (DevicePointer destination, size_t pitch, unsigned value, size_t width, size_t height, StreamHandle stream)) \
  X(core, stream_create, "cuStreamCreateWithPriority", 5050, "hipStreamCreateWithPriority", (StreamHandle * stream, unsigned flags, int priority)) \
  X(core, stream_destroy, "cuStreamDestroy", 4000, "hipStreamDestroy", (StreamHandle stream)) \
  X(core, stream_query, "cuStreamQuery", 2000, "hipStreamQuery", (StreamHandle stream)) \
  X(core, stream_synchronize, "cuStreamSynchronize", 2000, "hipStreamSynchronize", (StreamHandle stream)) \
  X(core, stream_wait_event, "cuStreamWaitEvent", 3020, "hipStreamWaitEvent", (StreamHandle stream, EventHandle event, unsigned flags)) \
  X(core, event_create, "cuEventCreate", 2000, "hipEventCreateWithFlags", (EventHandle * event, unsigned flags)) \
  X(core, event_destroy, "cuEventDestroy", 4000, "hipEventDestroy", (EventHandle event)) \
  X(core, event_record, "cuEventRecord", 2000, "hipEventRecord", (EventHandle event, StreamHandle stream)) \
  X(core, event_query, "cuEventQuery", 2000, "hipEventQuery", (EventHandle event)) \
  X(core, event_synchronize, "cuEventSynchronize", 2000, "hipEventSynchronize", (EventHandle event)) \
  X(core, event_elapsed, "cuEventElapsedTime", 2000, "hipEventElapsedTime", (float* milliseconds, EventHandle start, EventHandle end)) \
  X(core, module_load, "cuModuleLoadDataEx", 2010, "hipModuleLoadDataEx", (ModuleHandle * module, const void* image, unsigned count, int* options, void** values)) \
  X(core, module_unload, "cuModuleUnload", 2000, "hipModuleUnload", (ModuleHandle module)) \
  X(core, module_function, "cuModuleGetFunction", 2000, "hipModuleGetFunction", (FunctionHandle * function, ModuleHandle module, const char* name)) \
  X(core, function_attribute, "cuFuncGetAttribute", 2020, "hipFuncGetAttribute", (int* value, int attribute, FunctionHandle function)) \
  X(core, launch_kernel, "cuLaunchKernel", 4000, "hipModuleLaunchKernel", (FunctionHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, StreamHandle stream, void** arguments, void** extra)) \
  X(host_call, launch_host_function, "cuLaunchHostFunc", 10000, "hipLaunchHostFunc", (StreamHandle stream, void (*function)(void*), void* user)) \
  X(dynamic_shared, function_set_attribute, "cuFuncSetAttribute", 9000, "", (FunctionHandle function, int attribute, int value)) \
  X(launch_attributes, launch_kernel_ex, "cuLaunchKernelEx", 11060, "", (const LaunchConfig* config, FunctionHandle function, void** arguments, void** extra)) \
  X(graphs, capture_begin, "cuStreamBeginCapture", 10010, "hipStreamBeginCapture", (StreamHandle stream, int mode)) \
  X(graphs, capture_end, "cuStreamEndCapture", 10000, "hipStreamEndCapture", (StreamHandle stream, GraphHandle* graph)) \
  X(graphs, capture_status, "cuStreamIsCapturing", 10000, "hipStreamIsCapturing", (StreamHandle stream, int* status)) \
  X(graphs, capture_mode_exchange, "cuThreadExchangeStreamCaptureMode", 10010, "hipThreadExchangeStreamCaptureMode", (int* mode)) \
  X(graphs, graph_nodes, "cuGraphGetNodes", 10000, "hipGraphGetNodes", (GraphHandle graph, void** nodes, size_t* count)) \
  X(graphs, graph_instantiate, "cuGraphInstantiateWithFlags", 11040, "", (GraphExecHandle * exec, GraphHandle graph, unsigned long long flags)) \
  X(graphs, graph_launch, "cuGraphLaunch", 10000, "hipGraphLaunch", (GraphExecHandle exec, StreamHandle stream)) \
  X(graphs, graph_exec_destroy, "cuGraphExecDestroy", 10000, "hipGraphExecDestroy", (GraphExecHandle exec)) \
  X(graphs, graph_destroy, "cuGraphDestroy", 10000, "hipGraphDestroy", (GraphHandle graph)) \
  X(peer, can_access_peer, "cuDeviceCanAccessPeer", 4000, "hipDeviceCanAccessPeer", (int* can, DeviceOrdinal device, DeviceOrdinal peer)) \
  X(peer, enable_peer_access, "cuCtxEnablePeerAccess", 4000, "", (ContextHandle peer, unsigned flags)) \
  X(peer, copy_peer_async, "cuMemcpyPeerAsync", 4000, "", (DevicePointer destination, ContextHandle destination_context, DevicePointer source, ContextHandle source_context, size_t bytes, StreamHandle stream)) \
  X(virtual_memory, allocation_granularity, "cuMemGetAllocationGranularity", 10020, "", (size_t* bytes, const AllocationProperties* properties, int recommended)) \
  X(virtual_memory, address_reserve, "cuMemAddressReserve", 10020, "", (DevicePointer * pointer, size_t bytes, size_t alignment, DevicePointer address, unsigned long long flags)) \
  X(virtual_memory, address_free, "cuMemAddressFree", 10020, "", (DevicePointer pointer, size_t bytes)) \
  X(virtual_memory, allocation_create, "cuMemCreate", 10020, "", (AllocationHandle * handle, size_t bytes, const AllocationProperties* properties, unsigned long long flags)) \
  X(virtual_memory, allocation_release, "cuMemRelease", 10020, "", (AllocationHandle handle)) \
  X(virtual_memory, memory_map, "cuMemMap", 10020, "", (DevicePointer pointer, size_t bytes, size_t offset, AllocationHandle handle, unsigned long long flags)) \
  X(virtual_memory, memory_unmap, "cuMemUnmap", 10020, "", (DevicePointer pointer, size_t bytes)) \
  X(virtual_memory, memory_set_access, "cuMemSetAccess", 10020, "", (DevicePointer pointer, size_t bytes, const AccessDescription* descriptions, size_t count))
// clang-format on

enum class Runtime { cuda, hip };

struct Api {
  Runtime runtime = Runtime::cuda;
#define ANYACCEL_GPU_MEMBER(need, member, cuda_name, since, hip_name, parameters) Result(*member) parameters = nullptr;
  ANYACCEL_GPU_FUNCTIONS(ANYACCEL_GPU_MEMBER)
#undef ANYACCEL_GPU_MEMBER

  bool has_graphs = false, has_host_call = false, has_launch_attributes = false, has_dynamic_shared = false,
       has_peer = false, has_virtual_memory = false;  // all functions of the feature are there
};

}  // namespace anyaccel::cuda
