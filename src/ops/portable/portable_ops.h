// Provides the ops of abi/ops.h with portable kernels, for accelerators whose drivers compile and launch kernels.
#pragma once

#include <memory>

#include "anyaccel/driver_accelerator.h"
#include "runtime/ops/portable_ops.h"

namespace anyaccel::ops::portable {

// Returns whether the accelerator's driver compiles and launches kernels.
bool available(DriverAccelerator& accelerator);

// Creates an object with the accelerator's portable kernels; null if its driver does not compile and launch kernels.
template <class Kernels>
std::unique_ptr<Kernels> make_kernels(Accelerator& accelerator) {
  auto* driver = dynamic_cast<DriverAccelerator*>(&accelerator);
  return driver && available(*driver) ? std::make_unique<Kernels>(*driver) : nullptr;
}

// Returns null if the driver does not.
std::unique_ptr<PortableOps> make_portable_ops(DriverAccelerator& accelerator);

}  // namespace anyaccel::ops::portable
