/* Extension "profiler", version 1: named ranges in the vendor's own profiler (NVTX, ITT, ...).
 *
 * Absent: ranges go to the host's trace only (ANYACCEL_TRACE). All functions are thread-safe, cheap when no profiler is
 * attached, and never fail for lack of one.
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
  AA_EXTENSION_HEAD;

  /* Opens a range on the calling thread. `domain` and `category` are "" for the default. since 2.0 */
  AA_CALL(range_push, aa_instance* instance, const char* message, const char* domain, const char* category);
  /* Closes the innermost open range of the domain on the calling thread; does nothing when there is none. since 2.0 */
  AA_CALL(range_pop, aa_instance* instance, const char* domain);
  /* Marks an instant. since 2.0 */
  AA_CALL(mark, aa_instance* instance, const char* message, const char* domain);
} aa_profiler_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_PROFILER_H_ */
