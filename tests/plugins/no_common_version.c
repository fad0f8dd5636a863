/* A plugin that says properly that it has no version in common with the host. */
#include "anyaccel/abi/driver.h"

__attribute__((visibility("default"))) const aa_driver* anyaccel_driver_query(uint32_t host_abi_min,
                                                                              uint32_t host_abi_max,
                                                                              const aa_host* host);

const aa_driver* anyaccel_driver_query(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* host) {
  (void)host_abi_min;
  (void)host_abi_max;
  (void)host;
  return NULL;
}
