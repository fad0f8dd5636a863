// Writes config.json of named shapes, by the names of fields that each family has for its sizes, and lists shapes of all
// families.
#include "llm/config/shape_config.h"

#include <algorithm>
#include <utility>

#include "base/text/json.h"
#include "llm/families/families.h"
#include "llm/tokenizer/byte_tokenizer.h"

namespace anyaccel::llm {

namespace {

const FamilyDefinition* find_model_type(std::string_view model_type) {
  const auto definitions = family_definitions();
  const auto found = std::ranges::find(definitions, model_type, [](const auto* family) { return family->model_type; });
  return found == definitions.end() ? nullptr : *found;
}

std::string_view architecture_of(const FamilyDefinition* definition, std::string_view model_type) {
  if (definition != nullptr) return definition->architecture;
  return model_type == "mistral" ? "MistralForCausalLM"
         : model_type == "qwen2" ? "Qwen2ForCausalLM"
         : model_type == "qwen3" ? "Qwen3ForCausalLM"
                                 : "LlamaForCausalLM";
}

JsonValue config_json(const ModelShape& shape, DType dtype) {
  const FamilyDefinition* const definition = find_model_type(shape.family);
  const SizeFields names = definition != nullptr ? definition->sizes : SizeFields{};
  JsonValue json = {{"architectures", JsonArray{architecture_of(definition, shape.family)}},
                    {"model_type", shape.family},
                    {"vocab_size", shape.vocab_size}};
  const auto add = [&](std::string_view name, auto value) {
    if (!name.empty() && value != 0) json[name] = value;
  };
  const auto reads = [&](std::string_view name) { return definition == nullptr || reads_field(*definition, name); };
  add(names.hidden, shape.hidden_size);
  add(names.inner, shape.intermediate_size);
  add(names.layers, shape.layers);
  add(names.heads, shape.heads);
  add(names.kv_heads, shape.kv_heads);
  add(names.head_dim, shape.head_dim);
  if (definition == nullptr) json["hidden_act"] = "silu";
  add(names.positions, shape.max_positions);
  add(names.eps, shape.norm_eps);
  if (reads("rope_theta")) add("rope_theta", shape.rope_theta);
  // GPT-J's default does not fit smaller heads.
  if (definition != nullptr && reads("rotary_dim")) json["rotary_dim"] = std::min<int64_t>(64, shape.head_dim);
  json["tie_word_embeddings"] = shape.tied;
  json["initializer_range"] = static_cast<double>(made_up_standard_deviation);
  json["bos_token_id"] = made_up_bos_id;
  json["eos_token_id"] = made_up_eos_id;
  json["torch_dtype"] = dtype_name(dtype);
  json["use_cache"] = true;
  if (shape.family == "llama") {
    json["attention_bias"] = false;
    json["mlp_bias"] = false;
  }
  if (shape.experts > 0) {
    for (const char* name : {"num_local_experts", "num_experts", "n_routed_experts"}) {
      if (!reads(name)) continue;
      json[name] = shape.experts;
      break;
    }
    json["num_experts_per_tok"] = shape.experts_per_token;
    if (reads("moe_intermediate_size")) json["moe_intermediate_size"] = shape.intermediate_size;
  }
  if (shape.fields.empty()) return json;
  const JsonDocument more = JsonDocument::parse(shape.fields, "the fields of " + shape.name);
  for (size_t i = 0; i < more.root().size(); ++i) json[more.root().key(i)] = more.root().member(i).value();
  return json;
}

// A form of a family whose layers are computed in another way than those of its other forms, or fields without which a
// family's defaults do not fit a shape.
struct Form {
  std::string_view model_type;
  std::string_view name;  // of the shape; empty: the model_type
  std::string_view fields;
};
constexpr Form forms[] = {
    {"falcon", "falcon-7b", R"({})"},
    {"falcon", "falcon-40b", R"({"new_decoder_architecture": true, "num_kv_heads": 4})"},
    {"falcon", "falcon-11b", R"({"new_decoder_architecture": true, "num_kv_heads": 4, "num_ln_in_parallel_attn": 1})"},
    {"falcon", "falcon-rw", R"({"alibi": true, "multi_query": false, "parallel_attn": false, "bias": true})"},
    {"stablelm", "stablelm", R"({})"},
    {"stablelm", "stablelm-parallel", R"({"use_parallel_residual": true})"},
    {"baichuan", "baichuan-7b", R"({"max_position_embeddings": 2048})"},
    {"baichuan", "baichuan-13b", R"({})"},
    {"cohere", "cohere", R"({})"},
    {"cohere", "cohere-qk-norm", R"({"use_qk_norm": true})"},
    {"granite", "",
     R"({"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.0156, "logits_scaling": 8.0})"},
    {"qwen2_moe", "", R"({"shared_expert_intermediate_size": 704})"},
    {"deepseek_v2", "", R"({"n_shared_experts": 1, "q_lora_rank": null})"},
    {"deepseek_v3", "", R"({"n_shared_experts": 1, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 0})"},
    {"gpt_oss", "",
     R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0,)"
     R"( "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096}})"},
};

ModelShape shape_of_family(const ModelShape& like, const FamilyDefinition& family) {
  ModelShape shape = like;
  shape.name = shape.family = family.model_type;
  shape.tied = family.defaults.tied;
  shape.rope_theta = family.defaults.rope_theta;
  if (reads_field(family, "num_experts_per_tok")) {
    // Many small experts, or few.
    shape.experts_per_token = reads_field(family, "moe_intermediate_size") ? 8 : 2;
    shape.experts = 4 * shape.experts_per_token;
    shape.intermediate_size = std::max<int64_t>(like.intermediate_size / shape.experts_per_token, 1);
  }
  return shape;
}

}  // namespace

std::string config_text_of_shape(const ModelShape& shape, DType dtype) {
  return json_text(config_json(shape, dtype), 2) + "\n";
}

ModelConfig config_of_shape(const ModelShape& shape, DType dtype) {
  return parse_model_config(config_text_of_shape(shape, dtype), "the configuration of " + shape.name);
}

std::vector<ModelShape> family_shapes(const ModelShape& like) {
  std::vector<ModelShape> shapes;
  for (const char* model_type : {"llama", "mistral", "qwen2", "qwen3"}) {
    ModelShape& shape = shapes.emplace_back(like);
    shape.name = shape.family = model_type;
  }
  for (const FamilyDefinition* family : family_definitions()) {
    const ModelShape shape = shape_of_family(like, *family);
    const size_t before = shapes.size();
    for (const Form& form : forms) {
      if (form.model_type != family->model_type) continue;
      ModelShape& of_form = shapes.emplace_back(shape);
      if (!form.name.empty()) of_form.name = form.name;
      of_form.fields = form.fields;
    }
    if (shapes.size() == before) shapes.push_back(shape);
  }
  // Two matrices get as many parameters as the three of a block with a gate: released models of these families have inner
  // sizes of four times the hidden size, where Llama's are two and a half to three and a half times.
  for (ModelShape& shape : shapes) {
    if (!config_of_shape(shape, DType::BF16).gated) shape.intermediate_size = shape.intermediate_size * 3 / 2;
  }
  return shapes;
}

}  // namespace anyaccel::llm
