// Reads config.json of the decoder models with transformers' defaults, and checks it field by field.
#include "anyaccel/llm/model_config.h"

#include <array>
#include <cmath>
#include <string>

#include "anyaccel/error.h"
#include "base/files/open_file.h"
#include "base/text/json.h"
#include "llm/checkpoint/gguf.h"
#include "llm/checkpoint/hub_folder.h"
#include "llm/config/config_fields.h"
#include "llm/config/config_table.h"
#include "llm/config/gguf_config.h"
#include "llm/config/weight_quantization.h"
#include "llm/families/families.h"

namespace anyaccel::llm {
namespace {

constexpr size_t max_config_bytes = 16 << 20;

struct KnownFamily {
  std::string_view model_type;
  std::string_view architecture;
  Family family;
};

// transformers writes a Mistral model with layer_types as "ministral".
std::vector<KnownFamily> known_families() {
  std::vector<KnownFamily> known = {{"llama", "LlamaForCausalLM", Family::Llama},
                                    {"mistral", "MistralForCausalLM", Family::Mistral},
                                    {"ministral", "MinistralForCausalLM", Family::Mistral},
                                    {"qwen2", "Qwen2ForCausalLM", Family::Qwen2},
                                    {"qwen3", "Qwen3ForCausalLM", Family::Qwen3}};
  for (const FamilyDefinition* family : family_definitions()) {
    known.push_back({family->model_type, family->architecture, family->family});
  }
  known.push_back({baichuan.model_type, "BaiChuanForCausalLM", Family::Baichuan});  // the oldest of them
  return known;
}

std::string list_of(std::string_view KnownFamily::*name) {
  std::string list;
  for (const KnownFamily& family : known_families()) list += (list.empty() ? "" : ", ") + std::string(family.*name);
  return list;
}

Family read_family(const JsonRef& root) {
  const std::vector<KnownFamily> entries = known_families();
  const auto architectures = root.find("architectures");
  const auto type = root.find("model_type");
  // A model type names the body; the head on top of it (a classifier, for example) is in architectures.
  const KnownFamily* found = nullptr;
  if (architectures) {
    for (size_t i = 0; i < architectures->size() && found == nullptr; ++i) {
      for (const KnownFamily& entry : entries) {
        if ((*architectures)[i].string() == entry.architecture) found = &entry;
      }
    }
    if (found == nullptr && architectures->size() > 0) {
      const std::string name = type ? "; model_type is " + quote_text(type->string()) : std::string();
      architectures->error("the architecture " + quote_text((*architectures)[0].string()) +
                           " is not supported; supported are " + list_of(&KnownFamily::architecture) + name);
    }
  }
  if (type) {
    for (const KnownFamily& entry : entries) {
      if (type->string() != entry.model_type) continue;
      // transformers runs InternLM 3 with Llama's class.
      const bool as_llama = found != nullptr && entry.family == Family::InternLm3 && found->family == Family::Llama;
      if (found != nullptr && found->family != entry.family && !as_llama) {
        type->error("the model type " + quote_text(type->string()) + " does not fit the architecture \"" +
                    std::string(found->architecture) + "\"");
      }
      return entry.family;
    }
    type->error("the model type " + quote_text(type->string()) + " is not supported; supported are " +
                list_of(&KnownFamily::model_type));
  }
  if (found == nullptr)
    root.error("has neither model_type nor architectures; supported are " + list_of(&KnownFamily::model_type));
  return found->family;
}

DType read_torch_dtype(const JsonRef& root) {
  const auto value = root.has("dtype") ? root.find("dtype") : root.find("torch_dtype");
  if (!value) return DType::None;
  std::string_view name = value->string();
  if (name.starts_with("torch.")) name.remove_prefix(6);
  if (name == "auto") return DType::None;
  for (const DType type : {DType::F32, DType::BF16, DType::F16, DType::F64}) {
    if (dtype_name(type) == name) return type;
  }
  value->fail("\"float32\", \"bfloat16\" or \"float16\"");
}

void check_no_windows(const JsonRef& root, const ModelConfig& config, const std::vector<uint8_t>& by_list) {
  for (size_t i = 0; i < by_list.size(); ++i) {
    if (by_list[i] != 0) root.at("layer_types")[i].fail("\"full_attention\" in a model of type llama");
  }
  refuse_window(root, config, "llama");
}

void read_windows(const JsonRef& root, ModelConfig& config) {
  const auto layers = static_cast<size_t>(config.num_hidden_layers);
  config.layer_has_window.assign(layers, 0);
  const std::vector<uint8_t> by_list = read_layer_types(root, layers);
  if (config.family == Family::Llama) {
    check_no_windows(root, config, by_list);
    return;
  }
  // Qwen's windows are off unless switched on.
  const bool qwen = config.family != Family::Mistral;
  const bool is_null = root.has("sliding_window") && !root.find("sliding_window");
  const bool off = is_null || (qwen && !read_flag(root, "use_sliding_window", false));
  const int64_t window = off ? 0 : read_whole(root, "sliding_window", 1, max_positions, 4096);
  if (!by_list.empty()) {
    config.layer_has_window = by_list;
  } else if (!off) {
    const int64_t first = qwen ? read_whole(root, "max_window_layers", 0, max_layers, 28) : 0;
    for (auto i = static_cast<size_t>(first); i < layers; ++i) config.layer_has_window[i] = 1;
  }
  for (size_t i = 0; i < layers; ++i) {
    if (config.layer_has_window[i] == 0) continue;
    if (off) {
      root.at("layer_types")[i].fail(std::string("\"full_attention\", because ") +
                                     (is_null ? "sliding_window is null" : "use_sliding_window is not true"));
    }
    config.sliding_window = window;
  }
}

void read_sizes(const JsonRef& root, ModelConfig& config) {
  config.hidden_size = root.at("hidden_size").integer(1, max_size);
  config.intermediate_size = root.at("intermediate_size").integer(1, max_size);
  config.num_hidden_layers = root.at("num_hidden_layers").integer(1, max_layers);
  config.num_attention_heads = root.at("num_attention_heads").integer(1, max_heads);
  config.vocab_size = root.at("vocab_size").integer(1, max_vocab);
  // Null means the number of query heads; a missing field means the number of the family's first model.
  const bool qwen = config.family == Family::Qwen2 || config.family == Family::Qwen3;
  int64_t key_value_heads = config.num_attention_heads;
  if (!root.has("num_key_value_heads")) {
    if (config.family == Family::Mistral) key_value_heads = 8;
    if (qwen) key_value_heads = 32;
  }
  config.num_key_value_heads = read_whole(root, "num_key_value_heads", 1, max_heads, key_value_heads);
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    const std::string expected =
        "a divisor of num_attention_heads, which is " + std::to_string(config.num_attention_heads);
    if (const auto value = root.find("num_key_value_heads")) value->fail(expected);
    root.error("num_key_value_heads is missing, which means " + std::to_string(key_value_heads) +
               " for a model of type " + std::string(family_name(config.family)) + "; expected " + expected);
  }
  // Qwen3 is the only family whose head size does not follow from the other sizes.
  const int64_t fallback = config.family == Family::Qwen3 && !root.has("head_dim") ? 128 : 0;
  config.head_dim = read_whole(root, "head_dim", 1, max_head_dim, fallback);
  if (config.head_dim == 0) {
    if (config.hidden_size % config.num_attention_heads != 0) {
      root.at("num_attention_heads")
          .fail("a divisor of hidden_size, which is " + std::to_string(config.hidden_size) +
                ", because there is no head_dim");
    }
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  if (config.head_dim % 2 != 0 || config.head_dim > max_head_dim) {
    const std::string expected = "an even head_dim of at most " + std::to_string(max_head_dim);
    if (root.find("head_dim")) root.at("head_dim").fail(expected);
    root.error("hidden_size / num_attention_heads is " + std::to_string(config.head_dim) + "; expected " + expected);
  }
  const int64_t positions = config.family == Family::Llama ? 2048 : config.family == Family::Mistral ? 131072 : 32768;
  config.max_position_embeddings = read_whole(root, "max_position_embeddings", 1, max_positions, positions);
}

void read_biases(const JsonRef& root, ModelConfig& config) {
  // For the families without biases, check_config_fields() has checked these fields already.
  const bool attention_bias = read_flag(root, "attention_bias", false);
  const bool mlp_bias = read_flag(root, "mlp_bias", false);
  switch (config.family) {
    case Family::Llama:
      config.qkv_bias = config.o_bias = attention_bias;
      config.mlp_bias = mlp_bias;
      break;
    case Family::Mistral: break;
    case Family::Qwen2: config.qkv_bias = true; break;
    case Family::Qwen3:
      config.qkv_bias = config.o_bias = attention_bias;
      config.qk_norm = true;
      break;
    default: break;
  }
}

ModelConfig read_config(const JsonRef& root) {
  if (!root.is_object()) root.fail("an object");
  ModelConfig config;
  config.family = read_family(root);
  if (const auto quantization = root.find("quantization_config")) {
    config.quantization = read_quantization(*quantization, config.notes);
  }
  check_config_fields(root, config.family, config.notes);
  if (const FamilyDefinition* family = find_family(config.family)) {
    read_family_config(root, *family, config);
    config.dtype = read_torch_dtype(root);
    read_special_ids(root, config.bos_token_id, config.eos_token_ids);
    return config;
  }
  read_sizes(root, config);
  config.rms_norm_eps = static_cast<float>(read_number(root, "rms_norm_eps", 0.0, 1.0, 1e-6));
  config.rope = read_rope(root, config, config.notes);
  config.hidden_act = read_activation(root, "hidden_act", "silu");
  config.tie_word_embeddings = read_flag(root, "tie_word_embeddings", false);
  read_biases(root, config);
  read_windows(root, config);
  config.dtype = read_torch_dtype(root);
  const bool llama_ids = config.family == Family::Llama || config.family == Family::Mistral;
  if (llama_ids) {
    config.bos_token_id = 1;
    config.eos_token_ids = {2};
  }
  read_special_ids(root, config.bos_token_id, config.eos_token_ids);
  return config;
}

}  // namespace

std::string_view family_name(Family family) noexcept {
  switch (family) {
    case Family::Llama: return "llama";
    case Family::Mistral: return "mistral";
    case Family::Qwen2: return "qwen2";
    case Family::Qwen3: return "qwen3";
    default: break;
  }
  if (const FamilyDefinition* definition = find_family(family)) return definition->model_type;
  return "invalid";
}

std::string_view rope_type_name(RopeType type) noexcept {
  switch (type) {
    case RopeType::Default: return "default";
    case RopeType::Linear: return "linear";
    case RopeType::Dynamic: return "dynamic";
    case RopeType::Llama3: return "llama3";
    case RopeType::Yarn: return "yarn";
    case RopeType::Longrope: return "longrope";
    case RopeType::Proportional: return "proportional";
  }
  return "invalid";
}

int64_t ModelConfig::window_of_layer(int64_t layer) const noexcept {
  const auto index = static_cast<size_t>(layer);
  return index < layer_has_window.size() && layer_has_window[index] != 0 ? sliding_window : 0;
}

bool ModelConfig::is_plain() const noexcept { return has_first_families_rules(family); }

bool ModelConfig::rotates(int64_t layer) const noexcept {
  const auto index = static_cast<size_t>(layer);
  return positions == Positions::Rope && (index >= layer_without_rope.size() || layer_without_rope[index] == 0);
}

bool ModelConfig::has_experts(int64_t layer) const noexcept {
  const auto index = static_cast<size_t>(layer);
  return index < experts.in_layer.size() && experts.in_layer[index] != 0;
}

float ModelConfig::scale_of_layer(int64_t layer) const noexcept {
  const float scale = attention_scale != 0.0f ? attention_scale : 1.0f / std::sqrt(static_cast<float>(head_dim));
  return scale_by_layer ? scale / static_cast<float>(layer + 1) : scale;
}

ModelConfig load_model_config(const std::filesystem::path& dir) {
  if (is_gguf(dir)) return load_gguf_config(dir);
  std::error_code error;
  if (!std::filesystem::is_directory(dir, error)) {
    throw CheckpointError(dir.string() +
                          ": not a directory; expected a Hugging Face model directory with config.json, "
                          "or a file whose name ends in .gguf");
  }
  const std::filesystem::path adapter = dir / "adapter_config.json";
  if (has_name(adapter)) {
    throw CheckpointError(
        adapter.string() +
        ": an adapter (LoRA or the like) changes the weights of a model, and this directory was given as the model; "
        "give the directory of the model that it was trained for, and this one with --adapter (LoadOptions::adapter), "
        "or "
        "move the adapter's files to a directory of their own to run the model without it");
  }
  const std::filesystem::path file = dir / "config.json";
  if (!has_name(file)) refuse_hub_folder(dir);
  const JsonDocument document = JsonDocument::load(file, max_config_bytes);
  return read_config(document.root());
}

ModelConfig parse_model_config(std::string_view json_text, std::string_view source_name) {
  const JsonDocument document = JsonDocument::parse(json_text, source_name);
  return read_config(document.root());
}

}  // namespace anyaccel::llm
