// A plugin whose probe throws, which it must never do.
#include <stdexcept>

extern "C" {
#include "broken.h"
}

namespace {
aa_status* throwing(void*, aa_probe*) { throw std::runtime_error("thrown by the probe"); }
constexpr aa_driver driver = BROKEN_TABLE("xpu", throwing);
}  // namespace

extern "C" const aa_driver* anyaccel_driver_query(uint32_t, uint32_t, const aa_host*) {
  (void)broken_probe;
  return &driver;
}
