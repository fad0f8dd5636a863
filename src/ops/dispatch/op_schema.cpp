// The schema and the checks of every op of include/anyaccel/abi/ops.h, as one table: for each tensor its role, the
// dtypes it may have and its shape in letters, as in the comment at the head of that file.
#include "ops/dispatch/op_schema.h"

#include <array>
#include <cmath>
#include <string>

#include "ops/dispatch/op_checker.h"
#include "runtime/op_list.h"

namespace anyaccel::ops {
namespace {

constexpr uint32_t bit(aa_dtype t) { return 1u << t; }
constexpr uint32_t kFloat = bit(AA_DTYPE_F32) | bit(AA_DTYPE_BF16) | bit(AA_DTYPE_F16);
constexpr uint32_t kIndex = bit(AA_DTYPE_I32) | bit(AA_DTYPE_I64);
constexpr uint32_t kF32 = bit(AA_DTYPE_F32);
constexpr uint32_t kI32 = bit(AA_DTYPE_I32);
constexpr uint32_t kI64 = bit(AA_DTYPE_I64);
constexpr uint32_t kU8 = bit(AA_DTYPE_U8);
constexpr uint32_t kInteger =
    bit(AA_DTYPE_U8) | bit(AA_DTYPE_I8) | bit(AA_DTYPE_I16) | bit(AA_DTYPE_I32) | bit(AA_DTYPE_I64);

void check_embedding_shard(const Checker& c) {
  const int64_t first = c.params<aa_embedding_shard_params>().first;
  c.require(first >= 0, "first", first, "at least 0");
}

void check_kind(const Checker& c, int kind) {
  c.require(kind >= AA_ACTIVATION_SILU && kind <= AA_ACTIVATION_TANH, "kind", kind, "an aa_activation, 0 to 5");
}
void check_activation(const Checker& c) { check_kind(c, c.params<aa_activation_params>().kind); }

void check_eps(const Checker& c, float eps) {
  c.require(eps >= 0 && std::isfinite(eps), "eps", eps, "a finite number, at least 0");
}
void check_norm(const Checker& c) { check_eps(c, c.params<aa_norm_params>().eps); }

void check_norm_activation(const Checker& c) {
  const auto& p = c.params<aa_norm_activation_params>();
  check_eps(c, p.eps);
  check_kind(c, p.kind);
}

// `cos` is the number of that tensor.
void check_rotation(const Checker& c, int interleaved, uint32_t cos) {
  c.require(interleaved == 0 || interleaved == 1, "interleaved", interleaved, "0 or 1");
  if (2 * c.size('R') > c.size('D')) [[unlikely]] {
    c.fail("tensor \"cos\" has shape " + shape_text(c.tensor(cos)) + ", but 2 * " + std::to_string(c.size('R')) +
           " rotated elements do not fit in heads of size D = " + std::to_string(c.size('D')) + " of \"q\"");
  }
}

void check_rope(const Checker& c) { check_rotation(c, c.params<aa_rope_params>().interleaved, 2); }

void check_heads(const Checker& c) {
  const int64_t hq = c.size('q');
  const int64_t hk = c.size('k');
  if (hk == 0 ? hq != 0 : hq % hk != 0) [[unlikely]] {
    c.fail("tensor \"q\" has Hq = " + std::to_string(hq) + " heads, expected a multiple of Hk = " + std::to_string(hk) +
           ", the second dimension of \"k_cache\"");
  }
}

void check_norm_rope(const Checker& c) {
  const auto& p = c.params<aa_norm_rope_params>();
  check_eps(c, p.eps);
  check_rotation(c, p.interleaved, 11);
  check_heads(c);
}

void check_attention(const Checker& c) {
  const auto& p = c.params<aa_attention_params>();
  c.require(std::isfinite(p.scale), "scale", p.scale, "a finite number");
  c.require(p.window >= 0, "window", p.window, "at least 0");
  c.require(p.softcap >= 0 && std::isfinite(p.softcap), "softcap", p.softcap, "a finite number, at least 0");
  check_heads(c);
}

void check_softmax(const Checker& c) {
  const float scale = c.params<aa_softmax_params>().scale;
  c.require(std::isfinite(scale), "scale", scale, "a finite number");
}

void check_vocabulary(const Checker& c) {
  if (c.size('V') == 0 && c.size('R') != 0) [[unlikely]]
    c.fail(c.quoted(1) + " has shape " + shape_text(c.tensor(1)) + ", expected at least one column to choose from");
}

void check_repetition(const Checker& c) {
  const float penalty = c.params<aa_repetition_params>().penalty;
  c.require(penalty > 0 && std::isfinite(penalty), "penalty", penalty, "a finite number above 0");
}

void check_sample(const Checker& c) {
  check_vocabulary(c);
  const auto& p = c.params<aa_sample_params>();
  c.require(p.temperature >= 0 && std::isfinite(p.temperature), "temperature", p.temperature,
            "a finite number, at least 0");
  c.require(p.top_k >= 0, "top_k", p.top_k, "at least 0");
  c.require(p.top_p > 0 && p.top_p <= 1, "top_p", p.top_p, "a number above 0, at most 1");
  c.require(p.min_p >= 0 && p.min_p <= 1, "min_p", p.min_p, "a number from 0 to 1");
}

void check_frequency(const Checker& c) {
  const auto& p = c.params<aa_frequency_params>();
  c.require(std::isfinite(p.presence), "presence", p.presence, "a finite number");
  c.require(std::isfinite(p.frequency), "frequency", p.frequency, "a finite number");
}

void check_random(const Checker& c) {
  const auto& p = c.params<aa_random_params>();
  c.require(p.kind >= AA_RANDOM_BITS && p.kind <= AA_RANDOM_NORMAL, "kind", p.kind, "an aa_random_kind, 0 to 2");
  if (p.kind == AA_RANDOM_BITS) {
    if (!((kInteger >> c.tensor(0).dtype) & 1u)) [[unlikely]]
      c.fail(c.quoted(0) + " has dtype " + std::string(dtype_name(static_cast<DType>(c.tensor(0).dtype))) +
             ", expected " + dtypes_text(kInteger) + " for random bits");
    return;
  }
  c.require(std::isfinite(p.low), "low", p.low, "a finite number");
  c.require(std::isfinite(p.high), "high", p.high, "a finite number");
}

using Extra = void (*)(const Checker&);

struct Row {
  TensorSchema schema;
  Pattern pattern;
};

constexpr Role Out = Role::Out;
constexpr Role In = Role::In;
constexpr Role InOut = Role::InOut;
constexpr bool kOptional = true;

constexpr Row kEmbedding[] = {
    {{"out", Out, false}, {kFloat, "TH"}}, {{"table", In, false}, {kFloat, "VH"}}, {{"ids", In, false}, {kIndex, "T"}}};
constexpr Row kRmsNorm[] = {{{"out", Out, false}, {kFloat, ".H"}},
                            {{"x", In, false}, {kFloat, ".H"}},
                            {{"weight", In, kOptional}, {kFloat, "H"}},
                            {{"residual", InOut, kOptional}, {kFloat, ".H"}}};
constexpr Row kLayerNorm[] = {{{"out", Out, false}, {kFloat, ".H"}},
                              {{"x", In, false}, {kFloat, ".H"}},
                              {{"weight", In, kOptional}, {kFloat, "H"}},
                              {{"bias", In, kOptional}, {kFloat, "H"}},
                              {{"residual", InOut, kOptional}, {kFloat, ".H"}}};
constexpr Row kLinear[] = {{{"out", Out, false}, {kFloat, "MN"}},
                           {{"x", In, false}, {kFloat, "MK"}},
                           {{"w", In, false}, {kFloat, "NK"}},
                           {{"bias", In, kOptional}, {kFloat, "N"}},
                           {{"residual", In, kOptional}, {kFloat, "MN"}}};
constexpr Row kLinearMulti[] = {
    {{"x", In, false}, {kFloat, "MK"}},        {{"out0", Out, false}, {kFloat, "Ma"}},
    {{"w0", In, false}, {kFloat, "aK"}},       {{"bias0", In, kOptional}, {kFloat, "a"}},
    {{"out1", Out, false}, {kFloat, "Mb"}},    {{"w1", In, false}, {kFloat, "bK"}},
    {{"bias1", In, kOptional}, {kFloat, "b"}}, {{"out2", Out, false}, {kFloat, "Mc"}},
    {{"w2", In, false}, {kFloat, "cK"}},       {{"bias2", In, kOptional}, {kFloat, "c"}},
    {{"out3", Out, false}, {kFloat, "Md"}},    {{"w3", In, false}, {kFloat, "dK"}},
    {{"bias3", In, kOptional}, {kFloat, "d"}},
};
constexpr Row kGatedLinear[] = {
    {{"out", Out, false}, {kFloat, "MN"}},         {{"x", In, false}, {kFloat, "MK"}},
    {{"w_gate", In, false}, {kFloat, "NK"}},       {{"w_up", In, false}, {kFloat, "NK"}},
    {{"bias_gate", In, kOptional}, {kFloat, "N"}}, {{"bias_up", In, kOptional}, {kFloat, "N"}}};
constexpr Row kRopeTable[] = {{{"cos", Out, false}, {kF32, "TR"}},
                              {{"sin", Out, false}, {kF32, "TR"}},
                              {{"inv_freq", In, false}, {kF32, "R"}},
                              {{"positions", In, false}, {kI32, "T"}}};
constexpr Row kRope[] = {{{"q", InOut, false}, {kFloat, "TqD"}},
                         {{"k", InOut, kOptional}, {kFloat, "TkD"}},
                         {{"cos", In, false}, {kF32, "TR"}},
                         {{"sin", In, false}, {kF32, "TR"}}};
constexpr Row kCacheWrite[] = {
    {{"k_cache", InOut, false}, {kFloat, "BkSD"}}, {{"v_cache", InOut, false}, {kFloat, "BkSD"}},
    {{"k", In, false}, {kFloat, "TkD"}},           {{"v", In, false}, {kFloat, "TkD"}},
    {{"sequence", In, false}, {kI32, "T"}},        {{"positions", In, false}, {kI32, "T"}}};
constexpr Row kAttention[] = {{{"out", Out, false}, {kFloat, "TqD"}},     {{"q", In, false}, {kFloat, "TqD"}},
                              {{"k_cache", In, false}, {kFloat, "BkSD"}}, {{"v_cache", In, false}, {kFloat, "BkSD"}},
                              {{"sequence", In, false}, {kI32, "T"}},     {{"positions", In, false}, {kI32, "T"}}};
constexpr Row kActivation[] = {{{"out", Out, false}, {kFloat, "."}}, {{"x", In, false}, {kFloat, "."}}};
constexpr Row kGatedActivation[] = {
    {{"out", Out, false}, {kFloat, "."}}, {{"gate", In, false}, {kFloat, "."}}, {{"up", In, false}, {kFloat, "."}}};
constexpr Row kSoftmax[] = {{{"out", Out, false}, {kFloat, ".V"}}, {{"x", In, false}, {kFloat, ".V"}}};
constexpr Row kAdd[] = {
    {{"out", Out, false}, {kFloat, "."}}, {{"a", In, false}, {kFloat, "."}}, {{"b", In, false}, {kFloat, "."}}};
constexpr Row kCopy[] = {{{"out", Out, false}, {any_dtype, "."}}, {{"x", In, false}, {any_dtype, "."}}};
constexpr Row kIncrement[] = {{{"x", InOut, false}, {kIndex, "."}}};
constexpr Row kArgmax[] = {{{"out", Out, false}, {kIndex, "R"}}, {{"x", In, false}, {kFloat, "RV"}}};
constexpr Row kRepetitionPenalty[] = {{{"logits", InOut, false}, {kFloat, "RV"}}, {{"seen", In, false}, {kU8, "RV"}}};
constexpr Row kFrequencyPenalty[] = {{{"logits", InOut, false}, {kFloat, "RV"}},
                                     {{"counts", InOut, false}, {kI32, "RV"}},
                                     {{"ids", In, kOptional}, {kIndex, "R"}}};
constexpr Row kSample[] = {{{"out", Out, false}, {kIndex, "R"}},
                           {{"logits", In, false}, {kFloat, "RV"}},
                           {{"rng", In, false}, {kI64, "2"}},
                           {{"seen", InOut, kOptional}, {kU8, "RV"}}};
constexpr Row kRandom[] = {{{"out", Out, false}, {any_dtype, "."}}};
constexpr Row kNormLinear[] = {{{"out", Out, false}, {kFloat, "MN"}},
                               {{"x", In, false}, {kFloat, "MK"}},
                               {{"norm", In, kOptional}, {kFloat, "K"}},
                               {{"w", In, false}, {kFloat, "NK"}},
                               {{"bias", In, kOptional}, {kFloat, "N"}}};
constexpr Row kNormGatedLinear[] = {
    {{"out", Out, false}, {kFloat, "MN"}},      {{"x", In, false}, {kFloat, "MK"}},
    {{"norm", In, kOptional}, {kFloat, "K"}},   {{"w_gate", In, false}, {kFloat, "NK"}},
    {{"w_up", In, false}, {kFloat, "NK"}},      {{"bias_gate", In, kOptional}, {kFloat, "N"}},
    {{"bias_up", In, kOptional}, {kFloat, "N"}}};
constexpr Row kNormQkvRope[] = {{{"q", Out, false}, {kFloat, "TqD"}},
                                {{"k_cache", InOut, false}, {kFloat, "BkSD"}},
                                {{"v_cache", InOut, false}, {kFloat, "BkSD"}},
                                {{"x", In, false}, {kFloat, "TK"}},
                                {{"norm", In, kOptional}, {kFloat, "K"}},
                                {{"w_q", In, false}, {kFloat, "xK"}},
                                {{"bias_q", In, kOptional}, {kFloat, "x"}},
                                {{"w_k", In, false}, {kFloat, "yK"}},
                                {{"bias_k", In, kOptional}, {kFloat, "y"}},
                                {{"w_v", In, false}, {kFloat, "yK"}},
                                {{"bias_v", In, kOptional}, {kFloat, "y"}},
                                {{"cos", In, false}, {kF32, "TR"}},
                                {{"sin", In, false}, {kF32, "TR"}},
                                {{"sequence", In, false}, {kI32, "T"}},
                                {{"positions", In, false}, {kI32, "T"}}};

// The columns of a table of rows as the arrays that OpSchema and Checker want.
template <const auto& rows>
struct Columns {
  static constexpr size_t kCount = std::size(rows);
  static constexpr auto kTensors = [] {
    std::array<TensorSchema, kCount> tensors{};
    for (size_t i = 0; i < kCount; ++i) tensors[i] = rows[i].schema;
    return tensors;
  }();
  static constexpr auto kPatterns = [] {
    std::array<Pattern, kCount> patterns{};
    for (size_t i = 0; i < kCount; ++i) patterns[i] = rows[i].pattern;
    return patterns;
  }();
};

extern const std::array<OpSchema, op_count> kSchemas;

template <Op op, const auto& rows, Extra extra>
void check(const aa_op_call& call) {
  // Inputs before outputs, so that messages speak of what the caller passed in: "to match the last dimension of "x"".
  static constexpr auto kOrder = [] {
    std::array<char, std::size(rows) + 1> order{};
    size_t n = 0;
    for (Role role : {In, InOut, Out}) {
      for (size_t i = 0; i < std::size(rows); ++i) {
        if (rows[i].schema.role == role) order[n++] = static_cast<char>('0' + i);
      }
    }
    return order;
  }();
  Checker checker(kSchemas[static_cast<size_t>(op)], Columns<rows>::kPatterns.data(), call);
  // A call of "linear_multi" may be shorter than its table, rope's heads are better told by "q" than by "cos", and the
  // products of heads and head size need those first.
  constexpr bool in_table_order = &rows[0] == &kLinearMulti[0] || &rows[0] == &kRope[0] || &rows[0] == &kNormQkvRope[0];
  checker.run(in_table_order ? nullptr : kOrder.data());
  if constexpr (extra != nullptr) extra(checker);
}

template <Op op, const auto& rows, class Params, Extra extra>
constexpr OpSchema schema(uint32_t min_tensors = static_cast<uint32_t>(std::size(rows))) {
  uint32_t params_size = 0;
  if constexpr (!std::is_void_v<Params>) params_size = sizeof(Params);
  return {op_name(op), Columns<rows>::kTensors, min_tensors, params_size, &check<op, rows, extra>};
}

constexpr const std::array<OpSchema, op_count> kSchemas = {
    schema<Op::Embedding, kEmbedding, void, nullptr>(),
    schema<Op::RmsNorm, kRmsNorm, aa_norm_params, check_norm>(),
    schema<Op::LayerNorm, kLayerNorm, aa_norm_params, check_norm>(),
    schema<Op::Linear, kLinear, void, nullptr>(),
    schema<Op::LinearMulti, kLinearMulti, void, nullptr>(4),
    schema<Op::GatedLinear, kGatedLinear, aa_activation_params, check_activation>(),
    schema<Op::RopeTable, kRopeTable, aa_rope_table_params, nullptr>(),
    schema<Op::Rope, kRope, aa_rope_params, check_rope>(),
    schema<Op::CacheWrite, kCacheWrite, void, nullptr>(),
    schema<Op::Attention, kAttention, aa_attention_params, check_attention>(),
    schema<Op::Activation, kActivation, aa_activation_params, check_activation>(),
    schema<Op::GatedActivation, kGatedActivation, aa_activation_params, check_activation>(),
    schema<Op::Softmax, kSoftmax, aa_softmax_params, check_softmax>(),
    schema<Op::Add, kAdd, void, nullptr>(),
    schema<Op::Copy, kCopy, void, nullptr>(),
    schema<Op::Increment, kIncrement, aa_increment_params, nullptr>(),
    schema<Op::Argmax, kArgmax, void, check_vocabulary>(),
    schema<Op::RepetitionPenalty, kRepetitionPenalty, aa_repetition_params, check_repetition>(),
    schema<Op::Sample, kSample, aa_sample_params, check_sample>(),
    schema<Op::Random, kRandom, aa_random_params, check_random>(),
    schema<Op::EmbeddingShard, kEmbedding, aa_embedding_shard_params, check_embedding_shard>(),
    schema<Op::FrequencyPenalty, kFrequencyPenalty, aa_frequency_params, check_frequency>(),
    schema<Op::NormLinear, kNormLinear, aa_norm_params, check_norm>(),
    schema<Op::NormGatedLinear, kNormGatedLinear, aa_norm_activation_params, check_norm_activation>(),
    schema<Op::NormQkvRope, kNormQkvRope, aa_norm_rope_params, check_norm_rope>(),
};

static_assert(
    [] {
      for (size_t i = 0; i < op_count; ++i) {
        if (kSchemas[i].name != op_names[i]) return false;
      }
      return true;
    }(),
    "kSchemas must have the order of runtime/op_list.h");

}  // namespace

std::span<const OpSchema> op_schemas() { return kSchemas; }

const OpSchema* find_op_schema(std::string_view name) {
  for (const OpSchema& schema : kSchemas) {
    if (schema.name == name) return &schema;
  }
  return nullptr;
}

}  // namespace anyaccel::ops
