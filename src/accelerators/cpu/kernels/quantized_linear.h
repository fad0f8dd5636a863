// The arguments of the op "quantized_linear", and what its kernels share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "accelerators/cpu/kernels/matmul_args.h"
#include "base/block_format.h"
#include "base/simd/cpu_features.h"

namespace anyaccel::cpu {

struct QuantizedProduct {
  Matmul args;  // one part, without a weight
  const BlockFormat* format = nullptr;
  const uint8_t* w = nullptr;  // [n] rows of blocks
  int64_t w_stride = 0;        // bytes from row to row
  bool rounded = false;
};

QuantizedProduct quantized_linear_args(const aa_op_call& call);

// Selects the version of a function that multiplies bytes. AVX-512 without VNNI takes the version of AVX2.
#define AA_BYTES_DISPATCH(function) (*function##_versions[static_cast<int>(::anyaccel::cpu::set_for_bytes())])
inline Isa set_for_bytes() { return isa() >= Isa::Avx512 && !cpu_features().avx512_vnni ? Isa::Avx2 : isa(); }

// Returns how many of n rows of `row_bytes` a thread takes at once: about 256 KiB at most, but 8 rows at least. Pieces
// are about equal, and their number is a multiple of the threads, so that the threads end together.
inline int64_t rows_of_piece(int64_t n, int64_t row_bytes, int64_t threads) {
  const int64_t most = std::clamp<int64_t>((int64_t{256} << 10) / std::max<int64_t>(row_bytes, 1), 8, 1024);
  if (n * row_bytes <= int64_t{128} << 10) return std::max<int64_t>(n, 1);  // not worth waking another thread
  const int64_t rounds = (n + most * threads - 1) / (most * threads);
  const int64_t pieces = rounds * threads;
  return std::max<int64_t>(((n + pieces - 1) / pieces + 3) / 4 * 4, 8);
}

}  // namespace anyaccel::cpu
