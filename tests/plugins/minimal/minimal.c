/* The least an accelerator can be: it allocates and copies, in plain C11, from the abi headers alone.
 *
 * Its device memory is memory of this process, but it does not promise that the host may touch it: whoever does is
 * found out, because the bytes are kept inverted. No events, no kernels, no fills, no extensions; the host has an
 * answer for each of them. Named "xpu", as a vendor's plugin that replaces a built-in accelerator would be.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "anyaccel/abi/driver.h"

enum { device_total = 1, alignment = 64 };
#define DEVICE_MEMORY ((int64_t)1 << 32)

struct aa_instance {
  int nothing;
};
struct aa_device {
  int nothing;
};
struct aa_stream {
  int nothing;
};

static const aa_host* host;
static aa_instance the_instance;
static aa_device the_device;

static aa_status* fail(aa_code code, const char* message) {
  return host->status_create(host, code, 0, message, strlen(message));
}

static void put_text(char* destination, size_t size, const char* text) {
  strncpy(destination, text, size - 1);
  destination[size - 1] = '\0';
}

/* Writes as much of a struct as the reader has room for. */
static void put_struct(void* out, uint32_t room, const void* value, size_t size) {
  memcpy(out, value, room < size ? room : size);
  memcpy(out, &room, sizeof(room)); /* struct_size stays the reader's */
}

static aa_status* probe(void* self, aa_probe* out_probe) {
  (void)self;
  aa_probe result = {.struct_size = sizeof(aa_probe), .state = AA_PROBE_USABLE, .device_count = device_total};
  put_text(result.reason, sizeof(result.reason), "the minimal plugin needs no hardware");
  put_struct(out_probe, out_probe->struct_size, &result, sizeof(result));
  return NULL;
}

static aa_status* initialize(void* self, const aa_initialize_params* params, aa_instance** out_instance) {
  (void)self;
  (void)params;
  *out_instance = &the_instance;
  return NULL;
}

static aa_status* shutdown_instance(void* self, aa_instance* instance) {
  (void)self;
  (void)instance;
  return NULL;
}

static aa_status* device_count(void* self, aa_instance* instance, int32_t* out_count) {
  (void)self;
  (void)instance;
  *out_count = device_total;
  return NULL;
}

static aa_status* device_props(void* self, aa_instance* instance, int32_t index, aa_device_props* out_props) {
  (void)self;
  (void)instance;
  if (index < 0 || index >= device_total) return fail(AA_OUT_OF_RANGE, "there is only device 0");
  aa_device_props props = {.struct_size = sizeof(aa_device_props),
                           .numa_node = -1,
                           .caps = AA_CAP_SYNCHRONOUS | AA_CAP_HOST_TIMERS | AA_CAP_RESOLVES_DEPENDENCIES,
                           .total_memory = DEVICE_MEMORY,
                           .alignment = alignment,
                           .compute_units = 1,
                           .queue_depth = 1 << 30,
                           .dtypes_storable = ((uint64_t)1 << (AA_DTYPE_F64 + 1)) - 2};
  put_text(props.name, sizeof(props.name), "minimal device");
  put_text(props.vendor, sizeof(props.vendor), "a vendor");
  put_text(props.arch, sizeof(props.arch), "minimal");
  put_struct(out_props, out_props->struct_size, &props, sizeof(props));
  return NULL;
}

static aa_status* device_open(void* self, aa_instance* instance, const aa_device_open_params* params,
                              aa_device** out_device) {
  (void)self;
  (void)instance;
  if (params->flags != 0) return fail(AA_UNIMPLEMENTED, "unknown flags");
  if (params->index < 0 || params->index >= device_total) return fail(AA_OUT_OF_RANGE, "there is only device 0");
  *out_device = &the_device;
  return NULL;
}

static aa_status* device_close(void* self, aa_device* device) {
  (void)self;
  (void)device;
  return NULL;
}

static aa_status* device_synchronize(void* self, aa_device* device) {
  (void)self;
  (void)device;
  return NULL;
}

static aa_status* mem_alloc(void* self, aa_device* device, const aa_alloc* what, aa_allocation* out_allocation) {
  (void)self;
  (void)device;
  if (what->flags != 0) return fail(AA_UNIMPLEMENTED, "unknown flags");
  if (what->kind != AA_MEMORY_DEVICE) return fail(AA_UNIMPLEMENTED, "there is only device memory");
  if (what->size > (size_t)DEVICE_MEMORY) return fail(AA_RESOURCE_EXHAUSTED, "the device has 4 GiB");
  void* pointer = aligned_alloc(alignment, (what->size + alignment - 1) / alignment * alignment);
  if (!pointer) return fail(AA_RESOURCE_EXHAUSTED, "out of memory");
  aa_allocation result = {
      .struct_size = sizeof(aa_allocation), .kind = what->kind, .pointer = pointer, .size = what->size};
  put_struct(out_allocation, out_allocation->struct_size, &result, sizeof(result));
  return NULL;
}

static aa_status* mem_free(void* self, aa_device* device, const aa_allocation* what) {
  (void)self;
  (void)device;
  free(what->pointer);
  return NULL;
}

static aa_status* copy_async(void* self, aa_stream* stream, const aa_copy* what) {
  (void)self;
  (void)stream;
  if (what->flags != 0) return fail(AA_UNIMPLEMENTED, "unknown flags");
  unsigned char* to = what->destination;
  const unsigned char* from = what->source;
  switch (what->direction) {
    case AA_COPY_DEVICE_TO_DEVICE:
      if (what->size > 0) memcpy(to, from, what->size);
      return NULL;
    case AA_COPY_HOST_TO_DEVICE:
    case AA_COPY_DEVICE_TO_HOST:
      for (size_t i = 0; i < what->size; ++i) to[i] = (unsigned char)~from[i];
      return NULL;
    default: return fail(AA_INVALID_ARGUMENT, "unknown copy direction");
  }
}

static aa_status* stream_create(void* self, aa_device* device, const aa_stream_params* params, aa_stream** out_stream) {
  (void)self;
  (void)device;
  if ((params->flags & ~AA_STREAM_NON_BLOCKING) != 0) return fail(AA_UNIMPLEMENTED, "unknown flags");
  aa_stream* stream = calloc(1, sizeof(aa_stream));
  if (!stream) return fail(AA_RESOURCE_EXHAUSTED, "out of memory");
  *out_stream = stream;
  return NULL;
}

static aa_status* stream_destroy(void* self, aa_stream* stream) {
  (void)self;
  free(stream);
  return NULL;
}

static aa_status* stream_synchronize(void* self, aa_stream* stream) {
  (void)self;
  (void)stream;
  return NULL;
}

/* What is not named here is NULL: the host puts stubs in its place. */
static const aa_driver driver = {
    .struct_size = sizeof(aa_driver),
    .abi_version = AA_ABI_CURRENT,
    .name = "xpu",
    .vendor = "a vendor",
    .version = "0.1",
    .sanitizer = "",
    .communication_backend = "",
    .visible_devices_env = "",
    .export_env_prefixes = "",
    .abi_draft = AA_ABI_DRAFT,
    .priority = 100,
    .probe = probe,
    .initialize = initialize,
    .shutdown = shutdown_instance,
    .device_count = device_count,
    .device_props = device_props,
    .device_open = device_open,
    .device_close = device_close,
    .device_synchronize = device_synchronize,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .copy_async = copy_async,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_synchronize = stream_synchronize,
};

__attribute__((visibility("default"))) const aa_driver* anyaccel_driver_query(uint32_t host_abi_min,
                                                                              uint32_t host_abi_max,
                                                                              const aa_host* services);

const aa_driver* anyaccel_driver_query(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* services) {
  if (AA_ABI_CURRENT < host_abi_min || AA_ABI_MAJOR > host_abi_max >> 16) return NULL;
  host = services;
  return &driver;
}
