// Attention of prompts over caches in bf16 with a result in bf16: on the matrix unit of Intel's processors (AMX), or by
// dot products of bf16 pairs where these are fast (AMD).
#pragma once

#include "accelerators/cpu/kernels/attention_tile.h"

namespace anyaccel::cpu {

// Returns true if the instruction set in use has what run_attention_matrix() needs.
bool has_attention_matrix();
// Returns true if the dtypes of a call are those of run_attention_matrix(), on whatever processor.
bool fits_attention_matrix(const AttentionCall& call);

// Runs a tile on the calling thread, like run_attention_tile(), but rounds queries and weights to bf16, as the op
// allows. Needs has_attention_matrix(). The result of a row depends on the tile that it is in only through where blocks
// of slots begin.
void run_attention_matrix(const AttentionCall& call, const AttentionTile& tile);

// The same on any processor, with the matrix unit in software, for tests.
void run_attention_matrix_emulated(const AttentionCall& call, const AttentionTile& tile);

}  // namespace anyaccel::cpu
