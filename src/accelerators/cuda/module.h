// Loaded device code and its kernels.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "accelerators/cuda/device_state.h"

namespace anyaccel::cuda {

class Kernel final : public abi::Kernel {
 public:
  Kernel(DeviceState& device, FunctionHandle function, std::string name);

  FunctionHandle function() const noexcept { return function_; }
  const std::string& name() const noexcept { return name_; }
  void describe(aa_kernel_info& info) const;
  // Ensures that a launch may use this much dynamic shared memory.
  void allow_shared(uint32_t bytes) {
    if (bytes > allowed_shared_.load(std::memory_order_relaxed)) [[unlikely]]
      ask_for_shared(bytes);
  }

 private:
  void ask_for_shared(uint32_t bytes);

  DeviceState& device_;
  const FunctionHandle function_;
  const std::string name_;
  int max_threads_ = 0, static_shared_ = 0;
  std::atomic<uint32_t> allowed_shared_{0};
};

class Module final : public abi::Module {
 public:
  Module(DeviceState& device, const void* image, size_t size, const char* format);
  ~Module() override;
  Kernel* kernel_get(const char* name, aa_kernel_info& info) override;

 private:
  DeviceState& device_;
  ModuleHandle module_ = nullptr;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Kernel>> kernels_;
};

}  // namespace anyaccel::cuda
