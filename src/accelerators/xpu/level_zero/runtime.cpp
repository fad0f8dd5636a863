// Placeholder until the runtime is there.
#include "accelerators/xpu/runtime.h"

namespace anyaccel::xpu {
const Runtime level_zero_runtime{
    "level_zero",
    [](aa_probe& probe, bool) {
      probe.state = AA_PROBE_ABSENT;
      abi::copy_text(probe.reason, "not built");
    },
    [](const aa_initialize_params&) -> std::unique_ptr<abi::Driver> { throw abi::Failure(AA_UNAVAILABLE, "not built"); }};
}  // namespace anyaccel::xpu
