// The ways a Matmul is computed; multiply() chooses.
#pragma once

#include <cstdint>

#include "accelerators/cpu/kernels/matmul_args.h"

namespace anyaccel::cpu {

// Computes the call in the way that should be fastest.
void multiply(const Matmul& args);

// Returns true if gemv() is faster than gemm() with the instruction set in use.
bool are_few_rows(const Matmul& args);
// Reads every weight once, straight from memory to registers: for few rows of x. Any number of rows is computed
// correctly, and the order of a row's sums does not depend on it.
void gemv(const Matmul& args);
// Packs x and blocks of the weights, as F32 or as pairs of bf16, and multiplies tiles in registers: for many rows of x.
void gemm(const Matmul& args);

// Rows of bf16 whose sum is a row of x of this dtype.
constexpr int bf16_terms(DType x) { return x == DType::BF16 ? 1 : x == DType::F16 ? 2 : 3; }

// Multiplies on the matrix unit, for Isa::Amx and weights with has_bf16_rows(): any number of rows of x, of any dtype. The order
// of a row's sums does not depend on their number.
void gemm_amx(const Matmul& args);
// The same bits by the unit's software version, for tests on machines without one.
void gemm_amx_emulated(const Matmul& args);

// Returns true if gemm_onednn() can do it: many rows of x of any dtype, weights with has_bf16_rows().
bool onednn_takes(const Matmul& args);
// Multiplies slices with oneDNN, which must be usable (onednn.h). Throws NotImplementedError, and has written nothing,
// when it has no bf16 product for this processor.
void gemm_onednn(const Matmul& args);

// State that the threads of gemm_onednn() share.
struct OneDnnPlan {
  const Matmul* args = nullptr;
  int terms = 1;
  uint16_t* stacked_x = nullptr;  // the block of rows of x in work: [term][row][k]
  int64_t block_rows = 0;         // most rows of a block of x
  int64_t chunk_columns = 0;      // most columns of a chunk
  int64_t chunks = 0;             // of all parts together
};

}  // namespace anyaccel::cpu
