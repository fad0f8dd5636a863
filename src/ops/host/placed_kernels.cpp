// Implements placed_kernels.h, which runs kernels of kernels/portable on the accelerator's devices and on the host.
#include "ops/host/placed_kernels.h"

#include "ops/portable/portable_ops.h"
#include "runtime/ops/kernel_arguments.h"

namespace anyaccel::ops {

PlacedKernels::PlacedKernels(Accelerator& accelerator, const HostOpLibrary* code, const std::string& file,
                             std::vector<std::string> names) {
  for (const std::string& name : names) {
    if (code) host_kernels_.push_back(code->function<HostKernel>(("run_" + name).c_str()));
  }
  auto* driver = dynamic_cast<DriverAccelerator*>(&accelerator);
  if (driver && portable::available(*driver)) {
    device_kernels_ = std::make_unique<portable::KernelSet>(*driver, file, std::move(names));
  }
}

int PlacedKernels::group_size(std::optional<int> device) {
  return device ? device_kernels_->tuning(*device).group_size : 1;
}

LaunchShape PlacedKernels::items_shape(int64_t count, int device) {
  const int32_t items = device_kernels_->tuning(device).items;
  return {.grid = {portable::groups_for(count, items), 1, 1}, .block = {static_cast<uint32_t>(items), 1, 1}};
}

LaunchShape PlacedKernels::groups_shape(int64_t count, int device) {
  const int32_t size = device_kernels_->tuning(device).group_size;
  return {.grid = {portable::groups_for(count, 1), 1, 1}, .block = {static_cast<uint32_t>(size), 1, 1}};
}

}  // namespace anyaccel::ops
