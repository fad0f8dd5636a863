// Lists the tensors of a decoder by the names and parts that its configuration has.
#include "llm/model/decoder_tensors.h"

#include <array>
#include <utility>

namespace anyaccel::llm {

Slice held_slice(const TensorSlot& slot, const ModelShard& shard, int64_t head_dim) {
  if (slot.head_size > 0) head_dim = slot.head_size;
  switch (slot.split) {
    case SplitBy::QueryHeads: return {shard.query_heads.begin * head_dim, shard.query_heads.end * head_dim};
    case SplitBy::KvHeads: return {shard.kv_heads.begin * head_dim, shard.kv_heads.end * head_dim};
    case SplitBy::Intermediate: return shard.intermediate;
    case SplitBy::Hidden: return shard.hidden;
    case SplitBy::Vocabulary: return shard.vocabulary;
    case SplitBy::Expert: return shard.expert;
    case SplitBy::SharedExpert: return shard.shared;
    case SplitBy::FirstRank: return {0, shard.rank == 0 ? slot.shape[0] : 0};
    case SplitBy::Nothing: break;
  }
  return {0, slot.shape[slot.split_dim]};
}

Shape held_shape(const TensorSlot& slot, const Slice& held) {
  std::vector<int64_t> dims(slot.shape.dims().begin(), slot.shape.dims().end());
  dims[static_cast<size_t>(slot.split_dim)] = held.size();
  return Shape(dims);
}

namespace {

// Collects the slots of one model.
class SlotList {
  using Layer = LayerWeights;

 public:
  SlotList(const ModelConfig& config, bool whole_rows)
      : config_(config), names_(config.names), whole_rows_(whole_rows) {}

  std::vector<TensorSlot> take() { return std::move(slots_); }

  TensorSlot& add_model(std::string name, Shape shape, TensorKind kind, SplitBy split, Tensor ModelWeights::*member,
                        aa_block_format ModelWeights::*format = nullptr) {
    slots_.push_back({std::move(name), shape, kind, split, 0, -1, nullptr, member, nullptr, format});
    return slots_.back();
  }
  void add_model_norm(std::string_view name, Tensor ModelWeights::*weight, Tensor ModelWeights::*bias) {
    const Shape shape = {config_.hidden_size};
    add_model(std::string(name) + ".weight", shape, TensorKind::Norm, SplitBy::Nothing, weight).adds_one =
        config_.norm_adds_one;
    if (config_.norm_has_bias) {
      add_model(std::string(name) + ".bias", shape, TensorKind::Bias, SplitBy::Nothing, bias);
    }
  }

  void begin_layer(int64_t layer) {
    layer_ = layer;
    prefix_ = std::string(names_.layer) + std::to_string(layer) + ".";
  }
  TensorSlot& add(const std::string& name, Shape shape, TensorKind kind, SplitBy split, int split_dim,
                  Tensor Layer::*member, aa_block_format MatrixFormats::*format = nullptr) {
    slots_.push_back({prefix_ + name, shape, kind, split, split_dim, layer_, member, nullptr, format, nullptr});
    return slots_.back();
  }
  void add_norm(std::string_view name, int64_t size, Tensor Layer::*member, SplitBy split = SplitBy::Nothing) {
    add(std::string(name) + ".weight", {size}, TensorKind::Norm, split, 0, member).adds_one = config_.norm_adds_one;
  }
  void add_bias(std::string_view name, int64_t size, Tensor Layer::*member) {
    add(std::string(name) + ".bias", {size}, TensorKind::Bias, SplitBy::Nothing, 0, member);
  }

  struct Matrix {
    std::string_view name;
    int64_t outputs, inputs;
    SplitBy split;
    int split_dim;  // 0: by outputs, as the bias is; 1: by inputs, and the bias is added once
    Tensor Layer::*weight;
    aa_block_format MatrixFormats::*format;
    Tensor Layer::*bias;
    bool has_bias;
  };
  // `rows` selects rows of the file's matrix, which may have more than this one; its shape is set here.
  void add_linear(const Matrix& m, std::optional<TensorSource> rows = {}, int64_t file_rows = 0) {
    if (names_.transposed && !rows) rows = TensorSource{{}, true, 0, m.outputs, m.outputs};
    const int64_t all = file_rows > 0 ? file_rows : m.outputs;
    TensorSlot& weight = add(std::string(m.name) + ".weight", {m.outputs, m.inputs}, TensorKind::Matrix, m.split,
                             m.split_dim, m.weight, m.format);
    if (rows) {
      weight.source = rows;
      weight.source->transposed = names_.transposed;
      weight.source->shape = names_.transposed ? Shape{m.inputs, all} : Shape{all, m.inputs};
    }
    if (!m.has_bias) return;
    TensorSlot& bias = add(std::string(m.name) + ".bias", {m.outputs}, TensorKind::Bias,
                           m.split_dim == 0 ? m.split : SplitBy::FirstRank, 0, m.bias);
    if (rows && file_rows > 0) {
      bias.source = rows;
      bias.source->transposed = false;
      bias.source->shape = {all};
    }
  }

  // The last product of a half of a layer, which is given as split by inputs.
  void add_last(Matrix m) {
    if (whole_rows_) m.split = SplitBy::Hidden;
    if (whole_rows_) m.split_dim = 0;
    add_linear(m);
  }

  void add_attention() {
    const int64_t hidden = config_.hidden_size;
    const int64_t size = config_.head_dim;
    const int64_t q_size = config_.num_attention_heads * size;
    const int64_t kv_size = config_.num_key_value_heads * size;
    const bool bias = config_.qkv_bias;
    Matrix q = {names_.q, q_size, hidden, SplitBy::QueryHeads, 0, &Layer::q, &MatrixFormats::q, &Layer::q_bias, bias};
    Matrix k = {names_.k, kv_size, hidden, SplitBy::KvHeads, 0, &Layer::k, &MatrixFormats::k, &Layer::k_bias, bias};
    Matrix v = {names_.v, kv_size, hidden, SplitBy::KvHeads, 0, &Layer::v, &MatrixFormats::v, &Layer::v_bias, bias};
    if (names_.qkv.empty()) {
      add_linear(q);
      add_linear(k);
      add_linear(v);
    } else {
      q.name = k.name = v.name = names_.qkv;
      const int64_t rows = q_size + 2 * kv_size;
      if (names_.qkv_layout == QkvLayout::Blocks) {
        add_linear(q, TensorSource{{}, false, 0, q_size, q_size}, rows);
        add_linear(k, TensorSource{{}, false, q_size, kv_size, kv_size}, rows);
        add_linear(v, TensorSource{{}, false, q_size + kv_size, kv_size, kv_size}, rows);
      } else {
        const int64_t queries = q_size / config_.num_key_value_heads;
        const int64_t group = queries + 2 * size;
        add_linear(q, TensorSource{{}, false, 0, queries, group}, rows);
        add_linear(k, TensorSource{{}, false, queries, size, group}, rows);
        add_linear(v, TensorSource{{}, false, queries + size, size, group}, rows);
      }
    }
    add_head_norms(q_size, kv_size);
    if (config_.has_sinks) {
      add(std::string(names_.sinks), {config_.num_attention_heads}, TensorKind::Bias, SplitBy::QueryHeads, 0,
          &Layer::sinks)
          .head_size = 1;
    }
    add_last({names_.o, hidden, q_size, SplitBy::QueryHeads, 1, &Layer::o, &MatrixFormats::o, &Layer::o_bias,
              config_.o_bias});
  }

  void add_latent_attention() {
    const LatentConfig& latent = config_.latent;
    const int64_t hidden = config_.hidden_size, heads = config_.num_attention_heads;
    const int64_t q_size = heads * config_.head_dim;
    const bool bias = config_.qkv_bias;
    Matrix q = {names_.q, q_size, hidden, SplitBy::QueryHeads, 0, &Layer::q, &MatrixFormats::q, &Layer::q_bias, false};
    if (latent.query_rank > 0) {
      add_linear({names_.q_a, latent.query_rank, hidden, SplitBy::Nothing, 0, &Layer::q_a, &MatrixFormats::q_a,
                  &Layer::q_a_bias, bias});
      add_norm(names_.q_a_norm, latent.query_rank, &Layer::q_a_norm);
      q.name = names_.q_b;
      q.inputs = latent.query_rank;
    }
    add_linear(q);
    add_linear({names_.kv_a, latent.rank + latent.rotated, hidden, SplitBy::Nothing, 0, &Layer::kv_a,
                &MatrixFormats::kv_a, &Layer::kv_a_bias, bias});
    add_norm(names_.kv_a_norm, latent.rank, &Layer::kv_a_norm);
    Matrix kv_b = {names_.kv_b,
                   heads * (latent.plain + latent.value),
                   latent.rank,
                   SplitBy::QueryHeads,
                   0,
                   &Layer::kv_b,
                   &MatrixFormats::kv_b,
                   nullptr,
                   false};
    if (latent.apart) {
      kv_b.name = names_.k_b;
      add_linear(kv_b);
      slots_.back().head_size = latent.plain + latent.value;
      slots_.back().part = HeadPart{0, latent.plain, true};
      kv_b.name = names_.v_b;
    }
    add_linear(kv_b);
    slots_.back().head_size = latent.plain + latent.value;
    if (latent.apart) slots_.back().part = HeadPart{latent.plain, latent.value, false};
    add_last({names_.o, hidden, heads * latent.value, SplitBy::QueryHeads, 1, &Layer::o, &MatrixFormats::o,
              &Layer::o_bias, config_.o_bias});
    slots_[slots_.size() - (config_.o_bias ? 2 : 1)].head_size = latent.value;
  }

  void add_mlp() {
    const int64_t hidden = config_.hidden_size;
    const int64_t inner = config_.intermediate_size;
    Matrix gate = {
        names_.gate,       inner,           hidden, SplitBy::Intermediate, 0, &Layer::gate, &MatrixFormats::gate,
        &Layer::gate_bias, config_.mlp_bias};
    Matrix up = {names_.up,          inner,           hidden,          SplitBy::Intermediate, 0, &Layer::up,
                 &MatrixFormats::up, &Layer::up_bias, config_.mlp_bias};
    if (!names_.gate_up.empty()) {
      gate.name = up.name = names_.gate_up;
      add_linear(gate, TensorSource{{}, false, 0, inner, inner}, 2 * inner);
      add_linear(up, TensorSource{{}, false, inner, inner, inner}, 2 * inner);
    } else {
      if (config_.gated) add_linear(gate);
      add_linear(up);
    }
    add_last({names_.down, hidden, inner, SplitBy::Intermediate, 1, &Layer::down, &MatrixFormats::down,
              &Layer::down_bias, config_.mlp_bias});
  }

  // The router and the experts of a layer.
  void add_experts() {
    const ExpertsConfig& experts = config_.experts;
    const int64_t hidden = config_.hidden_size;
    add(std::string(experts.stacked ? names_.stacked_router : names_.router) + ".weight", {experts.count, hidden},
        TensorKind::Matrix, SplitBy::Nothing, 0, &Layer::router, &MatrixFormats::router);
    if (experts.has_biases) add_bias(names_.router, experts.count, &Layer::router_bias);
    if (experts.has_choice_bias) {
      add(std::string(names_.choice_bias), {experts.count}, TensorKind::Bias, SplitBy::Nothing, 0, &Layer::choice_bias);
    }
    for (int64_t expert = 0; expert < experts.count; ++expert) {
      if (experts.stacked) {
        add_stacked_expert(expert);
        continue;
      }
      const std::string name = std::string(names_.expert) + std::to_string(expert) + ".";
      add_expert(expert, experts.inner, SplitBy::Expert,
                 {name + std::string(names_.expert_gate) + ".weight", name + std::string(names_.expert_up) + ".weight",
                  name + std::string(names_.expert_down) + ".weight"});
    }
    if (experts.shared_inner == 0) return;
    const std::string shared_gate(names_.shared_gate_up.empty() ? names_.shared_gate : names_.shared_gate_up);
    const std::string shared_up(names_.shared_gate_up.empty() ? names_.shared_up : names_.shared_gate_up);
    TensorSlot* const slots =
        add_expert(experts.count, experts.shared_inner, SplitBy::SharedExpert,
                   {shared_gate + ".weight", shared_up + ".weight", std::string(names_.shared_down) + ".weight"});
    if (!names_.shared_gate_up.empty()) {
      const int64_t inner = experts.shared_inner;
      slots[0].source = TensorSource{{2 * inner, hidden}, false, 0, inner, inner};
      slots[1].source = TensorSource{{2 * inner, hidden}, false, inner, inner, inner};
    }
    if (experts.shared_has_weight) {
      add(std::string(names_.shared_weight) + ".weight", {1, hidden}, TensorKind::Matrix, SplitBy::Nothing, 0,
          &Layer::shared_weight, &MatrixFormats::shared_weight);
    }
  }

 private:
  // Returns the slots of gate, up and down, which later additions invalidate.
  TensorSlot* add_expert(int64_t expert, int64_t inner, SplitBy split, const std::array<std::string, 3>& names) {
    const int64_t hidden = config_.hidden_size;
    const auto add_matrix = [&](const std::string& name, Shape shape, int split_dim, Tensor ExpertWeights::*member,
                                aa_block_format MatrixFormats::*format) {
      TensorSlot& slot = add(name, shape, TensorKind::Matrix, split, split_dim, nullptr, format);
      slot.expert = expert;
      slot.expert_member = member;
    };
    add_matrix(names[0], {inner, hidden}, 0, &ExpertWeights::gate, &MatrixFormats::gate);
    add_matrix(names[1], {inner, hidden}, 0, &ExpertWeights::up, &MatrixFormats::up);
    add_matrix(names[2], {hidden, inner}, 1, &ExpertWeights::down, &MatrixFormats::down);
    return &slots_.back() - 2;
  }
  void add_stacked_expert(int64_t expert) {
    const int64_t count = config_.experts.count, inner = config_.experts.inner, hidden = config_.hidden_size;
    if (!names_.stacked_gate.empty()) return add_expert_of_three(expert);
    const std::string gate_up(names_.stacked_gate_up), down(names_.stacked_down);
    TensorSlot* const slots = add_expert(expert, inner, SplitBy::Expert, {gate_up, gate_up, down});
    if (config_.experts.interleaved) {
      slots[0].source = TensorSource{{hidden, 2 * inner}, true, 0, 1, 2, count, expert};
      slots[1].source = TensorSource{{hidden, 2 * inner}, true, 1, 1, 2, count, expert};
      slots[2].source = TensorSource{{inner, hidden}, true, 0, hidden, hidden, count, expert};
      if (!config_.experts.has_biases) return;
      const auto add_one = [&](const std::string& name, int64_t size, SplitBy split, Tensor ExpertWeights::*member,
                               const TensorSource& source) {
        TensorSlot& slot = add(name + "_bias", {size}, TensorKind::Bias, split, 0, nullptr);
        slot.expert = expert;
        slot.expert_member = member;
        slot.source = source;
      };
      add_one(gate_up, inner, SplitBy::Expert, &ExpertWeights::gate_bias, {{2 * inner}, false, 0, 1, 2, count, expert});
      add_one(gate_up, inner, SplitBy::Expert, &ExpertWeights::up_bias, {{2 * inner}, false, 1, 1, 2, count, expert});
      // It is in the sum over the ranks once.
      add_one(down, hidden, SplitBy::FirstRank, &ExpertWeights::down_bias,
              {{hidden}, false, 0, hidden, hidden, count, expert});
      return;
    }
    slots[0].source = TensorSource{{count, 2 * inner, hidden}, false, 2 * expert * inner, inner, inner};
    slots[1].source = TensorSource{{count, 2 * inner, hidden}, false, (2 * expert + 1) * inner, inner, inner};
    slots[2].source = TensorSource{{count, hidden, inner}, false, expert * hidden, hidden, hidden};
  }
  // The matrices of gate, up and down of all experts are a tensor each, and so are their biases.
  void add_expert_of_three(int64_t expert) {
    const int64_t count = config_.experts.count, inner = config_.experts.inner, hidden = config_.hidden_size;
    const std::string gate(names_.stacked_gate), up(names_.stacked_up), down(names_.stacked_down);
    TensorSlot* const slots =
        add_expert(expert, inner, SplitBy::Expert, {gate + ".weight", up + ".weight", down + ".weight"});
    slots[0].source = slots[1].source = TensorSource{{inner, hidden}, false, 0, inner, inner, count, expert};
    slots[2].source = TensorSource{{hidden, inner}, false, 0, hidden, hidden, count, expert};
    if (!config_.experts.has_biases) return;
    const auto add_one = [&](const std::string& name, int64_t size, SplitBy split, Tensor ExpertWeights::*member) {
      TensorSlot& slot = add(name + ".bias", {size}, TensorKind::Bias, split, 0, nullptr);
      slot.expert = expert;
      slot.expert_member = member;
      slot.source = TensorSource{{size}, false, 0, size, size, count, expert};
    };
    add_one(gate, inner, SplitBy::Expert, &ExpertWeights::gate_bias);
    add_one(up, inner, SplitBy::Expert, &ExpertWeights::up_bias);
    // It is in the sum over the ranks once.
    add_one(down, hidden, SplitBy::FirstRank, &ExpertWeights::down_bias);
  }
  void add_head_norms(int64_t q_size, int64_t kv_size) {
    const int64_t size = config_.head_dim;
    const HeadNorm kind = config_.qk_norm ? HeadNorm::Rms : config_.head_norm;
    if (kind == HeadNorm::None) return;
    const bool by_head = kind == HeadNorm::EachLayer || kind == HeadNorm::Whole;
    add_norm(names_.q_norm, by_head ? q_size : size, &Layer::q_norm, by_head ? SplitBy::QueryHeads : SplitBy::Nothing);
    if (kind == HeadNorm::EachLayer) slots_.back().source = rows_of_heads(config_.num_attention_heads, q_size);
    if (kind == HeadNorm::Layer) add_bias(names_.q_norm, size, &Layer::q_norm_bias);
    add_norm(names_.k_norm, by_head ? kv_size : size, &Layer::k_norm, by_head ? SplitBy::KvHeads : SplitBy::Nothing);
    if (kind == HeadNorm::EachLayer) slots_.back().source = rows_of_heads(config_.num_key_value_heads, kv_size);
    if (kind == HeadNorm::Layer) add_bias(names_.k_norm, size, &Layer::k_norm_bias);
  }
  // Returns the source of a tensor for which the file has a row for each head, one after the other.
  TensorSource rows_of_heads(int64_t heads, int64_t values) const {
    return {{heads, config_.head_dim}, false, 0, values, values};
  }

  const ModelConfig& config_;
  const TensorNames& names_;
  const bool whole_rows_;
  std::vector<TensorSlot> slots_;
  int64_t layer_ = -1;
  std::string prefix_;
};

}  // namespace

std::vector<TensorSlot> decoder_tensors(const ModelConfig& config, bool whole_rows) {
  const TensorNames& names = config.names;
  const int64_t hidden = config.hidden_size;
  SlotList list(config, whole_rows);
  list.add_model(std::string(names.embedding) + ".weight", {config.vocab_size, hidden}, TensorKind::Matrix,
                 SplitBy::Vocabulary, &ModelWeights::embedding, &ModelWeights::embedding_format);
  if (config.positions == Positions::Learned) {
    const int64_t count = config.max_position_embeddings;
    list.add_model(std::string(names.positions) + ".weight", {count, hidden}, TensorKind::Bias, SplitBy::Nothing,
                   &ModelWeights::positions)
        .source = TensorSource{{count + names.skipped_positions, hidden}, false, names.skipped_positions, count, count};
  }
  if (!names.embedding_norm.empty()) {
    list.add_model_norm(names.embedding_norm, &ModelWeights::embedding_norm, &ModelWeights::embedding_norm_bias);
  }
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    using Layer = LayerWeights;
    list.begin_layer(layer);
    if (config.norm_place != NormPlace::After) {
      list.add_norm(names.input_norm, hidden, &Layer::input_norm);
      if (config.norm_has_bias) list.add_bias(names.input_norm, hidden, &Layer::input_norm_bias);
    }
    if (config.latent.rank > 0) {
      list.add_latent_attention();
    } else {
      list.add_attention();
    }
    const bool norms_results = config.norm_place == NormPlace::After || config.norm_place == NormPlace::Both;
    if (norms_results) list.add_norm(names.attention_norm, hidden, &Layer::attention_norm);
    if (config.norm_place != NormPlace::After && config.residual != Residual::ParallelOne) {
      list.add_norm(names.mlp_norm, hidden, &Layer::post_norm);
      if (config.norm_has_bias) list.add_bias(names.mlp_norm, hidden, &Layer::post_norm_bias);
    }
    if (config.has_experts(layer)) {
      list.add_experts();
    } else {
      list.add_mlp();
    }
    if (norms_results) list.add_norm(names.mlp_output_norm, hidden, &Layer::mlp_norm);
  }
  if (!names.final_norm.empty()) {
    list.add_model_norm(names.final_norm, &ModelWeights::final_norm, &ModelWeights::final_norm_bias);
  }
  if (!config.tie_word_embeddings) {
    list.add_model(std::string(names.lm_head) + ".weight", {config.vocab_size, hidden}, TensorKind::Matrix,
                   SplitBy::Vocabulary, &ModelWeights::lm_head, &ModelWeights::lm_head_format)
        .divides_rows = config.divides_lm_head_rows;
  }
  if (config.lm_head_bias) {
    list.add_model(std::string(names.lm_head) + ".bias", {config.vocab_size}, TensorKind::Bias, SplitBy::Vocabulary,
                   &ModelWeights::lm_head_bias);
  }
  return list.take();
}

}  // namespace anyaccel::llm
