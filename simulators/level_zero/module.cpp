// Implements modules and kernels: SPIR-V names the kernels, and the table of host-compiled kernels has their code.
#include <algorithm>
#include <cstring>

#include "simulators/level_zero/level_zero_face.h"
#include "simulators/level_zero/spirv.h"

namespace sim::level_zero {
namespace {

// Empty, and `kernels` filled, when every kernel of the module is known and agrees with its host-compiled form.
std::string build(const SpirvModule& spirv, std::vector<const KernelInfo*>* kernels) {
  if (!spirv.problem.empty()) return spirv.problem + "\n";
  std::string log;
  for (const SpirvKernel& kernel : spirv.kernels) {
    const auto known = kernel_table().find(kernel.name);
    if (known == kernel_table().end()) {
      log += "kernel " + kernel.name + ": not among the kernels compiled into the simulator\n";
      continue;
    }
    const KernelInfo& info = known->second;
    if (kernel.parameters != info.parameters.size()) {
      log += "kernel " + kernel.name + ": " + std::to_string(kernel.parameters) + " parameters, the simulator's has " +
             std::to_string(info.parameters.size()) + "\n";
    }
    const std::array<std::uint32_t, 3> size = {static_cast<std::uint32_t>(info.group_size), 1, 1};
    if (kernel.group_size[0] != 0 && kernel.group_size != size) {
      log += "kernel " + kernel.name + ": groups of " + std::to_string(kernel.group_size[0]) +
             " items, the simulator's has " + std::to_string(size[0]) + "\n";
    }
    kernels->push_back(&info);
  }
  return log;
}

ze_result_t zeModuleCreate(ze_context_handle_t context, ze_device_handle_t device, const ze_module_desc_t* desc,
                           ze_module_handle_t* module, ze_module_build_log_handle_t* log) {
  SIM_GET(Context, owner, context);
  SIM_GET(Device, object, device);
  SIM_STRUCTURE(desc, ZE_STRUCTURE_TYPE_MODULE_DESC);
  SIM_REQUIRE(desc->pInputModule != nullptr && desc->inputSize > 0, ZE_RESULT_ERROR_INVALID_SIZE, "bad-argument",
              "the module is empty");
  if (desc->format != ZE_MODULE_FORMAT_IL_SPIRV) return ZE_RESULT_ERROR_INVALID_NATIVE_BINARY;
  auto made = std::make_shared<Module>();
  made->context = owner;
  made->device = object;
  const std::string text = build(read_spirv(desc->pInputModule, desc->inputSize), &made->kernels);
  if (log != nullptr) {
    auto record = std::make_shared<BuildLog>();
    record->text = text;
    *log = handle_of<ze_module_build_log_handle_t>(record, true);
  }
  if (!text.empty()) return ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
  *module = handle_of<ze_module_handle_t>(made, true);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeModuleDestroy(ze_module_handle_t module) { return destroy<Module>(module, __func__); }

ze_result_t zeModuleGetKernelNames(ze_module_handle_t module, std::uint32_t* count, const char** names) {
  SIM_GET(Module, object, module);
  const std::uint32_t n = enumerate(count, static_cast<std::uint32_t>(object->kernels.size()), names);
  for (std::uint32_t i = 0; i < n; ++i) names[i] = object->kernels[i]->name.c_str();
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeModuleGetProperties(ze_module_handle_t module, ze_module_properties_t* properties) {
  SIM_GET(Module, object, module);
  SIM_STRUCTURE(properties, ZE_STRUCTURE_TYPE_MODULE_PROPERTIES);
  properties->flags = 0;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeModuleBuildLogDestroy(ze_module_build_log_handle_t log) { return destroy<BuildLog>(log, __func__); }

ze_result_t zeModuleBuildLogGetString(ze_module_build_log_handle_t log, std::size_t* size, char* text) {
  SIM_GET(BuildLog, object, log);
  const std::size_t have = object->text.size() + 1;
  if (text != nullptr) std::memcpy(text, object->text.c_str(), std::min(*size, have));
  if (text == nullptr || *size > have) *size = have;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeKernelCreate(ze_module_handle_t module, const ze_kernel_desc_t* desc, ze_kernel_handle_t* kernel) {
  SIM_GET(Module, owner, module);
  SIM_STRUCTURE(desc, ZE_STRUCTURE_TYPE_KERNEL_DESC);
  SIM_REQUIRE(desc->pKernelName != nullptr, ZE_RESULT_ERROR_INVALID_NULL_POINTER, "bad-argument", "the name is null");
  const auto found = std::find_if(owner->kernels.begin(), owner->kernels.end(),
                                  [&](const KernelInfo* info) { return info->name == desc->pKernelName; });
  if (found == owner->kernels.end()) return ZE_RESULT_ERROR_INVALID_KERNEL_NAME;
  auto made = std::make_shared<Kernel>();
  made->module = owner;
  made->info = *found;
  made->arguments.resize(made->info->parameters.size());
  *kernel = handle_of<ze_kernel_handle_t>(made, true);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeKernelDestroy(ze_kernel_handle_t kernel) { return destroy<Kernel>(kernel, __func__); }

ze_result_t zeKernelSetGroupSize(ze_kernel_handle_t kernel, std::uint32_t x, std::uint32_t y, std::uint32_t z) {
  SIM_GET(Kernel, object, kernel);
  SIM_REQUIRE(x == static_cast<std::uint32_t>(object->info->group_size) && y == 1 && z == 1,
              ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION, "kernel-state",
              "group size (" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ") for " +
                  object->info->name + ", which was compiled for " + std::to_string(object->info->group_size));
  object->group_size_set = true;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeKernelSuggestGroupSize(ze_kernel_handle_t kernel, std::uint32_t, std::uint32_t, std::uint32_t,
                                     std::uint32_t* x, std::uint32_t* y, std::uint32_t* z) {
  SIM_GET(Kernel, object, kernel);
  *x = static_cast<std::uint32_t>(object->info->group_size);
  *y = *z = 1;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeKernelSetArgumentValue(ze_kernel_handle_t kernel, std::uint32_t index, std::size_t size,
                                     const void* value) {
  SIM_GET(Kernel, object, kernel);
  SIM_REQUIRE(index < object->arguments.size(), ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX, "kernel-state",
              object->info->name + " has no argument " + std::to_string(index));
  const ParameterInfo& parameter = object->info->parameters[index];
  SIM_REQUIRE(size == parameter.size, ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE, "kernel-state",
              "argument " + std::to_string(index) + " of " + object->info->name + " has " +
                  std::to_string(parameter.size) + " bytes, not " + std::to_string(size));
  SIM_REQUIRE(value != nullptr || parameter.pointer, ZE_RESULT_ERROR_INVALID_ARGUMENT, "kernel-state",
              "argument " + std::to_string(index) + " of " + object->info->name + " is a value, not local memory");
  std::vector<char>& bytes = object->arguments[index];
  bytes.assign(size, 0);  // a null value: a null pointer
  if (value != nullptr) std::memcpy(bytes.data(), value, size);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeKernelSetIndirectAccess(ze_kernel_handle_t kernel, ze_kernel_indirect_access_flags_t flags) {
  SIM_GET(Kernel, object, kernel);
  SIM_REQUIRE(flags <= 7, ZE_RESULT_ERROR_INVALID_ENUMERATION, "bad-argument", "unknown flags");
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeKernelSetCacheConfig(ze_kernel_handle_t kernel, ze_cache_config_flags_t flags) {
  SIM_GET(Kernel, object, kernel);
  SIM_REQUIRE(flags <= 3, ZE_RESULT_ERROR_INVALID_ENUMERATION, "bad-argument", "unknown flags");
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeKernelGetProperties(ze_kernel_handle_t kernel, ze_kernel_properties_t* p) {
  SIM_GET(Kernel, object, kernel);
  SIM_STRUCTURE(p, ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES);
  p->numKernelArgs = static_cast<std::uint32_t>(object->arguments.size());
  p->requiredGroupSizeX = static_cast<std::uint32_t>(object->info->group_size);
  p->requiredGroupSizeY = p->requiredGroupSizeZ = 1;
  p->requiredNumSubGroups = 0;
  p->requiredSubgroupSize = kSubgroup;
  p->maxSubgroupSize = kSubgroup;
  p->maxNumSubgroups = kGroupSize / kSubgroup;
  p->localMemSize = p->privateMemSize = p->spillMemSize = 0;
  std::memset(&p->uuid, 0, sizeof p->uuid);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeKernelGetName(ze_kernel_handle_t kernel, std::size_t* size, char* name) {
  SIM_GET(Kernel, object, kernel);
  const std::size_t have = object->info->name.size() + 1;
  if (name != nullptr) std::memcpy(name, object->info->name.c_str(), std::min(*size, have));
  if (name == nullptr || *size > have) *size = have;
  return ZE_RESULT_SUCCESS;
}

}  // namespace

SIM_TABLE(zeGetModuleProcAddrTable, ze_module_dditable_t)
SIM_BIND(pfnCreate, zeModuleCreate);
SIM_BIND(pfnDestroy, zeModuleDestroy);
SIM_BIND(pfnGetKernelNames, zeModuleGetKernelNames);
SIM_BIND(pfnGetProperties, zeModuleGetProperties);
SIM_TABLE_END

SIM_TABLE(zeGetModuleBuildLogProcAddrTable, ze_module_build_log_dditable_t)
SIM_BIND(pfnDestroy, zeModuleBuildLogDestroy);
SIM_BIND(pfnGetString, zeModuleBuildLogGetString);
SIM_TABLE_END

SIM_TABLE(zeGetKernelProcAddrTable, ze_kernel_dditable_t)
SIM_BIND(pfnCreate, zeKernelCreate);
SIM_BIND(pfnDestroy, zeKernelDestroy);
SIM_BIND(pfnSetCacheConfig, zeKernelSetCacheConfig);
SIM_BIND(pfnSetGroupSize, zeKernelSetGroupSize);
SIM_BIND(pfnSuggestGroupSize, zeKernelSuggestGroupSize);
SIM_BIND(pfnSetArgumentValue, zeKernelSetArgumentValue);
SIM_BIND(pfnSetIndirectAccess, zeKernelSetIndirectAccess);
SIM_BIND(pfnGetProperties, zeKernelGetProperties);
SIM_BIND(pfnGetName, zeKernelGetName);
SIM_TABLE_END

}  // namespace sim::level_zero
