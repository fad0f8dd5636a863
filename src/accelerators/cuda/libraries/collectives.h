// The vendors' libraries of collectives: NCCL for CUDA, RCCL for ROCm, which exports the same names.
// Numbers and functions from https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html; no header is needed.
#pragma once

#include <memory>
#include <string>

#include "accelerators/collective_library/library.h"
#include "accelerators/cuda/platform/gpu_api.h"

namespace anyaccel::cuda {

// Looked for as the other libraries are (open_library). Null when there is none that can be used; `problem` then says why.
std::unique_ptr<collectives::Library> open_collective_library(Runtime runtime, std::string& problem);

// The same, opened once per process. Throws AA_UNAVAILABLE with what was looked for and where.
const collectives::Library& collective_library(Runtime runtime);

}  // namespace anyaccel::cuda
