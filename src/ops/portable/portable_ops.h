// The ops of abi/ops.h made of portable kernels, for accelerators whose drivers compile and launch kernels.
#pragma once

#include <memory>

#include "anyaccel/driver_accelerator.h"
#include "runtime/ops/portable_ops.h"

namespace anyaccel::ops::portable {

// True when the accelerator's driver compiles and launches kernels.
bool available(DriverAccelerator& accelerator);

// An object of the accelerator's portable kernels; null when its driver compiles and launches none.
template <class Kernels>
std::unique_ptr<Kernels> make_kernels(Accelerator& accelerator) {
  auto* driver = dynamic_cast<DriverAccelerator*>(&accelerator);
  return driver && available(*driver) ? std::make_unique<Kernels>(*driver) : nullptr;
}

// Null when it does not.
std::unique_ptr<PortableOps> make_portable_ops(DriverAccelerator& accelerator);

}  // namespace anyaccel::ops::portable
