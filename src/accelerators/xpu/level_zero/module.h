// Loaded SPIR-V modules and their kernels.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "accelerators/xpu/level_zero/device_state.h"

namespace anyaccel::xpu::level_zero {

class Kernel final : public abi::Kernel {
 public:
  Kernel(std::shared_ptr<DeviceState> device, KernelHandle kernel, std::string name);
  ~Kernel() override;

  void describe(aa_kernel_info& info) const;

  // Thread-safe: a kernel of Level Zero carries its arguments and group size from call to call, so they are set and used
  // under a lock.
  void append(ListHandle list, const aa_launch& launch);

 private:
  std::shared_ptr<DeviceState> device_;
  KernelHandle kernel_;
  std::string name_;
  KernelProperties properties_{};
  std::mutex mutex_;
  uint32_t group_[3] = {0, 0, 0};  // as set last
};

class Module final : public abi::Module {
 public:
  Module(std::shared_ptr<DeviceState> device, const void* image, size_t size);
  ~Module() override;
  Kernel* kernel_get(const char* name, aa_kernel_info& info) override;

 private:
  std::shared_ptr<DeviceState> device_;
  ModuleHandle module_ = nullptr;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Kernel>> kernels_;
};

}  // namespace anyaccel::xpu::level_zero
