// The ops of include/anyaccel/abi/ops.h: the one list, in the order of its table. The host's numbers and names, the
// checks of a call (src/ops/dispatch/op_schema.cpp), the CPU's table of kernels (src/accelerators/cpu/ops.h) and the
// names that the conformance suite asks a driver for are made from it, so none of them can have another order or lack
// an op. A driver has numbers of its own (aa_ops_table::find).
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace anyaccel {

// OP(enumerator, name, parameters, rules, tensors...). The parameters are a struct of abi/ops.h or void. The rules are
// an expression that throws for parameters or sizes that are wrong although every tensor fits its description: `c` is
// the Checker (src/ops/dispatch/op_checker.h), `p` the parameters. Each tensor has its role, its name, the dtypes it
// may have and its shape in letters (TensorSchema in src/ops/dispatch/op_schema.h); one that is written may be over()
// others, of these numbers: be the same tensor. All others need memory of their own.
#define ANYACCEL_OPS(OP)                                                                                              \
  OP(Embedding, embedding, void, no_rules(), out("out", kFloat, "TH"), in("table", kFloat, "VH"),                     \
     in("ids", kIndex, "T"))                                                                                          \
  OP(RmsNorm, rms_norm, aa_norm_params, c.not_negative("eps", p.eps), out("out", kFloat, ".H", over(1)),              \
     in("x", kFloat, ".H"), in_optional("weight", kFloat, "H"), inout_optional("residual", kFloat, ".H"))             \
  OP(LayerNorm, layer_norm, aa_norm_params, c.not_negative("eps", p.eps), out("out", kFloat, ".H", over(1)),          \
     in("x", kFloat, ".H"), in_optional("weight", kFloat, "H"), in_optional("bias", kFloat, "H"),                     \
     inout_optional("residual", kFloat, ".H"))                                                                        \
  OP(Linear, linear, void, no_rules(), out("out", kFloat, "MN", over(4)), in("x", kFloat, "MK"),                      \
     in("w", kFloat, "NK"), in_optional("bias", kFloat, "N"), in_optional("residual", kFloat, "MN"))                  \
  OP(LinearMulti, linear_multi, void, no_rules(), in("x", kFloat, "MK"), out("out0", kFloat, "Ma"),                   \
     in("w0", kFloat, "aK"), in_optional("bias0", kFloat, "a"), out("out1", kFloat, "Mb"), in("w1", kFloat, "bK"),    \
     in_optional("bias1", kFloat, "b"), out("out2", kFloat, "Mc"), in("w2", kFloat, "cK"),                            \
     in_optional("bias2", kFloat, "c"), out("out3", kFloat, "Md"), in("w3", kFloat, "dK"),                            \
     in_optional("bias3", kFloat, "d"))                                                                               \
  OP(GatedLinear, gated_linear, aa_activation_params, c.activation(p.kind), out("out", kFloat, "MN"),                 \
     in("x", kFloat, "MK"), in("w_gate", kFloat, "NK"), in("w_up", kFloat, "NK"),                                     \
     in_optional("bias_gate", kFloat, "N"), in_optional("bias_up", kFloat, "N"))                                      \
  OP(RopeTable, rope_table, aa_rope_table_params, no_rules(), out("cos", kF32, "TR"), out("sin", kF32, "TR"),         \
     in("inv_freq", kF32, "R"), in("positions", kI32, "T"))                                                           \
  OP(Rope, rope, aa_rope_params, c.rotation(p.interleaved, 2), inout("q", kFloat, "TqD"),                             \
     inout_optional("k", kFloat, "TkD"), in("cos", kF32, "TR"), in("sin", kF32, "TR"))                                \
  OP(CacheWrite, cache_write, void, no_rules(), inout("k_cache", kFloat, "BkSD"), inout("v_cache", kFloat, "BkSD"),   \
     in("k", kFloat, "TkD"), in("v", kFloat, "TkD"), in("sequence", kI32, "T"), in("positions", kI32, "T"))           \
  OP(Attention, attention, aa_attention_params,                                                                       \
     (c.finite("scale", p.scale), c.at_least_0("window", p.window), c.not_negative("softcap", p.softcap), c.heads()), \
     out("out", kFloat, "TqD"), in("q", kFloat, "TqD"), in("k_cache", kFloat, "BkSD"), in("v_cache", kFloat, "BkSD"), \
     in("sequence", kI32, "T"), in("positions", kI32, "T"), in_optional("slopes", kF32, "q"),                         \
     in_optional("sinks", kF32, "q"))                                                                                 \
  OP(Activation, activation, aa_activation_params, c.activation(p.kind), out("out", kFloat, ".", over(1)),            \
     in("x", kFloat, "."))                                                                                            \
  OP(GatedActivation, gated_activation, aa_activation_params, c.activation(p.kind),                                   \
     out("out", kFloat, ".", over(1, 2)), in("gate", kFloat, "."), in("up", kFloat, "."))                             \
  OP(Softmax, softmax, aa_softmax_params, c.finite("scale", p.scale), out("out", kFloat, ".V", over(1)),              \
     in("x", kFloat, ".V"))                                                                                           \
  OP(Add, add, void, no_rules(), out("out", kFloat, ".", over(1, 2)), in("a", kFloat, "."), in("b", kFloat, "."))     \
  OP(Copy, copy, void, no_rules(), out("out", any_dtype, "."), in("x", any_dtype, "."))                               \
  OP(Increment, increment, aa_increment_params, no_rules(), inout("x", kIndex, "."))                                  \
  OP(Argmax, argmax, void, c.vocabulary(), out("out", kIndex, "R"), in("x", kFloat, "RV"))                            \
  OP(RepetitionPenalty, repetition_penalty, aa_repetition_params, c.positive("penalty", p.penalty),                   \
     inout("logits", kFloat, "RV"), in("seen", kU8, "RV"))                                                            \
  OP(Sample, sample, aa_sample_params,                                                                                \
     (c.vocabulary(), c.not_negative("temperature", p.temperature), c.at_least_0("top_k", p.top_k),                   \
      c.require(p.top_p > 0 && p.top_p <= 1, "top_p", p.top_p, "a number above 0, at most 1"),                        \
      c.require(p.min_p >= 0 && p.min_p <= 1, "min_p", p.min_p, "a number from 0 to 1")),                             \
     out("out", kIndex, "R"), in("logits", kFloat, "RV"), in("rng", kI64, "2"), inout_optional("seen", kU8, "RV"))    \
  OP(Random, random, aa_random_params, c.random_kind(p), out("out", any_dtype, "."))                                  \
  OP(EmbeddingShard, embedding_shard, aa_embedding_shard_params, c.at_least_0("first", p.first),                      \
     out("out", kFloat, "TH"), in("table", kFloat, "VH"), in("ids", kIndex, "T"))                                     \
  OP(FrequencyPenalty, frequency_penalty, aa_frequency_params,                                                        \
     (c.finite("presence", p.presence), c.finite("frequency", p.frequency)), inout("logits", kFloat, "RV"),           \
     inout("counts", kI32, "RV"), in_optional("ids", kIndex, "R"))                                                    \
  OP(QuantizedLinear, quantized_linear, aa_quantized_params, c.blocks(p, 2), out("out", kFloat, "MN", over(4)),       \
     in("x", kFloat, "MK"), in("w", kU8, "NC"), in_optional("bias", kFloat, "N"),                                     \
     in_optional("residual", kFloat, "MN"))                                                                           \
  OP(QuantizedEmbedding, quantized_embedding, aa_quantized_params, c.blocks(p, 1), out("out", kFloat, "TK"),          \
     in("table", kU8, "VC"), in("ids", kIndex, "T"))                                                                  \
  OP(QuantizedEmbeddingShard, quantized_embedding_shard, aa_quantized_shard_params,                                   \
     (c.blocks(p.format, 1), c.at_least_0("first", p.first)), out("out", kFloat, "TK"), in("table", kU8, "VC"),       \
     in("ids", kIndex, "T"))                                                                                          \
  OP(QuantizedCacheWrite, quantized_cache_write, aa_cache_params, c.cache_blocks(p.format, 0),                        \
     inout("k_cache", kU8, "BkSC"), inout("v_cache", kU8, "BkSC"), in("k", kFloat, "TkD"), in("v", kFloat, "TkD"),    \
     in("sequence", kI32, "T"), in("positions", kI32, "T"))                                                           \
  OP(QuantizedAttention, quantized_attention, aa_quantized_attention_params,                                          \
     (c.finite("scale", p.scale), c.at_least_0("window", p.window), c.not_negative("softcap", p.softcap), c.heads(),  \
      c.cache_blocks(p.format, 2)),                                                                                   \
     out("out", kFloat, "TqD"), in("q", kFloat, "TqD"), in("k_cache", kU8, "BkSC"), in("v_cache", kU8, "BkSC"),       \
     in("sequence", kI32, "T"), in("positions", kI32, "T"), in_optional("slopes", kF32, "q"),                         \
     in_optional("sinks", kF32, "q"))                                                                                 \
  OP(Matmul, matmul, aa_accumulate_params, c.flag("accumulate", p.accumulate), inout("out", kFloat, ".MN"),           \
     in("a", kFloat, ".MK"), in("b", kFloat, ".KN"))                                                                  \
  OP(SoftmaxMasked, softmax_masked, aa_softmax_params, c.finite("scale", p.scale), out("out", kFloat, ".V", over(1)), \
     in("x", kFloat, ".V"), in_optional("mask", kFloat, ".V"))                                                        \
  OP(SoftmaxBackward, softmax_backward, aa_softmax_params, c.finite("scale", p.scale),                                \
     out("dx", kFloat, ".V", over(2)), in("y", kFloat, ".V"), in("dy", kFloat, ".V"))                                 \
  OP(Moments, moments, aa_moments_params, (c.not_negative("eps", p.eps), c.flag("centred", p.centred)),               \
     out("mean", kF32, "."), out("variance", kF32, "."), in("x", kFloat, ".H"))                                       \
  OP(NormBackward, norm_backward, aa_accumulate_params, (c.flag("accumulate", p.accumulate), c.norm_gradients()),     \
     out("dx", kFloat, ".H", over(3)), inout_optional("dweight", kFloat, "H"), inout_optional("dbias", kFloat, "H"),  \
     in("dy", kFloat, ".H"), in("x", kFloat, ".H"), in_optional("weight", kFloat, "H"),                               \
     in_optional("mean", kF32, "."), in("variance", kF32, "."))                                                       \
  OP(LayerNormInverse, layer_norm_inverse, void, no_rules(), out("x", kFloat, ".H"), in("y", kFloat, ".H"),           \
     in("weight", kFloat, "H"), in("bias", kFloat, "H"), in("mean", kF32, "."), in("variance", kF32, "."))            \
  OP(ActivationBackward, activation_backward, aa_activation_params, c.activation(p.kind),                             \
     out("dx", kFloat, ".", over(1, 2)), in("x", kFloat, "."), in("dy", kFloat, "."))                                 \
  OP(Dropout, dropout, aa_dropout_params,                                                                             \
     c.require(p.ratio >= 0 && p.ratio < 1, "ratio", p.ratio, "a number from 0 to below 1"),                          \
     out("out", kFloat, ".", over(2)), out("mask", kU8, "."), in("x", kFloat, "."))                                   \
  OP(ApplyMask, apply_mask, aa_softmax_params, c.finite("scale", p.scale), out("out", kFloat, ".", over(1)),          \
     in("x", kFloat, "."), in("mask", kU8, "."))                                                                      \
  OP(ColumnSums, column_sums, aa_accumulate_params, c.flag("accumulate", p.accumulate), inout("out", kFloat, "H"),    \
     in("x", kFloat, ".H"))                                                                                           \
  OP(ScaledAdd, scaled_add, aa_scaled_add_params, (c.finite("alpha", p.alpha), c.finite("beta", p.beta)),             \
     out("out", kFloat, ".", over(1, 2)), in("a", kFloat, "."), in_optional("b", kFloat, "."))                        \
  OP(Multiply, multiply, void, no_rules(), out("out", kFloat, ".", over(1, 2)), in("a", kFloat, "."),                 \
     in("b", kFloat, "."))                                                                                            \
  OP(CrossEntropy, cross_entropy, aa_softmax_params, (c.vocabulary(), c.finite("scale", p.scale)),                    \
     out("loss", kF32, "R"), inout_optional("dx", kFloat, "RV", over(2)), in("x", kFloat, "RV"),                      \
     in("targets", kIndex, "R"))                                                                                      \
  OP(EmbeddingBackward, embedding_backward, void, no_rules(), inout("dtable", kF32, "VH"), in("dy", kFloat, "TH"),    \
     in("ids", kIndex, "T"))                                                                                          \
  OP(GatedActivationBackward, gated_activation_backward, aa_activation_params, c.activation(p.kind),                  \
     out("dgate", kFloat, ".", over(3, 4, 5)), out("dup", kFloat, ".", over(3, 4, 5)),                                \
     inout_optional("out", kFloat, ".", over(3, 4, 5)), in("gate", kFloat, "."), in("up", kFloat, "."),               \
     in("dy", kFloat, "."))

// Each fused op is a sequence of ops above, which ops::Inference runs itself where the accelerator lacks it.
#define ANYACCEL_FUSED_OPS(OP)                                                                                       \
  OP(NormLinear, norm_linear, aa_norm_linear_params, (c.not_negative("eps", p.eps), c.normed(p.normed)),             \
     out("out", kFloat, "MN"), in("x", kFloat, "MK"), in_optional("norm", kFloat, "K"), in("w", kFloat, "NK"),       \
     in_optional("bias", kFloat, "N"))                                                                               \
  OP(NormGatedLinear, norm_gated_linear, aa_norm_activation_params,                                                  \
     (c.not_negative("eps", p.eps), c.activation(p.kind), c.normed(p.normed)), out("out", kFloat, "MN"),             \
     in("x", kFloat, "MK"), in_optional("norm", kFloat, "K"), in("w_gate", kFloat, "NK"), in("w_up", kFloat, "NK"),  \
     in_optional("bias_gate", kFloat, "N"), in_optional("bias_up", kFloat, "N"))                                     \
  OP(NormQkvRope, norm_qkv_rope, aa_norm_rope_params,                                                                \
     (c.not_negative("eps", p.eps), c.rotation(p.interleaved, 11), c.heads(), c.normed(p.normed)),                   \
     out("q", kFloat, "TqD"), inout("k_cache", kFloat, "BkSD"), inout("v_cache", kFloat, "BkSD"),                    \
     in("x", kFloat, "TK"), in_optional("norm", kFloat, "K"), in("w_q", kFloat, "xK"),                               \
     in_optional("bias_q", kFloat, "x"), in("w_k", kFloat, "yK"), in_optional("bias_k", kFloat, "y"),                \
     in("w_v", kFloat, "yK"), in_optional("bias_v", kFloat, "y"), in("cos", kF32, "TR"), in("sin", kF32, "TR"),      \
     in("sequence", kI32, "T"), in("positions", kI32, "T"))                                                          \
  OP(NormQuantizedGatedLinear, norm_quantized_gated_linear, aa_norm_quantized_params,                                \
     (c.not_negative("eps", p.eps), c.activation(p.kind), c.blocks(p, 3), c.blocks(p, 4)), out("out", kFloat, "MN"), \
     in("x", kFloat, "MK"), in_optional("norm", kFloat, "K"), in("w_gate", kU8, "NC"), in("w_up", kU8, "NC"),        \
     in_optional("bias_gate", kFloat, "N"), in_optional("bias_up", kFloat, "N"))                                     \
  OP(NormQuantizedQkvRope, norm_quantized_qkv_rope, aa_norm_quantized_params,                                        \
     (c.not_negative("eps", p.eps), c.rotation(p.interleaved, 11), c.heads(), c.blocks(p, 5), c.blocks(p, 7),        \
      c.blocks(p, 9)),                                                                                               \
     out("q", kFloat, "TqD"), inout("k_cache", kFloat, "BkSD"), inout("v_cache", kFloat, "BkSD"),                    \
     in("x", kFloat, "TK"), in_optional("norm", kFloat, "K"), in("w_q", kU8, "xC"),                                  \
     in_optional("bias_q", kFloat, "x"), in("w_k", kU8, "yC"), in_optional("bias_k", kFloat, "y"),                   \
     in("w_v", kU8, "yC"), in_optional("bias_v", kFloat, "y"), in("cos", kF32, "TR"), in("sin", kF32, "TR"),         \
     in("sequence", kI32, "T"), in("positions", kI32, "T"))

// OP(enumerator, name, enumerator of the op, name of the op). Forms of ops above whose results do not depend on the
// number of rows, with the same tensors and parameters. Other ops always work row by row.
#define ANYACCEL_OPS_BY_ROW(OP)                                                        \
  OP(LinearByRow, linear_by_row, Linear, linear)                                       \
  OP(LinearMultiByRow, linear_multi_by_row, LinearMulti, linear_multi)                 \
  OP(GatedLinearByRow, gated_linear_by_row, GatedLinear, gated_linear)                 \
  OP(AttentionByRow, attention_by_row, Attention, attention)                           \
  OP(QuantizedLinearByRow, quantized_linear_by_row, QuantizedLinear, quantized_linear) \
  OP(QuantizedAttentionByRow, quantized_attention_by_row, QuantizedAttention, quantized_attention)

#define ANYACCEL_OP_NUMBER(op, ...) op,
#define ANYACCEL_OP_NAME(op, name, ...) #name,
#define ANYACCEL_OP_COUNT(op, ...) +1
enum class Op : int {
  ANYACCEL_OPS(ANYACCEL_OP_NUMBER) ANYACCEL_FUSED_OPS(ANYACCEL_OP_NUMBER) ANYACCEL_OPS_BY_ROW(ANYACCEL_OP_NUMBER)
};
inline constexpr size_t plain_op_count = 0 ANYACCEL_OPS(ANYACCEL_OP_COUNT);
inline constexpr size_t op_count = plain_op_count ANYACCEL_FUSED_OPS(ANYACCEL_OP_COUNT);  // without the forms by rows
inline constexpr size_t op_form_count = op_count ANYACCEL_OPS_BY_ROW(ANYACCEL_OP_COUNT);
inline constexpr std::array<const char*, op_form_count> op_names = {
    ANYACCEL_OPS(ANYACCEL_OP_NAME) ANYACCEL_FUSED_OPS(ANYACCEL_OP_NAME) ANYACCEL_OPS_BY_ROW(ANYACCEL_OP_NAME)};
#undef ANYACCEL_OP_NUMBER
#undef ANYACCEL_OP_NAME
#undef ANYACCEL_OP_COUNT

constexpr const char* op_name(Op op) noexcept { return op_names[static_cast<size_t>(op)]; }

constexpr std::optional<Op> find_op_by_name(std::string_view name) noexcept {
  for (size_t i = 0; i < op_form_count; ++i) {
    if (name == op_names[i]) return static_cast<Op>(i);
  }
  return std::nullopt;
}

constexpr bool is_fused(Op op) noexcept {
  return static_cast<size_t>(op) >= plain_op_count && static_cast<size_t>(op) < op_count;
}

// Models use these only on an accelerator that has them (llm/model/load_plan.h).
constexpr bool is_for_quantized_weights(Op op) noexcept {
  return op >= Op::QuantizedLinear && op <= Op::QuantizedEmbeddingShard;
}

// Models use these only on an accelerator that has them, when a quantized cache is asked for (llm/generate).
constexpr bool is_for_quantized_cache(Op op) noexcept {
  return op == Op::QuantizedCacheWrite || op == Op::QuantizedAttention;
}

// The ops of ops::Training: no step of a language model's generation asks for them, but for scaled_add.
constexpr bool is_for_training(Op op) noexcept {
  return op >= Op::Matmul && op <= Op::GatedActivationBackward && op != Op::ScaledAdd;
}

// The form of an op by rows; nothing for an op that always works row by row.
constexpr std::optional<Op> form_by_row(Op op) noexcept {
#define ANYACCEL_OP_FORM(form, form_name, base, ...) \
  case Op::base: return Op::form;
  switch (op) {
    ANYACCEL_OPS_BY_ROW(ANYACCEL_OP_FORM)
    default: return std::nullopt;
  }
#undef ANYACCEL_OP_FORM
}

}  // namespace anyaccel
