// A struct that kernels of positions.cl take by value; the host includes it too (see arguments.h).
#ifndef ANYACCEL_KERNELS_POSITION_ARGUMENTS_H_
#define ANYACCEL_KERNELS_POSITION_ARGUMENTS_H_

// Keys or values: a cache [B,Hk,S,D], or those of a step [T,Hk,D]. Strides in elements.
typedef struct aa_slots {
  aa_i64 outer; /* of B or T */
  aa_i64 head;
  aa_i64 slot;
  aa_i64 inner;
  aa_i32 dtype;
  aa_i32 reserved;
} aa_slots;

#endif  // ANYACCEL_KERNELS_POSITION_ARGUMENTS_H_
