/* The driver table: everything the host needs from an accelerator, in 33 functions.
 *
 * A plugin is a shared library that exports one symbol, `anyaccel_driver_query` (aa_driver_query_fn below). The drivers
 * built into anyaccel use the same table. Rarer features are extension tables found by name (graph.h, host_memory.h,
 * ops.h, compiler.h, lazy.h, peer.h, profiler.h, ...); the host has a defined behaviour for each one that is absent, so
 * a driver with only the required functions is already a complete accelerator.
 *
 * A function that a driver does not have may be NULL (or lie beyond its struct_size): the host substitutes a stub that
 * returns AA_UNIMPLEMENTED. Required functions, marked (r), must be there, because nothing works without them. The same
 * holds for extension tables. A table that lacks a function without which it is useless counts as absent, with a
 * warning that names the function: capture_begin, capture_end, launch and destroy of "graph"; all of "compiler" but
 * kernel_tuning and dialect; find, supports and enqueue of "ops"; library to group_end of "collectives"; all of
 * "host_code", "ceilings", "lazy", "peer", "memory_kinds", "files" and "fault".
 *
 * There is no current device: every call names its object, and the driver makes the vendor's context current in each
 * call if it needs one.
 *
 * Letters in the comments of functions:
 *   (r)  required
 *   T    any number of threads may be inside it at once, with the same handle too
 *   X    no other call with this handle is in progress, and none comes later
 *   N    never waits for device work
 *   W    waits only for the work that its comment names
 *   B    may wait for any work enqueued so far on the device
 *   S    services marked "calls back" may be used inside (base.h)
 *
 * Threads. Several threads of a program use one device, and even one stream, because all threads share a device's
 * default stream. In a function marked T the driver takes any locks that the vendor's runtime requires; when two
 * threads enqueue on one stream at once, either may come first, and items never interleave. While a stream captures a
 * graph (graph.h) or is inside a step (lazy.h) only one thread enqueues on it. Different handles may be used from
 * different threads at once. The host does not call into the driver from inside a stream_host_call function. It
 * destroys children before their parents. After fork() the child may call probe and initialize only.
 *
 * Order. An item is the work that one enqueueing call adds to a stream (copy, fill, launch, op, host call, wait,
 * record, graph).
 *   - Items of one stream run one after another, in the order in which their calls returned, and each sees the memory
 *     as the earlier ones left it. Streams are independent of each other except through events.
 *   - A record covers everything enqueued on its stream before it and nothing later. Recording an event again replaces
 *     the earlier record; query, synchronize, elapsed and wait refer to the latest record at the time of the call, and
 *     a wait stays bound to that record. An event that was never recorded is complete, and waiting for it does nothing.
 *   - Enqueued work makes progress without further calls, unless the driver has the extension "lazy". Work that waits
 *     only for earlier records and for host functions that return always completes.
 *   - Functions marked N return even if the stream is blocked, for as many items as aa_device_props::queue_depth says.
 *   - The host memory of a copy stays valid and unchanged until the item is complete; the driver may read or write
 *     pageable memory during the call. It writes nothing before the preceding items are complete.
 *   - Device pointers are addresses that allow arithmetic in bytes (base + n); the host never reads or writes through
 *     them, except on devices with AA_CAP_HOST_COHERENT. Freed addresses are reused at once.
 *
 * Errors of work that was enqueued (asynchronous errors) stick to their stream: every later stream_query and
 * stream_synchronize, device_synchronize, and event_query or event_synchronize of an event recorded there after the
 * failed item, return the error with the same code until the stream is destroyed. They are never lost. An event that was
 * recorded before the failed item returns none, except over a runtime that tells only that the stream has failed, and not
 * where: there it may, unless the event, or the stream after it, was found complete before. Enqueueing on such a stream
 * may report the error; what its items write is undefined. A stream that waits for a failed record fails with the same
 * code. Other streams continue, unless the device is lost, and then every function returns AA_DEVICE_LOST.
 *
 * AA_RESOURCE_EXHAUSTED from any function means that nothing was done. The host returns its cached memory to the driver
 * and calls once more where memory of the device may be what was missing: allocations of the device, creation of
 * streams and events, event_record, copies, fills, module_load, kernel_launch, ops, the launch of a graph and
 * device_synchronize. A driver therefore needs no code of its own to reclaim memory for what these need (handles of
 * libraries, modules). Other functions are not repeated: locked host memory does not grow with the device's free
 * memory, and other ranks take part in collectives and comm_create.
 *
 * Out structs (aa_probe, aa_device_props, aa_memory_info, aa_allocation, aa_kernel_info). The host sets struct_size;
 * the driver writes nothing beyond it and leaves it unchanged.
 *
 * After destroy, close, unload or free the object no longer exists, even when a status is returned. An event may
 * outlive its stream; it is then complete, or carries the stream's error. An older host can use a driver that was built
 * for a newer minor version.
 */
#ifndef ANYACCEL_ABI_DRIVER_H_
#define ANYACCEL_ABI_DRIVER_H_

#include "anyaccel/abi/base.h"
#include "anyaccel/abi/op_builders.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aa_instance aa_instance; /* the driver, initialized */
typedef struct aa_device aa_device;     /* one opened device */
typedef struct aa_stream aa_stream;     /* an in-order queue of work on one device */
typedef struct aa_event aa_event;       /* a point in a stream */
typedef struct aa_module aa_module;     /* loaded device code */
typedef struct aa_kernel aa_kernel;     /* one function of a module; lives as long as the module */
typedef struct aa_memory aa_memory;     /* the driver's own object of one allocation (an MTLBuffer, ...); may be NULL */

/* ---- probing ----------------------------------------------------------------------------------------------------- */

typedef enum aa_probe_state {
  AA_PROBE_ABSENT = 0,   /* the vendor's library or device node is not on this machine */
  AA_PROBE_UNUSABLE = 1, /* it is there but cannot be used; `reason` says why */
  AA_PROBE_USABLE = 2    /* device_count devices can be opened */
} aa_probe_state;

#define AA_PROBE_REASON_SIZE 512

typedef struct aa_probe {
  uint32_t struct_size;
  int32_t state;                     /* aa_probe_state */
  int32_t device_count;              /* > 0 if and only if the state is AA_PROBE_USABLE */
  char reason[AA_PROBE_REASON_SIZE]; /* terminated; what was looked for and where, for absent and unusable too */
} aa_probe;

/* ---- devices ----------------------------------------------------------------------------------------------------- */

/* Capability flags. A flag is a promise: if it is set, the conformance suite tests it; if it is clear, the functions
 * behind it return AA_UNIMPLEMENTED without side effects. */
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
#define AA_CAP_GRID_ONLY (1ull << 13)         /* kernels have no threads below a block: aa_launch::block is 0,0,0 */

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
  uint64_t dtypes_computable; /* arithmetic at a useful speed, possibly in a wider type */
  uint64_t dtypes_matrix;     /* supported by the matrix units */
  int32_t dlpack_device_type; /* DLDeviceType; 0 when DLPack has none */
  int32_t queue_depth;        /* items that a stream accepts behind an incomplete one without blocking; at least 128 */
  int32_t open_limit;         /* number of devices that one process may have open at once; 0: all */
  int32_t exclusive;          /* 1: only one process at a time can open a device */
} aa_device_props;

/* ---- memory, streams, events, kernels ---------------------------------------------------------------------------- */

typedef enum aa_memory_kind {
  AA_MEMORY_DEVICE = 0,
  AA_MEMORY_PINNED = 1, /* host memory that the device can reach directly; locked */
  AA_MEMORY_MANAGED = 2 /* migrates on demand */
} aa_memory_kind;

/* The arguments of an allocation. */
typedef struct aa_alloc {
  uint32_t struct_size;
  uint32_t flags;    /* none yet */
  int32_t kind;      /* aa_memory_kind, or a number of memory_kinds.h */
  int32_t numa_node; /* of AA_MEMORY_PINNED: where its pages lie; -1: near the device */
  size_t size;       /* bytes, > 0 */
} aa_alloc;

/* The result of an allocation, which mem_free receives. */
typedef struct aa_allocation {
  uint32_t struct_size;
  int32_t kind;
  void* pointer;
  size_t size;       /* as requested */
  aa_memory* memory; /* belongs to the driver; may be NULL */
} aa_allocation;

typedef struct aa_memory_info {
  uint32_t struct_size;
  int32_t kind;         /* as in aa_alloc */
  int32_t device_index; /* the device that owns it; -1 for host memory that belongs to none */
  int32_t reserved;
  void* base;  /* start of the allocation */
  size_t size; /* bytes of the allocation; may be more than requested */
  /* The address in kernels of the byte that was asked about: the pointer itself, or another address for registered host
   * memory; NULL where kernels cannot access it. */
  void* device_address;
  aa_memory* memory; /* as in aa_allocation */
} aa_memory_info;

typedef enum aa_copy_direction {
  AA_COPY_HOST_TO_DEVICE = 0,
  AA_COPY_DEVICE_TO_HOST = 1,
  AA_COPY_DEVICE_TO_DEVICE = 2 /* within the stream's device */
} aa_copy_direction;

/* The ranges do not overlap. Host memory is given by its host address, even if it is registered. */
typedef struct aa_copy {
  uint32_t struct_size;
  uint32_t flags; /* none yet */
  void* destination;
  const void* source;
  size_t size;       /* 0 does nothing */
  int32_t direction; /* aa_copy_direction */
  uint32_t hints;    /* none yet */
  /* With AA_DRIVER_WANTS_MEMORY: set for each side that lies in an allocation or a registered range; else NULL. */
  aa_memory* destination_memory;
  aa_memory* source_memory;
} aa_copy;

typedef struct aa_fill {
  uint32_t struct_size;
  uint32_t flags; /* none yet */
  void* destination;
  size_t size;           /* a multiple of pattern_size, else AA_INVALID_ARGUMENT with nothing done; 0 does nothing */
  uint32_t pattern_size; /* 1, 2, 4 or 8; else AA_INVALID_ARGUMENT */
  uint32_t hints;        /* none yet */
  uint8_t pattern[8];    /* the first pattern_size bytes count */
  aa_memory* memory;     /* with AA_DRIVER_WANTS_MEMORY; else NULL */
} aa_fill;

#define AA_STREAM_DEFAULT 0u
#define AA_STREAM_NON_BLOCKING (1u << 0) /* does not synchronize with the vendor's own default stream */

typedef struct aa_stream_params {
  uint32_t struct_size;
  uint32_t flags;              /* AA_STREAM_* */
  int32_t priority;            /* 0 normal, negative higher; clamped to the device's range */
  uint32_t hints;              /* none yet */
  aa_host_stream* host_stream; /* to pass to services */
} aa_stream_params;

#define AA_EVENT_DEFAULT 0u
#define AA_EVENT_TIMING (1u << 0)        /* usable with event_elapsed */
#define AA_EVENT_BLOCKING_SYNC (1u << 1) /* event_synchronize sleeps instead of spinning */

typedef struct aa_event_params {
  uint32_t struct_size;
  uint32_t flags; /* AA_EVENT_* */
} aa_event_params;

/* Settings come from ANYACCEL_<NAME>_OPTIONS="key=value,..." and from the program, whose values take precedence.
 * "2.key" is only for the device with index 2. The host rejects keys that aa_driver::options does not list, with a
 * message that lists the known ones. */
typedef struct aa_initialize_params {
  uint32_t struct_size;
  uint32_t option_count;
  const aa_option* options; /* excluding those for single devices */
  const char* library_path; /* the file this driver was loaded from; NULL when built in */
} aa_initialize_params;

typedef struct aa_device_open_params {
  uint32_t struct_size;
  int32_t index;
  aa_host_device* host_device; /* to pass to services */
  const aa_option* options;    /* all that apply to this device; keys have no index */
  uint32_t option_count;
  uint32_t flags; /* none yet */
} aa_device_open_params;

typedef struct aa_module_params {
  uint32_t struct_size;
  uint32_t flags; /* none yet */
  const void* image;
  size_t size;
  const char* format; /* "cubin", "ptx", "hsaco", "spirv", "opencl-binary", "metallib", "elf-so", ... */
} aa_module_params;

typedef struct aa_kernel_info {
  uint32_t struct_size;
  int32_t max_threads_per_block;
  int32_t static_shared_bytes;
  int32_t argument_count; /* -1 when unknown */
} aa_kernel_info;

/* The kind of a kernel argument. */
typedef enum aa_argument_kind {
  AA_ARGUMENT_VALUE = 0,  /* bytes, passed as they are */
  AA_ARGUMENT_POINTER = 1 /* the value is an address in device memory, of any byte of an allocation, or NULL */
} aa_argument_kind;

/* The kernel also accesses memory through addresses that are stored in memory, not only through its arguments. */
#define AA_LAUNCH_INDIRECT (1u << 0)

/* The arguments are parallel arrays of argument_count. */
typedef struct aa_launch {
  uint32_t struct_size;
  uint32_t flags;    /* AA_LAUNCH_* */
  uint32_t grid[3];  /* blocks */
  uint32_t block[3]; /* threads in a block; 0,0,0 with AA_CAP_GRID_ONLY */
  uint32_t shared_bytes;
  uint32_t argument_count;
  const void* const* arguments;   /* pointers to the values */
  const uint32_t* argument_sizes; /* of the values, in bytes */
  const uint8_t* argument_kinds;  /* aa_argument_kind */
  aa_memory* const* memories;     /* with AA_DRIVER_WANTS_MEMORY: of the pointers, NULL elsewhere; else NULL */
} aa_launch;

/* The host sets members called `memory` and `memories` to the objects that mem_alloc and register_range returned for
 * the memory in which an address lies; NULL for an address in no such memory. Without the flag they are always NULL.
 * For runtimes that take buffers, not addresses. */
#define AA_DRIVER_WANTS_MEMORY (1u << 0)

typedef struct aa_driver {
  uint32_t struct_size; /* these five members keep their places in every version */
  uint32_t abi_version; /* the AA_ABI_VERSION that the driver implements; its major decides */
  /* "cuda", "xpu": the name for DS_ACCELERATOR; 1 to 63 lower-case letters, digits and '.', the first one a letter */
  const char* name;
  const char* vendor;
  const char* version;   /* of the driver, free text */
  const char* sanitizer; /* "address", "thread" when built with it; else "" */
  /* Name of the collectives library ("nccl"); "" if there is none. since 2.0 */
  const char* communication_backend;
  /* The vendor's variable that limits the visible devices ("CUDA_VISIBLE_DEVICES"); "" if there is none. since 2.0 */
  const char* visible_devices_env;
  /* Comma-separated name prefixes of variables that a launcher passes on ("NCCL"); "" if there are none. since 2.0 */
  const char* export_env_prefixes;
  /* The settings that aa_initialize_params::options may contain: option_count of them. since 2.0 */
  const aa_option_info* options;
  uint32_t option_count;
  uint32_t abi_draft; /* AA_ABI_DRAFT of these headers */
  /* Detection takes the first usable driver, highest number first; built in: xpu 90, npu 80, sdaa 70, mps 60, hpu 50,
   * mlu 40, cuda 30, cpu 10. Ties: plugins first, by search path, then file name. 0: used only when requested by name.
   * since 2.0 */
  int32_t priority;
  uint32_t flags; /* AA_DRIVER_* */
  /* The plugin's op libraries, a list that ends with NULL; NULL: none. since 2.0 */
  const aa_op_builder* const* op_builders;
  /* The toolchain that compiles host ops for this accelerator; NULL: the host's. since 2.0 */
  const aa_toolchain* toolchain;
  void* self; /* the first argument of every function below */

  /* -- life ------------------------------------------------------------------------------------------------------- */

  /* 1. (r) T N. Reports whether the accelerator can be used here. It is cheap (a missing device node is reported
   * without opening the vendor's library), creates no context, starts no thread (but the vendor's library may start its
   * own when it is loaded), and leaves the process able to fork. It fails only because of a bug. since 2.0 */
  AA_CALL(probe, aa_probe* out_probe);
  /* 2. (r) Opens the vendor's runtime. Returns AA_UNAVAILABLE when it is not installed. Never called concurrently.
   * since 2.0 */
  AA_CALL(initialize, const aa_initialize_params* params, aa_instance** out_instance);
  /* 3. (r) X. Releases everything. May be skipped when the process exits. since 2.0 */
  AA_CALL(shutdown, aa_instance* instance);
  /* 4. T N. Finds an extension table ("graph", "ops", ...) of at least `min_version`. The table is constant and lives
   * as long as the instance. Returns AA_UNIMPLEMENTED when the driver does not have it. since 2.0 */
  AA_CALL(query_extension, aa_instance* instance, const char* name, uint32_t min_version, const void** out_table);

  /* -- devices ---------------------------------------------------------------------------------------------------- */

  /* 5. (r) T. Returns the number of devices that can be opened; 0 when the vendor's runtime does not work. since 2.0 */
  AA_CALL(device_count, aa_instance* instance, int32_t* out_count);
  /* 6. (r) T. Returns the properties of a device without opening it. AA_OUT_OF_RANGE for an index out of range, here
   * and in device_open. since 2.0 */
  AA_CALL(device_props, aa_instance* instance, int32_t index, aa_device_props* out_props);
  /* 7. (r) T for different indexes. Creates the context. A device is not opened again while it is open. Returns
   * AA_FAILED_PRECONDITION when open_limit devices are open. since 2.0 */
  AA_CALL(device_open, aa_instance* instance, const aa_device_open_params* params, aa_device** out_device);
  /* 8. (r) X B. Closes the device. All of its streams, events, modules and memory have been released before. since
   * 2.0 */
  AA_CALL(device_close, aa_device* device);
  /* 9. (r) T B S. Blocks until all work enqueued so far on the device is complete; returns the first sticky error of
   * any stream. since 2.0 */
  AA_CALL(device_synchronize, aa_device* device);
  /* 10. T. Returns the bytes that are free now (for all processes) and in total. mem_alloc and mem_free change the
   * first. since 2.0 */
  AA_CALL(device_memory_info, aa_device* device, int64_t* out_free, int64_t* out_total);
  /* 11. T N. Returns one of the vendor's handles, for libraries that a program uses beside anyaccel: "context",
   * "queue", ...; AA_NOT_FOUND for one that the driver does not have. Borrowed. since 2.0 */
  AA_CALL(device_native, aa_device* device, const char* what, void** out_handle);

  /* -- memory ----------------------------------------------------------------------------------------------------- */

  /* 12. (r) T B. Allocates raw, uncached memory, aligned to aa_device_props::alignment. Returns AA_RESOURCE_EXHAUSTED
   * when there is none left, after which the device is still usable, and AA_UNIMPLEMENTED for a kind that the driver
   * does not have. Must not use services. since 2.0 */
  AA_CALL(mem_alloc, aa_device* device, const aa_alloc* what, aa_allocation* out_allocation);
  /* 13. (r) T B. Frees memory. Kind, pointer and size are as mem_alloc returned them; `memory` may be NULL. No
   * incomplete work uses it. Must not use services. since 2.0 */
  AA_CALL(mem_free, aa_device* device, const aa_allocation* what);
  /* 14. T N. Describes the memory that `pointer` (any byte of an allocation, or of registered memory) lies in. Returns
   * AA_NOT_FOUND for memory that this driver does not know. since 2.0 */
  AA_CALL(mem_query, aa_instance* instance, const void* pointer, aa_memory_info* out_info);
  /* 15. (r) T S, and N except for pageable host memory, which may make it B. Copies in order on the stream. Returns
   * AA_INVALID_ARGUMENT for a direction that does not exist. since 2.0 */
  AA_CALL(copy_async, aa_stream* stream, const aa_copy* what);
  /* 16. T N S. Fills memory with a repeated pattern of bytes, in order on the stream. since 2.0 */
  AA_CALL(fill_async, aa_stream* stream, const aa_fill* what);

  /* -- streams ---------------------------------------------------------------------------------------------------- */

  /* 17. (r) T. Creates a stream. since 2.0 */
  AA_CALL(stream_create, aa_device* device, const aa_stream_params* params, aa_stream** out_stream);
  /* 18. (r) X W S. Waits for the stream's work, then destroys it; no host function begins afterwards. since 2.0 */
  AA_CALL(stream_destroy, aa_stream* stream);
  /* 19. T N S. Writes 1 when all work is complete, else 0. since 2.0 */
  AA_CALL(stream_query, aa_stream* stream, int32_t* out_done);
  /* 20. (r) T W S. Blocks until all work enqueued before the call is complete; returns the sticky error. since 2.0 */
  AA_CALL(stream_synchronize, aa_stream* stream);
  /* 21. T N. Makes later work on the stream wait for the event's latest record. The event may belong to another device
   * of the same instance. since 2.0 */
  AA_CALL(stream_wait_event, aa_stream* stream, aa_event* event);
  /* 22. T N. Returns the vendor's own handle (cudaStream_t, ...); NULL where there is none. Work that is enqueued
   * through it runs in order with the rest. since 2.0 */
  AA_CALL(stream_native, aa_stream* stream, void** out_handle);
  /* 23. T N. Runs a host function in order on the stream, once, unless the stream has failed by then. The function must
   * not call into the driver or wait for other work of the device; host functions of different streams may share one
   * thread. since 2.0 */
  AA_CALL(stream_host_call, aa_stream* stream, void (*function)(void* user), void* user);

  /* -- events ----------------------------------------------------------------------------------------------------- */

  /* 24. T N. Creates an event. since 2.0 */
  AA_CALL(event_create, aa_device* device, const aa_event_params* params, aa_event** out_event);
  /* 25. X N. Destroys the event. Allowed before its completion; waits that are bound to it remain in effect. since
   * 2.0 */
  AA_CALL(event_destroy, aa_event* event);
  /* 26. T N. Records the event on the stream. Both belong to the same device. since 2.0 */
  AA_CALL(event_record, aa_event* event, aa_stream* stream);
  /* 27. T N S. Writes 1 when the latest record is complete, else 0. since 2.0 */
  AA_CALL(event_query, aa_event* event, int32_t* out_done);
  /* 28. T W S. Blocks until the record that is the latest at the time of the call is complete; returns a sticky error
   * of its stream. since 2.0 */
  AA_CALL(event_synchronize, aa_event* event);
  /* 29. T N. Returns the milliseconds from the completion of the work before the record of `start` to that of the work
   * before the record of `end`; negative when `end` came first. Both must have been created with AA_EVENT_TIMING,
   * recorded on the same device and completed; else AA_FAILED_PRECONDITION. since 2.0 */
  AA_CALL(event_elapsed, aa_event* start, aa_event* end, double* out_milliseconds);

  /* -- device code (AA_CAP_KERNELS) -------------------------------------------------------------------------------- */

  /* 30. T B S. Loads a module from an image. since 2.0 */
  AA_CALL(module_load, aa_device* device, const aa_module_params* params, aa_module** out_module);
  /* 31. X B. Unloads the module. None of its kernels is running or enqueued. since 2.0 */
  AA_CALL(module_unload, aa_module* module);
  /* 32. T. Finds a kernel by name. Returns AA_NOT_FOUND when the module has no such kernel. out_info may be NULL. since
   * 2.0 */
  AA_CALL(kernel_get, aa_module* module, const char* name, aa_kernel** out_kernel, aa_kernel_info* out_info);
  /* 33. T N S. Launches a kernel, in order on the stream. Several threads may launch the same kernel at once. since
   * 2.0 */
  AA_CALL(kernel_launch, aa_stream* stream, aa_kernel* kernel, const aa_launch* launch);
} aa_driver;

#define AA_DRIVER_QUERY_SYMBOL "anyaccel_driver_query"

/* The one symbol that a plugin exports. `host_abi_min` and `host_abi_max` are the range of versions that the host
 * supports. Returns a table that lives until the process ends, or NULL when there is no version in common. It is cheap
 * and has no side effects: it may be called several times, and it must not touch a device, start a thread or throw.
 * `host` stays valid until the process ends. A host may call it once more with older versions, to find out which
 * version the plugin supports and name it in an error message; the functions of that `host` must not be called. */
typedef const aa_driver* (*aa_driver_query_fn)(uint32_t host_abi_min, uint32_t host_abi_max, const aa_host* host);

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_DRIVER_H_ */
