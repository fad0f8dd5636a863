/* Extension "profiler", version 1: named ranges in the vendor's own profiler (NVTX, ITT, ...).
 *
 * Absent: ranges go to the host's trace only (ANYACCEL_TRACE). All functions are thread-safe, cheap when no profiler is
 * attached, and never fail because none is.
 */
#ifndef ANYACCEL_ABI_PROFILER_H_
#define ANYACCEL_ABI_PROFILER_H_

#include "anyaccel/abi/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_PROFILER_EXTENSION "profiler"
#define AA_PROFILER_VERSION 1u

typedef struct aa_profiler_table {
  uint32_t struct_size;
  uint32_t version;

  /* Opens a range on the calling thread. `domain` and `category` are "" for the default. since 1.0 */
  aa_status* (*range_push)(aa_instance* instance, const char* message, const char* domain, const char* category);
  /* Closes the innermost open range of the domain on the calling thread; nothing when there is none. since 1.0 */
  aa_status* (*range_pop)(aa_instance* instance, const char* domain);
  /* Marks an instant. since 1.0 */
  aa_status* (*mark)(aa_instance* instance, const char* message, const char* domain);
} aa_profiler_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_PROFILER_H_ */
