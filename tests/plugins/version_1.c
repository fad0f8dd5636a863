/* A plugin that was compiled for version 1 of the plugin interface: its own frozen copy of what that version began with. */
#include <stddef.h>
#include <stdint.h>

typedef struct driver_of_version_1 {
  uint32_t struct_size;
  uint32_t abi_version;
  const char* name;
  const char* vendor;
  const char* version;
  const char* texts[4];
  void (*functions[32])(void);
} driver_of_version_1;

__attribute__((visibility("default"))) const void* anyaccel_driver_query(uint32_t host_abi_min, uint32_t host_abi_max,
                                                                         const void* host);

const void* anyaccel_driver_query(uint32_t host_abi_min, uint32_t host_abi_max, const void* host) {
  static const driver_of_version_1 driver = {
      sizeof(driver), (1u << 16) | 3u, "old", "tests", "1", {"", "", "", ""}, {0}};
  (void)host;
  if (((1u << 16) | 4u) < host_abi_min || 1u > host_abi_max >> 16) return NULL;
  return &driver;
}
