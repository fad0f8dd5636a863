/* The driver table: everything the host needs from an accelerator, in 32 functions.
 *
 * A plugin is a shared library that exports one symbol, `anyaccel_driver_query` (aa_driver_query_fn below). The drivers
 * built into anyaccel use the same table. Rarer features are extension tables found by name (graph.h, host_memory.h,
 * ops.h, compiler.h, profiler.h); each one that is absent has a defined answer in the host, so a driver may begin with
 * the core alone and is already a complete accelerator.
 *
 * A function that a driver does not have may be NULL (or lie beyond its struct_size): the host puts a stub in its place
 * that answers AA_UNIMPLEMENTED. Required, because nothing works without them: probe, initialize, shutdown,
 * device_count, device_props, device_open, device_close, device_synchronize, mem_alloc, mem_free, copy_async,
 * stream_create, stream_destroy, stream_synchronize.
 * The same holds for extension tables. One that lacks a function which it is of no use without counts as absent, with a
 * warning that names the function: capture_begin, capture_end, launch and destroy of "graph"; all of "ops", "host_code"
 * and "ceilings"; all of "compiler" but kernel_tuning; library to group_end of "collectives".
 *
 * There is no current device: every call names its object, and the driver binds what its vendor needs per call.
 *
 * Threads. Different handles may be used from different threads at once. One handle is not entered twice at the same
 * time, except mem_alloc, mem_free, mem_query, event_record and the event and stream *query functions, which are
 * thread-safe.
 * No call is made from inside a stream_host_call function. Children are destroyed before their parents, by the host.
 * After fork() the child may call only probe and initialize.
 *
 * Out structs (aa_probe, aa_device_props, aa_memory_info, aa_kernel_info). The host sets struct_size; the driver writes
 * nothing beyond it and leaves it as it is.
 *
 * After destroy, close, unload or free the object is gone, even when a status is returned. An event may outlive its
 * stream and is then complete. A driver built for a newer minor version is usable by an older host.
 *
 * Asynchronous errors stick to their stream: every later stream_query, stream_synchronize, and event_query or
 * event_synchronize of an event recorded on it returns the error until the stream is destroyed. They are never lost.
 */
#ifndef ANYACCEL_ABI_DRIVER_H_
#define ANYACCEL_ABI_DRIVER_H_

#include "anyaccel/abi/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aa_instance aa_instance; /* the driver, initialized */
typedef struct aa_device aa_device;     /* one opened device */
typedef struct aa_stream aa_stream;     /* an in-order queue of work on one device */
typedef struct aa_event aa_event;       /* a point in a stream */
typedef struct aa_module aa_module;     /* loaded device code */
typedef struct aa_kernel aa_kernel;     /* one function of a module; lives as long as the module */

/* ---- probing ------------------------------------------------------------------------------------------------------ */

typedef enum aa_probe_state {
  AA_PROBE_ABSENT = 0,   /* the vendor's library or device node is not on this machine */
  AA_PROBE_UNUSABLE = 1, /* it is there but cannot be used; `reason` says why */
  AA_PROBE_USABLE = 2    /* device_count devices can be opened */
} aa_probe_state;

#define AA_PROBE_REASON_SIZE 512

typedef struct aa_probe {
  uint32_t struct_size;
  int32_t state;                     /* aa_probe_state */
  int32_t device_count;              /* > 0 if and only if usable */
  char reason[AA_PROBE_REASON_SIZE]; /* terminated; what was looked for and where, for absent and unusable too */
} aa_probe;

/* ---- devices ------------------------------------------------------------------------------------------------------ */

/* Capability flags. A flag is a promise: set means the conformance suite tests it, clear means the functions behind it
 * answer AA_UNIMPLEMENTED without side effects. */
#define AA_CAP_SYNCHRONOUS (1ull << 0)           /* work is complete when the enqueuing call returns */
#define AA_CAP_HOST_TIMERS (1ull << 1)           /* the host clock times better than events */
#define AA_CAP_RESOLVES_DEPENDENCIES (1ull << 2) /* streams see each other's work in program order without waits */
#define AA_CAP_MEMORY_BACKPRESSURE (1ull << 3)   /* the runtime blocks the host while device memory is full */
#define AA_CAP_HOST_COHERENT (1ull << 4)      /* the host may read and write device memory through the same pointer */
#define AA_CAP_EVENT_TIMING (1ull << 5)       /* event_elapsed works */
#define AA_CAP_PINNED_HOST (1ull << 6)        /* mem_alloc of AA_MEMORY_PINNED works */
#define AA_CAP_MANAGED_MEMORY (1ull << 7)     /* mem_alloc of AA_MEMORY_MANAGED works */
#define AA_CAP_CONCURRENT_STREAMS (1ull << 8) /* work of two streams can run at the same time */
#define AA_CAP_HOST_CALL (1ull << 9)          /* stream_host_call works */
#define AA_CAP_KERNELS (1ull << 10)           /* module_load, kernel_get and kernel_launch work */
#define AA_CAP_TRITON (1ull << 11)            /* the Triton language has a back end for this device */
#define AA_CAP_IS_HOST (1ull << 12)           /* the host itself: host coherent, and its name has no index */

typedef struct aa_device_props {
  uint32_t struct_size;
  int32_t numa_node; /* -1 when unknown */
  char name[128];    /* "NVIDIA H200", the CPU's model name */
  char vendor[64];
  char arch[64];              /* "sm_90", "avx512", ... */
  char pci_bus_id[32];        /* "0000:18:00.0", or empty */
  uint8_t uuid[16];           /* zeros when unknown */
  uint64_t caps;              /* AA_CAP_* */
  int64_t total_memory;       /* bytes */
  int64_t max_allocation;     /* bytes in one mem_alloc; 0: total_memory */
  int32_t alignment;          /* bytes; every mem_alloc is aligned at least so */
  int32_t compute_units;      /* cores, multiprocessors, ... */
  uint64_t dtypes_storable;   /* bit (1 << aa_dtype): can be held and copied */
  uint64_t dtypes_computable; /* arithmetic at a useful speed, also by way of wider numbers */
  uint64_t dtypes_matrix;     /* matrix units take it */
  int32_t dlpack_device_type; /* DLDeviceType; 0 when DLPack has none */
  int32_t reserved;
} aa_device_props;

/* ---- memory, streams, events, kernels ------------------------------------------------------------------------------ */

typedef enum aa_memory_kind {
  AA_MEMORY_DEVICE = 0,
  AA_MEMORY_PINNED = 1, /* host memory that the device can reach directly; locked */
  AA_MEMORY_MANAGED = 2 /* migrates on demand */
} aa_memory_kind;

typedef struct aa_memory_info {
  uint32_t struct_size;
  int32_t kind;         /* aa_memory_kind */
  int32_t device_index; /* which device owns it; -1 for host memory that belongs to none */
  int32_t reserved;
  void* base;  /* start of the allocation */
  size_t size; /* bytes of the allocation */
} aa_memory_info;

typedef enum aa_copy_direction {
  AA_COPY_HOST_TO_DEVICE = 0,
  AA_COPY_DEVICE_TO_HOST = 1,
  AA_COPY_DEVICE_TO_DEVICE = 2 /* within the stream's device */
} aa_copy_direction;

#define AA_STREAM_DEFAULT 0u
#define AA_STREAM_NON_BLOCKING (1u << 0) /* does not synchronise with the vendor's own default stream */

#define AA_EVENT_DEFAULT 0u
#define AA_EVENT_TIMING (1u << 0)        /* usable with event_elapsed */
#define AA_EVENT_BLOCKING_SYNC (1u << 1) /* event_synchronize sleeps instead of spinning */

/* Text settings handed down from the host, "key" "value" pairs. Unknown keys are ignored. */
typedef struct aa_option {
  const char* key;
  const char* value;
} aa_option;

typedef struct aa_initialize_params {
  uint32_t struct_size;
  uint32_t option_count;
  const aa_option* options;
  const char* library_path; /* the file this driver was loaded from; NULL when built in */
} aa_initialize_params;

typedef struct aa_kernel_info {
  uint32_t struct_size;
  int32_t max_threads_per_block;
  int32_t static_shared_bytes;
  int32_t argument_count; /* -1 when unknown */
} aa_kernel_info;

typedef struct aa_launch {
  uint32_t struct_size;
  uint32_t grid[3];  /* blocks */
  uint32_t block[3]; /* threads in a block */
  uint32_t shared_bytes;
  uint32_t argument_count;
  const void* const* arguments; /* argument_count pointers to the values */
  const size_t* argument_sizes; /* their sizes in bytes */
} aa_launch;

typedef struct aa_driver {
  uint32_t struct_size;
  uint32_t abi_version; /* AA_ABI_VERSION the driver speaks; its major decides */
  const char* name;     /* "cuda", "xpu": what DS_ACCELERATOR names; lower case, digits and '.' */
  const char* vendor;
  const char* version;   /* of the driver, free text */
  const char* sanitizer; /* "address", "thread" when built so; else "" */
  /* Name of the collectives library ("nccl"); "" when none. since 1.0 */
  const char* communication_backend;
  /* The vendor's variable that limits the visible devices ("CUDA_VISIBLE_DEVICES"); "" when none. since 1.0 */
  const char* visible_devices_env;
  /* Comma-separated name prefixes of variables a launcher passes on ("NCCL"); "" when none. since 1.0 */
  const char* export_env_prefixes;

  /* -- life ------------------------------------------------------------------------------------------------------- */

  /* 1. Whether the accelerator can be used here. Cheap (a missing device node is reported without opening the vendor's
   * library), creates no context, starts no thread, and leaves the process able to fork. Fails only for a bug. 1.0 */
  aa_status* (*probe)(aa_probe* out_probe);
  /* 2. Opens the vendor's runtime. AA_UNAVAILABLE when it is not there. Called at most once at a time. 1.0 */
  aa_status* (*initialize)(const aa_initialize_params* params, aa_instance** out_instance);
  /* 3. Releases everything. May be skipped when the process exits. 1.0 */
  aa_status* (*shutdown)(aa_instance* instance);
  /* 4. Finds an extension table ("graph", "ops", ...) of at least `min_version`. The table is constant and lives as
   * long as the instance. AA_UNIMPLEMENTED when the driver does not have it. 1.0 */
  aa_status* (*query_extension)(aa_instance* instance, const char* name, uint32_t min_version, const void** out_table);

  /* -- devices ---------------------------------------------------------------------------------------------------- */

  /* 5. How many devices can be opened; 0 when the vendor's runtime is in trouble. 1.0 */
  aa_status* (*device_count)(aa_instance* instance, int32_t* out_count);
  /* 6. Static facts, without opening the device. AA_OUT_OF_RANGE for an index that is none, here and in device_open.
   * 1.0 */
  aa_status* (*device_props)(aa_instance* instance, int32_t index, aa_device_props* out_props);
  /* 7. Creates the context. 1.0 */
  aa_status* (*device_open)(aa_instance* instance, int32_t index, aa_device** out_device);
  /* 8. All streams, events, modules and memory of it have been given back before. 1.0 */
  aa_status* (*device_close)(aa_device* device);
  /* 9. Blocks until all work on the device is complete; returns a sticky error of any stream. 1.0 */
  aa_status* (*device_synchronize)(aa_device* device);
  /* 10. Bytes free now (for all processes) and in total. 1.0 */
  aa_status* (*device_memory_info)(aa_device* device, int64_t* out_free, int64_t* out_total);

  /* -- memory ----------------------------------------------------------------------------------------------------- */

  /* 11. Raw, uncached memory, aligned to aa_device_props::alignment. size > 0. AA_RESOURCE_EXHAUSTED when there is
   * none, after which the device is still usable. AA_UNIMPLEMENTED for a kind the driver does not have. 1.0 */
  aa_status* (*mem_alloc)(aa_device* device, int32_t kind, size_t size, void** out_pointer);
  /* 12. The same kind and size as were allocated. The memory may be in use only by work that has completed. 1.0 */
  aa_status* (*mem_free)(aa_device* device, int32_t kind, void* pointer, size_t size);
  /* 13. What `pointer` (anywhere inside an allocation) is; the size may be larger than was asked for. AA_NOT_FOUND for
   * memory this driver does not know. 1.0 */
  aa_status* (*mem_query)(aa_instance* instance, const void* pointer, aa_memory_info* out_info);
  /* 14. Copies in order on the stream. The host side may be pageable; then the call may block until it was read or
   * written. Host memory must stay valid until the work is complete. The ranges do not overlap. Size 0 does nothing;
   * another direction is AA_INVALID_ARGUMENT. 1.0 */
  aa_status* (*copy_async)(aa_stream* stream, void* destination, const void* source, size_t size, int32_t direction);
  /* 15. Repeats a pattern of 1, 2, 4 or 8 bytes; size is a multiple of pattern_size, 0 does nothing. Other pattern sizes
   * are AA_INVALID_ARGUMENT. 1.0 */
  aa_status* (*fill_async)(aa_stream* stream, void* destination, const void* pattern, size_t pattern_size, size_t size);

  /* -- streams ---------------------------------------------------------------------------------------------------- */

  /* 16. priority: 0 normal, negative higher; clamped to what the device has. flags: AA_STREAM_*. 1.0 */
  aa_status* (*stream_create)(aa_device* device, int32_t priority, uint32_t flags, aa_stream** out_stream);
  /* 17. Waits for its work first. 1.0 */
  aa_status* (*stream_destroy)(aa_stream* stream);
  /* 18. Whether all work is complete; does not block. 1.0 */
  aa_status* (*stream_query)(aa_stream* stream, int32_t* out_done);
  /* 19. Blocks until all work enqueued so far is complete; returns the sticky error. 1.0 */
  aa_status* (*stream_synchronize)(aa_stream* stream);
  /* 20. Later work on the stream waits for the event's latest record; nothing when it was never recorded. The event may
   * belong to another device of the same driver. 1.0 */
  aa_status* (*stream_wait_event)(aa_stream* stream, aa_event* event);
  /* 21. The vendor's own handle (cudaStream_t, ...); NULL where there is none. 1.0 */
  aa_status* (*stream_native)(aa_stream* stream, void** out_handle);
  /* 22. Runs a host function in order on the stream; it must not call into the driver. 1.0 */
  aa_status* (*stream_host_call)(aa_stream* stream, void (*function)(void* user), void* user);

  /* -- events ----------------------------------------------------------------------------------------------------- */

  /* 23. flags: AA_EVENT_*. 1.0 */
  aa_status* (*event_create)(aa_device* device, uint32_t flags, aa_event** out_event);
  /* 24. Allowed before completion. 1.0 */
  aa_status* (*event_destroy)(aa_event* event);
  /* 25. Recording again replaces the earlier point. Event and stream are of one device. 1.0 */
  aa_status* (*event_record)(aa_event* event, aa_stream* stream);
  /* 26. Whether the latest record is complete; a never recorded event is. 1.0 */
  aa_status* (*event_query)(aa_event* event, int32_t* out_done);
  /* 27. Blocks; returns a sticky error of the stream it was recorded on. 1.0 */
  aa_status* (*event_synchronize)(aa_event* event);
  /* 28. Milliseconds between two complete events made with AA_EVENT_TIMING; else AA_FAILED_PRECONDITION. 1.0 */
  aa_status* (*event_elapsed)(aa_event* start, aa_event* end, double* out_milliseconds);

  /* -- device code (AA_CAP_KERNELS) -------------------------------------------------------------------------------- */

  /* 29. format: "cubin", "ptx", "hsaco", "spirv", "opencl-binary", "metallib", "elf-so", ... 1.0 */
  aa_status* (*module_load)(aa_device* device, const void* image, size_t size, const char* format,
                            aa_module** out_module);
  /* 30. None of its kernels is in flight. 1.0 */
  aa_status* (*module_unload)(aa_module* module);
  /* 31. AA_NOT_FOUND when the module has no such kernel. out_info may be NULL. 1.0 */
  aa_status* (*kernel_get)(aa_module* module, const char* name, aa_kernel** out_kernel, aa_kernel_info* out_info);
  /* 32. 1.0 */
  aa_status* (*kernel_launch)(aa_stream* stream, aa_kernel* kernel, const aa_launch* launch);
} aa_driver;

#define AA_DRIVER_QUERY_SYMBOL "anyaccel_driver_query"

/* The one symbol a plugin exports. `host_abi_min` and `host_abi_max` are the versions the host can talk to. Returns a
 * table that lives until the process ends, or NULL when there is no version in common. Pure and cheap: may be called
 * several times, touches no device, starts no thread, throws nothing. `host` stays valid until the process ends. */
typedef const aa_driver* (*aa_driver_query_fn)(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* host);

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_DRIVER_H_ */
