// Reads config.json of the decoder models with transformers' defaults, and checks it field by field.
#include "anyaccel/llm/model_config.h"

#include <array>
#include <cmath>
#include <string>

#include "anyaccel/error.h"
#include "base/text/json.h"
#include "llm/checkpoint/gguf.h"
#include "llm/config/config_fields.h"
#include "llm/config/config_table.h"
#include "llm/config/gguf_config.h"
#include "llm/config/weight_quantization.h"

namespace anyaccel::llm {
namespace {

constexpr size_t max_config_bytes = 16 << 20;

constexpr std::string_view supported = "llama, mistral, ministral, qwen2, qwen3";

Family read_family(const JsonRef& root) {
  struct Entry {
    std::string_view model_type;
    std::string_view architecture;
    Family family;
  };
  // transformers writes a Mistral model with layer_types as "ministral".
  constexpr std::array<Entry, 5> entries = {{{"llama", "LlamaForCausalLM", Family::Llama},
                                             {"mistral", "MistralForCausalLM", Family::Mistral},
                                             {"ministral", "MinistralForCausalLM", Family::Mistral},
                                             {"qwen2", "Qwen2ForCausalLM", Family::Qwen2},
                                             {"qwen3", "Qwen3ForCausalLM", Family::Qwen3}}};
  const auto architectures = root.find("architectures");
  const auto type = root.find("model_type");
  // A model type names the body; the head on top of it (a classifier, for example) is in architectures.
  const Entry* found = nullptr;
  if (architectures) {
    for (size_t i = 0; i < architectures->size() && found == nullptr; ++i) {
      for (const Entry& entry : entries) {
        if ((*architectures)[i].string() == entry.architecture) found = &entry;
      }
    }
    if (found == nullptr && architectures->size() > 0) {
      const std::string name = type ? "; model_type is " + quote_text(type->string()) : std::string();
      architectures->error("the architecture " + quote_text((*architectures)[0].string()) +
                           " is not supported; supported are LlamaForCausalLM, MistralForCausalLM, "
                           "MinistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM" +
                           name);
    }
  }
  if (type) {
    for (const Entry& entry : entries) {
      if (type->string() != entry.model_type) continue;
      if (found != nullptr && found->family != entry.family) {
        type->error("the model type " + quote_text(type->string()) + " does not fit the architecture \"" +
                    std::string(found->architecture) + "\"");
      }
      return entry.family;
    }
    type->error("the model type " + quote_text(type->string()) + " is not supported; supported are " +
                std::string(supported));
  }
  if (found == nullptr) root.error("has neither model_type nor architectures; supported are " + std::string(supported));
  return found->family;
}

ops::Activation read_activation(const JsonRef& root) {
  struct Entry {
    std::string_view name;
    ops::Activation activation;
  };
  using enum ops::Activation;
  constexpr std::array<Entry, 10> entries = {{{"silu", Silu},
                                              {"swish", Silu},
                                              {"gelu", Gelu},
                                              {"gelu_python", Gelu},
                                              {"gelu_new", GeluTanh},
                                              {"gelu_fast", GeluTanh},
                                              {"gelu_accurate", GeluTanh},
                                              {"gelu_pytorch_tanh", GeluTanh},
                                              {"gelu_python_tanh", GeluTanh},
                                              {"relu", Relu}}};
  const auto value = root.find("hidden_act");
  if (!value) return Silu;
  std::string names;
  for (const Entry& entry : entries) {
    if (value->string() == entry.name) return entry.activation;
    names += (names.empty() ? "\"" : ", \"") + std::string(entry.name) + "\"";
  }
  value->fail("one of " + names);
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

// Returns one flag for each layer: whether it has a window according to layer_types. Empty if there is no such list.
std::vector<uint8_t> read_layer_types(const JsonRef& root, size_t layers) {
  const auto types = root.find("layer_types");
  if (!types) return {};
  if (!types->is_array() || types->size() != layers) {
    types->fail("a list with one text for each of the " + std::to_string(layers) + " layers");
  }
  std::vector<uint8_t> has_window;
  for (size_t i = 0; i < layers; ++i) {
    const JsonRef type = (*types)[i];
    const std::string& name = type.string();
    // The last is an older name of the second.
    if (name != "sliding_attention" && name != "full_attention" && name != "attention") {
      type.fail("\"full_attention\" or \"sliding_attention\"");
    }
    has_window.push_back(name == "sliding_attention" ? 1 : 0);
  }
  return has_window;
}

// Llama has no windows. transformers still uses the field for its cache: the prompt attends to everything, but
// generated tokens only to the window.
void check_no_windows(const JsonRef& root, const ModelConfig& config, const std::vector<uint8_t>& by_list) {
  for (size_t i = 0; i < by_list.size(); ++i) {
    if (by_list[i] != 0) root.at("layer_types")[i].fail("\"full_attention\" in a model of type llama");
  }
  const auto window = root.find("sliding_window");
  if (window && window->integer(0, max_positions) < config.max_position_embeddings) {
    window->fail("null, or a number from max_position_embeddings (" + std::to_string(config.max_position_embeddings) +
                 ") on, in a model of type llama, whose tokens see all tokens before them");
  }
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
  // Null means as many as query heads; a missing field means the number of the family's first model.
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
  // For the families without biases check_config_fields() has checked the fields.
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
  read_sizes(root, config);
  config.rms_norm_eps = static_cast<float>(read_number(root, "rms_norm_eps", 0.0, 1.0, 1e-6));
  config.rope = read_rope(root, config, config.notes);
  config.hidden_act = read_activation(root);
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
  }
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

ModelConfig load_model_config(const std::filesystem::path& dir) {
  if (is_gguf(dir)) return load_gguf_config(dir);
  std::error_code error;
  if (!std::filesystem::is_directory(dir, error)) {
    throw CheckpointError(dir.string() +
                          ": not a directory; expected a Hugging Face model directory with config.json, "
                          "or a file whose name ends in .gguf");
  }
  const std::filesystem::path adapter = dir / "adapter_config.json";
  if (std::filesystem::exists(adapter, error)) {
    throw CheckpointError(
        adapter.string() +
        ": an adapter (LoRA or the like) changes the weights of the model, and applying one is not "
        "supported; merge it into the model (merge_and_unload of PEFT), or remove the file to run the "
        "model without it");
  }
  const JsonDocument document = JsonDocument::load(dir / "config.json", max_config_bytes);
  return read_config(document.root());
}

ModelConfig parse_model_config(std::string_view json_text, std::string_view source_name) {
  const JsonDocument document = JsonDocument::parse(json_text, source_name);
  return read_config(document.root());
}

}  // namespace anyaccel::llm
