/* Extension "peer", version 1: copies from the memory of one device to that of another device of the same instance.
 *
 * Absent, or where can_copy says no: copies between devices go through host memory.
 *
 * A driver that has this extension must have events and stream_wait_event too, because the host orders such copies with
 * them. It enqueues the copy on a stream of the destination device, which first waits for an event of the source's
 * stream; the source's stream in turn waits for an event recorded after the copy, so that memory freed there is not
 * reused before it has been read.
 */
#ifndef ANYACCEL_ABI_PEER_H_
#define ANYACCEL_ABI_PEER_H_

#include "anyaccel/abi/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_PEER_EXTENSION "peer"
#define AA_PEER_VERSION 1u

/* Both ranges lie in memory that mem_alloc returned on their device, of any kind but AA_MEMORY_PINNED. */
typedef struct aa_peer_copy {
  uint32_t struct_size;
  uint32_t flags; /* none yet */
  aa_device* destination_device;
  aa_device* source_device; /* differs from destination_device */
  void* destination;
  const void* source;
  size_t size; /* 0 does nothing */
  /* With AA_DRIVER_WANTS_MEMORY; else NULL. */
  aa_memory* destination_memory;
  aa_memory* source_memory;
} aa_peer_copy;

typedef struct aa_peer_table {
  AA_EXTENSION_HEAD;

  /* T N. Writes 1 when copy_async can copy from memory of `source` to memory of `destination`, else 0; 0 if they are
   * the same device. The answer does not change while both are open. since 2.0 */
  AA_CALL(can_copy, aa_device* destination, aa_device* source, int32_t* out_possible);
  /* T N S. Copies in order on the stream, which belongs to either device. Returns AA_INVALID_ARGUMENT when the devices
   * are the same, or the stream belongs to neither, and AA_UNIMPLEMENTED where can_copy writes 0. since 2.0 */
  AA_CALL(copy_async, aa_stream* stream, const aa_peer_copy* what);
} aa_peer_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_PEER_H_ */
