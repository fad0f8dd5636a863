/* Extension "memory_kinds", version 1: named kinds of memory that a device has in addition to those of aa_memory_kind:
 * a second, larger or slower memory, a part of it that the host can access, on-chip memory.
 *
 * Absent: the device has only those of aa_memory_kind, as its capabilities say.
 *
 * Memory of such a kind is allocated and freed by mem_alloc and mem_free with the kind's number. Copies, fills and
 * mem_query accept it as they accept AA_MEMORY_DEVICE; aa_memory_kind_info::access says what else does.
 */
#ifndef ANYACCEL_ABI_MEMORY_KINDS_H_
#define ANYACCEL_ABI_MEMORY_KINDS_H_

#include "anyaccel/abi/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_MEMORY_KINDS_EXTENSION "memory_kinds"
#define AA_MEMORY_KINDS_VERSION 1u

#define AA_FIRST_NAMED_MEMORY_KIND 16 /* smaller numbers are those of aa_memory_kind */

#define AA_ACCESS_HOST (1u << 0)    /* the host may read and write through the same pointer */
#define AA_ACCESS_KERNELS (1u << 1) /* kernels and ops accept it as they accept AA_MEMORY_DEVICE */

typedef struct aa_memory_kind_info {
  uint32_t struct_size;
  int32_t kind;    /* AA_FIRST_NAMED_MEMORY_KIND or more; unique on a device */
  char name[32];   /* lower-case letters, digits and '_'; unique on a device, and the same on all that have the kind */
  uint32_t access; /* AA_ACCESS_* */
  int32_t numa_node; /* NUMA node of the host that the memory is near; -1: none */
} aa_memory_kind_info;

typedef struct aa_memory_kinds_table {
  AA_EXTENSION_HEAD;

  /* T N. Returns the number of kinds that the device has; constant while it is open. since 2.0 */
  AA_CALL(count, aa_device* device, int32_t* out_count);
  /* T N. Describes the kind with the given index, counted from 0; constant while the device is open. Returns
   * AA_OUT_OF_RANGE if the index is out of range. since 2.0 */
  AA_CALL(info, aa_device* device, int32_t index, aa_memory_kind_info* out_info);
  /* T. Returns the bytes of a kind that are free now, and in total. mem_alloc and mem_free of the kind change the
   * first. Returns AA_NOT_FOUND for a number that is not a kind of the device. since 2.0 */
  AA_CALL(usage, aa_device* device, int32_t kind, int64_t* out_free, int64_t* out_total);
} aa_memory_kinds_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_MEMORY_KINDS_H_ */
