/* Foundation of the anyaccel plugin interface: versions, status objects, host services, data types, tensor views.
 *
 * Every .h file under include/anyaccel/abi/ is plain C11 and includes only standard C headers and others of this
 * folder, so a vendor can copy the folder into a project of its own and implement an accelerator from it without
 * reading anything else. The .hpp files there are for C++: driver_class.hpp to write a driver as classes,
 * table_calls.hpp to call tables.
 *
 * Rules that hold for every struct and function of these headers:
 *
 *  - Self first. Every function of every table takes the `self` member of its table as its first argument. A driver may
 *    put anything there (most leave it NULL, because the handles already identify everything); a layer between host and
 *    driver puts its own state there and passes on the `self` of the table below it. The host never looks at it.
 *  - Arguments. A call that is likely to grow takes its arguments as a struct; a call of few scalars that will not grow
 *    takes them positionally, in the order self, object, inputs, outputs.
 *  - Size first. Every struct that crosses the boundary begins with `struct_size`, set by its writer to its own sizeof.
 *    A reader accepts any size that covers the members it reads ("at least", never "equal") and reads nothing beyond
 *    it. Structs that travel in arrays are the exception (aa_tensor, aa_option, aa_option_info): their layouts are
 *    frozen.
 *  - Growth. Members are only appended, and zero in an appended member means the behaviour of the version before it.
 *    Writers zero a whole struct before they fill it. "since 2.0" in a comment names the version that brought a member.
 *  - Flags. A driver rejects bits that it does not know in a member called `flags` with AA_UNIMPLEMENTED, having done
 *    nothing; it ignores unknown bits in a member called `hints`.
 *  - Ownership. `create`, `open`, `load` and `alloc` return an object that the caller releases with the matching
 *    `destroy`, `close`, `unload` or `free`. Every other pointer is borrowed and valid only during the call, unless its
 *    comment says otherwise.
 *  - Errors. Every function returns `aa_status*`: NULL is success; anything else was made by aa_host::status_create and
 *    now belongs to the caller, who gives it to aa_host::status_release. A returned status means that nothing was
 *    enqueued and nothing was kept, unless the code is AA_DEVICE_LOST or the error is an asynchronous one (driver.h). A
 *    driver must not let an exception cross the boundary, and must not abort, exit or print.
 *  - Out parameters are named out_*; they are written only on success and must not be NULL unless their comment allows
 *    it.
 *  - Sizes are in bytes, times in milliseconds, strides in elements.
 *  - Text is UTF-8, zero-terminated unless a length is passed beside it.
 */
#ifndef ANYACCEL_ABI_BASE_H_
#define ANYACCEL_ABI_BASE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the interface: major changes when a layout or a meaning breaks, minor when members are appended. */
#define AA_ABI_MAJOR 2u
#define AA_ABI_MINOR 0u
#define AA_ABI_VERSION(major, minor) (((uint32_t)(major) << 16) | (uint32_t)(minor))
#define AA_ABI_CURRENT AA_ABI_VERSION(AA_ABI_MAJOR, AA_ABI_MINOR)

/* Version 2.0 is a draft until two vendors' drivers that are written to it pass the conformance suite. Until then a
 * host accepts only drivers with its own draft number, because a layout may change between drafts; afterwards this is
 * 0. */
#define AA_ABI_DRAFT 3u

/* One function of a table; NULL is success. */
#define AA_CALL(name, ...) aa_status* (*name)(void* self, __VA_ARGS__)

/* The first members of every extension table. `version` is the extension's own, from 1. */
#define AA_EXTENSION_HEAD \
  uint32_t struct_size;   \
  uint32_t version;       \
  void* self

/* True when the struct at `pointer` is large enough to hold `member`: check this before reading an appended member. */
#define AA_HAS_MEMBER(pointer, type, member) \
  ((pointer)->struct_size >= offsetof(type, member) + sizeof(((type*)0)->member))

/* ---- status ------------------------------------------------------------------------------------------------------ */

/* An error on its way to the caller. It is created, read and released only through aa_host. NULL means success. */
typedef struct aa_status aa_status;

/* The kind of error, from the caller's point of view. A driver returns the first code that fits. */
typedef enum aa_code {
  AA_OK = 0,
  AA_CANCELLED = 1,           /* The caller asked for the operation to stop. */
  AA_UNKNOWN = 2,             /* The vendor's error has no better match; see native_code. */
  AA_INVALID_ARGUMENT = 3,    /* The argument is wrong whatever the state; retrying cannot help. */
  AA_DEADLINE_EXCEEDED = 4,   /* A time limit passed; the operation may still complete. */
  AA_NOT_FOUND = 5,           /* A named thing (kernel, file, extension) does not exist. */
  AA_ALREADY_EXISTS = 6,      /* The thing to be created already exists. */
  AA_PERMISSION_DENIED = 7,   /* The operating system or the vendor refuses this user. */
  AA_RESOURCE_EXHAUSTED = 8,  /* Out of memory or of another countable thing, in any function of any table: nothing was
                                 done, and the device stays usable. driver.h says which calls the host repeats. */
  AA_FAILED_PRECONDITION = 9, /* The call is valid, but not in this state (elapsed time of an incomplete event). */
  AA_ABORTED = 10,            /* Lost a race; the caller may retry from the start. */
  AA_OUT_OF_RANGE = 11,       /* An index or an offset lies outside the object. */
  AA_UNIMPLEMENTED = 12,      /* This driver lacks the feature. Nothing was done. */
  AA_INTERNAL = 13,           /* A bug in the driver or the vendor's runtime. */
  AA_UNAVAILABLE = 14,        /* Hardware, library or service is not available (now). Tests are skipped on it. */
  AA_DATA_LOSS = 15,          /* Stored data is damaged. */
  AA_DEVICE_LOST = 16,        /* The device is gone; the only call allowed is to close it. */
  AA_INCOMPATIBLE = 17        /* Versions do not match; the message names both. */
} aa_code;

typedef enum aa_log_level { AA_LOG_DEBUG = 0, AA_LOG_INFO = 1, AA_LOG_WARNING = 2, AA_LOG_ERROR = 3 } aa_log_level;

/* The host's own objects, which a driver stores and hands back in the services below; it never looks inside. */
typedef struct aa_host_device aa_host_device; /* of a device: valid from device_open until device_close has returned */
typedef struct aa_host_stream
    aa_host_stream; /* of a stream: valid from stream_create until stream_destroy has returned */

/* A text setting, for instance {"threads", "4"}. Frozen layout, passed in arrays. */
typedef struct aa_option {
  const char* key;
  const char* value;
} aa_option;

/* A setting that a driver understands. Frozen layout, passed in arrays. */
typedef struct aa_option_info {
  const char* key;      /* lower-case letters, digits and '_' */
  const char* help;     /* one sentence, for `anyaccel info` */
  const char* fallback; /* the value when nothing is set, as text; "" when there is none */
} aa_option_info;

/* Device memory that a driver needs during one call of work (aa_host::scratch_acquire). */
typedef struct aa_scratch {
  uint32_t struct_size;
  uint32_t flags;         /* AA_SCRATCH_* */
  size_t size;            /* in: bytes, > 0 */
  aa_host_stream* stream; /* in: the stream whose work uses it; NULL with AA_SCRATCH_IDLE */
  aa_host_device* device; /* in: with AA_SCRATCH_IDLE; else NULL */
  void* pointer;          /* out: aligned to aa_device_props::alignment; contents undefined */
  void* owner;            /* out: belongs to the host */
} aa_scratch;

/* The memory is not ordered by a stream: when it is acquired, no work uses it, neither enqueued nor held back, and it
 * is released once the work that used it is complete. For drivers that hold work back and submit it later (lazy.h):
 * stream-ordered memory might already be shared with a tensor that held work still reads. */
#define AA_SCRATCH_IDLE (1u << 0)

/* Services that the host provides to a driver. Each plugin file and each built-in driver gets its own host, so that log
 * lines and options can be attributed to it. Valid until the process ends. Every function may be called from any
 * thread.
 *
 * Those marked "calls back" call functions of the driver's table (mem_alloc, mem_free, event_*) before they return.
 * They may be called only on the thread that entered the driver, inside functions marked S in driver.h, and while
 * holding none of the driver's locks. */
typedef struct aa_host aa_host;
struct aa_host {
  uint32_t struct_size;
  uint32_t abi_version; /* AA_ABI_CURRENT of the host. since 2.0 */

  /* Creates a status. `native_code` is the vendor's own error number (0 if none); `message` need not be terminated, and
   * its bytes are copied. Never returns NULL (a preallocated "out of memory" status stands in). since 2.0 */
  aa_status* (*status_create)(const aa_host* host, int32_t code, int64_t native_code, const char* message,
                              size_t message_length);
  /* Releases a status. NULL is allowed. since 2.0 */
  void (*status_release)(const aa_host* host, aa_status* status);
  /* Reads a status; the text lives as long as the status. status_code(NULL) is AA_OK. since 2.0 */
  int32_t (*status_code)(const aa_host* host, const aa_status* status);
  int64_t (*status_native_code)(const aa_host* host, const aa_status* status);
  const char* (*status_message)(const aa_host* host, const aa_status* status);

  /* Writes one line to the host's log. Drivers never print themselves. since 2.0 */
  void (*log)(const aa_host* host, int32_t level, const char* message, size_t message_length);

  /* Writes the path of a folder that belongs to this driver, in which it may keep compiled code between runs; the
   * folder exists and nobody else can write to it. Returns AA_UNAVAILABLE when the user has disabled caches or the
   * folder cannot be created, and AA_OUT_OF_RANGE when the path with its terminating zero does not fit in `size` bytes.
   * since 2.0 */
  aa_status* (*cache_dir)(const aa_host* host, char* out_path, size_t size);

  /* Allocates device memory for the work that the current call enqueues, from the host's caching allocator: this is
   * fast, and while the stream captures, the memory comes from the graph's own pool. The memory is ordered after every
   * item whose enqueueing call returned before, and belongs to the caller until scratch_release. Returns
   * AA_RESOURCE_EXHAUSTED when there is no memory left even after the host has released its caches. Calls back. since
   * 2.0 */
  aa_status* (*scratch_acquire)(const aa_host* host, aa_scratch* scratch);
  /* Releases it; the struct must be as scratch_acquire left it. Later work of the same stream may get the memory at
   * once, so call this after the last item that uses it has been enqueued, and before the call that acquired it
   * returns. Calls back. since 2.0 */
  void (*scratch_release)(const aa_host* host, aa_scratch* scratch);

  /* Returns idle device memory from the host's caches to the driver, for a driver whose library fails to allocate in
   * the middle of a call. Otherwise return AA_RESOURCE_EXHAUSTED instead; the host then does this and calls once more.
   * out_released receives the number of bytes that were freed. Calls back. since 2.0 */
  aa_status* (*reclaim)(const aa_host* host, aa_host_device* device, size_t* out_released);
};

/* ---- data types -------------------------------------------------------------------------------------------------- */

/* Element types. Values are frozen; bit (1 << value) is used in the masks of aa_device_props. */
typedef enum aa_dtype {
  AA_DTYPE_NONE = 0, /* "no tensor": marks an absent optional tensor in aa_op_call */
  AA_DTYPE_BOOL = 1, /* one byte, 0 or 1 */
  AA_DTYPE_U8 = 2,
  AA_DTYPE_I8 = 3,
  AA_DTYPE_I16 = 4,
  AA_DTYPE_I32 = 5,
  AA_DTYPE_I64 = 6,
  AA_DTYPE_F16 = 7,  /* IEEE 754 binary16 */
  AA_DTYPE_BF16 = 8, /* the upper half of binary32 */
  AA_DTYPE_F32 = 9,
  AA_DTYPE_F64 = 10,
  AA_DTYPE_F8_E4M3 = 11, /* OCP fp8, finite only */
  AA_DTYPE_F8_E5M2 = 12  /* OCP fp8 with infinities */
} aa_dtype;

#define AA_MAX_DIMS 6

/* A view of a strided array in memory of one device. Frozen layout, passed in arrays.
 * Element (i0, i1, ...) lies at data + (i0 * strides[0] + i1 * strides[1] + ...) * size of the dtype.
 * Unused dimensions hold shape 1 and stride 0. ndim 0 is a scalar. A size may be 0: such a tensor has no elements, and its
 * data may be anything, NULL too. */
typedef struct aa_tensor {
  void* data;
  int32_t dtype; /* aa_dtype */
  int32_t ndim;  /* 0 .. AA_MAX_DIMS */
  int64_t shape[AA_MAX_DIMS];
  int64_t strides[AA_MAX_DIMS]; /* in elements; may be 0 (broadcast) or negative for inputs */
} aa_tensor;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_BASE_H_ */
