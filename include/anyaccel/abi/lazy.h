/* Extension "lazy", version 1: a driver that holds work back until it is released, to compile or submit it as a whole.
 *
 * Absent: everything that is enqueued starts by itself. Rules for a driver that has this extension:
 *
 *  - Items may wait until they are released. flush, stream_query, stream_synchronize, step_end and stream_destroy
 *    release all items of the stream; event_query and event_synchronize release the items up to the record, and
 *    device_synchronize those of every stream.
 *  - Releasing an item releases what it waits for, on every stream. stream_wait_event itself releases nothing.
 *  - When aa_device_props::queue_depth items are held, the driver releases them by itself; it never refuses an item,
 *    and never waits for the host.
 *  - Order matters where memory overlaps: held items whose byte ranges overlap keep their order if one of them writes.
 *    The host reuses freed addresses at once, so two items may name the same address and mean different tensors.
 *  - A failure to compile or submit held work counts as a failure of that work while it runs (driver.h), even if the
 *    call that released it was event_query.
 *
 * The host flushes a stream when a thread makes another one current in its place, and after each operation of a process
 * group; a program that waits in any other way than through a function of these tables must flush explicitly
 * (Accelerator::flush). Decode steps of language models that are not replayed from a graph are marked as steps.
 */
#ifndef ANYACCEL_ABI_LAZY_H_
#define ANYACCEL_ABI_LAZY_H_

#include "anyaccel/abi/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_LAZY_EXTENSION "lazy"
#define AA_LAZY_VERSION 1u

typedef struct aa_step {
  uint32_t struct_size;
  uint32_t flags; /* none yet */
  /* Two steps with the same key most likely make the same calls; a driver may use it to look up its compiled
   * sequence. */
  uint64_t key;
} aa_step;

typedef struct aa_lazy_table {
  AA_EXTENSION_HEAD;

  /* T N S. Submits the work enqueued so far on the stream; does not wait for it. since 2.0 */
  AA_CALL(flush, aa_stream* stream);
  /* Mark the beginning and the end of one pass of a program that repeats itself (a decode step), enqueued by one
   * thread; a flush splits it. Steps do not nest: step_begin inside a step and step_end outside one return
   * AA_FAILED_PRECONDITION. step_end is marked S and flushes. since 2.0 */
  AA_CALL(step_begin, aa_stream* stream, const aa_step* step);
  AA_CALL(step_end, aa_stream* stream);
} aa_lazy_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_LAZY_H_ */
