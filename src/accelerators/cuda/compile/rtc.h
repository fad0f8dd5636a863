// The vendors' compilers as libraries: NVRTC, of which several versions may be installed, and hipRTC.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "accelerators/cuda/platform/platform.h"
#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::cuda {

// One opened library. NVRTC and hipRTC differ in names only.
class RuntimeCompiler {
 public:
  // Binds the functions of `handle`; problem() is not empty if one is missing.
  RuntimeCompiler(void* handle, Runtime runtime);

  const std::string& problem() const noexcept { return problem_; }
  const std::string& path() const noexcept { return path_; }
  // "nvrtc 13.0 (size of the library)".
  const std::string& identity() const noexcept { return identity_; }
  // Compute capabilities times ten, ascending; empty if the library does not report them.
  const std::vector<int>& architectures() const noexcept { return architectures_; }

  enum class Image { native, ptx };
  // Throws AA_RESOURCE_EXHAUSTED, or AA_UNAVAILABLE when the library itself does not work. What is wrong with the source or
  // the options comes back in the log.
  abi::CompileOutput compile(const std::string& name, const std::string& source,
                             const std::vector<std::string>& options, Image image) const;

 private:
  using Program = struct OpaqueProgram*;
  using Status = int;
  class OpenProgram;
  void check(Status status, const char* call) const;

  Runtime runtime_;
  std::string problem_;
  std::string path_;
  std::string identity_;
  std::vector<int> architectures_;

  Status (*create_)(Program* program, const char* source, const char* name, int headers, const char* const* texts,
                    const char* const* names) = nullptr;
  Status (*destroy_)(Program* program) = nullptr;
  Status (*compile_)(Program program, int count, const char* const* options) = nullptr;
  Status (*log_size_)(Program program, size_t* bytes) = nullptr;
  Status (*log_)(Program program, char* text) = nullptr;
  Status (*code_size_)(Program program, size_t* bytes) = nullptr;
  Status (*code_)(Program program, char* code) = nullptr;
  Status (*ptx_size_)(Program program, size_t* bytes) = nullptr;  // NVRTC's only
  Status (*ptx_)(Program program, char* code) = nullptr;
  Status (*version_)(int* major, int* minor) = nullptr;
  const char* (*error_string_)(Status) = nullptr;
};

// Returns the NVRTC to use with a driver of `driver_version` (13000; 0: not known) for an architecture (90). A driver
// need not accept the output of a newer major version, so versions that are not newer than the driver come first,
// newest first: the first one that knows the architecture; else the newest one that is older than the device, whose PTX
// the driver can translate. Newer versions are used only if there is no such one. Null if there is none; `tried` then
// says what was looked for and where.
const RuntimeCompiler* find_nvrtc(int driver_version, int architecture, std::string& tried);
const RuntimeCompiler* find_hiprtc(std::string& tried);

}  // namespace anyaccel::cuda
