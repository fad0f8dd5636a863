// CUDA C++ source to a cubin at run time: by NVRTC if it is installed, else nvcc; HIP: hipRTC. Needs no device.
#pragma once

#include <span>
#include <string>

#include "accelerators/cuda/platform/platform.h"
#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::cuda {

// A line that changes with compiler, version and architecture ("nvrtc 13.0 sm_90"). Where there is no compiler, that of the last
// one whose kernels may be in the cache folder; throws AA_UNAVAILABLE, saying what was looked for and where, if there was none.
std::string compiler_fingerprint(const DeviceFacts& facts);

// Returns whether the compiler takes "--gpu-architecture=sm_90a": the features that only the device's own architecture has, known
// from CUDA 12 on. Throws as above.
bool compiles_own_features(const DeviceFacts& facts);

// Compiles for the device's architecture. `options` as NVRTC takes them. A compile error is a result with succeeded false.
// Thread-safe. Throws AA_UNAVAILABLE where there is no compiler.
abi::CompileOutput compile(const DeviceFacts& facts, const std::string& name, const std::string& source,
                           std::span<const std::string> options);

}  // namespace anyaccel::cuda
