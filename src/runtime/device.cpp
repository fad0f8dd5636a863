// Device: see anyaccel/device.h.
#include "anyaccel/device.h"

#include "anyaccel/accelerator.h"

namespace anyaccel {

std::string Device::name() const { return is_host() ? "cpu" : accelerator->device_name(index); }

}  // namespace anyaccel
