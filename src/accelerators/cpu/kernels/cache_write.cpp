// The op "quantized_cache_write".
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "accelerators/cpu/kernels/checks.h"
#include "accelerators/cpu/kernels/parallel.h"
#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "accelerators/cpu/ops.h"
#include "base/scalar_convert.h"
#include "base/simd/dispatch.h"
#include "runtime/ops/op_params.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/cache_write.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/cache_blocks-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

void encode_cache_row(const Row& x, bool is_e4m3, uint8_t* row) {
  const float* values = row_floats(x, 0, x.length, scratch<float>(Scratch::Row0, static_cast<size_t>(x.length)));
  if (is_e4m3) {
    for (int64_t d = 0; d < x.length; d += kLanes) store_e4m3(hn::LoadU(kFloats, values + d), row + d);
    return;
  }
  for (int64_t d = 0; d < x.length; d += kBlockValues, row += kBlockBytes) encode_cache_block(values + d, row);
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(encode_cache_row);

void quantized_cache_write(const aa_op_call& call) {
  const aa_tensor* tensors = call.tensors;
  const aa_tensor &sequence = tensors[4], &positions = tensors[5];
  const int64_t slots = tensors[0].shape[2];
  check_indices("quantized_cache_write", "sequence", sequence, tensors[0].shape[0], "sequences in the cache");
  check_indices("quantized_cache_write", "positions", positions, slots, "slots in the cache");
  const Rows k_cache(tensors[0]), v_cache(tensors[1]), k(tensors[2]), v(tensors[3]);
  const int64_t tokens = tensors[2].shape[0], heads = tensors[2].shape[1], head_size = tensors[2].shape[2];
  if (head_size == 0) return;
  const bool is_e4m3 = params_of<aa_cache_params>(call).format == AA_CACHE_F8_E4M3;
  const auto encode = [is_e4m3](const Row& x, const Row& to) {
    AA_CPU_DISPATCH(encode_cache_row)(x, is_e4m3, reinterpret_cast<uint8_t*>(to.data));
  };
  // Split over heads: two tokens that name the same slot are then written by the same thread, in their order.
  parallel_for(heads, 4 * tokens * head_size, [&](int64_t begin, int64_t end) {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t head = begin; head < end; ++head) {
        const int64_t to = (index_at(sequence, t) * heads + head) * slots + index_at(positions, t);
        encode(k.row(t * heads + head), k_cache.row(to));
        encode(v.row(t * heads + head), v_cache.row(to));
      }
    }
  });
}

}  // namespace anyaccel::cpu
#endif
