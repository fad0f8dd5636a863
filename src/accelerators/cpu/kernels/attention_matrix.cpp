// See attention_matrix.h.
//
// The online softmax of attention_tile.cpp with both products in bf16: on the matrix unit (UnitBlocks of
// attention_matrix_unit-inl.h) or by dot products (DotBlocks of attention_matrix_dots-inl.h). The run_block() of both
// classes adds the block of slots that MatrixState has loaded.
#include "accelerators/cpu/kernels/attention_matrix.h"

#include <algorithm>

#include "base/simd/amx.h"
#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/attention_matrix.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/attention_matrix_dots-inl.h"
#include "accelerators/cpu/kernels/attention_matrix_state-inl.h"
#include "accelerators/cpu/kernels/attention_matrix_unit-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

template <class Blocks>
void run_blocks(const AttentionCall& call, const AttentionTile& tile) {
  MatrixState state(call, tile);
  state.prepare();
  {
    Blocks blocks(state);
    for (state.block = tile.begin; state.block < tile.end; state.block += kMatrixSlots) {
      state.slots = std::min(kMatrixSlots, tile.end - state.block);
      state.load_block();
      blocks.run_block();
    }
  }
  state.finish();
}

void run_matrix(const AttentionCall& call, const AttentionTile& tile) {
#if HWY_TARGET == HWY_AVX3
  if (isa() == Isa::Amx) {
    run_blocks<UnitBlocks<amx::Unit>>(call, tile);
  } else {
    run_blocks<DotBlocks>(call, tile);
  }
#else
  run_attention_tile(call, tile);
#endif
}

void run_matrix_emulated(const AttentionCall& call, const AttentionTile& tile) {
  run_blocks<UnitBlocks<SoftwareUnit>>(call, tile);
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(run_matrix);
AA_CPU_EXPORT(run_matrix_emulated);

bool has_attention_matrix() { return isa() == Isa::Amx || (isa() == Isa::Avx512 && cpu_features().fast_bf16_dot); }

bool fits_attention_matrix(const AttentionCall& call) {
  return call.k->dtype == AA_DTYPE_BF16 && call.v->dtype == AA_DTYPE_BF16 && call.out->dtype == AA_DTYPE_BF16;
}

void run_attention_matrix(const AttentionCall& call, const AttentionTile& tile) {
  AA_CPU_DISPATCH(run_matrix)(call, tile);
}
void run_attention_matrix_emulated(const AttentionCall& call, const AttentionTile& tile) {
  AA_CPU_DISPATCH(run_matrix_emulated)(call, tile);
}

}  // namespace anyaccel::cpu
#endif
