// Reads the image of a module: the text that the simulated NVRTC writes, or a real cubin (ELF).
#pragma once

#include <string>
#include <vector>

namespace sim::cuda {

struct ModuleImage {
  std::string problem;  // empty: it could be read
  int arch = 0;         // ten times the compute capability
  bool exact = false;   // for this architecture only ("sm_90a")
  std::vector<std::string> kernels;
};

// The length is known from the contents only, as in cuModuleLoadData. A text image:
//   SIMCUBIN
//   arch sm_90
//   kernel NAME      (one line each)
// ends with any other line or with a zero byte.
ModuleImage read_image(const void* image);

// Returns whether code for `image.arch` runs on a device: same major version, no newer minor one.
bool runs_on(const ModuleImage& image, int arch);

}  // namespace sim::cuda
