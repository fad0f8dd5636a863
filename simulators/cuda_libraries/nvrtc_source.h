// Handles a source in the simulated NVRTC: the machine's C++ compiler preprocesses it, then its kernels are searched
// for. Kernels run as they were compiled for the host (kernels/), so nothing is translated.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace sim_library {

struct CompileRequest {
  std::string name, source;                    // of the program
  std::map<std::string, std::string> headers;  // by the name they are included by
  std::vector<std::string> preprocessor;       // options for it: -D, -U, -I, -include
  int arch = 75;                               // 90
  std::string suffix;                          // "a" of sm_90a
};
struct CompileResult {
  bool succeeded = false;
  std::string log;                   // with NVRTC's wording
  std::vector<std::string> kernels;  // extern "C" __global__ functions, in their order
};
CompileResult compile_source(const CompileRequest& request);

}  // namespace sim_library
