// Attention of one new token: the query heads of one key/value head against a range of slots, all of which they see.
#pragma once

#include "accelerators/cpu/kernels/attention_tile.h"

namespace anyaccel::cpu {

// Returns true if run_attention_token() takes the tiles of a call that have one token: elements of the caches' rows are
// adjacent, the head size is a multiple of 32, and the processor has AVX2.
bool takes_attention_token(const AttentionCall& call);

// Returns the best length, at least `slots`, of the parts into which a context is cut: whole blocks, or with AVX-512 and no
// matrix unit an odd number of slots for each of four streams.
int64_t attention_token_part(int64_t slots);

// Runs a tile of one token on the calling thread, like run_attention_tile(). taker: whose tile it is; the next one may be
// claimed and prefetched. Null: none follows.
void run_attention_token(const AttentionCall& call, const AttentionTile& tile, TileTaker* taker);

// For tests: the same, but with the matrix unit in software where the unit would be used, on processors with
// AVX512_BF16. Returns whether the result is the unit's.
bool run_attention_token_emulated(const AttentionCall& call, const AttentionTile& tile);

}  // namespace anyaccel::cpu
