// Measures the most that the device can reach: the extension "ceilings".
#pragma once

#include "accelerators/cuda/device_state.h"

namespace anyaccel::cuda {

// As aa_ceilings_table::measure. The device's context is current.
double measure_ceiling(DeviceState& device, int32_t kind, size_t bytes, double seconds);

}  // namespace anyaccel::cuda
