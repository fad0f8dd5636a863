/* The interface between a shared library of host ops and the process that loads it.
 *
 * An op library is an ordinary shared library, usually compiled on the machine where it runs. It exports the ops as
 * plain C functions of any signature. If its ops use the services below, it also exports `anyaccel_op_library_open`,
 * which receives them before any op is called. C++ sources get both from anyaccel/op_source.h.
 */
#ifndef ANYACCEL_ABI_OP_LIBRARY_H_
#define ANYACCEL_ABI_OP_LIBRARY_H_

#include "anyaccel/abi/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_OP_LIBRARY_VERSION 2u
#define AA_OP_LIBRARY_OPEN "anyaccel_op_library_open"

/* Services that the process provides. The pointer stays valid until the process ends. */
typedef struct aa_op_services {
  uint32_t struct_size;
  uint32_t version;
  /* Status objects and the log. since 2.0 */
  const aa_host* host;
  /* Returns the number of threads that a parallel region runs on, including the caller's. since 2.0 */
  int32_t (*threads)(void);
  /* Calls body(context, index, count) once for every index in [0, count), each time on a different thread, and returns
   * when all have returned. Denormals are flushed to zero inside. A nested region runs as body(context, 0, 1). since
   * 2.0 */
  void (*run)(void (*body)(void* context, int32_t index, int32_t count), void* context);
} aa_op_services;

/* Stores `services`; returns the AA_OP_LIBRARY_VERSION that the library was compiled with. Called once, before any op;
 * the library is not used if the host has another version. */
typedef uint32_t (*aa_op_library_open_fn)(const aa_op_services* services);

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_OP_LIBRARY_H_ */
