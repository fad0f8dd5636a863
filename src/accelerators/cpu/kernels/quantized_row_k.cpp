// The kernels of quantized_row.cpp for formats of 256 values in a block.
#include "accelerators/cpu/kernels/quantized_row.h"
#include "base/block_format.h"
#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/quantized_row_k.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/quantized_row_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if AA_HAS_ROW_KERNELS

RowKernels find_row_kernels_of_256(uint32_t format) {
  switch (format) {
    case AA_BLOCK_Q2_K: return row_kernels_of<RowQ2K>();
    case AA_BLOCK_Q3_K: return row_kernels_of<RowQ3K>();
    case AA_BLOCK_IQ4_XS: return row_kernels_of<RowIq4Xs>();
    case AA_BLOCK_Q4_K: return row_kernels_of<RowQ4OrQ5K<false>>();
    case AA_BLOCK_Q5_K: return row_kernels_of<RowQ4OrQ5K<true>>();
    case AA_BLOCK_Q6_K: return row_kernels_of<RowQ6K>();
    case AA_BLOCK_TQ1_0: return row_kernels_of<RowTq1_0>();
    case AA_BLOCK_TQ2_0: return row_kernels_of<RowTq2_0>();
    default: return {};
  }
}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
