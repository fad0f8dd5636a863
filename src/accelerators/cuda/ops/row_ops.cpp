// Ops of whole rows and of single elements: embedding, rms_norm, layer_norm, gated_activation, add, rope, cache_write and its form
// for quantized caches, argmax and sample (kernels/cuda: embedding.cu, norms.cu, pairs.cu, positions.cu, argmax.cu, sampling.cu). Rows
// that do not begin at multiples of 16 bytes, and rope of many tokens by pairs of neighbours, run on the portable kernels.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "accelerators/cuda/ops/norm_rows.h"
#include "accelerators/cuda/ops/op_group.h"
#include "accelerators/cuda/ops/row_layout.h"
#include "accelerators/cuda/ops/tuned_kernels.h"
#include "accelerators/cuda/stream.h"
#include "runtime/ops/kernel_arguments.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::cuda {
namespace {

using aa_i32 = int32_t;
using aa_i64 = int64_t;
#include "kernels/cuda/row_arguments.h"

using ops::portable::element_count_of;

constexpr int64_t vector = 8;                   // elements that a thread takes at once
constexpr int64_t most_blocks_of_rows = 65535;  // in the second dimension of a grid
// Fewer logits than this are computed by one small group, and with more rows than this no row is shared by several
// blocks.
constexpr int64_t smallest_vocabulary = 256;
constexpr int64_t most_argmax_rows = 4096;
constexpr int64_t most_sample_rows = 256;
// With more, rope and cache_write run by 16 bytes at a time; with fewer, a thread of cache_write compares its token with all later
// ones.
constexpr int64_t most_position_tokens = 32;
// A warp of quantized_cache_write does.
constexpr int64_t most_quantized_tokens = 8192;
// Weights of tokens are multiples of 2^-40, and their sum has 64 bits.
constexpr int64_t largest_vocabulary = int64_t{1} << 23;

bool absent(const aa_tensor& t) { return t.dtype == AA_DTYPE_NONE; }

bool is_contiguous(const aa_tensor& t) {
  int64_t step = 1;
  for (int32_t d = t.ndim - 1; d >= 0; --d) {
    if (t.shape[d] != 1 && t.strides[d] != step) return false;
    step *= t.shape[d];
  }
  return is_float(t) && is_aligned_to_16(t);
}

unsigned blocks_for(int64_t work, int64_t per_block) {
  return static_cast<unsigned>((work + per_block - 1) / per_block);
}

class RowOps final : public OpGroup {
 public:
  explicit RowOps(DeviceState& device)
      : device_(device),
        embedding_(device, "embedding.cu", {"embedding_rows"}, {}),
        norms_(device),
        pairs_(device, "pairs.cu", {"pairs_tuned"}, {}),
        positions_(device, "positions.cu",
                   {"rope_tuned", "cache_write_tuned", "rope_rows", "cache_write_rows", "quantized_cache_write_tuned"},
                   {}),
        f32_logits_(device, "f32"),
        bf16_logits_(device, "bf16"),
        f16_logits_(device, "f16") {}

  std::span<const Op> ops() const override {
    static constexpr Op list[] = {Op::Embedding, Op::RmsNorm, Op::LayerNorm,  Op::GatedActivation,
                                  Op::Add,       Op::Rope,    Op::CacheWrite, Op::QuantizedCacheWrite,
                                  Op::Argmax,    Op::Sample};
    return list;
  }

  bool supports(Op op, const aa_op_call& call, DeviceState&) override {
    const aa_tensor* t = call.tensors;
    switch (op) {
      case Op::Embedding:
        return t[0].shape[0] <= most_blocks_of_rows && row_size(t[0]) % vector == 0 && aligned_row_step(t[0]) &&
               aligned_row_step(t[1]);
      case Op::RmsNorm: return NormRows::supports({t[0], t[1], t[2], none_, t[3]});
      case Op::LayerNorm: return NormRows::supports({t[0], t[1], t[2], t[3], t[4]});
      case Op::GatedActivation:
      case Op::Add: return is_contiguous(t[0]) && is_contiguous(t[1]) && is_contiguous(t[2]);
      case Op::Rope:
        if (t[0].shape[0] > most_position_tokens) return turns_rows(call);
        return elements_of_token(t[0]) + elements_of_token(t[1]) <= INT32_MAX;
      case Op::CacheWrite:
        if (t[2].shape[0] > most_position_tokens) return writes_rows(t);
        return elements_of_token(t[2]) <= INT32_MAX;
      case Op::QuantizedCacheWrite:
        return t[2].shape[0] <= most_quantized_tokens && elements_of_token(t[2]) <= INT32_MAX / 4 &&
               has_even_rows(t[0]) && has_even_rows(t[1]);
      default:
        return t[0].shape[0] <= (op == Op::Argmax ? most_argmax_rows : most_sample_rows) && aligned_row_step(t[1]) &&
               row_size(t[1]) >= smallest_vocabulary && row_size(t[1]) <= largest_vocabulary;
    }
  }

  void enqueue(Op op, const aa_op_call& call, Stream& stream) override {
    const aa_tensor* t = call.tensors;
    if (element_count_of(t[op == Op::CacheWrite || op == Op::QuantizedCacheWrite ? 2 : 0]) == 0 &&
        (op != Op::Rope || absent(t[1])))
      return;
    switch (op) {
      case Op::Embedding: return embedding(t, stream);
      case Op::RmsNorm: return norm({t[0], t[1], t[2], none_, t[3]}, false, call, stream);
      case Op::LayerNorm: return norm({t[0], t[1], t[2], t[3], t[4]}, true, call, stream);
      case Op::GatedActivation: return pairs(t, params_of<aa_activation_params>(call).kind, stream);
      case Op::Add: return pairs(t, -1, stream);
      case Op::Rope: return rope(call, stream);
      case Op::CacheWrite: return cache_write(t, stream);
      case Op::QuantizedCacheWrite: return quantized_cache_write(t, params_of<aa_cache_params>(call).format, stream);
      case Op::Argmax: return choose_tokens(false, t[0], t[1], {}, {}, {}, stream);
      default: return choose_tokens(true, t[0], t[1], t[2], t[3], params_of<aa_sample_params>(call), stream);
    }
  }

 private:
  // For one element type of logits.
  struct LogitKernels {
    LogitKernels(DeviceState& device, const std::string& type)
        : argmax(device, "argmax.cu", {"argmax_rows_" + type}, {"-DAA_X=" + type}),
          sample(device, "sampling.cu", {"sample_rows_" + type}, {"-DAA_X=" + type}) {}
    TunedKernels argmax, sample;
  };

  // Of [T,H,D]: the elements of a token; 0 if the tensor is absent.
  static int64_t elements_of_token(const aa_tensor& t) { return absent(t) ? 0 : t.shape[1] * t.shape[2]; }
  // Strides of a cache [B,Hk,S,D], or of queries, keys or values [T,H,D].
  static aa_head_slots slots_of(const aa_tensor& t) {
    if (absent(t)) return {};
    const int last = t.ndim - 1;
    return {t.strides[0], t.strides[1], last == 3 ? t.strides[2] : 0, t.strides[last], t.dtype, 0};
  }

  // A kernel that lets the next one begin at once was enqueued, and writes these: the weights of products after it may still be
  // read early.
  static void wrote(Stream& stream, std::initializer_list<const aa_tensor*> tensors) {
    for (const aa_tensor* tensor : tensors) {
      const std::array written = {PendingWrites::range_of(*tensor)};
      stream.pending_writes().add(true, written);
    }
  }

  static int64_t turned_vectors(const aa_tensor* t) {
    return t[0].shape[0] * (t[0].shape[1] + (absent(t[1]) ? 0 : t[1].shape[1])) * t[2].shape[1] / vector;
  }
  static bool turns_rows(const aa_op_call& call) {
    const aa_tensor* t = call.tensors;
    return params_of<aa_rope_params>(call).interleaved == 0 && t[2].shape[1] % vector == 0 && has_whole_heads(t[0]) &&
           (absent(t[1]) || has_whole_heads(t[1])) && has_whole_heads(t[2]) && has_whole_heads(t[3]) &&
           turned_vectors(t) <= INT32_MAX - AA_ROPE_THREADS;
  }
  static bool writes_rows(const aa_tensor* t) {
    return t[2].shape[2] % vector == 0 && has_whole_heads(t[0]) && has_whole_heads(t[1]) && has_whole_heads(t[2]) &&
           has_whole_heads(t[3]) && 2 * elements_of_token(t[2]) <= INT32_MAX && t[2].shape[0] <= INT32_MAX / 2;
  }
  // Of a cache in bytes: the bytes of a row are adjacent, and a scale is at an even address.
  static bool has_even_rows(const aa_tensor& t) {
    const auto address = reinterpret_cast<uintptr_t>(t.data);
    return t.strides[3] == 1 &&
           ((address | static_cast<uintptr_t>(t.strides[0] | t.strides[1] | t.strides[2])) & 1U) == 0;
  }

  void embedding(const aa_tensor* t, Stream& stream) {
    const int64_t size = row_size(t[0]);
    const TunedLaunch shape{
        .grid = {blocks_for(size, AA_EMBEDDING_THREADS * vector), static_cast<unsigned>(t[0].shape[0]), 1},
        .block = AA_EMBEDDING_THREADS,
        .overlaps_previous = true};
    embedding_.launch(0, stream.handle(), shape, t[0].data, *aligned_row_step(t[0]), t[1].data, *aligned_row_step(t[1]),
                      t[2].data, t[2].strides[0], t[1].shape[0], size, t[0].dtype, t[1].dtype, t[2].dtype);
    wrote(stream, {&t[0]});
  }

  void norm(const NormCall& norm, bool centred, const aa_op_call& call, Stream& stream) {
    norms_.launch(norm, centred, params_of<aa_norm_params>(call).eps, stream);
    wrote(stream, {&norm.out, &norm.residual});
  }

  void pairs(const aa_tensor* t, int32_t kind, Stream& stream) {
    const int64_t count = element_count_of(t[0]);
    const TunedLaunch shape{.grid = {blocks_for(count, AA_PAIR_THREADS * vector), 1, 1},
                            .block = AA_PAIR_THREADS,
                            .overlaps_previous = true};
    pairs_.launch(0, stream.handle(), shape, t[0].data, t[1].data, t[2].data, count, t[0].dtype, t[1].dtype, t[2].dtype,
                  kind);
    wrote(stream, {&t[0]});
  }

  void rope(const aa_op_call& call, Stream& stream) {
    const aa_tensor* t = call.tensors;
    const auto q_heads = static_cast<int32_t>(t[0].shape[1]), size = static_cast<int32_t>(t[2].shape[1]);
    const auto heads = static_cast<int32_t>(q_heads + (absent(t[1]) ? 0 : t[1].shape[1]));
    if (int64_t{heads} * size == 0 || t[0].shape[0] == 0) return;
    if (t[0].shape[0] > most_position_tokens) {
      const auto threads = static_cast<int32_t>(turned_vectors(t));
      const TunedLaunch rows{
          .grid = {blocks_for(threads, AA_ROPE_THREADS), 1, 1}, .block = AA_ROPE_THREADS, .overlaps_previous = true};
      positions_.launch(2, stream.handle(), rows, t[0].data, slots_of(t[0]), t[1].data, slots_of(t[1]), t[2].data,
                        t[2].strides[0], t[3].data, t[3].strides[0], q_heads, heads, size, threads);
      wrote(stream, {&t[0], &t[1]});
      return;
    }
    const TunedLaunch shape{
        .grid = {blocks_for(int64_t{heads} * size, AA_POSITION_THREADS), static_cast<unsigned>(t[0].shape[0]), 1},
        .block = AA_POSITION_THREADS,
        .overlaps_previous = true};
    positions_.launch(0, stream.handle(), shape, t[0].data, slots_of(t[0]), t[1].data, slots_of(t[1]), t[2].data,
                      t[2].strides[0], t[2].strides[1], t[3].data, t[3].strides[0], t[3].strides[1], q_heads, heads,
                      size, static_cast<int32_t>(params_of<aa_rope_params>(call).interleaved));
    wrote(stream, {&t[0], &t[1]});
  }

  void cache_write(const aa_tensor* t, Stream& stream) {
    const auto tokens = static_cast<int32_t>(t[2].shape[0]), heads = static_cast<int32_t>(t[2].shape[1]),
               size = static_cast<int32_t>(t[2].shape[2]);
    const bool few = tokens <= most_position_tokens;
    TunedLaunch shape{.overlaps_previous = true};
    if (few) {
      shape.grid = {blocks_for(int64_t{heads} * size, AA_POSITION_THREADS), static_cast<unsigned>(tokens), 1};
      shape.block = AA_POSITION_THREADS;
    } else {
      shape.grid = {blocks_for(tokens, AA_WRITE_TOKENS), 1, 1};
      shape.block = AA_WRITE_THREADS;
    }
    positions_.launch(few ? 1 : 3, stream.handle(), shape, t[0].data, slots_of(t[0]), t[1].data, slots_of(t[1]),
                      t[2].data, slots_of(t[2]), t[3].data, slots_of(t[3]), t[4].data, t[4].strides[0], t[5].data,
                      t[5].strides[0], tokens, heads, size, t[0].shape[0], t[0].shape[2]);
    wrote(stream, {&t[0], &t[1]});
  }

  // Into caches of bytes.
  void quantized_cache_write(const aa_tensor* t, int32_t format, Stream& stream) {
    const auto tokens = static_cast<int32_t>(t[2].shape[0]), heads = static_cast<int32_t>(t[2].shape[1]),
               size = static_cast<int32_t>(t[2].shape[2]);
    const TunedLaunch shape{
        .grid = {blocks_for(int64_t{2} * heads * size, AA_POSITION_THREADS), static_cast<unsigned>(tokens), 1},
        .block = AA_POSITION_THREADS,
        .overlaps_previous = true};
    positions_.launch(4, stream.handle(), shape, t[0].data, slots_of(t[0]), t[1].data, slots_of(t[1]), t[2].data,
                      slots_of(t[2]), t[3].data, slots_of(t[3]), t[4].data, t[4].strides[0], t[5].data, t[5].strides[0],
                      tokens, heads, size, t[0].shape[0], t[0].shape[2], static_cast<int32_t>(format == AA_CACHE_Q8_0));
    wrote(stream, {&t[0], &t[1]});
  }

  // argmax with a temperature of 0, rng absent. finite_only: as "sample" does, -1 for a row without a finite maximum.
  void choose_tokens(bool finite_only, const aa_tensor& out, const aa_tensor& logits, const aa_tensor& rng,
                     const aa_tensor& seen, const aa_sample_params& params, Stream& stream) {
    const int64_t rows = out.shape[0];
    aa_sample_rows a{};
    a.size = row_size(logits);
    a.row = *aligned_row_step(logits);
    a.out_step = out.strides[0];
    a.has_seen = !absent(seen);
    a.seen_row = seen.strides[0];
    a.seen_inner = seen.strides[1];
    a.rng_step = rng.strides[0];
    a.out_dtype = out.dtype;
    a.temperature = params.temperature;
    a.top_p = params.top_p;
    a.top_k = params.top_k;
    a.finite_only = finite_only;
    a.reach = -std::log(params.min_p);
    // As many blocks as the length of a row justifies, unless the rows alone keep the device busy.
    const int64_t worth = std::min<int64_t>((a.size + AA_SAMPLE_SHARE - 1) / AA_SAMPLE_SHARE, AA_SAMPLE_BLOCKS);
    const int64_t busy = std::max<int64_t>(1, 2 * device_.facts().multiprocessors / rows);
    const TunedLaunch shape{
        .grid = {static_cast<unsigned>(std::clamp<int64_t>(worth, 1, busy)), static_cast<unsigned>(rows), 1},
        .block = AA_SAMPLE_THREADS,
        .overlaps_previous = true};
    const auto words = [&](DeviceState::Scratch purpose, int64_t each) {
      return device_.scratch(purpose, stream.handle(), static_cast<size_t>(rows * each) * sizeof(uint32_t));
    };
    const bool draws = params.temperature > 0;
    void* const results = words(DeviceState::Scratch::partial_results, AA_SAMPLE_RESULTS);
    void* const counters = words(DeviceState::Scratch::counters, draws ? AA_SAMPLE_COUNTERS : 1);
    LogitKernels& kernels = logits.dtype == AA_DTYPE_F32    ? f32_logits_
                            : logits.dtype == AA_DTYPE_BF16 ? bf16_logits_
                                                            : f16_logits_;
    void* const none = nullptr;
    kernels.argmax.launch(0, stream.handle(), shape, draws ? none : out.data, logits.data, draws ? none : seen.data,
                          results, counters, a);
    if (!draws) return;
    kernels.sample.launch(0, stream.handle(), shape, out.data, logits.data, rng.data, seen.data, results, counters, a);
  }

  DeviceState& device_;
  TunedKernels embedding_;
  NormRows norms_;
  TunedKernels pairs_, positions_;
  LogitKernels f32_logits_, bf16_logits_, f16_logits_;
  const aa_tensor none_{};
};

}  // namespace

std::unique_ptr<OpGroup> make_row_ops(DeviceState& device) { return std::make_unique<RowOps>(device); }

}  // namespace anyaccel::cuda
