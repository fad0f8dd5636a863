/* A plugin built for another major version that answers all the same. */
#include "broken.h"

const aa_driver* anyaccel_driver_query(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* host) {
  static aa_driver driver = BROKEN_TABLE("xpu", broken_probe);
  driver.abi_version = AA_ABI_VERSION(AA_ABI_MAJOR + 6, 3);
  (void)host_abi_min;
  (void)host_abi_max;
  (void)host;
  return &driver;
}
