/* Extension "peer", version 1: copies from the memory of one device into that of another device of the same instance.
 *
 * Absent, or where can_copy says no: copies between devices go through host memory.
 *
 * A driver that has it has events and stream_wait_event too: the host orders such a copy with them. It enqueues the copy on a
 * stream of the destination's device, which waits for an event of the source's stream before; the source's stream waits for
 * an event behind the copy, so that memory that is freed there is not given out again before it has been read.
 */
#ifndef ANYACCEL_ABI_PEER_H_
#define ANYACCEL_ABI_PEER_H_

#include "anyaccel/abi/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_PEER_EXTENSION "peer"
#define AA_PEER_VERSION 1u

/* Both ranges lie in memory that mem_alloc gave on their device, of any kind but AA_MEMORY_PINNED. */
typedef struct aa_peer_copy {
  uint32_t struct_size;
  uint32_t flags; /* none yet */
  aa_device* destination_device;
  aa_device* source_device; /* another one than destination_device */
  void* destination;
  const void* source;
  size_t size; /* 0 does nothing */
  /* With AA_DRIVER_WANTS_MEMORY; else NULL. */
  aa_memory* destination_memory;
  aa_memory* source_memory;
} aa_peer_copy;

typedef struct aa_peer_table {
  AA_EXTENSION_HEAD;

  /* T N. Writes 1 when copy_async takes copies from memory of `source` into memory of `destination`, else 0; 0 for one
   * device and itself. The answer stays the same while both are open. since 2.0 */
  AA_CALL(can_copy, aa_device* destination, aa_device* source, int32_t* out_possible);
  /* T N S. Copies in order on the stream, which is of either device. AA_INVALID_ARGUMENT when the devices are the same one, or
   * the stream is of neither; AA_UNIMPLEMENTED where can_copy says 0. since 2.0 */
  AA_CALL(copy_async, aa_stream* stream, const aa_peer_copy* what);
} aa_peer_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_PEER_H_ */
