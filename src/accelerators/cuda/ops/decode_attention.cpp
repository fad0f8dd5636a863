// "attention" for few tokens, and for every call that the prompts' kernel does not take: kernels/cuda/decode_attention.cu; and
// "quantized_attention" for any number of tokens: kernels/cuda/decode_attention_bytes.cu.
#include <algorithm>
#include <array>
#include <string>

#include "accelerators/cuda/ops/attention_call.h"
#include "accelerators/cuda/ops/op_group.h"
#include "accelerators/cuda/ops/tuned_kernels.h"
#include "accelerators/cuda/stream.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::cuda {

int attention_type(int32_t dtype) noexcept {
  switch (dtype) {
    case AA_DTYPE_F32: return 0;
    case AA_DTYPE_BF16: return 1;
    case AA_DTYPE_F16: return 2;
    default: return -1;
  }
}

const char* attention_type_name(int type) noexcept { return type == 0 ? "f32" : type == 1 ? "bf16" : "f16"; }

aa_tuned_attention attention_arguments(const aa_op_call& call) {
  const aa_tensor &out = call.tensors[0], &q = call.tensors[1], &k = call.tensors[2], &v = call.tensors[3];
  aa_tuned_attention a{};
  a.tokens = q.shape[0];
  a.kv_heads = k.shape[1];
  a.heads_per_kv = q.shape[1] / k.shape[1];
  a.sequences = k.shape[0];
  a.slots = k.shape[2];
  a.size = q.shape[2];
  std::copy_n(q.strides, 3, a.q_stride);
  std::copy_n(out.strides, 3, a.out_stride);
  std::copy_n(k.strides, 3, a.k_stride);
  std::copy_n(v.strides, 3, a.v_stride);
  a.sequence_stride = call.tensors[4].strides[0];
  a.position_stride = call.tensors[5].strides[0];
  a.q_dtype = q.dtype;
  a.out_dtype = out.dtype;
  const auto take = [&](const auto& params) {
    a.scale = params.scale;
    a.softcap = params.softcap;
    a.window = params.window;
  };
  if (k.dtype == AA_DTYPE_U8) {
    take(params_of<aa_quantized_attention_params>(call));
  } else {
    take(params_of<aa_attention_params>(call));
  }
  return a;
}

namespace {

constexpr int64_t most_in_grid = 65535;  // of its second and third dimensions

// Rows that can be read and written 16 bytes at a time: the last dimension without gaps, all others whole multiples.
bool is_aligned(const aa_tensor& tensor) {
  const int64_t elements = tensor.dtype == AA_DTYPE_F32 ? 4 : 8;
  if (reinterpret_cast<uintptr_t>(tensor.data) % 16 != 0 || tensor.strides[tensor.ndim - 1] != 1) return false;
  for (int d = 0; d + 1 < tensor.ndim; ++d) {
    if (tensor.strides[d] % elements != 0) return false;
  }
  return true;
}

// Returns true if the caches meet the conditions of both kernels, which have neither slopes nor sinks.
bool has_readable_caches(const aa_op_call& call) {
  const aa_tensor &k = call.tensors[2], &v = call.tensors[3];
  if (call.tensors[6].dtype != AA_DTYPE_NONE || call.tensors[7].dtype != AA_DTYPE_NONE) return false;
  return k.shape[1] > 0 && k.dtype == v.dtype && attention_type(k.dtype) >= 0 && k.shape[2] < INT32_MAX / 2 &&
         k.shape[0] < INT32_MAX && is_aligned(k) && is_aligned(v);
}

// Sizes of the kernels: a head is taken by the next larger one.
constexpr std::array<int64_t, 3> kernel_sizes = {64, 128, 256};

// Returns true if caches in bytes can be copied to shared memory as decode_attention_tiles.h does: the rows of a head follow one
// another, in blocks of Q8_0 at multiples of 4 bytes, else at multiples of 16. Heads in such blocks are as large as a kernel's.
bool has_readable_bytes(const aa_op_call& call) {
  const aa_tensor& q = call.tensors[1];
  if (call.tensors[6].dtype != AA_DTYPE_NONE || call.tensors[7].dtype != AA_DTYPE_NONE) return false;
  const int32_t format = params_of<aa_quantized_attention_params>(call).format;
  if (format != AA_CACHE_Q8_0 && format != AA_CACHE_F8_E4M3) return false;
  const bool blocks = format == AA_CACHE_Q8_0;
  const int64_t size = q.shape[2];
  if (blocks ? size != kernel_sizes[0] && size != kernel_sizes[1] && size != kernel_sizes[2] : size % 32 != 0) {
    return false;
  }
  return std::ranges::all_of(std::array{&call.tensors[2], &call.tensors[3]}, [&](const aa_tensor* cache) {
    const int64_t step = blocks ? 4 : 16;
    return cache->shape[1] > 0 && cache->shape[2] < INT32_MAX / 2 && cache->shape[0] < INT32_MAX &&
           reinterpret_cast<uintptr_t>(cache->data) % 16 == 0 && cache->strides[3] == 1 &&
           cache->strides[2] == cache->shape[3] && cache->strides[1] % step == 0 && cache->strides[0] % step == 0;
  });
}

// Of the kernels for caches in bytes: their tiles under way, fewer on a device with less shared memory; 0: none can be had.
int ring_on(const DeviceFacts& facts, int64_t size, bool blocks) {
  constexpr int64_t static_bytes = int64_t{16} << 10;  // more than any of the kernels has
  for (int ring = AA_BYTES_RING; ring > 0; --ring) {
    if (AA_BYTES_LOCAL(size, blocks, ring) + static_bytes <= facts.shared_per_block_optin) return ring;
  }
  return 0;
}

constexpr std::array<const char*, 5> type_names = {"f32", "bf16", "f16", "q8_0", "e4m3"};
constexpr int q8_0_type = 3, e4m3_type = 4;

int cache_type(const aa_op_call& call) {
  const int32_t dtype = call.tensors[2].dtype;
  if (dtype != AA_DTYPE_U8) return attention_type(dtype);
  return params_of<aa_quantized_attention_params>(call).format == AA_CACHE_Q8_0 ? q8_0_type : e4m3_type;
}

size_t kernel_of(int64_t size) { return size <= 64 ? 0 : size <= 128 ? 1 : 2; }

int64_t heads_of_block(int type) { return type == 0 ? AA_DECODE_HEADS_F32 : AA_DECODE_HEADS; }

// The number of blocks that share the slots of a token. It depends on shapes only, as a captured graph requires; how
// many of them have work depends on the position. One or two tokens get about one block a multiprocessor, or as many as
// run there at once, so that the last one has few results to add up; with more tokens, whose contexts may differ much, a
// few times that.
int64_t splits_for(int64_t pairs, int64_t slots, int multiprocessors, int64_t at_once) {
  const int64_t blocks = (pairs * 4 <= multiprocessors ? at_once : 4) * multiprocessors;
  const int64_t least_slots = int64_t{AA_DECODE_LEAST_TILES} * AA_DECODE_TILE;
  const int64_t useful = std::min<int64_t>(AA_DECODE_MAX_SPLITS, (slots + least_slots - 1) / least_slots);
  return std::clamp<int64_t>(blocks / std::max<int64_t>(pairs, 1), 1, std::max<int64_t>(useful, 1));
}

class DecodeAttention final : public OpGroup {
 public:
  explicit DecodeAttention(DeviceState& device) : device_(device) {
    for (size_t type = 0; type < kernels_.size(); ++type) {
      const bool bytes = type >= q8_0_type;
      for (size_t i = 0; i < kernel_sizes.size(); ++i) {
        const std::string size = std::to_string(kernel_sizes.at(i));
        std::vector<std::string> options = {"-DAA_W=" + std::string(!bytes              ? type_names.at(type)
                                                                    : type == q8_0_type ? "bf16"
                                                                                        : "f16"),
                                            "-DAA_HEAD=" + size};
        if (bytes) {
          options.push_back("-DAA_RING=" +
                            std::to_string(ring_on(device.facts(), kernel_sizes.at(i), type == q8_0_type)));
        }
        kernels_.at(type).at(i) = std::make_unique<TunedKernels>(
            device, bytes ? "decode_attention_bytes.cu" : "decode_attention.cu",
            std::vector<std::string>{"decode_attention_" + size + "_" + type_names.at(type)}, options);
      }
    }
  }

  std::span<const Op> ops() const override { return list; }
  bool supports(Op op, const aa_op_call& call, DeviceState&) override {
    if (op == Op::Attention) return is_decode_attention(device_.facts(), call);
    const aa_tensor& q = call.tensors[1];
    const int64_t size = q.shape[2];
    return has_readable_bytes(call) && size > 0 && size <= kernel_sizes.back() && q.shape[0] <= most_in_grid &&
           q.shape[1] <= most_in_grid &&
           ring_on(device_.facts(), kernel_sizes.at(kernel_of(size)), cache_type(call) == q8_0_type) > 0;
  }

  void enqueue(Op, const aa_op_call& call, Stream& stream) override {
    const aa_tensor &out = call.tensors[0], &q = call.tensors[1], &k = call.tensors[2], &v = call.tensors[3],
                    &sequence = call.tensors[4], &positions = call.tensors[5];
    aa_tuned_attention a = attention_arguments(call);
    if (a.tokens == 0) return;
    const int type = cache_type(call);
    const size_t size = kernel_of(a.size);
    const int64_t heads = heads_of_block(type);
    const int64_t groups = a.kv_heads * ((a.heads_per_kv + heads - 1) / heads);
    const int64_t pairs = groups * a.tokens;
    const int64_t splits = splits_for(pairs, a.slots, device_.facts().multiprocessors,
                                      type >= q8_0_type ? AA_BYTES_BLOCKS(kernel_sizes[size]) : 1);
    a.splits = static_cast<aa_i32>(splits);
    a.q_wide = q.dtype == AA_DTYPE_F32 && is_aligned(q);

    PendingWrites& pending = stream.pending_writes();
    const std::array read = {PendingWrites::range_of(sequence), PendingWrites::range_of(positions)};
    a.early = pending.known() && !pending.contains_any_of(read);
    const std::array written = {PendingWrites::range_of(out)};
    pending.add(a.early != 0, written);

    void* partial = nullptr;
    void* counters = nullptr;
    if (splits > 1) {
      const int64_t floats = pairs * splits * AA_DECODE_PARTIAL(heads, kernel_sizes[size]);
      partial = device_.scratch(DeviceState::Scratch::partial_results, stream.handle(),
                                static_cast<size_t>(floats) * sizeof(float));
      counters = device_.scratch(DeviceState::Scratch::counters, stream.handle(),
                                 static_cast<size_t>(pairs) * sizeof(uint32_t));
    }
    TunedLaunch shape;
    shape.grid = {static_cast<unsigned>(splits), static_cast<unsigned>(groups), static_cast<unsigned>(a.tokens)};
    shape.block = AA_DECODE_ATTENTION_THREADS;
    shape.overlaps_previous = true;
    if (type >= q8_0_type) {
      const bool blocks = type == q8_0_type;
      const int ring = ring_on(device_.facts(), kernel_sizes[size], blocks);
      shape.shared_bytes = static_cast<unsigned>(AA_BYTES_LOCAL(kernel_sizes[size], blocks, ring));
    }
    // If the next kernel ran beside it, that kernel's loads of weights would be queued before its own. More blocks than
    // multiprocessors share them.
    shape.alone = splits * pairs <= device_.facts().multiprocessors;
    kernels_[static_cast<size_t>(type)][size]->launch(0, stream.handle(), shape, out.data, q.data, k.data, v.data,
                                                      sequence.data, positions.data, partial, counters, a);
  }

 private:
  static constexpr Op list[] = {Op::Attention, Op::QuantizedAttention};
  DeviceState& device_;
  std::array<std::array<std::unique_ptr<TunedKernels>, kernel_sizes.size()>, type_names.size()> kernels_;
};

}  // namespace

bool is_prefill_attention(const DeviceFacts& facts, const aa_op_call& call) {
  // With fewer tokens most rows of the matrix units would be empty. A step with no more tokens than there are sequences
  // is most likely one of as many sequences, each of which would have a tile of its own.
  constexpr int64_t least_tokens = 32;
  const aa_tensor &out = call.tensors[0], &q = call.tensors[1], &k = call.tensors[2];
  const int64_t tokens = q.shape[0], size = q.shape[2];
  if (tokens < least_tokens || tokens <= k.shape[0]) return false;
  if (size != 64 && size != 80 && size != 96 && size != 128 && size != 256) return false;
  if (k.dtype == AA_DTYPE_F32 || out.dtype != k.dtype || (q.dtype != AA_DTYPE_F32 && q.dtype != k.dtype)) return false;
  const auto& params = params_of<aa_attention_params>(call);
  return has_readable_caches(call) && is_aligned(q) && is_aligned(out) && params.scale > 0 &&
         (tokens + 63) / 64 <= most_in_grid && AA_PREFILL_LOCAL(size) <= facts.shared_per_block_optin;
}

bool is_hopper_attention(const DeviceFacts& facts, const aa_op_call& call) {
  const int64_t size = call.tensors[1].shape[2];
  return facts.arch == "sm_90" && (size == 64 || size == 128) && is_prefill_attention(facts, call) &&
         AA_HOPPER_LOCAL(size) <= facts.shared_per_block_optin;
}

bool is_decode_attention(const DeviceFacts& facts, const aa_op_call& call) {
  const aa_tensor &q = call.tensors[1], &k = call.tensors[2];
  const int64_t size = q.shape[2];
  const int64_t step = k.dtype == AA_DTYPE_F32 ? 4 : 8;
  return has_readable_caches(call) && size > 0 && size <= kernel_sizes.back() && size % step == 0 &&
         q.shape[0] <= most_in_grid && q.shape[1] <= most_in_grid && !is_prefill_attention(facts, call);
}

std::unique_ptr<OpGroup> make_decode_attention(DeviceState& device) {
  return std::make_unique<DecodeAttention>(device);
}

}  // namespace anyaccel::cuda
