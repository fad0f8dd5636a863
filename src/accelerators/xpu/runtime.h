// The two runtimes of xpu: each is a driver class of its own (anyaccel/abi/driver_class.hpp), and driver.cpp chooses.
#pragma once

#include <memory>

#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::xpu {

// Value of ANYACCEL_XPU_RUNTIME.
inline constexpr const char* runtime_variable = "ANYACCEL_XPU_RUNTIME";

struct Runtime {
  const char* name;  // as ANYACCEL_XPU_RUNTIME names it
  // As aa_driver::probe: cheap, without a context, leaves the process able to fork. `forced`: ANYACCEL_XPU_RUNTIME names
  // this runtime.
  void (*probe)(aa_probe& probe, bool forced);
  std::unique_ptr<abi::Driver> (*initialize)(const aa_initialize_params& params);
};

extern const Runtime level_zero_runtime;
extern const Runtime opencl_runtime;

}  // namespace anyaccel::xpu
