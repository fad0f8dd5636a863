/* Extension "memory_kinds", version 1: kinds of memory that a device has beside those of aa_memory_kind, by name: a second,
 * larger or slower memory, a part of it that the host reaches, on-chip memory.
 *
 * Absent: the device has those of aa_memory_kind that its capabilities promise.
 *
 * Memory of such a kind is allocated and freed by mem_alloc and mem_free with the kind's number. Copies, fills and mem_query
 * take it as they take AA_MEMORY_DEVICE; what else does, aa_memory_kind_info::access says.
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
#define AA_ACCESS_KERNELS (1u << 1) /* kernels and ops take it as they take AA_MEMORY_DEVICE */

typedef struct aa_memory_kind_info {
  uint32_t struct_size;
  int32_t kind;  /* AA_FIRST_NAMED_MEMORY_KIND or more; each once on a device */
  char name[32]; /* lower-case letters, digits and '_'; each once on a device, and the same on all that have the kind */
  uint32_t access;   /* AA_ACCESS_* */
  int32_t numa_node; /* of the host, where the memory is near one; else -1 */
} aa_memory_kind_info;

typedef struct aa_memory_kinds_table {
  AA_EXTENSION_HEAD;

  /* T N. How many kinds the device has; the same while it is open. since 2.0 */
  AA_CALL(count, aa_device* device, int32_t* out_count);
  /* T N. Facts of one, from 0 on; the same while the device is open. AA_OUT_OF_RANGE for another index. since 2.0 */
  AA_CALL(info, aa_device* device, int32_t index, aa_memory_kind_info* out_info);
  /* T. Bytes of a kind that are free now, and in total. They move as mem_alloc and mem_free of the kind do. AA_NOT_FOUND for
   * a number that is not a kind of the device. since 2.0 */
  AA_CALL(usage, aa_device* device, int32_t kind, int64_t* out_free, int64_t* out_total);
} aa_memory_kinds_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_MEMORY_KINDS_H_ */
