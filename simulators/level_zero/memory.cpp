// Implements zeMem*: device, host and shared memory.
#include "simulators/level_zero/level_zero_face.h"

namespace sim::level_zero {
namespace {

ze_result_t allocate(const char* function, MemoryKind kind, ze_context_handle_t context, ze_device_handle_t device,
                     std::size_t size, std::size_t alignment, void** pointer) {
  ze_result_t result = ZE_RESULT_SUCCESS;
  const auto owner = get<Context>(context, function, &result);
  if (owner == nullptr) return result;
  int index = -1;
  if (kind == MemoryKind::device || (kind == MemoryKind::shared && device != nullptr)) {
    const auto object = get<Device>(device, function, &result);
    if (object == nullptr) return result;
    index = object->index;
  }
  if (pointer == nullptr) return refuse(function, ZE_RESULT_ERROR_INVALID_NULL_POINTER, "bad-argument", "no result");
  if (size == 0) return refuse(function, ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "bad-argument", "the size is 0");
  if ((alignment & (alignment - 1)) != 0) {
    return refuse(function, ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, "bad-argument",
                  "the alignment is not a power of two");
  }
  if (size > engine().settings().memory) return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
  std::shared_ptr<const Allocation> allocation;
  const Status status = engine().allocate(kind, index, owner->token, size, alignment, &allocation);
  if (status == Status::out_of_memory && index < 0) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  if (status != Status::ok) return result_of(status);
  *pointer = allocation->pointer;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeMemAllocDevice(ze_context_handle_t context, const ze_device_mem_alloc_desc_t* desc, std::size_t size,
                             std::size_t alignment, ze_device_handle_t device, void** pointer) {
  SIM_STRUCTURE(desc, ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC);
  SIM_REQUIRE(desc->ordinal == 0, ZE_RESULT_ERROR_INVALID_ARGUMENT, "bad-argument", "no memory has this ordinal");
  return allocate(__func__, MemoryKind::device, context, device, size, alignment, pointer);
}

ze_result_t zeMemAllocHost(ze_context_handle_t context, const ze_host_mem_alloc_desc_t* desc, std::size_t size,
                           std::size_t alignment, void** pointer) {
  SIM_STRUCTURE(desc, ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC);
  return allocate(__func__, MemoryKind::host, context, nullptr, size, alignment, pointer);
}

ze_result_t zeMemAllocShared(ze_context_handle_t context, const ze_device_mem_alloc_desc_t* device_desc,
                             const ze_host_mem_alloc_desc_t* host_desc, std::size_t size, std::size_t alignment,
                             ze_device_handle_t device, void** pointer) {
  SIM_STRUCTURE(device_desc, ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC);
  SIM_STRUCTURE(host_desc, ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC);
  return allocate(__func__, MemoryKind::shared, context, device, size, alignment, pointer);
}

ze_result_t zeMemFree(ze_context_handle_t context, void* pointer) {
  SIM_GET(Context, owner, context);
  return result_of(engine().free(pointer, owner->token));
}

ze_result_t zeMemGetAllocProperties(ze_context_handle_t context, const void* pointer,
                                    ze_memory_allocation_properties_t* properties, ze_device_handle_t* device) {
  SIM_GET(Context, owner, context);
  SIM_STRUCTURE(properties, ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES);
  const auto allocation = engine().memory().find(pointer);
  if (device != nullptr) *device = nullptr;
  properties->type = ZE_MEMORY_TYPE_UNKNOWN;
  properties->id = 0;
  properties->pageSize = 0;
  const char* p = static_cast<const char*>(pointer);
  if (allocation == nullptr || allocation->freed || p < allocation->pointer ||
      p >= allocation->pointer + allocation->size || allocation->owner != owner->token) {
    return ZE_RESULT_SUCCESS;
  }
  properties->type = allocation->kind == MemoryKind::device ? ZE_MEMORY_TYPE_DEVICE
                     : allocation->kind == MemoryKind::host ? ZE_MEMORY_TYPE_HOST
                                                            : ZE_MEMORY_TYPE_SHARED;
  properties->id = allocation->id;
  properties->pageSize = 4096;
  for (const auto& object : state().devices) {
    if (device != nullptr && object->index == allocation->device) *device = handle_of<ze_device_handle_t>(*object);
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeMemGetAddressRange(ze_context_handle_t context, const void* pointer, void** base, std::size_t* size) {
  SIM_GET(Context, owner, context);
  const auto allocation = engine().memory().find(pointer);
  SIM_REQUIRE(allocation != nullptr && !allocation->freed, ZE_RESULT_ERROR_INVALID_ARGUMENT, "bad-pointer",
              "the pointer is no live memory of a device");
  if (base != nullptr) *base = allocation->pointer;
  if (size != nullptr) *size = allocation->size;
  return ZE_RESULT_SUCCESS;
}

}  // namespace

SIM_TABLE(zeGetMemProcAddrTable, ze_mem_dditable_t)
SIM_BIND(pfnAllocDevice, zeMemAllocDevice);
SIM_BIND(pfnAllocHost, zeMemAllocHost);
SIM_BIND(pfnAllocShared, zeMemAllocShared);
SIM_BIND(pfnFree, zeMemFree);
SIM_BIND(pfnGetAllocProperties, zeMemGetAllocProperties);
SIM_BIND(pfnGetAddressRange, zeMemGetAddressRange);
SIM_TABLE_END

}  // namespace sim::level_zero
