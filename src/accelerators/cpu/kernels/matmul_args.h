// The tensors of a "linear", "linear_multi" or "gated_linear" call, named, so that one kernel serves all three.
#pragma once

#include <array>
#include <cstdint>

#include "anyaccel/abi/ops.h"
#include "anyaccel/dtype.h"

namespace anyaccel::cpu {

// A [rows, columns] view; data is null when an optional tensor is absent. Strides in elements.
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::None;
  int64_t row_stride = 0;
  int64_t column_stride = 0;

  explicit operator bool() const noexcept { return data != nullptr; }
  // Element (row, column).
  void* at(int64_t row, int64_t column) const noexcept {
    const auto size = static_cast<int64_t>(dtype_size(dtype));
    return static_cast<char*>(data) + (row * row_stride + column * column_stride) * size;
  }
};

// One output of the call. A gated output has two weights (gate, up), any other one.
struct MatmulPart {
  int64_t n = 0;
  std::array<Matrix, 2> weight;  // [n, k]
  std::array<Matrix, 2> bias;    // [1, n]
  Matrix residual;               // [m, n]
  Matrix out;                    // [m, n]
};

struct Matmul {
  Matrix x;  // [m, k]
  int64_t m = 0;
  int64_t k = 0;
  bool gated = false;
  aa_activation activation = AA_ACTIVATION_SILU;  // when gated
  std::array<MatmulPart, 4> parts;
  int part_count = 0;

  int weights() const noexcept { return gated ? 2 : 1; }
};

// Returns true if one thread finishes the call in less time than a region of the worker pool takes to start and end.
bool is_small(const Matmul& args) noexcept;

// Returns true if all weights are bf16, the elements of their rows are adjacent, and rows do not overlap.
bool has_bf16_rows(const Matmul& args) noexcept;

// The same call for `count` rows of x from `begin` on.
Matmul rows_of(const Matmul& args, int64_t begin, int64_t count);

Matmul linear_args(const aa_op_call& call);
Matmul linear_multi_args(const aa_op_call& call);
Matmul gated_linear_args(const aa_op_call& call);

}  // namespace anyaccel::cpu
