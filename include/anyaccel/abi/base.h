/* Foundation of the anyaccel plugin interface: versions, status objects, host services, data types, tensor views.
 *
 * Every .h file under include/anyaccel/abi/ is plain C11 and includes only the standard integer headers, so a vendor can
 * copy this folder into a project of its own and implement an accelerator from it without reading anything else.
 *
 * Rules that hold for every struct and function of these headers:
 *
 *  - Size first. Every struct that crosses the boundary begins with `struct_size`, set by its writer to its own sizeof.
 *    A reader accepts any size that covers the members it reads ("at least", never "equal") and reads nothing beyond.
 *    aa_tensor is the one exception: its layout is frozen because arrays of it are passed.
 *  - Members are only appended. "since 1.0" in a comment names the version that brought a member.
 *  - Ownership. `create`, `open`, `load` and `alloc` give an object that the caller gives back with the matching
 *    `destroy`, `close`, `unload` or `free`. Every other pointer is borrowed and valid for the call only, unless its
 *    comment says otherwise.
 *  - Errors. Every function that can fail returns `aa_status*`: NULL is success; anything else was made by
 *    aa_host::status_create and now belongs to the caller, who gives it to aa_host::status_release. No exception, abort,
 *    exit or print may cross the boundary.
 *  - Out parameters are named out_*; they are written only on success and must not be NULL unless their comment says so.
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
#define AA_ABI_MAJOR 1u
#define AA_ABI_MINOR 4u
#define AA_ABI_VERSION(major, minor) (((uint32_t)(major) << 16) | (uint32_t)(minor))
#define AA_ABI_CURRENT AA_ABI_VERSION(AA_ABI_MAJOR, AA_ABI_MINOR)

/* True when the struct at `pointer` is large enough to hold `member`: the test to make before reading an appended one. */
#define AA_HAS_MEMBER(pointer, type, member) \
  ((pointer)->struct_size >= offsetof(type, member) + sizeof(((type*)0)->member))

/* ---- status ------------------------------------------------------------------------------------------------------ */

/* An error on its way to the caller. Made, read and released only through aa_host. NULL means success. */
typedef struct aa_status aa_status;

/* What went wrong, in the caller's terms. A driver chooses the first that fits. */
typedef enum aa_code {
  AA_OK = 0,
  AA_CANCELLED = 1,           /* The caller asked for the operation to stop. */
  AA_UNKNOWN = 2,             /* The vendor's error has no better match; native_code tells. */
  AA_INVALID_ARGUMENT = 3,    /* The argument is wrong whatever the state; retrying cannot help. */
  AA_DEADLINE_EXCEEDED = 4,   /* A time limit passed; the operation may still complete. */
  AA_NOT_FOUND = 5,           /* A named thing (kernel, file, extension) does not exist. */
  AA_ALREADY_EXISTS = 6,      /* A named thing exists and was to be made. */
  AA_PERMISSION_DENIED = 7,   /* The operating system or the vendor refuses this user. */
  AA_RESOURCE_EXHAUSTED = 8,  /* Out of memory or of another countable thing. The device stays usable; the host frees
                                 its caches and tries once more. */
  AA_FAILED_PRECONDITION = 9, /* Right call, wrong state (elapsed time of an event that has not completed). */
  AA_ABORTED = 10,            /* Lost a race; the caller may retry from the start. */
  AA_OUT_OF_RANGE = 11,       /* An index or an offset lies outside the object. */
  AA_UNIMPLEMENTED = 12,      /* This driver does not have the feature. Nothing was done. */
  AA_INTERNAL = 13,           /* A bug in the driver or the vendor's runtime. */
  AA_UNAVAILABLE = 14,        /* Hardware, library or service is not there (now). Tests skip on it. */
  AA_DATA_LOSS = 15,          /* Stored data is damaged. */
  AA_DEVICE_LOST = 16,        /* The device fell off; only closing it is allowed. */
  AA_INCOMPATIBLE = 17        /* Versions do not fit; the message names both. */
} aa_code;

typedef enum aa_log_level { AA_LOG_DEBUG = 0, AA_LOG_INFO = 1, AA_LOG_WARNING = 2, AA_LOG_ERROR = 3 } aa_log_level;

/* Services the host lends to a driver. The pointer given to the query function stays valid until the process ends.
 * Every function may be called from any thread at any time. */
typedef struct aa_host {
  uint32_t struct_size;
  uint32_t abi_version; /* AA_ABI_CURRENT of the host. since 1.0 */

  /* Makes a status. `native_code` is the vendor's own error number (0 if none), `message` need not be terminated;
   * its bytes are copied. Never returns NULL (a preallocated "out of memory" status stands in). since 1.0 */
  aa_status* (*status_create)(int32_t code, int64_t native_code, const char* message, size_t message_length);
  /* Gives a status back. NULL is allowed. since 1.0 */
  void (*status_release)(aa_status* status);
  /* Reading; the text lives as long as the status. status_code(NULL) is AA_OK. since 1.0 */
  int32_t (*status_code)(const aa_status* status);
  int64_t (*status_native_code)(const aa_status* status);
  const char* (*status_message)(const aa_status* status);

  /* Writes one line to the host's log. Drivers never print themselves. since 1.0 */
  void (*log)(int32_t level, const char* message, size_t message_length);
} aa_host;

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
 * Unused dimensions hold shape 1 and stride 0. ndim 0 is a scalar. */
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
