/* Extension "host_code", version 1: runs ordinary functions on the processor that this accelerator computes with.
 *
 * Ops that are compiled on the machine where they run (op_library.h) ask it what to compile for and run their parallel
 * loops on the accelerator's own threads, so that the process has a single thread pool. Absent: such ops are compiled
 * for the baseline architecture and run on the calling thread.
 */
#ifndef ANYACCEL_ABI_HOST_CODE_H_
#define ANYACCEL_ABI_HOST_CODE_H_

#include "anyaccel/abi/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_HOST_CODE_EXTENSION "host_code"
#define AA_HOST_CODE_VERSION 1u

/* One share of a parallel region: called once for every index in [0, count), each time on a different thread. Must not
 * throw. */
typedef void (*aa_parallel_body)(void* context, int32_t index, int32_t count);

typedef struct aa_host_code_table {
  AA_EXTENSION_HEAD;

  /* Returns the instruction set to compile for: "baseline" (plain x86-64), "avx2" or "avx512"; other names are compiled
   * without special flags. Borrowed, constant until the process changes it explicitly. since 2.0 */
  AA_CALL(target, aa_instance* instance, const char** out_target);
  /* Returns the number of threads that a region runs on, including the caller's. since 2.0 */
  AA_CALL(threads, aa_instance* instance, int32_t* out_threads);
  /* Runs a region and returns when every share has returned. Denormals are flushed to zero inside. Thread-safe; regions
   * of different callers run one after another, and a nested region runs as body(context, 0, 1). since 2.0 */
  AA_CALL(run, aa_instance* instance, aa_parallel_body body, void* context);
} aa_host_code_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_HOST_CODE_H_ */
