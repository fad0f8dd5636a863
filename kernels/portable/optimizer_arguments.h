// Structs that the kernels of optimizers.cl take by value, beside those of arguments.h and under the same rules.
#ifndef ANYACCEL_KERNELS_OPTIMIZER_ARGUMENTS_H_
#define ANYACCEL_KERNELS_OPTIMIZER_ARGUMENTS_H_

// Elements whose squares are summed together, and the sums that they are summed in side by side: as in
// kernels/host/optimizers.h and optimizer_loops.h.
#define AA_SUM_SEGMENT 16384
#define AA_SUM_LANES 32

// Elements that an item of adam_step and lion_step takes: one that works alone, and one of a group.
#define AA_ADAM_ALONE 1024
#define AA_ADAM_IN_GROUP 4
// Parameters of one launch of adam_step_many.
#define AA_MANY 12

// Element types of a parameter's arrays: aa_dtype; 0: the array is absent.
typedef struct aa_optimizer_types {
  aa_i32 param;
  aa_i32 grad;
  aa_i32 state;
  aa_i32 copy;
} aa_optimizer_types;

// Members as in the structs of kernels/host/optimizers.h, which give the arithmetic: aa_adam_args, aa_lion_args and
// aa_lamb_args.
typedef struct aa_adam_numbers {
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float eps;
  float step_size;
  float inv_sqrt_correction2;
  float weight_decay;
  float decay;
  float grad_scale;
} aa_adam_numbers;

typedef struct aa_lion_numbers {
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float lr;
  float keep;
  float grad_scale;
  float unused; /* structs are of whole pairs */
} aa_lion_numbers;

typedef struct aa_lamb_numbers {
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float eps;
  float correction1, correction2;
  float weight_decay;
  float lr;
  float grad_scale;
  aa_i32 eps_inside;
  float coefficient; /* lamb_apply only */
} aa_lamb_numbers;

#endif  // ANYACCEL_KERNELS_OPTIMIZER_ARGUMENTS_H_
