// Compiles OpenCL C to SPIR-V by programs of the system: clang, and the translator of the same LLVM version.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::xpu::level_zero {

inline constexpr const char* opencl_language = "opencl-c";
inline constexpr const char* spirv_format = "spirv";

// Programs of one major version.
struct SpirvTools {
  std::string clang;  // empty: there are none
  std::string translator;
  int version = 0;
};
// Those of the oldest version that PATH has, so that images in the cache stay valid when a newer one is installed.
SpirvTools find_spirv_tools();

// Returns true if the first word is SPIR-V's magic number.
bool is_spirv(const void* image);

// Compilers of one major version, and how we call them. Names no device, because SPIR-V fits all. Without compilers it
// is the line of the version tried first, so that images compiled elsewhere are found.
std::string spirv_fingerprint();

// `name` appears in the compiler's messages. A source that does not compile gives succeeded false; AA_UNAVAILABLE when
// there are no compilers. Thread-safe; blocks.
abi::CompileOutput compile_to_spirv(const std::string& name, std::string_view source,
                                    const std::vector<std::string>& options);

}  // namespace anyaccel::xpu::level_zero
