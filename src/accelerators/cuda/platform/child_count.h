// Counting devices in a child process, where the vendor's driver can only be asked by starting it: a started one does not
// survive fork(), and a probe must leave the process able to.
#pragma once

#include <chrono>
#include <string>

#include "accelerators/cuda/platform/gpu_api.h"

namespace anyaccel::cuda {

struct ChildCount {
  std::string problem;  // why there is no answer; empty when the members below were told
  Result init = success;
  Result counted = success;
  int count = 0;
};

// Makes a child that starts the driver, counts, and ends. A child that crashes or takes longer than `limit` gives a problem
// and is gone when this returns.
ChildCount count_in_child(const Api& api, std::chrono::milliseconds limit);

}  // namespace anyaccel::cuda
