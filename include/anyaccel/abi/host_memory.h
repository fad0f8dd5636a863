/* Extension "host_memory", version 1: makes existing host memory accessible to the device.
 *
 * Absent: pin_memory uses mem_alloc of AA_MEMORY_PINNED where the driver has AA_CAP_PINNED_HOST, and ordinary memory
 * elsewhere.
 */
#ifndef ANYACCEL_ABI_HOST_MEMORY_H_
#define ANYACCEL_ABI_HOST_MEMORY_H_

#include "anyaccel/abi/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_HOST_MEMORY_EXTENSION "host_memory"
#define AA_HOST_MEMORY_VERSION 1u

#define AA_REGISTER_READ_ONLY (1u << 0) /* the device does not write it: a mapped file */

typedef struct aa_register {
  uint32_t struct_size;
  uint32_t flags; /* AA_REGISTER_* */
  void* pointer;
  size_t size;
} aa_register;

typedef struct aa_registration {
  uint32_t struct_size;
  uint32_t reserved;
  /* The address of the first byte in kernels; NULL when only copies can use the memory. Copies take the host
   * address. */
  void* device_address;
  aa_memory* memory; /* as in aa_allocation */
} aa_registration;

typedef struct aa_host_memory_table {
  AA_EXTENSION_HEAD;

  /* T B. Locks a range of the caller's memory and registers it with the device, so that copies to and from it do not
   * block. Returns AA_RESOURCE_EXHAUSTED when the operating system's limit on locked memory is reached; the message
   * says what the limit is and how to raise it. Returns AA_ALREADY_EXISTS when part of the range is already registered.
   * since 2.0 */
  AA_CALL(register_range, aa_device* device, const aa_register* what, aa_registration* out_registration);
  /* T B. `pointer` is the one that was registered. since 2.0 */
  AA_CALL(unregister_range, aa_device* device, void* pointer);
} aa_host_memory_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_HOST_MEMORY_H_ */
