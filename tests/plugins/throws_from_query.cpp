// A plugin whose query function throws, which it must never do.
#include <stdexcept>

#include "anyaccel/abi/driver.h"

extern "C" __attribute__((visibility("default"))) const aa_driver* anyaccel_driver_query(uint32_t, uint32_t,
                                                                                         const aa_host*) {
  throw std::runtime_error("thrown by the query function");
}
