/* What the broken plugins share: a table whose required functions are all there and do nothing. */
#ifndef ANYACCEL_TESTS_PLUGINS_BROKEN_H_
#define ANYACCEL_TESTS_PLUGINS_BROKEN_H_

#include "anyaccel/abi/driver.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED const aa_driver* anyaccel_driver_query(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* host);

static aa_status* broken_probe(void* self, aa_probe* out_probe) {
  (void)self;
  out_probe->state = AA_PROBE_UNUSABLE;
  out_probe->device_count = 0;
  out_probe->reason[0] = '?';
  out_probe->reason[1] = '\0';
  return NULL;
}
static aa_status* broken_initialize(void* self, const aa_initialize_params* params, aa_instance** out) {
  (void)self;
  (void)params;
  (void)out;
  return NULL;
}
static aa_status* broken_instance(void* self, aa_instance* instance) {
  (void)self;
  (void)instance;
  return NULL;
}
static aa_status* broken_count(void* self, aa_instance* instance, int32_t* out) {
  (void)self;
  (void)instance;
  (void)out;
  return NULL;
}
static aa_status* broken_props(void* self, aa_instance* instance, int32_t index, aa_device_props* out) {
  (void)self;
  (void)instance;
  (void)index;
  (void)out;
  return NULL;
}
static aa_status* broken_open(void* self, aa_instance* instance, const aa_device_open_params* params, aa_device** out) {
  (void)self;
  (void)instance;
  (void)params;
  (void)out;
  return NULL;
}
static aa_status* broken_device(void* self, aa_device* device) {
  (void)self;
  (void)device;
  return NULL;
}
static aa_status* broken_alloc(void* self, aa_device* device, const aa_alloc* what, aa_allocation* out) {
  (void)self;
  (void)device;
  (void)what;
  (void)out;
  return NULL;
}
static aa_status* broken_free(void* self, aa_device* device, const aa_allocation* what) {
  (void)self;
  (void)device;
  (void)what;
  return NULL;
}
static aa_status* broken_copy(void* self, aa_stream* stream, const aa_copy* what) {
  (void)self;
  (void)stream;
  (void)what;
  return NULL;
}
static aa_status* broken_create(void* self, aa_device* device, const aa_stream_params* params, aa_stream** out) {
  (void)self;
  (void)device;
  (void)params;
  (void)out;
  return NULL;
}
static aa_status* broken_stream(void* self, aa_stream* stream) {
  (void)self;
  (void)stream;
  return NULL;
}

/* An initializer: BROKEN_TABLE("name", its probe) */
#define BROKEN_TABLE(driver_name, probe_function)                                                                      \
  {                                                                                                                    \
    .struct_size = sizeof(aa_driver), .abi_version = AA_ABI_CURRENT, .name = driver_name, .vendor = "tests",           \
    .version = "1", .sanitizer = "", .communication_backend = "", .visible_devices_env = "",                           \
    .export_env_prefixes = "", .options = 0, .option_count = 0, .abi_draft = AA_ABI_DRAFT, .priority = 100,            \
    .flags = 0, .op_builders = 0, .toolchain = 0, .self = 0, .probe = probe_function, .initialize = broken_initialize, \
    .shutdown = broken_instance, .query_extension = 0, .device_count = broken_count, .device_props = broken_props,     \
    .device_open = broken_open, .device_close = broken_device, .device_synchronize = broken_device,                    \
    .device_memory_info = 0, .device_native = 0, .mem_alloc = broken_alloc, .mem_free = broken_free, .mem_query = 0,   \
    .copy_async = broken_copy, .fill_async = 0, .stream_create = broken_create, .stream_destroy = broken_stream,       \
    .stream_query = 0, .stream_synchronize = broken_stream, .stream_wait_event = 0, .stream_native = 0,                \
    .stream_host_call = 0, .event_create = 0, .event_destroy = 0, .event_record = 0, .event_query = 0,                 \
    .event_synchronize = 0, .event_elapsed = 0, .module_load = 0, .module_unload = 0, .kernel_get = 0,                 \
    .kernel_launch = 0                                                                                                 \
  }

#endif /* ANYACCEL_TESTS_PLUGINS_BROKEN_H_ */
