// How gemm.cpp cuts a product into blocks, chunks and stretches.
#pragma once

#include <atomic>
#include <cstdint>

#include "accelerators/cpu/kernels/matmul_args.h"

namespace anyaccel::cpu {

// Most rows of x that are packed at once.
constexpr int64_t kMaxBlockRows = 528;

// State that the threads of a region share.
struct GemmPlan {
  const Matmul* args = nullptr;
  const Matmul* asked = nullptr;  // the call for which `args` has x and the weights exchanged, if it has
  bool pairs = false;             // words are pairs of bf16, not floats
  int64_t words = 0;              // in a row of x or of weights
  int64_t depth = 0;              // most words of a stretch
  int64_t stride = 0;             // from row to row of a sliver
  float* packed_x = nullptr;      // the block of rows of x in work, as words
  int64_t block_rows = 0;         // most rows of a block of x
  int64_t chunk_slivers = 0;      // slivers in a chunk
  int64_t chunks = 0;             // of all parts together
  std::atomic<int64_t> next_chunk{0};

  int64_t elements(int64_t count_of_words) const { return pairs ? 2 * count_of_words : count_of_words; }
};

}  // namespace anyaccel::cpu
