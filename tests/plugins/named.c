/* The minimal plugin under the name and with the priority that its file's name says: a copy "acme_20.so" calls itself
 * "acme" and has priority 20. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#define anyaccel_driver_query minimal_driver_query
#include "minimal/minimal.c"
#undef anyaccel_driver_query

__attribute__((visibility("default"))) const aa_driver* anyaccel_driver_query(uint32_t host_abi_min,
                                                                              uint32_t host_abi_max,
                                                                              const aa_host* services);

const aa_driver* anyaccel_driver_query(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* services) {
  static char name[32];
  static aa_driver named;
  const aa_driver* found = minimal_driver_query(host_abi_min, host_abi_max, services);
  Dl_info info;
  if (!found || !dladdr((const void*)&driver, &info)) return NULL;
  const char* slash = strrchr(info.dli_fname, '/');
  named = *found;
  named.name = name;
  if (sscanf(slash ? slash + 1 : info.dli_fname, "%31[a-z.]_%d.so", name, &named.priority) != 2) return NULL;
  return &named;
}
