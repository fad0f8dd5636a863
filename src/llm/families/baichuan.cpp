// Defines Baichuan 1 and 2, by the code in their directories (transformers has no class): Llama with queries, keys and values in
// one matrix. Models of 7 billion parameters rotate, those of 13 have linear biases (ALiBi).
#include <string>

#include "llm/config/config_fields.h"
#include "llm/families/families.h"

namespace anyaccel::llm {
namespace {

constexpr int64_t hidden_of_7b = 4096, hidden_of_13b = 5120;

// No field says that version 2 divides the rows of the output matrix by their lengths; its vocabulary has 125696 tokens,
// that of version 1 64000.
bool is_version_2(const ModelConfig& config) { return config.vocab_size >= 100000; }

// Of the sizes, only that of 7 billion parameters has max_position_embeddings.
void compose_baichuan(const JsonRef& root, ModelConfig& config) {
  const bool rotates = root.has("max_position_embeddings");
  if (config.hidden_size == (rotates ? hidden_of_13b : hidden_of_7b)) {
    root.error(std::string("has ") + (rotates ? "max_position_embeddings" : "no max_position_embeddings") +
               ", as Baichuan models with " + (rotates ? "7" : "13") + " billion parameters, and a hidden_size of " +
               std::to_string(config.hidden_size) + ", as those with the other number; expected one of them");
  }
  if (rotates) {
    config.rope.rotary_dim = config.head_dim;
  } else {
    config.positions = Positions::Alibi;
  }
  config.divides_lm_head_rows = is_version_2(config);
  if (config.divides_lm_head_rows && config.tie_word_embeddings) {
    root.error("tie_word_embeddings is true; expected false, since the rows of the output matrix are normalized");
  }
}

// The files have the rows of queries and keys as pairs, and no key for positions: llama.cpp goes by the number of layers.
void describe_gguf_baichuan(const GgufFields& file, ModelConfig& config) {
  constexpr std::string_view layout = "Meta AI original pth";
  if (const std::string found = file.text("tensor_data_layout", layout); found != layout) {
    file.error("tensor_data_layout", "is " + quote_text(found) + "; expected \"Meta AI original pth\"");
  }
  config.rope_interleaved = true;
  if (config.num_hidden_layers == 40) {
    config.positions = Positions::Alibi;
    file.whole("rope.dimension_count", 0, max_head_dim, config.head_dim, 0);  // it is there, though nothing rotates
  } else if (config.num_hidden_layers != 32) {
    file.error("block_count", "is " + std::to_string(config.num_hidden_layers) +
                                  "; expected 32 (of 7 billion parameters) or 40 (13 billion)");
  }
  config.divides_lm_head_rows = is_version_2(config);
}

constexpr std::string_view baichuan_fields[] = {"model_max_length", "z_loss_weight", "_from_model_config",
                                                "gradient_checkpointing"};
constexpr std::array<std::string_view, 2> baichuan_other_names[] = {{"model_max_length", "max_position_embeddings"}};

}  // namespace

const FamilyDefinition baichuan = {.family = Family::Baichuan,
                                   .model_type = "baichuan",
                                   .architecture = "BaichuanForCausalLM",
                                   .sizes = {.kv_heads = "", .head_dim = "", .positions = "model_max_length"},
                                   .other_names = baichuan_other_names,
                                   .defaults = {.positions = 4096, .eps = 1e-6, .bos = 1, .eos = 2},
                                   .names = {.qkv = "self_attn.W_pack"},
                                   .fields = baichuan_fields,
                                   .compose = compose_baichuan,
                                   .gguf_architecture = "baichuan",
                                   .describe_gguf = describe_gguf_baichuan};

}  // namespace anyaccel::llm
