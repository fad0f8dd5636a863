// Implements event pools and events. An event stays signaled until it is reset.
#include "simulators/level_zero/level_zero_face.h"

namespace sim::level_zero {

EventObject::~EventObject() {
  const std::lock_guard lock(pool->mutex);
  pool->taken[index] = false;
}

namespace {

ze_result_t zeEventPoolCreate(ze_context_handle_t context, const ze_event_pool_desc_t* desc, std::uint32_t count,
                              ze_device_handle_t* devices, ze_event_pool_handle_t* pool) {
  SIM_GET(Context, owner, context);
  SIM_STRUCTURE(desc, ZE_STRUCTURE_TYPE_EVENT_POOL_DESC);
  SIM_REQUIRE(desc->count > 0, ZE_RESULT_ERROR_INVALID_SIZE, "bad-argument", "an event pool of no events");
  SIM_REQUIRE(desc->flags <= 7, ZE_RESULT_ERROR_INVALID_ENUMERATION, "bad-argument", "unknown flags");
  for (std::uint32_t i = 0; i < count; ++i) {
    SIM_GET(Device, object, devices[i]);
  }
  auto made = std::make_shared<EventPool>();
  made->context = owner;
  made->flags = desc->flags;
  made->taken.assign(desc->count, false);
  *pool = handle_of<ze_event_pool_handle_t>(made, true);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeEventPoolDestroy(ze_event_pool_handle_t pool) { return destroy<EventPool>(pool, __func__); }

ze_result_t zeEventCreate(ze_event_pool_handle_t pool, const ze_event_desc_t* desc, ze_event_handle_t* event) {
  SIM_GET(EventPool, owner, pool);
  SIM_STRUCTURE(desc, ZE_STRUCTURE_TYPE_EVENT_DESC);
  {
    const std::lock_guard lock(owner->mutex);
    SIM_REQUIRE(desc->index < owner->taken.size() && !owner->taken[desc->index], ZE_RESULT_ERROR_INVALID_ARGUMENT,
                "bad-argument", "the index is taken or beyond the event pool");
    owner->taken[desc->index] = true;
  }
  auto made = std::make_shared<EventObject>();
  made->pool = owner;
  made->index = desc->index;
  *event = handle_of<ze_event_handle_t>(made, true);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeEventDestroy(ze_event_handle_t event) {
  {
    SIM_GET(EventObject, object, event);
    SIM_REQUIRE(!engine().in_use(*object->event), ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, "destroyed-in-use",
                "commands that use the event have not run");
  }
  return destroy<EventObject>(event, __func__);
}

ze_result_t zeEventHostSignal(ze_event_handle_t event) {
  SIM_GET(EventObject, object, event);
  engine().signal(*object->event);
  return ZE_RESULT_SUCCESS;
}

ze_result_t host_wait(const char* function, ze_event_handle_t event, std::uint64_t timeout) {
  ze_result_t result = ZE_RESULT_SUCCESS;
  const auto object = get<EventObject>(event, function, &result);
  if (object == nullptr) return result;
  if ((object->pool->flags & ZE_EVENT_POOL_FLAG_HOST_VISIBLE) == 0) {
    return refuse(function, ZE_RESULT_ERROR_INVALID_ARGUMENT, "bad-argument",
                  "the event's pool is not visible to the host");
  }
  return result_of(engine().wait(*object->event, timeout));
}

ze_result_t zeEventHostSynchronize(ze_event_handle_t event, std::uint64_t timeout) {
  return host_wait(__func__, event, timeout);
}

ze_result_t zeEventQueryStatus(ze_event_handle_t event) { return host_wait(__func__, event, 0); }

ze_result_t zeEventHostReset(ze_event_handle_t event) {
  SIM_GET(EventObject, object, event);
  engine().reset(*object->event);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeEventQueryKernelTimestamp(ze_event_handle_t event, ze_kernel_timestamp_result_t* result) {
  SIM_GET(EventObject, object, event);
  SIM_REQUIRE(object->pool->flags & ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP, ZE_RESULT_ERROR_INVALID_ARGUMENT,
              "bad-argument", "the event's pool takes no timestamps");
  const auto times = engine().times(*object->event);
  if (!times) return ZE_RESULT_NOT_READY;
  constexpr std::uint64_t kMask = (std::uint64_t{1} << kTimestampBits) - 1;
  result->global.kernelStart = result->context.kernelStart = device_cycles(times->first) & kMask;
  result->global.kernelEnd = result->context.kernelEnd = device_cycles(times->second) & kMask;
  return ZE_RESULT_SUCCESS;
}

}  // namespace

SIM_TABLE(zeGetEventPoolProcAddrTable, ze_event_pool_dditable_t)
SIM_BIND(pfnCreate, zeEventPoolCreate);
SIM_BIND(pfnDestroy, zeEventPoolDestroy);
SIM_TABLE_END

SIM_TABLE(zeGetEventProcAddrTable, ze_event_dditable_t)
SIM_BIND(pfnCreate, zeEventCreate);
SIM_BIND(pfnDestroy, zeEventDestroy);
SIM_BIND(pfnHostSignal, zeEventHostSignal);
SIM_BIND(pfnHostSynchronize, zeEventHostSynchronize);
SIM_BIND(pfnQueryStatus, zeEventQueryStatus);
SIM_BIND(pfnHostReset, zeEventHostReset);
SIM_BIND(pfnQueryKernelTimestamp, zeEventQueryKernelTimestamp);
SIM_TABLE_END

}  // namespace sim::level_zero
