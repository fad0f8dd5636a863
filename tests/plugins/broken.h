/* What the broken plugins share: a table whose required functions are all there and do nothing. */
#ifndef ANYACCEL_TESTS_PLUGINS_BROKEN_H_
#define ANYACCEL_TESTS_PLUGINS_BROKEN_H_

#include "anyaccel/abi/driver.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED const aa_driver* anyaccel_driver_query(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* host);

static aa_status* broken_probe(aa_probe* out_probe) {
  out_probe->state = AA_PROBE_UNUSABLE;
  out_probe->device_count = 0;
  out_probe->reason[0] = '?';
  out_probe->reason[1] = '\0';
  return NULL;
}
static aa_status* broken_initialize(const aa_initialize_params* params, aa_instance** out) {
  (void)params;
  (void)out;
  return NULL;
}
static aa_status* broken_instance(aa_instance* instance) {
  (void)instance;
  return NULL;
}
static aa_status* broken_count(aa_instance* instance, int32_t* out) {
  (void)instance;
  (void)out;
  return NULL;
}
static aa_status* broken_props(aa_instance* instance, int32_t index, aa_device_props* out) {
  (void)instance;
  (void)index;
  (void)out;
  return NULL;
}
static aa_status* broken_open(aa_instance* instance, int32_t index, aa_device** out) {
  (void)instance;
  (void)index;
  (void)out;
  return NULL;
}
static aa_status* broken_device(aa_device* device) {
  (void)device;
  return NULL;
}
static aa_status* broken_alloc(aa_device* device, int32_t kind, size_t size, void** out) {
  (void)device;
  (void)kind;
  (void)size;
  (void)out;
  return NULL;
}
static aa_status* broken_free(aa_device* device, int32_t kind, void* pointer, size_t size) {
  (void)device;
  (void)kind;
  (void)pointer;
  (void)size;
  return NULL;
}
static aa_status* broken_copy(aa_stream* stream, void* to, const void* from, size_t size, int32_t direction) {
  (void)stream;
  (void)to;
  (void)from;
  (void)size;
  (void)direction;
  return NULL;
}
static aa_status* broken_create(aa_device* device, int32_t priority, uint32_t flags, aa_stream** out) {
  (void)device;
  (void)priority;
  (void)flags;
  (void)out;
  return NULL;
}
static aa_status* broken_stream(aa_stream* stream) {
  (void)stream;
  return NULL;
}

/* An initializer: BROKEN_TABLE("name", its probe) */
#define BROKEN_TABLE(driver_name, probe_function)                                                                     \
  {                                                                                                                   \
    .struct_size = sizeof(aa_driver), .abi_version = AA_ABI_CURRENT, .name = driver_name, .vendor = "tests",          \
    .version = "1", .sanitizer = "", .communication_backend = "", .visible_devices_env = "",                          \
    .export_env_prefixes = "", .probe = probe_function, .initialize = broken_initialize, .shutdown = broken_instance, \
    .query_extension = 0, .device_count = broken_count, .device_props = broken_props, .device_open = broken_open,     \
    .device_close = broken_device, .device_synchronize = broken_device, .device_memory_info = 0,                      \
    .mem_alloc = broken_alloc, .mem_free = broken_free, .mem_query = 0, .copy_async = broken_copy, .fill_async = 0,   \
    .stream_create = broken_create, .stream_destroy = broken_stream, .stream_query = 0,                               \
    .stream_synchronize = broken_stream, .stream_wait_event = 0, .stream_native = 0, .stream_host_call = 0,           \
    .event_create = 0, .event_destroy = 0, .event_record = 0, .event_query = 0, .event_synchronize = 0,               \
    .event_elapsed = 0, .module_load = 0, .module_unload = 0, .kernel_get = 0, .kernel_launch = 0                     \
  }

#endif /* ANYACCEL_TESTS_PLUGINS_BROKEN_H_ */
