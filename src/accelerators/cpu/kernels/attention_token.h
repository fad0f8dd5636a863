// Attention of one new token: the query heads of one key/value head against a range of slots, all of which they see.
#pragma once

#include "accelerators/cpu/kernels/attention_tile.h"

namespace anyaccel::cpu {

// Returns true if run_attention_token() takes the tiles of a call that have one token: the caches' rows are dense, of a
// whole number of 32 elements, and the processor has AVX2.
bool takes_attention_token(const AttentionCall& call);

// Returns the length of the parts into which a context is best cut, `slots` at least: whole blocks of run_attention_token(), of which each
// instruction set has its own.
int64_t attention_token_part(int64_t slots);

// Runs a tile of one token on the calling thread, like run_attention_tile().
void run_attention_token(const AttentionCall& call, const AttentionTile& tile);

// For tests: the same with the matrix unit in software, on processors with AVX512_BF16, where the unit would be used. Returns whether
// the result is the unit's.
bool run_attention_token_emulated(const AttentionCall& call, const AttentionTile& tile);

}  // namespace anyaccel::cpu
