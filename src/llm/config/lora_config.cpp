// Implements lora_config.h. The rules are those of PEFT 0.21 (peft/tuners/lora).
#include "llm/config/lora_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "anyaccel/error.h"
#include "llm/config/config_fields.h"

namespace anyaccel::llm {

namespace {

constexpr int64_t max_rank = 1 << 16;

// Settings that change the mathematics, and what they would add.
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> lora_refused = {
    {{"use_dora", "DoRA, which also rescales the columns of the matrices"},
     {"use_qalora", "QALoRA, whose factors are for groups of columns"},
     {"use_bdlora", "factors that are block-diagonal"},
     {"lora_bias", "biases of its own"},
     {"modules_to_save", "whole modules that replace those of the model"},
     {"trainable_token_indices", "rows of the embedding"},
     {"target_parameters", "changes of parameters that are not matrices of linear layers"},
     {"layer_replication", "repeated layers"},
     {"alora_invocation_tokens", "activation by tokens of the prompt"},
     {"arrow_config", "routing between adapters"},
     {"kasa_config", "a product of three factors"},
     {"velora_config", "VeLoRA"},
     {"monteclora_config", "random factors"},
     {"megatron_config", "layers of Megatron"}}};

// Settings of training, of how the adapter was made, and those that the names and shapes of its tensors repeat.
constexpr std::array<std::string_view, 32> lora_without_effect = {"auto_mapping",
                                                                  "base_model_name_or_path",
                                                                  "corda_config",
                                                                  "ensure_weight_tying",
                                                                  "eva_config",
                                                                  "exclude_modules",
                                                                  "fan_in_fan_out",
                                                                  "inference_mode",
                                                                  "init_lora_weights",
                                                                  "layers_pattern",
                                                                  "layers_to_transform",
                                                                  "loftq_config",
                                                                  "lora_dropout",
                                                                  "lora_ga_config",
                                                                  "megatron_core",
                                                                  "peft_type",
                                                                  "peft_version",
                                                                  "qalora_group_size",
                                                                  "revision",
                                                                  "target_modules",
                                                                  "task_type",
                                                                  "runtime_config",
                                                                  "r",
                                                                  "lora_alpha",
                                                                  "rank_pattern",
                                                                  "alpha_pattern",
                                                                  "use_rslora",
                                                                  "bias",
                                                                  "eva_state_dict",
                                                                  "parent_library",
                                                                  "base_model_class",
                                                                  "tokenizer_class"};

bool is_given(const JsonRef& value) {
  if (value.is_null()) return false;
  if (value.is_bool()) return value.boolean();
  if (value.is_array() || value.is_object()) return value.size() > 0;
  return true;
}

void check_lora_kind(const JsonRef& root) {
  if (!root.is_object()) root.fail("an object");
  const JsonRef type = root.at("peft_type");
  if (type.string() != "LORA") {
    type.error("the adapter is of the kind " + quote_text(type.string()) +
               "; expected LORA, the one that is supported");
  }
  for (const auto& [name, what] : lora_refused) {
    const auto value = root.find(name);
    if (value && is_given(*value)) {
      value->error("the adapter has " + std::string(what) +
                   ", which is not supported; expected an adapter without it, or one merged into its model");
    }
  }
  if (const auto bias = root.find("bias"); bias && bias->string() != "none") {
    bias->error("the adapter has changed biases (" + quote_text(bias->string()) +
                "), which are not supported; expected \"none\"");
  }
  // Other ways to begin (PiSSA, OLoRA, LoftQ, ...) change the model's own matrices.
  const auto start = root.find("init_lora_weights");
  if (start && start->is_string() && start->string() != "gaussian" && start->string() != "eva" &&
      start->string() != "orthogonal") {
    start->error("training began with " + quote_text(start->string()) +
                 ", which changes the model's own matrices; expected an adapter that was converted to LoRA");
  }
}

// The first entry of rank_pattern or alpha_pattern that names the module or the end of its path.
std::optional<JsonRef> find_pattern(const JsonRef& root, const char* field, std::string_view module) {
  const auto patterns = root.find(field);
  if (!patterns) return std::nullopt;
  if (!patterns->is_object()) patterns->fail("an object that maps names of modules to numbers");
  for (size_t i = 0; i < patterns->size(); ++i) {
    const std::string& key = patterns->key(i);
    if (key.empty() || key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") !=
                           std::string::npos) {
      patterns->member(i).error("the key " + quote_text(key) +
                                " is a regular expression, which is not supported; expected names of modules");
    }
    if (module == key || module.ends_with("." + key)) return patterns->member(i);
  }
  return std::nullopt;
}

std::string size_list(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

}  // namespace

LoraFactors read_lora_factors(const JsonDocument& config, std::span<const TensorInfo> tensors,
                              const std::string& source) {
  const JsonRef root = config.root();
  LoraFactors factors;
  check_lora_kind(root);
  for (size_t i = 0; i < root.size(); ++i) {
    const std::string& key = root.key(i);
    const bool known = std::ranges::count(lora_without_effect, key) > 0 ||
                       std::ranges::any_of(lora_refused, [&](const auto& field) { return field.first == key; });
    if (!known && is_given(root.member(i))) {
      factors.notes.push_back(config.source() + ": the field " + quote_text(key) + " is not known and is ignored");
    }
  }
  const int64_t rank = read_whole(root, "r", 1, max_rank, 8);
  const double alpha = read_number(root, "lora_alpha", -1e6, 1e6, 8.0);
  const bool rank_stabilized = read_flag(root, "use_rslora", false);

  constexpr std::string_view prefix = "base_model.model.", a_end = ".lora_A.weight", b_end = ".lora_B.weight";
  for (const TensorInfo& tensor : tensors) {
    const std::string_view name = tensor.name;
    const bool is_a = name.ends_with(a_end), is_b = name.ends_with(b_end);
    if (!name.starts_with(prefix) || (!is_a && !is_b)) {
      throw CheckpointError(
          source + ": the tensor " + quote_text(name) +
          " is not supported; expected base_model.model.<module>.lora_A.weight and lora_B.weight only "
          "(save_embedding_layers=False keeps PEFT from storing copies of the model's matrices)");
    }
    if (tensor.shape.size() != 2 || !is_op_float(tensor.dtype)) {
      throw CheckpointError(source + ": the tensor " + quote_text(name) + " has the shape " + size_list(tensor.shape) +
                            " and the dtype " + std::string(dtype_name(tensor.dtype)) +
                            "; expected a matrix in fp32, bf16 or fp16");
    }
    const std::string module(name.substr(prefix.size(), name.size() - prefix.size() - a_end.size()));
    LoraPair& pair = factors.pairs[module + ".weight"];
    (is_a ? pair.a : pair.b) = &tensor;
  }
  if (factors.pairs.empty()) throw CheckpointError(source + ": has no tensors; expected those of an adapter");
  for (auto& [tensor, pair] : factors.pairs) {
    const std::string_view module =
        std::string_view(tensor).substr(0, tensor.size() - std::string_view(".weight").size());
    if (pair.a == nullptr || pair.b == nullptr) {
      throw CheckpointError(source + ": " + quote_text(module) + " has no " +
                            (pair.a == nullptr ? "lora_A" : "lora_B") + "; expected both factors");
    }
    const auto own_rank = find_pattern(root, "rank_pattern", module),
               own_alpha = find_pattern(root, "alpha_pattern", module);
    const int64_t wanted = own_rank ? own_rank->integer(1, max_rank) : rank;
    if (pair.a->shape[0] != wanted || pair.b->shape[1] != wanted) {
      throw CheckpointError(source + ": the factors of " + quote_text(module) + " have the shapes " +
                            size_list(pair.a->shape) + " and " + size_list(pair.b->shape) + "; expected the rank " +
                            std::to_string(wanted) + " of adapter_config.json");
    }
    const double divisor = rank_stabilized ? std::sqrt(static_cast<double>(wanted)) : static_cast<double>(wanted);
    pair.scale = static_cast<float>((own_alpha ? own_alpha->number(-1e6, 1e6) : alpha) / divisor);
  }
  return factors;
}

}  // namespace anyaccel::llm
