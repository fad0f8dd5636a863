// Kernels of one file of kernels/portable on whatever accelerator is active: compiled by the accelerator for its devices, and
// compiled for the host's processor (kernels/host/portable_language.h) where the tensors lie within its reach or the
// accelerator compiles none. One source and one launch serve both.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anyaccel/op_builder.h"
#include "ops/portable/kernel_set.h"

namespace anyaccel::ops {

class PlacedKernels {
 public:
  // `code` has an op run_NAME for each of `names`, the kernels of `file`.
  PlacedKernels(Accelerator& accelerator, const HostOpLibrary& code, const std::string& file,
                std::vector<std::string> names);

  // The accelerator's devices run them; else everything is for the host (run_dense).
  bool on_devices() const noexcept { return device_kernels_ != nullptr; }
  // Items of a group that share a row: 1 on the host, where an item does a row alone.
  int group_size(std::optional<int> device);

  // Runs `count` items that work alone (kernels of AA_ITEMS), or `count` groups (kernels of AA_GROUP_SIZE). With a device:
  // enqueues on the calling thread's current stream of it, like KernelSet::launch. Without: runs on the host and returns when
  // all is done.
  template <class... Arguments>
  void items(size_t kernel, std::optional<int> device, int64_t count, const Arguments&... arguments) {
    if (count <= 0) return;
    if (device) {
      device_kernels_->launch(kernel, *device, items_shape(count, *device), arguments...);
    } else {
      on_host(kernel, count, arguments...);
    }
  }
  template <class... Arguments>
  void groups(size_t kernel, std::optional<int> device, int64_t count, const Arguments&... arguments) {
    if (count <= 0) return;
    if (device) {
      device_kernels_->launch(kernel, *device, groups_shape(count, *device), arguments...);
    } else {
      on_host(kernel, count, arguments...);
    }
  }

 private:
  using HostKernel = void(int64_t count, const void* const* arguments);

  template <class... Arguments>
  void on_host(size_t kernel, int64_t count, const Arguments&... arguments) {
    const std::array<const void*, sizeof...(arguments)> addresses{static_cast<const void*>(&arguments)...};
    host_kernels_[kernel](count, addresses.data());
  }
  LaunchShape items_shape(int64_t count, int device);
  LaunchShape groups_shape(int64_t count, int device);

  std::unique_ptr<portable::KernelSet> device_kernels_;  // null: the accelerator compiles none
  std::vector<HostKernel*> host_kernels_;
};

}  // namespace anyaccel::ops
