// Implements the methods of ops::Inference, each of which sets the parameters of an op and runs it.
#include "anyaccel/ops/inference.h"

#include <algorithm>
#include <array>

#include "anyaccel/error.h"
#include "anyaccel/ops/product_observer.h"
#include "ops/builders.h"
#include "ops/dispatch/inference_impl.h"

namespace anyaccel::ops {
namespace {

// Returns whether models do without an op on an accelerator that lacks it.
bool is_avoidable(Op op) { return is_for_quantized_weights(op) || is_for_quantized_cache(op); }

}  // namespace

Inference::Inference(Accelerator& accelerator) : impl_(std::make_unique<Impl>(accelerator)) {}
Inference::~Inference() = default;

void Inference::embedding(const Tensor& out, const Tensor& table, const Tensor& ids) {
  impl_->run(Op::Embedding, std::array{&out, &table, &ids});
}

void Inference::embedding_shard(const Tensor& out, const Tensor& table, const Tensor& ids, int64_t first) {
  auto params = make_params<aa_embedding_shard_params>();
  params.first = first;
  impl_->run(Op::EmbeddingShard, std::array{&out, &table, &ids}, &params, sizeof(params));
}

void Inference::rms_norm(const Tensor& out, const Tensor& x, const Tensor& weight, float eps, const Tensor& residual) {
  auto params = make_params<aa_norm_params>();
  params.eps = eps;
  impl_->run(Op::RmsNorm, std::array{&out, &x, &weight, &residual}, &params, sizeof(params));
}

void Inference::layer_norm(const Tensor& out, const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                           const Tensor& residual) {
  auto params = make_params<aa_norm_params>();
  params.eps = eps;
  impl_->run(Op::LayerNorm, std::array{&out, &x, &weight, &bias, &residual}, &params, sizeof(params));
}

void Inference::linear(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias,
                       const Tensor& residual) {
  observe_product(x, w);
  const Tensor x_in = impl_->amp_input(x);
  const Tensor w_in = impl_->amp_input(w);
  impl_->run(Op::Linear, std::array{&out, &x_in, &w_in, &bias, &residual});
}

void Inference::quantized_linear(const Tensor& out, const Tensor& x, const Tensor& w, aa_block_format format,
                                 bool rounded, const Tensor& bias, const Tensor& residual) {
  auto params = make_params<aa_quantized_params>();
  params.format = format;
  params.rounding = rounded ? AA_QUANTIZED_ROUNDED : AA_QUANTIZED_EXACT;
  impl_->run(Op::QuantizedLinear, std::array{&out, &x, &w, &bias, &residual}, &params, sizeof(params));
}

void Inference::quantized_embedding(const Tensor& out, const Tensor& table, aa_block_format format, const Tensor& ids) {
  auto params = make_params<aa_quantized_params>();
  params.format = format;
  impl_->run(Op::QuantizedEmbedding, std::array{&out, &table, &ids}, &params, sizeof(params));
}

void Inference::quantized_embedding_shard(const Tensor& out, const Tensor& table, aa_block_format format,
                                          const Tensor& ids, int64_t first) {
  auto params = make_params<aa_quantized_shard_params>();
  params.format = format;
  params.first = first;
  impl_->run(Op::QuantizedEmbeddingShard, std::array{&out, &table, &ids}, &params, sizeof(params));
}

bool Inference::takes_quantized_weights() const {
  return std::ranges::all_of(std::array{Op::QuantizedLinear, Op::QuantizedEmbedding, Op::QuantizedEmbeddingShard},
                             [&](Op op) { return impl_->slots[static_cast<size_t>(op)].native >= 0; });
}

void Inference::quantized_cache_write(const Tensor& k_cache, const Tensor& v_cache, aa_cache_format format,
                                      const Tensor& k, const Tensor& v, const Tensor& sequence,
                                      const Tensor& positions) {
  auto params = make_params<aa_cache_params>();
  params.format = format;
  impl_->run(Op::QuantizedCacheWrite, std::array{&k_cache, &v_cache, &k, &v, &sequence, &positions}, &params,
             sizeof(params));
}

void Inference::quantized_attention(const Tensor& out, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                                    aa_cache_format format, const Tensor& sequence, const Tensor& positions,
                                    float scale, int window, float softcap, const Tensor& slopes, const Tensor& sinks) {
  auto params = make_params<aa_quantized_attention_params>();
  params.scale = scale;
  params.window = window;
  params.softcap = softcap;
  params.format = format;
  impl_->run(Op::QuantizedAttention, std::array{&out, &q, &k_cache, &v_cache, &sequence, &positions, &slopes, &sinks},
             &params, sizeof(params));
}

bool Inference::takes_quantized_caches() const {
  return impl_->slots[static_cast<size_t>(Op::QuantizedCacheWrite)].native >= 0 &&
         impl_->slots[static_cast<size_t>(Op::QuantizedAttention)].native >= 0;
}

Tensor Inference::pack_linear_weight(const Tensor& w, DType input) {
  const int32_t number = impl_->has(Op::Linear) ? impl_->number_of(Op::Linear) : -1;
  if (number < 0 || !w || w.ndim() != 2) return w;
  std::array<aa_tensor, 5> tensors{};
  const auto describe = [&](size_t i, int64_t columns) {
    tensors[i].dtype = static_cast<int32_t>(input);
    tensors[i].ndim = 2;
    tensors[i].shape[0] = 1;
    tensors[i].shape[1] = tensors[i].strides[0] = columns;
    tensors[i].strides[1] = 1;
    for (int d = 2; d < AA_MAX_DIMS; ++d) tensors[i].shape[d] = 1;
  };
  describe(0, w.size(0));
  describe(1, w.size(1));
  tensors[2] = w.view_for_driver();
  aa_op_call call{};
  call.struct_size = sizeof(call);
  call.op = number;
  call.tensors = tensors.data();
  call.tensor_count = static_cast<uint32_t>(tensors.size());
  return impl_->accelerator.pack_weight(call, 2, w);
}

void Inference::linear_multi(const Tensor& x, std::span<const LinearPart> parts) {
  if (parts.empty() || parts.size() > 4) {
    throw InvalidArgument("linear_multi: takes 1 to 4 weights, not " + std::to_string(parts.size()));
  }
  const Tensor x_in = impl_->amp_input(x);
  std::array<Tensor, 4> weights;
  std::array<const Tensor*, AA_OP_MAX_TENSORS> tensors{&x_in};
  for (size_t i = 0; i < parts.size(); ++i) {
    observe_product(x, parts[i].w);
    weights[i] = impl_->amp_input(parts[i].w);
    tensors[1 + 3 * i] = &parts[i].out;
    tensors[2 + 3 * i] = &weights[i];
    tensors[3 + 3 * i] = &parts[i].bias;
  }
  const std::span<const Tensor* const> list(tensors.data(), 1 + 3 * parts.size());
  if (impl_->run_native(Op::LinearMulti, list, nullptr, 0)) return;
  if (!impl_->has(Op::Linear)) {
    impl_->run(Op::LinearMulti, list);
    return;
  }
  impl_->check_sequence(Op::LinearMulti, list);
  static const Tensor absent;
  for (size_t i = 0; i < parts.size(); ++i) {
    impl_->run(Op::Linear, std::array<const Tensor*, 5>{&parts[i].out, &x_in, &weights[i], &parts[i].bias, &absent});
  }
}

void Inference::gated_linear(const Tensor& out, const Tensor& x, const Tensor& w_gate, const Tensor& w_up,
                             ops::Activation kind, const Tensor& bias_gate, const Tensor& bias_up) {
  observe_product(x, w_gate);
  observe_product(x, w_up);
  const Tensor x_in = impl_->amp_input(x);
  const Tensor gate_in = impl_->amp_input(w_gate);
  const Tensor up_in = impl_->amp_input(w_up);
  auto params = make_params<aa_activation_params>();
  params.kind = static_cast<int32_t>(kind);
  const std::array list{&out, &x_in, &gate_in, &up_in, &bias_gate, &bias_up};
  if (impl_->run_native(Op::GatedLinear, list, &params, sizeof(params))) return;
  if (!impl_->has(Op::Linear)) {
    impl_->run(Op::GatedLinear, list, &params, sizeof(params));
    return;
  }
  impl_->check_sequence(Op::GatedLinear, list);
  Workspace::Scratch scratch(impl_->workspace, out, Workspace::bytes(out.shape(), out.dtype()));
  const Tensor up = scratch.tensor(out.shape(), out.dtype());
  linear(out, x, w_gate, bias_gate);
  linear(up, x, w_up, bias_up);
  gated_activation(out, out, up, kind);
}

void Inference::rope_table(const Tensor& cos, const Tensor& sin, const Tensor& inv_freq, const Tensor& positions,
                           float scale) {
  auto params = make_params<aa_rope_table_params>();
  params.scale = scale;
  impl_->run(Op::RopeTable, std::array{&cos, &sin, &inv_freq, &positions}, &params, sizeof(params));
}

void Inference::rope(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin, bool interleaved) {
  auto params = make_params<aa_rope_params>();
  params.interleaved = interleaved ? 1 : 0;
  impl_->run(Op::Rope, std::array{&q, &k, &cos, &sin}, &params, sizeof(params));
}

void Inference::cache_write(const Tensor& k_cache, const Tensor& v_cache, const Tensor& k, const Tensor& v,
                            const Tensor& sequence, const Tensor& positions) {
  impl_->run(Op::CacheWrite, std::array{&k_cache, &v_cache, &k, &v, &sequence, &positions});
}

void Inference::attention(const Tensor& out, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                          const Tensor& sequence, const Tensor& positions, float scale, int window, float softcap,
                          const Tensor& slopes, const Tensor& sinks) {
  auto params = make_params<aa_attention_params>();
  params.scale = scale;
  params.window = window;
  params.softcap = softcap;
  impl_->run(Op::Attention, std::array{&out, &q, &k_cache, &v_cache, &sequence, &positions, &slopes, &sinks}, &params,
             sizeof(params));
}

void Inference::activation(const Tensor& out, const Tensor& x, ops::Activation kind) {
  auto params = make_params<aa_activation_params>();
  params.kind = static_cast<int32_t>(kind);
  impl_->run(Op::Activation, std::array{&out, &x}, &params, sizeof(params));
}

void Inference::gated_activation(const Tensor& out, const Tensor& gate, const Tensor& up, ops::Activation kind) {
  auto params = make_params<aa_activation_params>();
  params.kind = static_cast<int32_t>(kind);
  impl_->run(Op::GatedActivation, std::array{&out, &gate, &up}, &params, sizeof(params));
}

void Inference::softmax(const Tensor& out, const Tensor& x, float scale) {
  auto params = make_params<aa_softmax_params>();
  params.scale = scale;
  impl_->run(Op::Softmax, std::array{&out, &x}, &params, sizeof(params));
}

void Inference::add(const Tensor& out, const Tensor& a, const Tensor& b) {
  impl_->run(Op::Add, std::array{&out, &a, &b});
}

void Inference::scaled_add(const Tensor& out, const Tensor& a, float alpha, const Tensor& b, float beta) {
  auto params = make_params<aa_scaled_add_params>();
  params.alpha = alpha;
  params.beta = beta;
  impl_->run(Op::ScaledAdd, std::array{&out, &a, &b}, &params, sizeof(params));
}

void Inference::copy(const Tensor& out, const Tensor& x) { impl_->run(Op::Copy, std::array{&out, &x}); }

void Inference::increment(const Tensor& x, int64_t amount) {
  auto params = make_params<aa_increment_params>();
  params.amount = amount;
  impl_->run(Op::Increment, std::array{&x}, &params, sizeof(params));
}

void Inference::argmax(const Tensor& out, const Tensor& x) { impl_->run(Op::Argmax, std::array{&out, &x}); }

void Inference::repetition_penalty(const Tensor& logits, const Tensor& seen, float penalty) {
  auto params = make_params<aa_repetition_params>();
  params.penalty = penalty;
  impl_->run(Op::RepetitionPenalty, std::array{&logits, &seen}, &params, sizeof(params));
}

void Inference::frequency_penalty(const Tensor& logits, const Tensor& counts, float presence, float frequency,
                                  const Tensor& ids) {
  auto params = make_params<aa_frequency_params>();
  params.presence = presence;
  params.frequency = frequency;
  impl_->run(Op::FrequencyPenalty, std::array{&logits, &counts, &ids}, &params, sizeof(params));
}

void Inference::sample(const Tensor& out, const Tensor& logits, const Tensor& rng, float temperature, int top_k,
                       float top_p, const Tensor& seen, float min_p) {
  auto params = make_params<aa_sample_params>();
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.min_p = min_p;
  impl_->run(Op::Sample, std::array{&out, &logits, &rng, &seen}, &params, sizeof(params));
}

void Inference::random(const Tensor& out, aa_random_kind kind, uint64_t seed, uint64_t offset, double low,
                       double high) {
  auto params = make_params<aa_random_params>();
  params.kind = kind;
  params.seed = seed;
  params.offset = offset;
  params.low = low;
  params.high = high;
  impl_->run(Op::Random, std::array{&out}, &params, sizeof(params));
}

std::vector<OpPlacement> Inference::placements() const {
  std::vector<OpPlacement> result;
  for (size_t i = 0; i < op_count; ++i) {
    const Op op = static_cast<Op>(i);
    result.push_back({std::string(op_schemas()[i].name), impl_->has(op), impl_->slots[i].fallbacks.load(),
                      impl_->is_sequence(op), !impl_->has(op) && is_avoidable(op)});
  }
  return result;
}

std::vector<std::string> Inference::missing_by_row() const {
  std::vector<std::string> missing;
  for (size_t i = 0; i < op_count; ++i) {
    const Op op = static_cast<Op>(i);
    const bool wanted = !is_avoidable(op) || impl_->slots[i].native >= 0;
    const auto form = form_by_row(op);
    if (wanted && form && impl_->slots[i].by_row < 0) missing.emplace_back(op_name(*form));
  }
  return missing;
}

ByRow::ByRow() noexcept { ++Inference::Impl::by_row_scopes; }
ByRow::~ByRow() { --Inference::Impl::by_row_scopes; }

bool Inference::all_native() const {
  for (size_t i = 0; i < op_count; ++i) {
    const Op op = static_cast<Op>(i);
    if (is_avoidable(op) || is_for_training(op)) continue;
    if (!impl_->has(op) && !impl_->is_sequence(op)) return false;
  }
  return true;
}

}  // namespace anyaccel::ops
