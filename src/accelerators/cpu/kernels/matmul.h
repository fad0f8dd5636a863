// Products of activations with weight matrices: the ops "linear", "linear_multi" and "gated_linear" of abi/ops.h.
//
// Weights are read in place, in the dtype they are stored in, and never repacked between calls: they may be a read-only
// mapping of a file. A few rows of activations (decoding) go through gemv.cpp, which streams the weights at the speed
// of memory; more rows (a prompt) go through gemm.cpp, which is bound by the rate of F32 multiply-adds.
#pragma once

#include "anyaccel/abi/ops.h"

namespace anyaccel::cpu {

void linear(const aa_op_call& call);
void linear_multi(const aa_op_call& call);
void gated_linear(const aa_op_call& call);

// The same with the sums of each row in one order, whatever the number of rows: all by the kernel for few rows, since the
// other one's order is one more.
void linear_by_row(const aa_op_call& call);
void linear_multi_by_row(const aa_op_call& call);
void gated_linear_by_row(const aa_op_call& call);

// The definition of the three: plain loops, one thread, sums in double.
void linear_reference(const aa_op_call& call);
void linear_multi_reference(const aa_op_call& call);
void gated_linear_reference(const aa_op_call& call);

}  // namespace anyaccel::cpu
