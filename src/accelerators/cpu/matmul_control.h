/* Extension "cpu.matmul", version 1, of the CPU driver alone: which implementation multiplies many rows of activations.
 *
 * The benchmark and tests compare the implementations with it; programs need nothing of it, since the choice is made by
 * measurement (kernels/matmul_choice.h).
 */
#ifndef ANYACCEL_ACCELERATORS_CPU_MATMUL_CONTROL_H_
#define ANYACCEL_ACCELERATORS_CPU_MATMUL_CONTROL_H_

#include "anyaccel/abi/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_CPU_MATMUL_EXTENSION "cpu.matmul"
#define AA_CPU_MATMUL_VERSION 1u

typedef struct aa_cpu_matmul_table {
  uint32_t struct_size;
  uint32_t version;

  /* From now on, for the process: "auto" (measured), "own" or "onednn", as ANYACCEL_CPU_MATMUL. NULL: back to what was
   * in force before the first call. since 1.0 */
  aa_status* (*set_implementation)(const char* name);
  /* "oneDNN 2.6.3, instruction set 0x3f" or why it cannot be used. Opens the library; the text lives as long as the
   * process. since 1.0 */
  aa_status* (*library)(int32_t* out_usable, const char** out_text);
  /* Products large enough for a choice so far: by our own kernels, and by oneDNN. since 1.0 */
  aa_status* (*counts)(int64_t* out_own, int64_t* out_onednn);
  /* Operations per second of products of bf16 on the processor's matrix unit, measured for about `seconds`; 0 if there is
   * none. since 1.0 */
  aa_status* (*matrix_unit_rate)(double seconds, double* out_rate);
} aa_cpu_matmul_table;

#ifdef __cplusplus
}  // extern "C"

namespace anyaccel::cpu {
const aa_cpu_matmul_table* matmul_control_table();
}
#endif
#endif /* ANYACCEL_ACCELERATORS_CPU_MATMUL_CONTROL_H_ */
