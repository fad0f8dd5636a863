/* A plugin that lacks functions without which nothing works. */
#include "broken.h"

const aa_driver* anyaccel_driver_query(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* host) {
  static aa_driver driver = BROKEN_TABLE("xpu", broken_probe);
  driver.mem_alloc = NULL;
  driver.stream_synchronize = NULL;
  (void)host_abi_min;
  (void)host_abi_max;
  (void)host;
  return &driver;
}
