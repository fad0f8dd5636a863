// Fields that config.json leaves out have the values of transformers' configuration classes (tests/data/family_defaults.json,
// made by tools/family_default_fixtures.py): a configuration without them is the same as with them.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "anyaccel/error.h"
#include "anyaccel/llm/model_config.h"
#include "test_paths.h"

namespace anyaccel::llm {
namespace {

using Json = nlohmann::json;

Json facts_of(const RopeConfig& rope) {
  return {{"type", rope_type_name(rope.type)},
          {"theta", rope.theta},
          {"factor", rope.factor},
          {"rotary_dim", rope.rotary_dim},
          {"original_max_position_embeddings", rope.original_max_position_embeddings},
          {"beta_fast", rope.beta_fast},
          {"beta_slow", rope.beta_slow},
          {"truncate", rope.truncate},
          {"attention_factor", rope.attention_factor}};
}

// What a configuration says of the computation.
Json facts_of(const ModelConfig& c) {
  const ExpertsConfig& e = c.experts;
  const LatentConfig& l = c.latent;
  return {{"sizes",
           {c.hidden_size, c.intermediate_size, c.num_hidden_layers, c.num_attention_heads, c.num_key_value_heads,
            c.head_dim, c.vocab_size, c.max_position_embeddings}},
          {"rms_norm_eps", c.rms_norm_eps},
          {"rope", facts_of(c.rope)},
          {"window_rope", c.window_rope ? facts_of(*c.window_rope) : Json()},
          {"hidden_act", static_cast<int>(c.hidden_act)},
          {"tie_word_embeddings", c.tie_word_embeddings},
          {"biases", {c.qkv_bias, c.o_bias, c.mlp_bias, c.lm_head_bias, c.norm_has_bias}},
          {"qk_norm", c.qk_norm},
          {"bos", c.bos_token_id ? Json(*c.bos_token_id) : Json()},
          {"eos", c.eos_token_ids},
          {"sliding_window", c.sliding_window},
          {"layer_has_window", c.layer_has_window},
          {"layer_without_rope", c.layer_without_rope},
          {"names", {c.names.input_norm, c.names.mlp_norm, c.names.final_norm}},
          {"norms", {static_cast<int>(c.norm), c.norm_adds_one, static_cast<int>(c.norm_place), c.adds_to_normed}},
          {"parts", {static_cast<int>(c.residual), static_cast<int>(c.head_norm), static_cast<int>(c.positions)}},
          {"rope_interleaved", c.rope_interleaved},
          {"attention", {c.scale_of_layer(0), c.scale_of_layer(1), c.attention_softcap, c.has_sinks}},
          {"alibi", {c.alibi_scale, c.rounds_alibi_slopes}},
          {"gated", c.gated},
          {"multipliers", {c.embedding_multiplier, c.residual_multiplier, c.logits_multiplier, c.logits_softcap}},
          {"experts",
           {e.count, e.per_token, e.inner, e.shared_inner, e.shared_has_weight, e.normalizes, e.uses_sigmoid,
            e.has_choice_bias, e.scale, e.groups, e.groups_per_token, e.groups_by_two, e.has_biases, e.limit, e.gain}},
          {"has_experts", e.in_layer},
          {"latent", {l.rank, l.query_rank, l.plain, l.rotated, l.value}},
          {"unused_layers", c.unused_layers}};
}

// Fields without which there is an error, because releases of transformers differ, or because every model has its own.
const std::set<std::string> required = {
    "model_type", "vocab_size",        "hidden_size", "n_embd", "d_model", "intermediate_size",  "ffn_dim",
    "n_layer",    "num_hidden_layers", "n_layers",    "n_head", "n_heads", "num_attention_heads"};
bool is_required(const std::string& family, const std::string& field) {
  if (field == "rope_parameters") return family == "cohere" || family == "gpt_oss";
  if (field == "num_experts_per_tok") return family == "deepseek_v2";
  return required.contains(field);
}

const Json& stored_families() {
  static const Json data = Json::parse(std::ifstream(anyaccel::testing::test_data() + "/family_defaults.json"));
  return data.at("families");
}

ModelConfig read(const Json& config) { return parse_model_config(config.dump(), "config.json"); }

TEST(FamilyDefaults, AreThoseOfTransformers) {
  const auto facts_of_text = [](const Json& config) { return facts_of(read(config)); };
  for (const auto& [family, full] : stored_families().items()) {
    SCOPED_TRACE(family);
    const Json expected = facts_of_text(full);
    Json shortest = full;
    for (const auto& [field, value] : full.items()) {
      Json without = full;
      without.erase(field);
      if (is_required(family, field)) {
        EXPECT_THROW(facts_of_text(without), CheckpointError) << field;
        continue;
      }
      shortest.erase(field);
      EXPECT_EQ(facts_of_text(without), expected) << "without " << field;
    }
    EXPECT_EQ(facts_of_text(shortest), expected) << "with " << shortest;
  }
}

// By the code in the models' directories, since transformers has no class for them.
TEST(FamilyDefaults, OfBaichuan) {
  Json fields = {{"model_type", "baichuan"},   {"vocab_size", 125696},    {"hidden_size", 5120},
                 {"intermediate_size", 13696}, {"num_hidden_layers", 40}, {"num_attention_heads", 40}};
  const ModelConfig config = read(fields);
  EXPECT_EQ(config.rms_norm_eps, 1e-6F);
  EXPECT_EQ(config.max_position_embeddings, 4096);
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_EQ(config.eos_token_ids, std::vector<int32_t>{2});
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_TRUE(config.divides_lm_head_rows);
  fields["max_position_embeddings"] = 4096;  // as the models that rotate, which have another size
  EXPECT_THROW(read(fields), CheckpointError);
}

// A number of heads for keys and values that is null, unlike one that is missing, means as many as for queries.
TEST(FamilyDefaults, AreNotThoseOfNull) {
  Json config = stored_families().at("smollm3");
  config["num_key_value_heads"] = nullptr;
  EXPECT_EQ(read(config).num_key_value_heads, 16);
}

// Models of the newer form have two norms in a layer, and the older ones one.
TEST(FamilyDefaults, OfFalcon) {
  Json config = stored_families().at("falcon");
  EXPECT_EQ(read(config).residual, Residual::ParallelOne);
  config["new_decoder_architecture"] = true;
  EXPECT_EQ(read(config).residual, Residual::ParallelTwo);
  // transformers rounds the slopes of ALiBi to bf16, and then multiplies them.
  config["alibi"] = true;
  const ModelConfig alibi = read(config);
  for (const float slope : alibi_slopes(alibi)) {
    const float before = slope / alibi.alibi_scale;
    EXPECT_NEAR(before, bf16_to_float(float_to_bf16(before)), 1e-6F * before);
  }
}

// Scores are scaled by a number of its own, whatever the size of a head.
TEST(FamilyDefaults, OfGemmasScores) {
  for (const char* family : {"gemma2", "gemma3_text"}) {
    Json config = stored_families().at(family);
    config["head_dim"] = 64;
    config.erase("query_pre_attn_scalar");
    EXPECT_EQ(read(config).attention_scale, 1.0F / 16) << family;
  }
}

// transformers rounds the factor of embeddings to the dtype of the hidden state.
TEST(FamilyDefaults, OfGemmasEmbeddings) {
  for (const char* family : {"gemma", "gemma2", "gemma3_text"}) {
    EXPECT_TRUE(read(stored_families().at(family)).rounds_embedding_multiplier) << family;
  }
}

TEST(FamilyDefaults, OfDeepSeeksYarn) {
  Json config = stored_families().at("deepseek_v3");
  const auto scale_with = [&](const Json& yarn) {
    config["rope_parameters"] = {{"rope_type", "yarn"}, {"rope_theta", 10000.0}};
    config["rope_parameters"].update(yarn);
    return read(config).attention_scale * std::sqrt(192.0F);
  };
  EXPECT_FLOAT_EQ(scale_with({{"factor", 40.0}}), 1.0F);
  const float factor = 0.1F * std::log(40.0F) + 1;
  EXPECT_FLOAT_EQ(scale_with({{"factor", 40.0}, {"mscale_all_dim", 1.0}}), factor * factor);
  EXPECT_FLOAT_EQ(read(config).rope.attention_factor, factor);  // as if there were neither, since there is no mscale
  EXPECT_FLOAT_EQ(scale_with({{"factor", 0.5}, {"mscale_all_dim", 1.0}}), 1.0F);
  // Layers that predict further tokens are in the files, and not computed.
  EXPECT_EQ(read(config).unused_layers, 1);
  config["num_nextn_predict_layers"] = 3;
  EXPECT_EQ(read(config).unused_layers, 3);
}

}  // namespace
}  // namespace anyaccel::llm
