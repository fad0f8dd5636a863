/* A plugin whose table is no table. */
#include <string.h>

#include "anyaccel/abi/driver.h"

__attribute__((visibility("default"))) const aa_driver* anyaccel_driver_query(uint32_t host_abi_min,
                                                                              uint32_t host_abi_max,
                                                                              const aa_host* host);

const aa_driver* anyaccel_driver_query(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* host) {
  static aa_driver driver;
  memset((void*)&driver, 0x5a, sizeof(driver));
  (void)host_abi_min;
  (void)host_abi_max;
  (void)host;
  return &driver;
}
