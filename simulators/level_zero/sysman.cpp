// Provides the tables that the loader requires and this driver leaves empty, and sysman's memory state.
#include <level_zero/zes_api.h>
#include <level_zero/zes_ddi.h>
#include <level_zero/zet_api.h>
#include <level_zero/zet_ddi.h>

#include "simulators/level_zero/level_zero_face.h"

namespace sim::level_zero {
namespace {

struct MemoryModule : Object {
  explicit MemoryModule(int i) : Object("memory module"), index(i) {}
  const int index;
};

ze_result_t zesDeviceEnumMemoryModules(zes_device_handle_t device, std::uint32_t* count, zes_mem_handle_t* memory) {
  SIM_GET(Device, object, device);
  static std::mutex mutex;
  static std::map<int, std::shared_ptr<MemoryModule>> modules;
  const std::lock_guard lock(mutex);
  auto& module = modules[object->index];
  if (module == nullptr) {
    module = std::make_shared<MemoryModule>(object->index);
    engine().handles().add(module, false);
  }
  if (enumerate(count, 1, memory) == 1) memory[0] = handle_of<zes_mem_handle_t>(*module);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zesMemoryGetProperties(zes_mem_handle_t memory, zes_mem_properties_t* p) {
  SIM_GET(MemoryModule, object, memory);
  SIM_STRUCTURE(p, ZES_STRUCTURE_TYPE_MEM_PROPERTIES);
  p->type = ZES_MEM_TYPE_DDR;
  p->onSubdevice = 0;
  p->subdeviceId = 0;
  p->location = ZES_MEM_LOC_DEVICE;
  p->physicalSize = engine().settings().memory;
  p->busWidth = p->numChannels = -1;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zesMemoryGetState(zes_mem_handle_t memory, zes_mem_state_t* p) {
  SIM_GET(MemoryModule, object, memory);
  SIM_STRUCTURE(p, ZES_STRUCTURE_TYPE_MEM_STATE);
  p->health = ZES_MEM_HEALTH_OK;
  p->size = engine().settings().memory;
  p->free = p->size - engine().used(object->index);
  return ZE_RESULT_SUCCESS;
}

}  // namespace

SIM_TABLE(zesGetDeviceProcAddrTable, zes_device_dditable_t)
SIM_BIND(pfnEnumMemoryModules, zesDeviceEnumMemoryModules);
SIM_TABLE_END

SIM_TABLE(zesGetMemoryProcAddrTable, zes_memory_dditable_t)
SIM_BIND(pfnGetProperties, zesMemoryGetProperties);
SIM_BIND(pfnGetState, zesMemoryGetState);
SIM_TABLE_END

#define SIM_EMPTY_TABLE(name, type) \
  SIM_TABLE(name, type)             \
  SIM_TABLE_END

SIM_EMPTY_TABLE(zeGetDeviceExpProcAddrTable, ze_device_exp_dditable_t)
SIM_EMPTY_TABLE(zeGetImageProcAddrTable, ze_image_dditable_t)
SIM_EMPTY_TABLE(zeGetImageExpProcAddrTable, ze_image_exp_dditable_t)
SIM_EMPTY_TABLE(zeGetEventExpProcAddrTable, ze_event_exp_dditable_t)
SIM_EMPTY_TABLE(zeGetKernelExpProcAddrTable, ze_kernel_exp_dditable_t)
SIM_EMPTY_TABLE(zeGetSamplerProcAddrTable, ze_sampler_dditable_t)
SIM_EMPTY_TABLE(zeGetPhysicalMemProcAddrTable, ze_physical_mem_dditable_t)
SIM_EMPTY_TABLE(zeGetVirtualMemProcAddrTable, ze_virtual_mem_dditable_t)
SIM_EMPTY_TABLE(zeGetFabricVertexExpProcAddrTable, ze_fabric_vertex_exp_dditable_t)
SIM_EMPTY_TABLE(zeGetFabricEdgeExpProcAddrTable, ze_fabric_edge_exp_dditable_t)
SIM_EMPTY_TABLE(zetGetDeviceProcAddrTable, zet_device_dditable_t)
SIM_EMPTY_TABLE(zetGetContextProcAddrTable, zet_context_dditable_t)
SIM_EMPTY_TABLE(zetGetCommandListProcAddrTable, zet_command_list_dditable_t)
SIM_EMPTY_TABLE(zetGetModuleProcAddrTable, zet_module_dditable_t)
SIM_EMPTY_TABLE(zetGetKernelProcAddrTable, zet_kernel_dditable_t)
SIM_EMPTY_TABLE(zetGetMetricGroupProcAddrTable, zet_metric_group_dditable_t)
SIM_EMPTY_TABLE(zetGetMetricGroupExpProcAddrTable, zet_metric_group_exp_dditable_t)
SIM_EMPTY_TABLE(zetGetMetricProcAddrTable, zet_metric_dditable_t)
SIM_EMPTY_TABLE(zetGetMetricStreamerProcAddrTable, zet_metric_streamer_dditable_t)
SIM_EMPTY_TABLE(zetGetMetricQueryPoolProcAddrTable, zet_metric_query_pool_dditable_t)
SIM_EMPTY_TABLE(zetGetMetricQueryProcAddrTable, zet_metric_query_dditable_t)
SIM_EMPTY_TABLE(zetGetTracerExpProcAddrTable, zet_tracer_exp_dditable_t)
SIM_EMPTY_TABLE(zetGetDebugProcAddrTable, zet_debug_dditable_t)
SIM_EMPTY_TABLE(zesGetDriverProcAddrTable, zes_driver_dditable_t)
SIM_EMPTY_TABLE(zesGetSchedulerProcAddrTable, zes_scheduler_dditable_t)
SIM_EMPTY_TABLE(zesGetPerformanceFactorProcAddrTable, zes_performance_factor_dditable_t)
SIM_EMPTY_TABLE(zesGetPowerProcAddrTable, zes_power_dditable_t)
SIM_EMPTY_TABLE(zesGetFrequencyProcAddrTable, zes_frequency_dditable_t)
SIM_EMPTY_TABLE(zesGetEngineProcAddrTable, zes_engine_dditable_t)
SIM_EMPTY_TABLE(zesGetStandbyProcAddrTable, zes_standby_dditable_t)
SIM_EMPTY_TABLE(zesGetFirmwareProcAddrTable, zes_firmware_dditable_t)
SIM_EMPTY_TABLE(zesGetFabricPortProcAddrTable, zes_fabric_port_dditable_t)
SIM_EMPTY_TABLE(zesGetTemperatureProcAddrTable, zes_temperature_dditable_t)
SIM_EMPTY_TABLE(zesGetPsuProcAddrTable, zes_psu_dditable_t)
SIM_EMPTY_TABLE(zesGetFanProcAddrTable, zes_fan_dditable_t)
SIM_EMPTY_TABLE(zesGetLedProcAddrTable, zes_led_dditable_t)
SIM_EMPTY_TABLE(zesGetRasProcAddrTable, zes_ras_dditable_t)
SIM_EMPTY_TABLE(zesGetDiagnosticsProcAddrTable, zes_diagnostics_dditable_t)

}  // namespace sim::level_zero
