// Finding Metal: the two libraries, what the probe says, and the devices.
#pragma once

#include <string>
#include <vector>

#include "accelerators/mps/objc.h"
#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::mps {

// The properties of a device that are known without opening it. Only devices that can be used: Apple's own, whose
// memory is the host's.
struct DeviceFacts {
  Owned device;  // id<MTLDevice>
  std::string name;
  std::string family;  // "apple7"
  int64_t memory = 0;  // bytes that Metal recommends to use at most
  int64_t max_buffer = 0;
  int64_t threadgroup_memory = 0;
  uint64_t registry_id = 0;
};

// aa_driver::probe. Metal is asked in a child process, since a process that has used it cannot fork.
void probe(aa_probe& probe);
// Opens the libraries and gives the devices; AA_UNAVAILABLE with the probe's reason.
std::vector<DeviceFacts> start();

}  // namespace anyaccel::mps
