// The ops of include/anyaccel/abi/ops.h: the one list, in the order of its table, from which the host's numbers and names are made.
// A driver has numbers of its own (aa_ops_table::find).
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace anyaccel {

// Fused ops stand last: each is a sequence of ops above, which ops::Inference runs itself where the accelerator lacks it.
#define ANYACCEL_OPS(OP)                      \
  OP(Embedding, "embedding")                  \
  OP(RmsNorm, "rms_norm")                     \
  OP(LayerNorm, "layer_norm")                 \
  OP(Linear, "linear")                        \
  OP(LinearMulti, "linear_multi")             \
  OP(GatedLinear, "gated_linear")             \
  OP(RopeTable, "rope_table")                 \
  OP(Rope, "rope")                            \
  OP(CacheWrite, "cache_write")               \
  OP(Attention, "attention")                  \
  OP(Activation, "activation")                \
  OP(GatedActivation, "gated_activation")     \
  OP(Softmax, "softmax")                      \
  OP(Add, "add")                              \
  OP(Copy, "copy")                            \
  OP(Increment, "increment")                  \
  OP(Argmax, "argmax")                        \
  OP(RepetitionPenalty, "repetition_penalty") \
  OP(Sample, "sample")                        \
  OP(Random, "random")                        \
  OP(EmbeddingShard, "embedding_shard")       \
  OP(FrequencyPenalty, "frequency_penalty")   \
  OP(NormLinear, "norm_linear")               \
  OP(NormGatedLinear, "norm_gated_linear")    \
  OP(NormQkvRope, "norm_qkv_rope")

// Forms of ops above whose results do not depend on the number of rows. Other ops always work row by row.
#define ANYACCEL_OPS_BY_ROW(OP)               \
  OP(LinearByRow, "linear_by_row")            \
  OP(LinearMultiByRow, "linear_multi_by_row") \
  OP(GatedLinearByRow, "gated_linear_by_row") \
  OP(AttentionByRow, "attention_by_row")

#define ANYACCEL_OP_NUMBER(op, name) op,
#define ANYACCEL_OP_NAME(op, name) name,
#define ANYACCEL_OP_COUNT(op, name) +1
enum class Op : int { ANYACCEL_OPS(ANYACCEL_OP_NUMBER) ANYACCEL_OPS_BY_ROW(ANYACCEL_OP_NUMBER) };
inline constexpr size_t op_count = 0 ANYACCEL_OPS(ANYACCEL_OP_COUNT);  // without the forms by rows
inline constexpr size_t op_form_count = op_count ANYACCEL_OPS_BY_ROW(ANYACCEL_OP_COUNT);
inline constexpr std::array<const char*, op_form_count> op_names = {ANYACCEL_OPS(ANYACCEL_OP_NAME)
                                                                        ANYACCEL_OPS_BY_ROW(ANYACCEL_OP_NAME)};
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

constexpr bool is_fused(Op op) noexcept { return op >= Op::NormLinear && op <= Op::NormQkvRope; }

// The form of an op by rows; nothing for an op that always works row by row.
constexpr std::optional<Op> form_by_row(Op op) noexcept {
  switch (op) {
    case Op::Linear: return Op::LinearByRow;
    case Op::LinearMulti: return Op::LinearMultiByRow;
    case Op::GatedLinear: return Op::GatedLinearByRow;
    case Op::Attention: return Op::AttentionByRow;
    default: return std::nullopt;
  }
}

}  // namespace anyaccel
