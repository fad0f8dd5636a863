/* Extension "fault", version 1: failures on request, for reference drivers and simulators; a vendor's driver need not
 * have it.
 *
 * Absent: the conformance cases of asynchronous errors are skipped by name.
 */
#ifndef ANYACCEL_ABI_FAULT_H_
#define ANYACCEL_ABI_FAULT_H_

#include "anyaccel/abi/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_FAULT_EXTENSION "fault"
#define AA_FAULT_VERSION 1u

typedef struct aa_fault_table {
  AA_EXTENSION_HEAD;

  /* T N. Makes the next item that is enqueued on the stream fail with this code when it runs. since 2.0 */
  AA_CALL(inject, aa_stream* stream, int32_t code, int64_t native_code);
  /* T N. Returns the number of the stream's items that have run so far. since 2.0 */
  AA_CALL(executed, aa_stream* stream, int64_t* out_items);
} aa_fault_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_FAULT_H_ */
