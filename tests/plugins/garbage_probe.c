/* A plugin whose probe gives an absurd state and count, and a reason that is not terminated. */
#include <string.h>

#include "broken.h"

static aa_status* garbage(void* self, aa_probe* out_probe) {
  (void)self;
  out_probe->state = 77;
  out_probe->device_count = -5;
  memset(out_probe->reason, 'x', sizeof(out_probe->reason));
  return NULL;
}

const aa_driver* anyaccel_driver_query(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* host) {
  static const aa_driver driver = BROKEN_TABLE("xpu", garbage);
  (void)host_abi_min;
  (void)host_abi_max;
  (void)host;
  (void)broken_probe;
  return &driver;
}
