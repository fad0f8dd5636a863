/* Extension "host_code", version 1: how ordinary functions run on the processor that this accelerator computes with.
 *
 * Ops that are compiled on the machine where they run (op_library.h) ask it what to compile for and run their parallel
 * loops on the accelerator's own threads, so that one pool serves the process. Absent: such ops are compiled for the
 * plain architecture and run on the calling thread.
 */
#ifndef ANYACCEL_ABI_HOST_CODE_H_
#define ANYACCEL_ABI_HOST_CODE_H_

#include "anyaccel/abi/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_HOST_CODE_EXTENSION "host_code"
#define AA_HOST_CODE_VERSION 1u

/* One share of a parallel region: called once for every index in [0, count), each on a thread of its own. Must not
 * throw. */
typedef void (*aa_parallel_body)(void* context, int32_t index, int32_t count);

typedef struct aa_host_code_table {
  AA_EXTENSION_HEAD;

  /* The instruction set to compile for: "baseline" (plain x86-64), "avx2" or "avx512"; other names are compiled without
   * special flags. Borrowed, constant until the process changes it on purpose. since 2.0 */
  AA_CALL(target, aa_instance* instance, const char** out_target);
  /* Threads that a region runs on, the caller's included. since 2.0 */
  AA_CALL(threads, aa_instance* instance, int32_t* out_threads);
  /* Runs a region and returns when every share has returned. Denormals are flushed to zero inside. Thread-safe; regions
   * of different callers run one after another, and one inside another runs as body(context, 0, 1). since 2.0 */
  AA_CALL(run, aa_instance* instance, aa_parallel_body body, void* context);
} aa_host_code_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_HOST_CODE_H_ */
