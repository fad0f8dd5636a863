/* Extension "ceilings", version 1: the upper limits of the device's performance, measured when asked, with the best
 * simple loops of the vendor or the driver. Benchmarks print their figures beside these.
 *
 * Absent: benchmarks print no ceiling for this accelerator.
 */
#ifndef ANYACCEL_ABI_CEILINGS_H_
#define ANYACCEL_ABI_CEILINGS_H_

#include "anyaccel/abi/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_CEILINGS_EXTENSION "ceilings"
#define AA_CEILINGS_VERSION 1u

typedef enum aa_ceiling {
  AA_CEILING_READ = 0,    /* bytes per second read from device memory, from more data than any cache holds */
  AA_CEILING_COPY = 1,    /* bytes per second, read and written bytes counted, device to device */
  AA_CEILING_FMA_F32 = 2, /* fp32 floating-point operations per second, a fused multiply-add counting two */
  /* The same for a product of two large bf16 matrices of random numbers by the vendor's own library. since 2.0 */
  AA_CEILING_PRODUCT_BF16 = 3,
  /* Seconds that the vendor's own call takes to enqueue an empty kernel. since 2.0 */
  AA_CEILING_LAUNCH = 4,
  /* Seconds that the vendor's own calls took in this process to start the runtime and open the device; not measured
   * again. since 2.0 */
  AA_CEILING_OPEN = 5
} aa_ceiling;

typedef struct aa_ceilings_table {
  AA_EXTENSION_HEAD;

  /* Measures for about `seconds` over random, non-zero data of about `bytes` (ignored for arithmetic). Blocks; no other
   * work should run on the device. Returns AA_UNIMPLEMENTED for a kind that the driver cannot measure. since 2.0 */
  AA_CALL(measure, aa_device* device, int32_t kind, size_t bytes, double seconds, double* out_value);
} aa_ceilings_table;

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_CEILINGS_H_ */
