// Implements module.h: loaded SPIR-V modules and their kernels.
#include "accelerators/xpu/level_zero/module.h"

#include <algorithm>
#include <cstring>

namespace anyaccel::xpu::level_zero {
namespace {

// Returns the message of a failed build and destroys its log.
std::string take_log(const Api& api, BuildLogHandle log) {
  std::string text;
  if (!log) return text;
  size_t size = 0;
  if (api.zeModuleBuildLogGetString(log, &size, nullptr) == success && size > 1) {
    text.resize(size);
    if (api.zeModuleBuildLogGetString(log, &size, text.data()) != success) text.clear();
    text.resize(std::strlen(text.c_str()));
  }
  api.zeModuleBuildLogDestroy(log);
  return text;
}

}  // namespace

Kernel::Kernel(std::shared_ptr<DeviceState> device, KernelHandle kernel, std::string name)
    : device_(std::move(device)), kernel_(kernel), name_(std::move(name)) {
  properties_.type = type_kernel_properties;
  const Result result = device_->api().zeKernelGetProperties(kernel_, &properties_);
  if (result != success) device_->api().zeKernelDestroy(kernel_);
  device_->check(result, "zeKernelGetProperties");
}

Kernel::~Kernel() {
  if (!is_forked_child()) device_->api().zeKernelDestroy(kernel_);
}

void Kernel::describe(aa_kernel_info& info) const {
  const uint32_t* required = properties_.required_group_size;
  const uint32_t fixed = required[0] * required[1] * required[2];  // 0 when it is not fixed
  info.max_threads_per_block = static_cast<int32_t>(fixed ? fixed : device_->facts().compute.max_group_size);
  info.static_shared_bytes = static_cast<int32_t>(properties_.local_memory);
  info.argument_count = static_cast<int32_t>(properties_.argument_count);
}

void Kernel::append(ListHandle list, const aa_launch& launch) {
  const Api& api = device_->api();
  if (launch.argument_count != properties_.argument_count) {
    throw abi::Failure(AA_INVALID_ARGUMENT, "kernel \"" + name_ + "\" takes " +
                                                std::to_string(properties_.argument_count) + " arguments, " +
                                                std::to_string(launch.argument_count) + " were given");
  }
  if (launch.shared_bytes != 0) {
    throw abi::Failure(AA_UNIMPLEMENTED, "kernel \"" + name_ + "\" was given " + std::to_string(launch.shared_bytes) +
                                             " bytes of shared memory at launch; here a kernel declares its local "
                                             "arrays itself");
  }
  for (int i = 0; i < 3; ++i) {
    if (launch.grid[i] == 0 || launch.block[i] == 0) {
      throw abi::Failure(AA_INVALID_ARGUMENT, "kernel \"" + name_ + "\" was launched with a grid or block of size 0");
    }
  }
  const GroupCount groups{launch.grid[0], launch.grid[1], launch.grid[2]};
  std::lock_guard lock(mutex_);
  if (!std::equal(group_, group_ + 3, launch.block)) {
    group_[0] = 0;  // unknown, should the call fail
    device_->check(api.zeKernelSetGroupSize(kernel_, launch.block[0], launch.block[1], launch.block[2]),
                   "zeKernelSetGroupSize");
    std::copy(launch.block, launch.block + 3, group_);
  }
  for (uint32_t i = 0; i < launch.argument_count; ++i) {
    device_->check(api.zeKernelSetArgumentValue(kernel_, i, launch.argument_sizes[i], launch.arguments[i]),
                   "zeKernelSetArgumentValue");
  }
  device_->check(api.zeCommandListAppendLaunchKernel(list, kernel_, &groups, nullptr, 0, nullptr),
                 "zeCommandListAppendLaunchKernel");
}

Module::Module(std::shared_ptr<DeviceState> device, const void* image, size_t size) : device_(std::move(device)) {
  ModuleDesc desc{};
  desc.type = type_module_desc;
  desc.format = format_spirv;
  desc.input_size = size;
  desc.input = static_cast<const uint8_t*>(image);
  // Without it, drivers address buffers with 32 bits.
  constexpr uint64_t four_gib = uint64_t{1} << 32;
  desc.build_flags =
      device_->facts().properties.max_allocation > four_gib ? "-ze-opt-greater-than-4GB-buffer-required" : "";
  BuildLogHandle log = nullptr;
  const Result result =
      device_->api().zeModuleCreate(device_->context().handle(), device_->handle(), &desc, &module_, &log);
  const std::string words = take_log(device_->api(), log);
  if (result == success) return;
  if (!words.empty() && code_of(result) != AA_DEVICE_LOST) {
    throw abi::Failure(code_of(result), "the driver refuses the SPIR-V module: " + result_text(result) + "\n" + words,
                       result);
  }
  device_->check(result, "zeModuleCreate");
}

Module::~Module() {
  kernels_.clear();
  if (module_ && !is_forked_child()) device_->api().zeModuleDestroy(module_);
}

Kernel* Module::kernel_get(const char* name, aa_kernel_info& info) {
  device_->usable();
  std::lock_guard lock(mutex_);
  std::unique_ptr<Kernel>& kernel = kernels_[name];
  if (!kernel) {
    KernelDesc desc{};
    desc.type = type_kernel_desc;
    desc.name = name;
    KernelHandle handle = nullptr;
    const Result result = device_->api().zeKernelCreate(module_, &desc, &handle);
    if (result == error_invalid_kernel_name) {
      kernels_.erase(name);
      return nullptr;
    }
    device_->check(result, "zeKernelCreate");
    kernel = std::make_unique<Kernel>(device_, handle, name);
  }
  kernel->describe(info);
  return kernel.get();
}

}  // namespace anyaccel::xpu::level_zero
