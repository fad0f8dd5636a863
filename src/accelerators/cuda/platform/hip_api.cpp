// AMD's HIP library bound to the table (loading.h). Functions that HIP has in another form get an adapter with CUDA's
// signature. A context of HIP is a device: its handle is the device's number plus one.
#include <dlfcn.h>

#include <array>
#include <cstring>
#include <vector>

#include "accelerators/cuda/libraries/loading.h"
#include "accelerators/cuda/platform/platform.h"

namespace anyaccel::cuda {
namespace {

// X(member, HIP's symbol, parameters, result): the functions that the adapters call.
// clang-format off
#define ANYACCEL_HIP_FUNCTIONS(X) \
  X(set_device, "hipSetDevice", (int device), Result) \
  X(get_device, "hipGetDevice", (int* device), Result) \
  X(attribute, "hipDeviceGetAttribute", (int* value, int attribute, int device), Result) \
  X(error_name, "hipGetErrorName", (Result result), const char*) \
  X(error_string, "hipGetErrorString", (Result result), const char*) \
  X(malloc, "hipMalloc", (void** pointer, size_t bytes), Result) \
  X(free, "hipFree", (void* pointer), Result) \
  X(malloc_managed, "hipMallocManaged", (void** pointer, size_t bytes, unsigned flags), Result) \
  X(copy_async, "hipMemcpyAsync", (void* destination, const void* source, size_t bytes, int kind, StreamHandle stream), Result) \
  X(fill_32_async, "hipMemsetD32Async", (void* destination, int value, size_t count, StreamHandle stream), Result) \
  X(fill_2d_async, "hipMemset2DAsync", (void* destination, size_t pitch, int value, size_t width, size_t height, StreamHandle stream), Result) \
  X(pointer_attributes, "hipPointerGetAttributes", (void* attributes, const void* pointer), Result) \
  X(graph_instantiate, "hipGraphInstantiate", (GraphExecHandle* exec, GraphHandle graph, void** node, char* log, size_t size), Result) \
  X(enable_peer_access, "hipDeviceEnablePeerAccess", (int peer, unsigned flags), Result) \
  X(copy_peer_async, "hipMemcpyPeerAsync", (void* destination, int destination_device, const void* source, int source_device, size_t bytes, StreamHandle stream), Result)
#define ANYACCEL_HIP_OPTIONAL_FUNCTIONS(X) \
  X(pointer_attribute, "hipPointerGetAttribute", (void* data, int attribute, void* pointer), Result) \
  X(uuid, "hipDeviceGetUuid", (Uuid* uuid, int device), Result) \
  X(properties_6, "hipGetDevicePropertiesR0600", (void* properties, int device), Result) \
  X(properties_5, "hipGetDeviceProperties", (void* properties, int device), Result)
// clang-format on

struct Hip {
#define ANYACCEL_HIP_MEMBER(member, symbol, parameters, result) result(*member) parameters = nullptr;
  ANYACCEL_HIP_FUNCTIONS(ANYACCEL_HIP_MEMBER)
  ANYACCEL_HIP_OPTIONAL_FUNCTIONS(ANYACCEL_HIP_MEMBER)
#undef ANYACCEL_HIP_MEMBER
  int major = 0;  // of the library
};
Hip hip;  // filled before the table is handed out, constant afterwards

void* address(DevicePointer pointer) { return reinterpret_cast<void*>(static_cast<uintptr_t>(pointer)); }

// hipDeviceAttribute_t, the same from 5.2 to 6.3.
int attribute_number(int attribute) {
  switch (attribute) {
    case attribute_max_threads_per_block: return 56;
    case attribute_max_shared_memory_per_block: return 74;
    case attribute_warp_size: return 87;
    case attribute_clock_rate: return 5;
    case attribute_multiprocessor_count: return 63;
    case attribute_compute_mode: return 6;
    case attribute_pci_bus_id: return 67;
    case attribute_pci_device_id: return 68;
    case attribute_l2_cache_size: return 19;
    case attribute_unified_addressing: return 85;
    case attribute_pci_domain_id: return 69;
    case attribute_compute_capability_major: return 23;
    case attribute_compute_capability_minor: return 61;
    case attribute_max_shared_memory_per_multiprocessor: return 10002;
    case attribute_managed_memory: return 24;
    case attribute_pageable_memory_access: return 65;
    case attribute_concurrent_managed_access: return 9;
    case attribute_cooperative_launch: return 10;
    case attribute_max_shared_memory_per_block_optin: return 74;  // all of it is available without a request
    case attribute_memory_pools: return 88;
    default: return -1;
  }
}

Result device_attribute(int* value, int attribute, DeviceOrdinal device) {
  if (attribute == attribute_virtual_memory_management) {  // not bound
    *value = 0;
    return success;
  }
  const int number = attribute_number(attribute);
  return number < 0 ? error_invalid_value : hip.attribute(value, number, device);
}

Result device_uuid(Uuid* uuid, DeviceOrdinal device) { return hip.uuid ? hip.uuid(uuid, device) : error_not_supported; }

Result error_name(Result result, const char** text) {
  *text = hip.error_name(result);
  return *text ? success : error_invalid_value;
}

Result error_string(Result result, const char** text) {
  *text = hip.error_string(result);
  return *text ? success : error_invalid_value;
}

ContextHandle context_of(int device) { return reinterpret_cast<ContextHandle>(static_cast<uintptr_t>(device) + 1); }
int device_of(ContextHandle context) { return static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1; }

Result primary_context_retain(ContextHandle* context, DeviceOrdinal device) {
  const Result result = hip.set_device(device);
  if (result == success) *context = context_of(device);
  return result;
}

Result primary_context_release(DeviceOrdinal) { return success; }  // it lives as long as the process

// A thread always has a device: setting none changes nothing.
Result context_set_current(ContextHandle context) { return context ? hip.set_device(device_of(context)) : success; }

Result context_get_current(ContextHandle* context) {
  int device = 0;
  const Result result = hip.get_device(&device);
  *context = result == success ? context_of(device) : nullptr;
  return result;
}

Result memory_alloc(DevicePointer* pointer, size_t bytes) {
  void* memory = nullptr;
  const Result result = hip.malloc(&memory, bytes);
  *pointer = reinterpret_cast<uintptr_t>(memory);
  return result;
}

Result memory_free(DevicePointer pointer) { return hip.free(address(pointer)); }

Result memory_alloc_managed(DevicePointer* pointer, size_t bytes, unsigned flags) {
  void* memory = nullptr;
  const Result result = hip.malloc_managed(&memory, bytes, flags);
  *pointer = reinterpret_cast<uintptr_t>(memory);
  return result;
}

constexpr int unknown_memory = 0;

// hipMemoryType counts from 0 (host) up to ROCm 5 and from 1 since; CUDA from 1. 0: memory that the runtime does not know.
int cuda_memory_type(int type) {
  const int host = hip.major >= 6 ? 1 : 0;
  if (type == host) return 1;
  if (type == host + 1) return 2;
  return hip.major >= 6 && type == 3 ? 2 : unknown_memory;  // managed
}

// hipPointerAttribute_t, which has one layout in all versions.
struct PointerFacts {
  int type;
  int device;
  void* device_pointer;
  void* host_pointer;
  int is_managed;
  unsigned flags;
  std::array<char, 96> later_members;
};

Result pointer_attribute(void* data, int attribute, DevicePointer pointer) {
  const bool is_range = attribute == pointer_range_start || attribute == pointer_range_size;
  if (is_range)
    return hip.pointer_attribute ? hip.pointer_attribute(data, attribute, address(pointer)) : error_not_supported;
  PointerFacts facts{};
  if (const Result result = hip.pointer_attributes(&facts, address(pointer)); result != success) return result;
  // Memory of no known kind is an error in CUDA, and up to ROCm 5 in HIP.
  const int type = cuda_memory_type(facts.type);
  if (type == unknown_memory) return error_invalid_value;
  switch (attribute) {
    case pointer_memory_type: {
      const auto value = static_cast<unsigned>(type);
      std::memcpy(data, &value, sizeof(value));
      return success;
    }
    case pointer_device_pointer: std::memcpy(data, &facts.device_pointer, sizeof(facts.device_pointer)); return success;
    case pointer_host_pointer: std::memcpy(data, &facts.host_pointer, sizeof(facts.host_pointer)); return success;
    case pointer_is_managed: {
      const unsigned value = facts.is_managed ? 1 : 0;
      std::memcpy(data, &value, sizeof(value));
      return success;
    }
    case pointer_device_ordinal: std::memcpy(data, &facts.device, sizeof(facts.device)); return success;
    default: return error_invalid_value;
  }
}

constexpr int copy_kind_default = 4;  // the runtime derives the direction from the pointers

Result copy_async(DevicePointer destination, DevicePointer source, size_t bytes, StreamHandle stream) {
  return hip.copy_async(address(destination), address(source), bytes, copy_kind_default, stream);
}

Result fill_32_async(DevicePointer destination, unsigned value, size_t count, StreamHandle stream) {
  return hip.fill_32_async(address(destination), static_cast<int>(value), count, stream);
}

Result fill_2d_32_async(DevicePointer destination, size_t pitch, unsigned value, size_t width, size_t height,
                        StreamHandle stream) {
  const unsigned byte = value & 0xff;
  if (value == byte * 0x01010101u) {
    return hip.fill_2d_async(address(destination), pitch, static_cast<int>(byte), width * sizeof(value), height,
                             stream);
  }
  for (size_t row = 0; row < height; ++row) {
    const Result result = fill_32_async(destination + row * pitch, value, width, stream);
    if (result != success) return result;
  }
  return success;
}

// All local memory of a compute unit is available without a request; a launch with more fails by itself.
Result function_set_attribute(FunctionHandle, int attribute, int) {
  return attribute == function_max_dynamic_shared_size_bytes ? success : error_not_supported;
}

Result graph_instantiate(GraphExecHandle* exec, GraphHandle graph, unsigned long long flags) {
  if (flags != 0) return error_not_supported;
  return hip.graph_instantiate(exec, graph, nullptr, nullptr, 0);
}

Result enable_peer_access(ContextHandle peer, unsigned flags) {
  return peer ? hip.enable_peer_access(device_of(peer), flags) : error_invalid_value;
}

Result copy_peer_async(DevicePointer destination, ContextHandle destination_context, DevicePointer source,
                       ContextHandle source_context, size_t bytes, StreamHandle stream) {
  return hip.copy_peer_async(address(destination), device_of(destination_context), address(source),
                             device_of(source_context), bytes, stream);
}

void set_adapters(Api& api) {
  api.device_uuid = device_uuid;
  api.device_attribute = device_attribute;
  api.error_name = error_name;
  api.error_string = error_string;
  api.primary_context_retain = primary_context_retain;
  api.primary_context_release = primary_context_release;
  api.context_set_current = context_set_current;
  api.context_get_current = context_get_current;
  api.memory_alloc = memory_alloc;
  api.memory_free = memory_free;
  api.memory_alloc_managed = memory_alloc_managed;
  api.pointer_attribute = pointer_attribute;
  api.copy_async = copy_async;
  api.fill_32_async = fill_32_async;
  api.fill_2d_32_async = fill_2d_32_async;
  api.function_set_attribute = function_set_attribute;
  api.graph_instantiate = graph_instantiate;
  api.enable_peer_access = enable_peer_access;
  api.copy_peer_async = copy_peer_async;
}

GpuLibrary load_hip() {
  GpuLibrary result;
  std::string tried;
  void* library =
      open_library(Runtime::hip, {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"}, tried);
  if (!library) {
    result.problem = "no ROCm: " + tried;
    return result;
  }
  result.is_there = true;
  result.path = library_path(library);
  BindingRecord record;
#define ANYACCEL_BIND(member, symbol, parameters, type)                        \
  hip.member = reinterpret_cast<decltype(hip.member)>(dlsym(library, symbol)); \
  record.note("core", symbol, hip.member != nullptr);
  ANYACCEL_HIP_FUNCTIONS(ANYACCEL_BIND)
#undef ANYACCEL_BIND
#define ANYACCEL_BIND(member, symbol, parameters, type) \
  hip.member = reinterpret_cast<decltype(hip.member)>(dlsym(library, symbol));
  ANYACCEL_HIP_OPTIONAL_FUNCTIONS(ANYACCEL_BIND)
#undef ANYACCEL_BIND
  set_adapters(result.api);
#define ANYACCEL_BIND(need, member, cuda_name, since, hip_name, parameters)                                     \
  if (*(hip_name)) result.api.member = reinterpret_cast<decltype(result.api.member)>(dlsym(library, hip_name)); \
  record.note(#need, *(hip_name) ? (hip_name) : (cuda_name), result.api.member != nullptr);
  ANYACCEL_GPU_FUNCTIONS(ANYACCEL_BIND)
#undef ANYACCEL_BIND
  record.set_features(result.api);
  result.api.runtime = Runtime::hip;
  if (!record.missing_core().empty()) {
    result.problem =
        result.path + " lacks the function " + record.missing_core() + "; anyaccel needs ROCm 5.2 or newer";
    return result;
  }
  // 50221153: 5.2.21153.
  if (result.api.driver_version(&result.version) != success) result.version = 0;
  hip.major = result.version / 10000000;
  return result;
}

}  // namespace

const GpuLibrary& hip_library() {
  static const GpuLibrary& loaded = *new GpuLibrary(load_hip());  // used until the process has ended
  return loaded;
}

std::string hip_arch(DeviceOrdinal device) {
  // hipDeviceProp_t grows from version to version; a buffer larger than any keeps what follows it whole.
  std::vector<char> properties(16384);
  const auto ask = hip.properties_6 ? hip.properties_6 : hip.properties_5;
  if (!ask || ask(properties.data(), device) != success) return {};
  const size_t usual = hip.properties_6 ? 1160 : 396;  // of gcnArchName, in 6.x and 5.2
  constexpr std::string_view prefix = "gfx";
  const std::string_view all(properties.data(), properties.size() - 1);
  size_t at = all.compare(usual, prefix.size(), prefix) == 0 ? usual : all.find(prefix);
  if (at == std::string_view::npos) return {};
  std::string arch(all.data() + at);  // "gfx942:sramecc+:xnack-"
  return arch.substr(0, arch.find(':'));
}

}  // namespace anyaccel::cuda
