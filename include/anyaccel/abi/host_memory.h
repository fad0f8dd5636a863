/* Extension "host_memory", version 1: existing host memory made reachable for the device, and placement on NUMA nodes.
 *
 * Absent: pin_memory uses mem_alloc of AA_MEMORY_PINNED where the driver promises AA_CAP_PINNED_HOST, and is otherwise
 * an error (or ordinary memory, where the caller asked to go on).
 */
#ifndef ANYACCEL_ABI_HOST_MEMORY_H_
#define ANYACCEL_ABI_HOST_MEMORY_H_

#include "anyaccel/abi/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_HOST_MEMORY_EXTENSION "host_memory"
#define AA_HOST_MEMORY_VERSION 1u

typedef struct aa_host_memory_table {
  uint32_t struct_size;
  uint32_t version;

  /* Locks a range of the caller's memory and makes it known to the device, so that copies to and from it do not block.
   * AA_RESOURCE_EXHAUSTED when the operating system's limit on locked memory is reached: the message names the limit
   * and how to raise it. AA_ALREADY_EXISTS when part of it is registered. since 1.0 */
  aa_status* (*register_range)(aa_device* device, void* pointer, size_t size);
  /* The same pointer as was registered. since 1.0 */
  aa_status* (*unregister_range)(aa_device* device, void* pointer);
  /* Locked memory whose pages lie on NUMA node `numa_node` (-1: the device's own). Freed by mem_free as
   * AA_MEMORY_PINNED. since 1.0 */
  aa_status* (*alloc_on_node)(aa_device* device, size_t size, int32_t numa_node, void** out_pointer);
} aa_host_memory_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_HOST_MEMORY_H_ */
