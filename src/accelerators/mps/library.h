// Finds Metal: opens its two libraries, implements the probe, and lists the devices.
#pragma once

#include <string>
#include <vector>

#include "accelerators/mps/objc.h"
#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::mps {

// The properties of a device that are known without opening it. Only usable devices are described: Apple's own, which
// share the host's memory.
struct DeviceFacts {
  Owned device;  // id<MTLDevice>
  std::string name;
  std::string family;  // "apple7"
  int64_t memory = 0;  // bytes that Metal recommends to use at most
  int64_t max_buffer = 0;
  int64_t threadgroup_memory = 0;
  uint64_t registry_id = 0;
};

// Implements aa_driver::probe. A child process queries Metal, since a process that has used it cannot fork.
void probe(aa_probe& probe);
// Opens the libraries and returns the devices; throws AA_UNAVAILABLE with the probe's reason.
std::vector<DeviceFacts> start();

}  // namespace anyaccel::mps
