// NVIDIA's management library, for what the driver does not report before it is started: which GPUs exist, and how much
// memory other processes leave free.
#pragma once

#include <string>
#include <vector>

#include "accelerators/cuda/platform/visible_devices.h"

namespace anyaccel::cuda {

struct NvmlAnswer {
  // False: `problem` says why. With `final`, the driver cannot work either (kernel module missing or of another version).
  bool answered = false;
  bool is_final = false;
  std::string problem;
  int cuda_version = 0;        // 13000; 0: not told
  std::string driver_version;  // "580.65.06"; empty: not told
  std::vector<PhysicalGpu> gpus;
};

// Leaves the process able to fork.
NvmlAnswer ask_nvml();

}  // namespace anyaccel::cuda
