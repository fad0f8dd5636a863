// Runs the kernels of one file of kernels/portable on whatever accelerator is active: they are compiled by the
// accelerator for its devices, and for the host's processor (kernels/host/portable_language.h) if that can reach the
// tensors or the accelerator compiles no kernels. One source and one launch serve both.
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
  // `code` must have an op run_NAME for each of `names`, the kernels of `file`. Null: they are not run on the host.
  PlacedKernels(Accelerator& accelerator, const HostOpLibrary* code, const std::string& file,
                std::vector<std::string> names);

  // Returns whether the accelerator's devices run the kernels; if not, the host runs everything (run_dense).
  bool on_devices() const noexcept { return device_kernels_ != nullptr; }
  // Returns the number of items of a group, which share a row: 1 on the host, where one item processes a row.
  int group_size(std::optional<int> device);

  // Runs `count` items that work alone (kernels with AA_ITEMS), or `count` groups (kernels with AA_GROUP_SIZE). With a
  // device, enqueues the work on the calling thread's current stream of that device, like KernelSet::launch. Without
  // one, runs it on the host and returns when it is complete.
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

  std::unique_ptr<portable::KernelSet> device_kernels_;  // null if the accelerator compiles none
  std::vector<HostKernel*> host_kernels_;
};

}  // namespace anyaccel::ops
