// The ops of abi/ops.h made of portable kernels, for accelerators whose drivers compile and launch kernels.
#pragma once

#include <memory>

#include "anyaccel/driver_accelerator.h"
#include "runtime/hosted_ops.h"

namespace anyaccel::ops::portable {

// Whether the accelerator's driver compiles and launches kernels.
bool available(DriverAccelerator& accelerator);

// Null when it does not.
std::unique_ptr<HostedOps> make_portable_ops(DriverAccelerator& accelerator);

}  // namespace anyaccel::ops::portable
