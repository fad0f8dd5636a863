// The kernels of quantized_tiles.cpp for formats of 256 values in a block.
#include "accelerators/cpu/kernels/quantized_tiles.h"
#include "base/block_format.h"
#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/quantized_tiles_k.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/quantized_tile_products-inl.h"
#include "accelerators/cpu/kernels/quantized_tiles_k-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if AA_HAS_QUANTIZED_TILES

TileKernels find_tile_kernels_of_256(uint32_t format) {
  switch (format) {
    case AA_BLOCK_Q2_K: return tile_kernels_of<TileQ2K>();
    case AA_BLOCK_Q3_K: return tile_kernels_of<TileQ3K>();
    case AA_BLOCK_TQ1_0: return tile_kernels_of<TileTq1_0>();
    case AA_BLOCK_TQ2_0: return tile_kernels_of<TileTq2_0>();
    case AA_BLOCK_Q4_K: return tile_kernels_of<TileQ4OrQ5K<false>>();
    case AA_BLOCK_Q5_K: return tile_kernels_of<TileQ4OrQ5K<true>>();
    case AA_BLOCK_Q6_K: return tile_kernels_of<TileQ6K>();
    case AA_BLOCK_IQ4_XS: return tile_kernels_of<TileIq4Xs>();
    default: return {};
  }
}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
