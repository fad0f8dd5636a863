// The division of work of the kernels of elementwise.cl; the host includes it too.
#ifndef ANYACCEL_KERNELS_ELEMENTWISE_ARGUMENTS_H_
#define ANYACCEL_KERNELS_ELEMENTWISE_ARGUMENTS_H_

// Elements of an item; those of a group are AA_ITEMS * AA_ELEMENTS neighbours, of which an item takes every AA_ITEMS-th.
#define AA_ELEMENTS 4

#endif  // ANYACCEL_KERNELS_ELEMENTWISE_ARGUMENTS_H_
