/* Implements the accelerator "acme" in C11: a complete driver for a device that does not exist, to be replaced piece by
 * piece with calls of your vendor's runtime. ../cpp is the same driver in C++.
 *
 * The device's memory is memory of this process and its work is done by the calling thread before a call returns, which
 * AA_CAP_SYNCHRONOUS says. It has two devices, one op of its own ("add"), and collectives (communicator.c). The
 * host does everything else that a model needs.
 *
 * Every function gets the `self` of its table first. This driver keeps nothing there: its handles hold everything.
 */
#include "acme.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "anyaccel/abi/ops.h"

enum { device_total = 2, alignment = 64 };
#define DEVICE_MEMORY ((int64_t)4 << 30)

#define EXPORTED __attribute__((visibility("default")))
#define UNUSED(argument) ((void)(argument))

struct aa_instance {
  aa_device* devices; /* device_total elements */
};
struct aa_device {
  int32_t index;
  pthread_mutex_t mutex;
  int64_t allocated; /* bytes */
};
/* Two threads may enqueue on one stream at once: each item runs as a whole. */
struct aa_stream {
  pthread_mutex_t mutex;
};
/* An event does nothing, because work is complete before it could be recorded. */
struct aa_event {
  int nothing;
};

static const aa_host* host;

aa_status* acme_error(aa_code code, const char* message) {
  return host->status_create(host, code, 0, message, strlen(message));
}

static void put_text(char* destination, size_t size, const char* text) {
  strncpy(destination, text, size - 1);
  destination[size - 1] = '\0';
}

/* Writes the part of a struct for which the host has room: a host of an older version knows fewer members. */
static void put_struct(void* out, const void* value, size_t size) {
  uint32_t room;
  memcpy(&room, out, sizeof(room)); /* every struct begins with its struct_size */
  memcpy(out, value, room < size ? room : size);
  memcpy(out, &room, sizeof(room));
}

/* ---- life ---------------------------------------------------------------------------------------------------------
 * */

/* Yours: look for the device node and the vendor's library, and say what was looked for if one is missing. */
static aa_status* probe(void* self, aa_probe* out_probe) {
  UNUSED(self);
  aa_probe result = {.struct_size = sizeof(result), .state = AA_PROBE_USABLE, .device_count = device_total};
  put_text(result.reason, sizeof(result.reason), "two devices made of this machine's memory");
  put_struct(out_probe, &result, sizeof(result));
  return NULL;
}

/* Yours: open the vendor's library; return AA_UNAVAILABLE if that fails. */
static aa_status* initialize(void* self, const aa_initialize_params* params, aa_instance** out_instance) {
  UNUSED(self);
  UNUSED(params);
  aa_instance* instance = calloc(1, sizeof(aa_instance));
  aa_device* devices = calloc(device_total, sizeof(aa_device));
  if (!instance || !devices) {
    free(instance);
    free(devices);
    return acme_error(AA_RESOURCE_EXHAUSTED, "no memory for the driver");
  }
  for (int32_t i = 0; i < device_total; ++i) {
    devices[i].index = i;
    pthread_mutex_init(&devices[i].mutex, NULL);
  }
  instance->devices = devices;
  *out_instance = instance;
  return NULL;
}

static aa_status* shutdown_driver(void* self, aa_instance* instance) {
  UNUSED(self);
  for (int32_t i = 0; i < device_total; ++i) pthread_mutex_destroy(&instance->devices[i].mutex);
  free(instance->devices);
  free(instance);
  return NULL;
}

/* ---- devices ------------------------------------------------------------------------------------------------------
 * */

static aa_status* check_index(int32_t index) {
  if (index >= 0 && index < device_total) return NULL;
  return acme_error(AA_OUT_OF_RANGE, "there are the devices 0 and 1 only");
}

static aa_status* device_count(void* self, aa_instance* instance, int32_t* out_count) {
  UNUSED(self);
  UNUSED(instance);
  *out_count = device_total;
  return NULL;
}

static aa_status* device_props(void* self, aa_instance* instance, int32_t index, aa_device_props* out_props) {
  UNUSED(self);
  UNUSED(instance);
  aa_status* status = check_index(index);
  if (status) return status;
  const uint64_t all_dtypes = (((uint64_t)1 << (AA_DTYPE_F8_E5M2 + 1)) - 1) & ~((uint64_t)1 << AA_DTYPE_NONE);
  aa_device_props props = {
      .struct_size = sizeof(props),
      .numa_node = -1,
      .caps = AA_CAP_SYNCHRONOUS | AA_CAP_HOST_TIMERS | AA_CAP_RESOLVES_DEPENDENCIES | AA_CAP_HOST_CALL,
      .total_memory = DEVICE_MEMORY,
      .alignment = alignment,
      .compute_units = 1,
      .dtypes_storable = all_dtypes,
      .dtypes_computable = (uint64_t)1 << AA_DTYPE_F32,
      .queue_depth = INT32_MAX};
  put_text(props.name, sizeof(props.name), "Acme device");
  put_text(props.vendor, sizeof(props.vendor), "Acme");
  put_text(props.arch, sizeof(props.arch), "acme1");
  put_struct(out_props, &props, sizeof(props));
  return NULL;
}

/* Yours: create the vendor's context. */
static aa_status* device_open(void* self, aa_instance* instance, const aa_device_open_params* params,
                              aa_device** out_device) {
  UNUSED(self);
  if (params->flags != 0) return acme_error(AA_UNIMPLEMENTED, "device_open has no flags");
  aa_status* status = check_index(params->index);
  if (status) return status;
  *out_device = &instance->devices[params->index];
  return NULL;
}

static aa_status* device_close(void* self, aa_device* device) {
  UNUSED(self);
  UNUSED(device);
  return NULL;
}

/* Yours: wait for the work of all streams. */
static aa_status* device_synchronize(void* self, aa_device* device) {
  UNUSED(self);
  UNUSED(device);
  return NULL;
}

static aa_status* device_memory_info(void* self, aa_device* device, int64_t* out_free, int64_t* out_total) {
  UNUSED(self);
  pthread_mutex_lock(&device->mutex);
  *out_free = DEVICE_MEMORY - device->allocated;
  pthread_mutex_unlock(&device->mutex);
  *out_total = DEVICE_MEMORY;
  return NULL;
}

/* ---- memory -------------------------------------------------------------------------------------------------------
 * */

static aa_status* mem_alloc(void* self, aa_device* device, const aa_alloc* what, aa_allocation* out_allocation) {
  UNUSED(self);
  if (what->flags != 0) return acme_error(AA_UNIMPLEMENTED, "mem_alloc has no flags");
  if (what->kind != AA_MEMORY_DEVICE) return acme_error(AA_UNIMPLEMENTED, "mem_alloc has device memory only");
  pthread_mutex_lock(&device->mutex);
  void* pointer = NULL;
  if (what->size <= (size_t)(DEVICE_MEMORY - device->allocated)) {
    pointer = aligned_alloc(alignment, (what->size + alignment - 1) / alignment * alignment);
    if (pointer) device->allocated += (int64_t)what->size;
  }
  pthread_mutex_unlock(&device->mutex);
  if (!pointer) return acme_error(AA_RESOURCE_EXHAUSTED, "the device has no memory of that size left");
  const aa_allocation result = {
      .struct_size = sizeof(result), .kind = what->kind, .pointer = pointer, .size = what->size};
  put_struct(out_allocation, &result, sizeof(result));
  return NULL;
}

static aa_status* mem_free(void* self, aa_device* device, const aa_allocation* what) {
  UNUSED(self);
  pthread_mutex_lock(&device->mutex);
  device->allocated -= (int64_t)what->size;
  pthread_mutex_unlock(&device->mutex);
  free(what->pointer);
  return NULL;
}

/* ---- streams ------------------------------------------------------------------------------------------------------
 * */

static aa_status* stream_create(void* self, aa_device* device, const aa_stream_params* params, aa_stream** out_stream) {
  UNUSED(self);
  UNUSED(device);
  if ((params->flags & ~AA_STREAM_NON_BLOCKING) != 0) return acme_error(AA_UNIMPLEMENTED, "stream_create: a flag");
  aa_stream* stream = calloc(1, sizeof(aa_stream));
  if (!stream) return acme_error(AA_RESOURCE_EXHAUSTED, "no memory for a stream");
  pthread_mutex_init(&stream->mutex, NULL);
  *out_stream = stream;
  return NULL;
}

static aa_status* stream_destroy(void* self, aa_stream* stream) {
  UNUSED(self);
  pthread_mutex_destroy(&stream->mutex);
  free(stream);
  return NULL;
}

static aa_status* stream_query(void* self, aa_stream* stream, int32_t* out_done) {
  UNUSED(self);
  UNUSED(stream);
  *out_done = 1;
  return NULL;
}

static aa_status* stream_synchronize(void* self, aa_stream* stream) {
  UNUSED(self);
  UNUSED(stream);
  return NULL;
}

static aa_status* stream_wait_event(void* self, aa_stream* stream, aa_event* event) {
  UNUSED(self);
  UNUSED(stream);
  UNUSED(event);
  return NULL;
}

static aa_status* stream_host_call(void* self, aa_stream* stream, void (*function)(void* user), void* user) {
  UNUSED(self);
  UNUSED(stream);
  function(user);
  return NULL;
}

static aa_status* copy_async(void* self, aa_stream* stream, const aa_copy* what) {
  UNUSED(self);
  if (what->flags != 0) return acme_error(AA_UNIMPLEMENTED, "copy_async has no flags");
  if (what->direction < AA_COPY_HOST_TO_DEVICE || what->direction > AA_COPY_DEVICE_TO_DEVICE)
    return acme_error(AA_INVALID_ARGUMENT, "copy_async: there is no such direction");
  pthread_mutex_lock(&stream->mutex);
  if (what->size > 0) memcpy(what->destination, what->source, what->size);
  pthread_mutex_unlock(&stream->mutex);
  return NULL;
}

static aa_status* fill_async(void* self, aa_stream* stream, const aa_fill* what) {
  UNUSED(self);
  if (what->flags != 0) return acme_error(AA_UNIMPLEMENTED, "fill_async has no flags");
  const uint32_t width = what->pattern_size;
  if ((width != 1 && width != 2 && width != 4 && width != 8) || what->size % width != 0)
    return acme_error(AA_INVALID_ARGUMENT, "fill_async: the pattern has 1, 2, 4 or 8 bytes and fits the size");
  unsigned char* bytes = what->destination;
  pthread_mutex_lock(&stream->mutex);
  for (size_t i = 0; i < what->size; i += width) memcpy(bytes + i, what->pattern, width);
  pthread_mutex_unlock(&stream->mutex);
  return NULL;
}

/* ---- events -------------------------------------------------------------------------------------------------------
 * */

static aa_status* event_create(void* self, aa_device* device, const aa_event_params* params, aa_event** out_event) {
  UNUSED(self);
  UNUSED(device);
  if ((params->flags & ~(AA_EVENT_TIMING | AA_EVENT_BLOCKING_SYNC)) != 0)
    return acme_error(AA_UNIMPLEMENTED, "event_create: a flag");
  *out_event = calloc(1, sizeof(aa_event));
  return *out_event ? NULL : acme_error(AA_RESOURCE_EXHAUSTED, "no memory for an event");
}

static aa_status* event_destroy(void* self, aa_event* event) {
  UNUSED(self);
  free(event);
  return NULL;
}

static aa_status* event_record(void* self, aa_event* event, aa_stream* stream) {
  UNUSED(self);
  UNUSED(event);
  UNUSED(stream);
  return NULL;
}

static aa_status* event_query(void* self, aa_event* event, int32_t* out_done) {
  UNUSED(self);
  UNUSED(event);
  *out_done = 1;
  return NULL;
}

static aa_status* event_synchronize(void* self, aa_event* event) {
  UNUSED(self);
  UNUSED(event);
  return NULL;
}

/* ---- the extension "ops": one op, "add", for the calls it is made for
 * ------------------------------------------------ */

enum { op_add = 0 };

static int64_t elements_of(const aa_tensor* tensor) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor->ndim; ++i) count *= tensor->shape[i];
  return count;
}

/* True for a row-major tensor without gaps. */
static int is_contiguous(const aa_tensor* tensor) {
  int64_t stride = 1;
  for (int32_t i = tensor->ndim - 1; i >= 0; --i) {
    if (tensor->shape[i] != 1 && tensor->strides[i] != stride) return 0;
    stride *= tensor->shape[i];
  }
  return 1;
}

/* The op computes out = a + b for F32 tensors without gaps; the host runs every other call elsewhere. */
static int can_add(const aa_op_call* call) {
  if (call->op != op_add || call->tensor_count != 3) return 0;
  for (uint32_t i = 0; i < 3; ++i) {
    if (call->tensors[i].dtype != AA_DTYPE_F32 || !is_contiguous(&call->tensors[i])) return 0;
  }
  return 1;
}

static aa_status* ops_find(void* self, aa_instance* instance, const char* name, int32_t* out_op) {
  UNUSED(self);
  UNUSED(instance);
  if (strcmp(name, "add") != 0) return acme_error(AA_NOT_FOUND, "there is the op add only");
  *out_op = op_add;
  return NULL;
}

static aa_status* ops_supports(void* self, aa_device* device, const aa_op_call* call, int32_t* out_supported) {
  UNUSED(self);
  UNUSED(device);
  *out_supported = can_add(call);
  return NULL;
}

static aa_status* ops_enqueue(void* self, aa_stream* stream, const aa_op_call* call, int32_t* out_taken) {
  UNUSED(self);
  *out_taken = can_add(call);
  if (!*out_taken) return NULL;
  float* out = call->tensors[0].data;
  const float* a = call->tensors[1].data;
  const float* b = call->tensors[2].data;
  const int64_t count = elements_of(&call->tensors[0]);
  pthread_mutex_lock(&stream->mutex);
  for (int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
  pthread_mutex_unlock(&stream->mutex);
  return NULL;
}

static const aa_ops_table ops = {.struct_size = sizeof(ops),
                                 .version = AA_OPS_VERSION,
                                 .find = ops_find,
                                 .supports = ops_supports,
                                 .enqueue = ops_enqueue};

/* ---- the table ----------------------------------------------------------------------------------------------------
 * */

static aa_status* query_extension(void* self, aa_instance* instance, const char* name, uint32_t min_version,
                                  const void** out_table) {
  UNUSED(self);
  UNUSED(instance);
  if (strcmp(name, AA_OPS_EXTENSION) == 0 && min_version <= AA_OPS_VERSION) {
    *out_table = &ops;
  } else if (strcmp(name, AA_COLLECTIVES_EXTENSION) == 0 && min_version <= AA_COLLECTIVES_VERSION) {
    *out_table = &acme_collectives;
  } else {
    return acme_error(AA_UNIMPLEMENTED, "there is no such extension");
  }
  return NULL;
}

/* Libraries of ops, which programs request by these names: one is prebuilt, the other is compiled when a program first
 * requests it on a machine. The paths are relative to the folder "acme" beside this plugin. */
static const char* const clip_sources[] = {"clip.c", NULL};
static const aa_op_builder scale_builder = {
    .struct_size = sizeof(scale_builder), .name = "AcmeScaleBuilder", .folder = "acme", .library = "scale.so"};
static const aa_op_builder clip_builder = {
    .struct_size = sizeof(clip_builder), .name = "AcmeClipBuilder", .folder = "acme", .sources = clip_sources};
static const aa_op_builder* const op_builders[] = {&scale_builder, &clip_builder, NULL};

/* Sanitizers keep freed memory for a while, which would look like growth. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZER "address"
#elif defined(__SANITIZE_THREAD__)
#define SANITIZER "thread"
#else
#define SANITIZER ""
#endif

/* Functions that are not named here are NULL: the host has a substitute for each. */
static const aa_driver driver = {.struct_size = sizeof(driver),
                                 .abi_version = AA_ABI_CURRENT,
                                 .name = "acme",
                                 .vendor = "Acme",
                                 .version = "1.0",
                                 .sanitizer = SANITIZER,
                                 .communication_backend = "acmecl",
                                 .visible_devices_env = "",
                                 .export_env_prefixes = "",
                                 .abi_draft = AA_ABI_DRAFT,
                                 .priority = 100,
                                 .op_builders = op_builders,
                                 .probe = probe,
                                 .initialize = initialize,
                                 .shutdown = shutdown_driver,
                                 .query_extension = query_extension,
                                 .device_count = device_count,
                                 .device_props = device_props,
                                 .device_open = device_open,
                                 .device_close = device_close,
                                 .device_synchronize = device_synchronize,
                                 .device_memory_info = device_memory_info,
                                 .mem_alloc = mem_alloc,
                                 .mem_free = mem_free,
                                 .copy_async = copy_async,
                                 .fill_async = fill_async,
                                 .stream_create = stream_create,
                                 .stream_destroy = stream_destroy,
                                 .stream_query = stream_query,
                                 .stream_synchronize = stream_synchronize,
                                 .stream_wait_event = stream_wait_event,
                                 .stream_host_call = stream_host_call,
                                 .event_create = event_create,
                                 .event_destroy = event_destroy,
                                 .event_record = event_record,
                                 .event_query = event_query,
                                 .event_synchronize = event_synchronize};

EXPORTED const aa_driver* anyaccel_driver_query(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* services);

const aa_driver* anyaccel_driver_query(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* services) {
  if (AA_ABI_CURRENT < host_abi_min || AA_ABI_MAJOR > host_abi_max >> 16) return NULL;
  host = services;
  return &driver;
}
