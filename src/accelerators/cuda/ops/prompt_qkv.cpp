// Implements prompt_qkv.h.
#include "accelerators/cuda/ops/prompt_qkv.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "accelerators/cuda/ops/op_group.h"
#include "accelerators/cuda/ops/row_layout.h"
#include "accelerators/cuda/stream.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::cuda {
namespace {

using aa_i32 = int32_t;
using aa_i64 = int64_t;
#include "kernels/cuda/row_arguments.h"

// Of intermediate results. Memory for them is kept; calls that need more run as a sequence of ops.
constexpr size_t most_qkv_bytes = size_t{256} << 20;
constexpr int64_t pair_vector = 8;  // pairs that a thread turns at once
enum Product : size_t { queries, keys, values };

// The tensors of a call, in the order of abi/ops.h.
struct QkvCall {
  const aa_tensor &q, &k_cache, &v_cache, &x, &norm;
  std::array<const aa_tensor*, 3> w, bias;
  const aa_tensor &cos, &sin, &sequence, &positions;

  explicit QkvCall(const aa_op_call& call)
      : q(call.tensors[0]),
        k_cache(call.tensors[1]),
        v_cache(call.tensors[2]),
        x(call.tensors[3]),
        norm(call.tensors[4]),
        w{&call.tensors[5], &call.tensors[7], &call.tensors[9]},
        bias{&call.tensors[6], &call.tensors[8], &call.tensors[10]},
        cos(call.tensors[11]),
        sin(call.tensors[12]),
        sequence(call.tensors[13]),
        positions(call.tensors[14]) {}
};

aa_head_slots slots_of_cache(const aa_tensor& t) {
  return {t.strides[0], t.strides[1], t.strides[2], t.strides[3], t.dtype, 0};
}

}  // namespace

// Intermediate results, one behind the other; all in bf16 and without gaps between rows. Of the keys' weights and the values', those
// of lower addresses have the lower results, as a batch needs it.
struct PromptQkv::Memory {
  size_t normed, out[3], bytes;  // offsets and, of all, the size

  explicit Memory(const QkvCall& t) {
    const auto bytes_of = [&](int64_t columns) { return aligned(static_cast<size_t>(t.x.shape[0] * columns * 2)); };
    normed = 0;
    out[queries] = bytes_of(t.x.shape[1]);
    const size_t low = out[queries] + bytes_of(t.w[queries]->shape[0]);
    const size_t high = low + bytes_of(t.w[keys]->shape[0]);
    const bool values_first = values_lie_first(t);
    out[keys] = values_first ? high : low;
    out[values] = values_first ? low : high;
    bytes = high + bytes_of(t.w[values]->shape[0]);
  }
  static bool values_lie_first(const QkvCall& t) {
    return reinterpret_cast<uintptr_t>(t.w[values]->data) < reinterpret_cast<uintptr_t>(t.w[keys]->data);
  }
};

PromptQkv::PromptQkv(DeviceState& device, ProductEngine& engine)
    : device_(device), engine_(engine), norm_(device), kernels_(device, "positions.cu", {"rope_cache_rows"}, {}) {}

ProductProblem PromptQkv::problem(const aa_op_call& call, size_t which) {
  const QkvCall t(call);
  const aa_tensor &w = *t.w[which], &bias = *t.bias[which];
  ProductProblem p;
  p.in = p.out = AA_DTYPE_BF16;
  p.m = t.x.shape[0];
  p.n = w.shape[0];
  p.k = w.shape[1];
  p.x_step = p.k;
  p.w_step = row_step(w);
  p.out_step = p.n;
  p.w_align = alignment_of(w.data);
  p.bias = is_there(bias);
  if (p.bias) p.bias_align = alignment_of(bias.data);
  return p;
}

bool PromptQkv::supports(const aa_op_call& call) {
  const QkvCall t(call);
  const auto& params = params_of<aa_norm_rope_params>(call);
  const int64_t tokens = t.x.shape[0], size = t.cos.shape[1];
  if (tokens < fewest_rounded_rows || tokens > INT32_MAX / 2 || params.normed != AA_DTYPE_BF16 || params.interleaved)
    return false;
  if (size % pair_vector != 0 || size < 1 || size > AA_QKV_SIZE || 2 * size != t.q.shape[2]) return false;
  for (const aa_tensor* cache : {&t.k_cache, &t.v_cache}) {
    if (cache->dtype != AA_DTYPE_BF16 || !has_whole_heads(*cache) || cache->shape[1] < 1) return false;
  }
  if (t.q.shape[1] < 1 || t.q.dtype == AA_DTYPE_F16 || !has_whole_heads(t.q) || !has_whole_heads(t.cos) ||
      !has_whole_heads(t.sin)) {
    return false;
  }
  aa_tensor normed = t.x, none{};
  normed.data = nullptr;
  normed.dtype = AA_DTYPE_BF16;
  normed.strides[0] = normed.shape[1];
  normed.strides[1] = 1;
  if (!NormRows::supports({normed, t.x, t.norm, none, none})) return false;
  for (size_t i = 0; i < t.w.size(); ++i) {
    const aa_tensor &w = *t.w[i], &bias = *t.bias[i];
    if (w.dtype != AA_DTYPE_BF16 || !is_by_rows(w) || w.shape[1] < 1) return false;
    if (is_there(bias) && (bias.dtype != AA_DTYPE_BF16 || (bias.shape[0] > 1 && bias.strides[0] != 1))) return false;
  }
  if (Memory(t).bytes > most_qkv_bytes) return false;
  for (size_t i = 0; i < t.w.size(); ++i) {
    if (!engine_.supports(problem(call, i))) return false;
  }
  return true;
}

// The products of keys and values as one, if the library takes them together and that was not measured to take longer.
std::optional<ProductProblem> PromptQkv::keys_and_values(const aa_op_call& call, const Memory& memory, Stream& stream) {
  const QkvCall t(call);
  const ProductProblem alone = problem(call, keys);
  if (alone.bias || alone != problem(call, values)) return {};
  const bool values_first = memory.out[values] < memory.out[keys];
  const Product low = values_first ? values : keys, high = values_first ? keys : values;
  const auto w_step = batch_step(t.w[low]->data, t.w[high]->data, (alone.n - 1) * alone.w_step + alone.k, alone.in);
  if (!w_step) return {};
  ProductProblem both = alone;
  both.batch = 2;
  both.w_batch_step = *w_step;
  both.out_batch_step = static_cast<int64_t>(memory.out[high] - memory.out[low]) / 2;
  if (!engine_.supports(both) || !engine_.pays_together(both, alone, stream)) return {};
  return both;
}

void PromptQkv::enqueue(const aa_op_call& call, Stream& stream) {
  const QkvCall t(call);
  const auto& params = params_of<aa_norm_rope_params>(call);
  const Memory memory(t);
  const auto engine = engine_.lock();
  const std::optional<ProductProblem> together = keys_and_values(call, memory, stream);
  size_t library_bytes = 0;
  for (const Product which : {queries, keys, values}) {
    const ProductProblem p = together && which != queries ? *together : problem(call, which);
    library_bytes = std::max(library_bytes, aligned(engine_.scratch_bytes(p, false, stream)));
  }
  char* const library = product_scratch(device_, library_bytes, memory.bytes, stream);
  char* const between = library + library_bytes;

  aa_tensor normed = t.x;
  normed.data = between + memory.normed;
  normed.dtype = AA_DTYPE_BF16;
  normed.strides[0] = normed.shape[1];
  normed.strides[1] = 1;
  const aa_tensor none{};
  norm_.launch({normed, t.x, t.norm, none, none}, false, params.eps, stream);
  const auto multiply = [&](const ProductProblem& p, Product which) {
    engine_.run(p, {normed.data, t.w[which]->data, t.bias[which]->data, nullptr, between + memory.out[which]}, library,
                stream);
  };
  multiply(problem(call, queries), queries);
  if (together) {
    multiply(*together, memory.out[values] < memory.out[keys] ? values : keys);
  } else {
    multiply(problem(call, keys), keys);
    multiply(problem(call, values), values);
  }

  aa_qkv_rows a{};
  a.q_row = t.w[queries]->shape[0];
  a.k_row = t.w[keys]->shape[0];
  a.v_row = t.w[values]->shape[0];
  a.cos_row = t.cos.strides[0];
  a.sin_row = t.sin.strides[0];
  a.sequence_step = t.sequence.strides[0];
  a.position_step = t.positions.strides[0];
  a.sequences = t.k_cache.shape[0];
  a.slots = t.k_cache.shape[2];
  a.tokens = static_cast<aa_i32>(t.x.shape[0]);
  a.q_heads = static_cast<aa_i32>(t.q.shape[1]);
  a.kv_heads = static_cast<aa_i32>(t.k_cache.shape[1]);
  a.size = static_cast<aa_i32>(t.cos.shape[1]);
  const aa_head_slots q_at = {t.q.strides[0], t.q.strides[1], 0, 1, t.q.dtype, 0};
  const auto blocks = static_cast<unsigned>((a.tokens + AA_WRITE_TOKENS - 1) / AA_WRITE_TOKENS);
  const TunedLaunch shape{.grid = {2 * blocks, 1, 1}, .block = AA_WRITE_THREADS, .overlaps_previous = true};
  const auto product = [&](Product which) { return static_cast<const void*>(between + memory.out[which]); };
  kernels_.launch(0, stream.handle(), shape, t.q.data, q_at, t.k_cache.data, slots_of_cache(t.k_cache), t.v_cache.data,
                  slots_of_cache(t.v_cache), product(queries), product(keys), product(values), t.cos.data, t.sin.data,
                  t.sequence.data, t.positions.data, a);
  // The kernel lets the next one begin at once: weights of products after it may still be read early.
  const std::array written = {PendingWrites::range_of(t.q), PendingWrites::range_of(t.k_cache),
                              PendingWrites::range_of(t.v_cache)};
  stream.pending_writes().add(true, written);
}

}  // namespace anyaccel::cuda
