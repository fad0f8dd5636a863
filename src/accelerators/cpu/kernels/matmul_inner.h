// The two ways a Matmul is computed; kernels/matmul.cpp chooses.
#pragma once

#include <cstdint>

#include "accelerators/cpu/kernels/matmul_args.h"

namespace anyaccel::cpu {

// Most rows of x that gemv() takes with the instruction set in use.
int64_t gemv_max_rows();
// Reads every weight once, straight from memory to registers: for few rows of x.
void gemv(const Matmul& args);
// Packs x and blocks of the weights as F32 and multiplies tiles in registers: for many rows of x.
void gemm(const Matmul& args);

}  // namespace anyaccel::cpu
