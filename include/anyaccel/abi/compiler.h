/* Extension "compiler", version 1: source text to an image that module_load takes.
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

/* What a compilation gave. Owned by the driver until `release`. */
typedef struct aa_compile_result {
  uint32_t struct_size;
  int32_t succeeded; /* 0: `log` holds the compiler's own words and image is NULL */
  const void* image;
  size_t image_size;
  const char* format; /* for module_load: "cubin", "elf-so", ... */
  const char* log;    /* terminated; "" when the compiler said nothing */
  void* owner;        /* the driver's */
} aa_compile_result;

typedef struct aa_compiler_table {
  uint32_t struct_size;
  uint32_t version;

  /* The source languages it takes, comma-separated, best first: "c++", "cuda-c++", "opencl-c", ... Borrowed, constant.
   * since 1.0 */
  aa_status* (*languages)(aa_device* device, const char** out_languages);
  /* A line that changes whenever the same source could give another image: compiler, its version, target architecture.
   * Part of a cache key. Writes at most `size` bytes, terminated. since 1.0 */
  aa_status* (*fingerprint)(aa_device* device, char* out_text, size_t size);
  /* Compiles one source. `name` stands in messages; `options` are compiler flags. A compile error is a success of this
   * function with `succeeded` 0. Blocks. Thread-safe. The host sets out_result->struct_size. since 1.0 */
  aa_status* (*compile)(aa_device* device, const char* language, const char* name, const char* source,
                        size_t source_size, const char* const* options, size_t option_count,
                        aa_compile_result* out_result);
  /* Gives image and log back. since 1.0 */
  aa_status* (*release)(aa_compile_result* result);
} aa_compiler_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_COMPILER_H_ */
