/* A plugin of an older minor version: its table ends before the functions for events and kernels. Loads and works as
 * far as it goes. The memory behind the table is not the table's, and must not be read.
 */
#include <stdlib.h>
#include <string.h>

#include "broken.h"

const aa_driver* anyaccel_driver_query(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* host) {
  static const aa_driver whole = BROKEN_TABLE("xpu", broken_probe);
  static void* table; /* not of the whole type, whose size it lacks */
  (void)host_abi_min;
  (void)host_abi_max;
  (void)host;
  if (!table) {
    const uint32_t size = (uint32_t)offsetof(aa_driver, stream_wait_event);
    table = malloc(size);
    if (!table) return NULL;
    memcpy(table, &whole, size);
    memcpy(table, &size, sizeof(size));
  }
  return table;
}
