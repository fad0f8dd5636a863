// Facts about its devices that a started driver reports.
#pragma once

#include <vector>

#include "accelerators/cuda/platform/platform.h"

namespace anyaccel::cuda {

// All devices, in the driver's order. Throws abi::Failure AA_UNAVAILABLE naming the device that does not answer.
std::vector<DeviceFacts> read_device_facts(const Api& api, int count);

// `shown` devices spread over the given ones, each with its share of the memory.
std::vector<DeviceFacts> share_devices(const std::vector<DeviceFacts>& physical, int shown);

}  // namespace anyaccel::cuda
