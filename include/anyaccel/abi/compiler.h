/* Extension "compiler", version 1: compiles source text to an image that module_load accepts.
 *
 * Absent: ops that need compiling on the machine are not available on this accelerator; prebuilt images still load.
 */
#ifndef ANYACCEL_ABI_COMPILER_H_
#define ANYACCEL_ABI_COMPILER_H_

#include "anyaccel/abi/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_COMPILER_EXTENSION "compiler"
#define AA_COMPILER_VERSION 1u

/* The result of a compilation. Owned by the driver until `release`. */
typedef struct aa_compile_result {
  uint32_t struct_size;
  int32_t succeeded; /* 0: `log` holds the compiler's messages and image is NULL */
  const void* image;
  size_t image_size;
  const char* format; /* for module_load: "cubin", "elf-so", ... */
  const char* log;    /* terminated; "" when the compiler printed nothing */
  void* owner;        /* belongs to the driver */
} aa_compile_result;

/* One source to compile. */
typedef struct aa_compile {
  uint32_t struct_size;
  uint32_t flags;       /* none yet */
  const char* language; /* one of `languages` */
  const char* name;     /* used in messages */
  const char* source;
  size_t source_size;
  const char* const* options; /* compiler flags, option_count of them */
  size_t option_count;
} aa_compile;

/* Parameters for compiling and launching the portable kernels (kernels/portable) on a device: the values with which
 * they are fast there, as measured by the driver's author. Constant while the device is open. */
typedef struct aa_kernel_tuning {
  uint32_t struct_size;
  /* Number of items of a group that work together on one row (norms, softmax, attention, sampling): a power of two, a
   * multiple of `lanes`. 1: one item does a whole row. */
  int32_t group_size;
  /* Number of items that share one row of a matrix product: a power of two, 1 .. group_size. If `subgroup_size` is not
   * 0, this equals it. */
  int32_t lanes;
  /* Width of the sub-groups that the kernel language can reduce over; 0: there are none, and items of a group reduce
   * through local memory. */
  int32_t subgroup_size;
  /* Number of items of a group in kernels whose items work independently (elementwise). */
  int32_t items;
  /* Bytes of local memory a group may use to share tiles; 0: local memory is no faster than global memory, and kernels
   * keep tiles in registers. Reductions over a group of several items use a little local memory in any case. */
  int32_t local_memory;
  int32_t native_f16; /* 0 or 1: arithmetic on 16-bit floats */
  int32_t native_f64;
} aa_kernel_tuning;

typedef struct aa_compiler_table {
  AA_EXTENSION_HEAD;

  /* Returns the source languages that the compiler accepts, comma-separated, best first: "c++", "cuda-c++", "opencl-c",
   * ... Borrowed, constant. since 2.0 */
  AA_CALL(languages, aa_device* device, const char** out_languages);
  /* Writes a line that changes whenever the same source could give a different image: compiler, its version, target
   * architecture. It is part of a cache key. Writes at most `size` bytes, terminated; returns AA_OUT_OF_RANGE, or
   * truncates the text, when it does not fit. since 2.0 */
  AA_CALL(fingerprint, aa_device* device, char* out_text, size_t size);
  /* T. Compiles one source. On a compile error this function succeeds with `succeeded` 0. The host sets
   * out_result->struct_size. since 2.0 */
  AA_CALL(compile, aa_device* device, const aa_compile* what, aa_compile_result* out_result);
  /* Releases image and log. since 2.0 */
  AA_CALL(release, aa_compile_result* result);
  /* Writes the parameters with which portable kernels run best on the device. Absent: one item per row, no sub-groups,
   * no local memory. since 2.0 */
  AA_CALL(kernel_tuning, aa_device* device, aa_kernel_tuning* out_tuning);
  /* T N. Returns the absolute path of a folder with the file language.h, which expresses the dialect of the portable
   * kernels (kernels/portable/dialect.h) in `language`. Borrowed, constant. "" or absent: the host has one (for
   * "opencl-c" and "cuda-c++"), or the device runs no portable kernels in that language. since 2.0 */
  AA_CALL(dialect, aa_device* device, const char* language, const char** out_folder);
} aa_compiler_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_COMPILER_H_ */
