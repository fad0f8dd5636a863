// Building of *.cu sources of host ops with NVIDIA's compiler driver.
#pragma once

#include <string>
#include <vector>

#include "anyaccel/op_builder.h"

namespace anyaccel::cuda {

// nvcc of CUDA_HOME, else of PATH, else of /usr/local/cuda. Throws UnavailableError naming the places.
std::string nvcc();

// Code generation for the architectures of TORCH_CUDA_ARCH_LIST ("8.0;9.0+PTX"; that very list when it is not set), and
// DS_NVCC_THREADS, DS_DEBUG_CUDA_BUILD. Throws InvalidArgument quoting an entry that is not understood.
std::vector<std::string> nvcc_flags();

std::vector<std::string> nvcc_command(const BuildPlan& plan, const std::string& source, const std::string& object,
                                      const std::string& depfile);

// The static runtime of the same toolkit.
std::vector<std::string> nvcc_link_flags();

}  // namespace anyaccel::cuda
