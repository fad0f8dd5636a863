// See attention_token.h.
//
// Such a tile is bound by how fast keys and values come from memory. It is walked block by block
// (attention_rows-inl.h): scores of all query heads from the keys of the block, weights from the scores, sums from
// weights and values. attention_token_avx2-inl.h and attention_token_avx512-inl.h have these steps for their
// instruction sets. Both define
//
//   class TokenProducts(state)
//       prepare() puts the queries into the order of its products. For each block, score(keys), weigh(first slot, slots) and
//       sum(values) are called in this order. finish() writes the result.
#include "accelerators/cpu/kernels/attention_token.h"

#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/attention_token.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/attention_rows-inl.h"
#include "accelerators/cpu/kernels/attention_token_avx2-inl.h"
#include "accelerators/cpu/kernels/attention_token_avx512-inl.h"
#include "accelerators/cpu/kernels/attention_token_state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

void run_blocks(TokenState& state, TileTaker* taker) {
  const BlockWalk walk(state.call, state.tile, taker);
  TokenProducts products(state);
  walk.fetch_first(*state.call.k);
  state.begin();
  products.prepare();
  walk.fetch_first(*state.call.v);
  walk.for_each_block([&](int64_t first, const BlockRows& keys, const BlockRows& values) HWY_ATTR {
    products.score(keys);
    products.weigh(first, keys.slots);
    products.sum(values);
  });
  products.finish();
}

void run_token(const AttentionCall& call, const AttentionTile& tile, TileTaker* taker) {
  TokenState state(call, tile);
#if HWY_TARGET == HWY_AVX3
  if (isa() == Isa::Amx && run_on_unit<amx::Unit>(state)) return;
#endif
  run_blocks(state, taker);
}
bool run_token_emulated(const AttentionCall& call, const AttentionTile& tile) {
  TokenState state(call, tile);
#if HWY_TARGET == HWY_AVX3
  if (cpu_features().avx512_bf16 && run_on_unit<amx::EmulatedUnit>(state)) return true;
#endif
  run_blocks(state, nullptr);
  return false;
}
int64_t token_part(int64_t slots) { return part_of_slots(slots); }

#else
void run_token(const AttentionCall& call, const AttentionTile& tile, TileTaker* /*taker*/) {
  run_attention_tile(call, tile);
}
bool run_token_emulated(const AttentionCall& call, const AttentionTile& tile) {
  run_attention_tile(call, tile);
  return false;
}
int64_t token_part(int64_t slots) { return (slots + kAttentionBlock - 1) / kAttentionBlock * kAttentionBlock; }
#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(run_token);
AA_CPU_EXPORT(run_token_emulated);
AA_CPU_EXPORT(token_part);

bool takes_attention_token(const AttentionCall& call) {
  const bool dense = call.k->strides[3] == 1 && call.v->strides[3] == 1;
  return isa() != Isa::Baseline && call.head_size % 32 == 0 && dense;
}

int64_t attention_token_part(int64_t slots) { return AA_CPU_DISPATCH(token_part)(slots); }

void run_attention_token(const AttentionCall& call, const AttentionTile& tile, TileTaker* taker) {
  AA_CPU_DISPATCH(run_token)(call, tile, taker);
}
bool run_attention_token_emulated(const AttentionCall& call, const AttentionTile& tile) {
  return AA_CPU_DISPATCH(run_token_emulated)(call, tile);
}

}  // namespace anyaccel::cpu
#endif
