// The xpu accelerator's table: one accelerator over two runtimes, Level Zero and OpenCL. The first usable one in this
// order is chosen; ANYACCEL_XPU_RUNTIME forces one.
#include "accelerators/xpu/xpu_driver.h"

#include <array>
#include <cstdlib>
#include <string>

#include "accelerators/xpu/runtime.h"

namespace anyaccel::xpu {
namespace {

constexpr std::array<const Runtime*, 2> runtimes{&level_zero_runtime, &opencl_runtime};

// The runtime that ANYACCEL_XPU_RUNTIME names; null when it is not set.
const Runtime* forced_runtime() {
  const char* name = std::getenv(runtime_variable);
  if (!name || !*name) return nullptr;
  for (const Runtime* runtime : runtimes) {
    if (std::string(name) == runtime->name) return runtime;
  }
  throw abi::Failure(AA_INVALID_ARGUMENT, std::string(runtime_variable) + " is \"" + name +
                                              "\"; expected level_zero or opencl, or leave it unset to take the first "
                                              "that is usable");
}

aa_probe probe_of(const Runtime& runtime, bool forced) {
  aa_probe probe{};
  probe.struct_size = sizeof(probe);
  runtime.probe(probe, forced);
  return probe;
}

// The chosen runtime, and a probe result that covers all runtimes that were tried.
const Runtime* choose(aa_probe& out) {
  const Runtime* forced = forced_runtime();
  std::string tried;
  int32_t state = AA_PROBE_ABSENT;
  for (const Runtime* runtime : runtimes) {
    if (forced && runtime != forced) continue;
    const aa_probe probe = probe_of(*runtime, forced != nullptr);
    if (probe.state == AA_PROBE_USABLE) {
      out.state = AA_PROBE_USABLE;
      out.device_count = probe.device_count;
      abi::copy_text(out.reason, std::string(runtime->name) + ": " + probe.reason);
      return runtime;
    }
    if (probe.state == AA_PROBE_UNUSABLE) state = AA_PROBE_UNUSABLE;
    tried += (tried.empty() ? "" : "; ") + std::string(runtime->name) + ": " + probe.reason;
  }
  out.state = state;
  out.device_count = 0;
  abi::copy_text(out.reason, tried);
  return nullptr;
}

// Only the statics are used: initialize() gives a driver of the chosen runtime.
struct XpuDriver : abi::Driver {
  static constexpr abi::DriverFacts facts{.name = "xpu",
                                          .vendor = "Intel and other makers of OpenCL devices",
                                          .version = "1.0",
                                          .communication_backend = "ccl",
                                          .visible_devices_env = "ZE_AFFINITY_MASK",
                                          .export_env_prefixes = "ZE_,CCL,ONEAPI"};

  static void probe(aa_probe& probe) {
    try {
      choose(probe);
    } catch (const abi::Failure& failure) {  // a wrong setting makes the accelerator unusable, with a readable reason
      probe.state = AA_PROBE_UNUSABLE;
      probe.device_count = 0;
      abi::copy_text(probe.reason, failure.what());
    }
  }

  static std::unique_ptr<abi::Driver> initialize(const aa_initialize_params& params) {
    aa_probe probe{};
    probe.struct_size = sizeof(probe);
    const Runtime* runtime = choose(probe);
    if (!runtime) throw abi::Failure(AA_UNAVAILABLE, probe.reason);
    return runtime->initialize(params);
  }
};

}  // namespace
}  // namespace anyaccel::xpu

extern "C" const aa_driver* anyaccel_xpu_driver_query(uint32_t host_abi_min, uint32_t host_abi_max,
                                                      const aa_host* host) {
  return anyaccel::abi::driver_query<anyaccel::xpu::XpuDriver>(host_abi_min, host_abi_max, host);
}
