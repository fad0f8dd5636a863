/* Ops of optimizers in the extension "ops" (anyaccel/abi/ops.h, whose conventions hold here too), found by name as the
 * others are. No step of a model asks for them, and they have no reference implementation in a driver: for calls that
 * the driver rejects, the host runs the code of its op builders (FusedAdamBuilder).
 *
 *  name         tensors                                                                       params
 *  -----------  ----------------------------------------------------------------------------  ----------------------
 *  "adam_step"  param inout float [N]; exp_avg inout float [N]; exp_avg_sq inout float [N];    aa_adam_step_params
 *               grad float [N]
 *               All contiguous, and none shares memory with another. Arithmetic is F32; the driver chooses the order of
 *               the operations:
 *               g = grad (+ weight_decay * param, if not adamw); m = beta1 * m + (1 - beta1) * g;
 *               v = beta2 * v + (1 - beta2) * g * g; param -= lr * weight_decay * param (if adamw);
 *               param -= lr / (1 - beta1^step) * m / (sqrt(v / (1 - beta2^step)) + eps).
 */
#ifndef ANYACCEL_ABI_OPTIMIZER_OPS_H_
#define ANYACCEL_ABI_OPTIMIZER_OPS_H_

#include "anyaccel/abi/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_ADAM_STEP_OP "adam_step"

/* since 2.0 */
typedef struct aa_adam_step_params {
  uint32_t struct_size;
  int32_t adamw; /* 1: the decay is of the parameter; 0: it is added to the gradient */
  int64_t step;  /* from 1 on */
  float lr;
  float beta1; /* [0, 1), as beta2 */
  float beta2;
  float eps;          /* >= 0 */
  float weight_decay; /* >= 0 */
  float reserved;
} aa_adam_step_params;

#ifdef __cplusplus
}
#endif

#endif
