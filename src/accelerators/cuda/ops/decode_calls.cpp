// Implements decode_calls.h.
#include "accelerators/cuda/ops/decode_calls.h"

namespace anyaccel::cuda {
namespace {

aa_decode_heads heads_of(const aa_tensor& w, const aa_tensor& bias, int64_t heads) {
  aa_decode_heads made{};
  made.w_row = w.strides[0] * size_of(w.dtype);
  made.bias_dtype = bias.dtype;
  if (is_there(bias)) made.bias_inner = bias.strides[0];
  made.heads = static_cast<int32_t>(heads);
  return made;
}

aa_decode_heads to_cache(aa_decode_heads heads, const aa_tensor& cache) {
  heads.outer = cache.strides[0];
  heads.head = cache.strides[1];
  heads.slot = cache.strides[2];
  heads.inner = cache.strides[3];
  heads.dtype = cache.dtype;
  return heads;
}

}  // namespace

aa_decode_part part_of(const aa_tensor& out, const aa_tensor& w, const aa_tensor& bias, int unit) {
  aa_decode_part part{};
  part.n = static_cast<int32_t>(w.shape[0]);
  part.units = (part.n + unit - 1) / unit;
  part.w_row = w.strides[0] * size_of(w.dtype);
  part.out_row = out.strides[0];
  part.out_inner = out.strides[1];
  part.out_dtype = out.dtype;
  part.bias_dtype = bias.dtype;
  if (is_there(bias)) part.bias_inner = bias.strides[0];
  return part;
}

aa_decode_residual residual_of(const aa_tensor& residual) {
  aa_decode_residual made{};
  made.dtype = residual.dtype;
  if (is_there(residual)) {
    made.row = residual.strides[0];
    made.inner = residual.strides[1];
  }
  return made;
}

QkvArguments qkv_arguments(const aa_tensor* t, int32_t interleaved) {
  const aa_tensor &q = t[0], &k_cache = t[1], &v_cache = t[2], &x = t[3], &cos = t[11], &sin = t[12];
  QkvArguments made{};
  made.q = heads_of(t[5], t[6], q.shape[1]);
  made.q.outer = q.strides[0];
  made.q.head = q.strides[1];
  made.q.inner = q.strides[2];
  made.q.dtype = q.dtype;
  made.k = to_cache(heads_of(t[7], t[8], k_cache.shape[1]), k_cache);
  made.v = to_cache(heads_of(t[9], t[10], v_cache.shape[1]), v_cache);
  made.rope.cos_row = cos.strides[0];
  made.rope.cos_inner = cos.strides[1];
  made.rope.sin_row = sin.strides[0];
  made.rope.sin_inner = sin.strides[1];
  made.rope.sequence_inner = t[13].strides[0];
  made.rope.position_inner = t[14].strides[0];
  made.rope.head_size = static_cast<int32_t>(q.shape[2]);
  made.rope.pairs = static_cast<int32_t>(cos.shape[1]);
  made.rope.interleaved = interleaved;
  made.rope.sequences = static_cast<int32_t>(k_cache.shape[0]);
  made.rope.slots = static_cast<int32_t>(k_cache.shape[2]);
  made.rope.tokens = static_cast<int32_t>(x.shape[0]);
  return made;
}

}  // namespace anyaccel::cuda
