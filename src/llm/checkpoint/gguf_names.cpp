// Translates tensor names with one table, which is searched in both directions.
#include "llm/checkpoint/gguf_names.h"

#include <array>
#include <utility>

#include "anyaccel/error.h"

namespace anyaccel::llm {
namespace {

using Names = std::pair<std::string_view, std::string_view>;  // of GGUF, of Hugging Face

constexpr std::array<Names, 3> model_names = {
    {{"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}}};
constexpr std::array<Names, 11> layer_names = {{{"attn_norm", "input_layernorm"},
                                                {"ffn_norm", "post_attention_layernorm"},
                                                {"attn_q", "self_attn.q_proj"},
                                                {"attn_k", "self_attn.k_proj"},
                                                {"attn_v", "self_attn.v_proj"},
                                                {"attn_output", "self_attn.o_proj"},
                                                {"attn_q_norm", "self_attn.q_norm"},
                                                {"attn_k_norm", "self_attn.k_norm"},
                                                {"ffn_gate", "mlp.gate_proj"},
                                                {"ffn_up", "mlp.up_proj"},
                                                {"ffn_down", "mlp.down_proj"}}};
constexpr std::string_view gguf_layer = "blk.";
constexpr std::string_view directory_layer = "model.layers.";

// `from` and `to` are members of the pairs.
template <auto from, auto to, size_t N>
std::string_view find_name(const std::array<Names, N>& names, std::string_view name) {
  for (const Names& pair : names) {
    if (pair.*from == name) return pair.*to;
  }
  return {};
}

template <auto from, auto to>
std::string other_name(std::string_view name, std::string_view layer, std::string_view other_layer) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view suffix = name.substr(dot);
  if (suffix != ".weight" && suffix != ".bias") return {};
  std::string_view stem = name.substr(0, dot);
  if (!stem.starts_with(layer)) {
    const std::string_view found = find_name<from, to>(model_names, stem);
    return found.empty() ? std::string() : std::string(found) + std::string(suffix);
  }
  stem.remove_prefix(layer.size());
  const size_t end = stem.find('.');
  if (end == std::string_view::npos || stem.find_first_not_of("0123456789") != end || end == 0) return {};
  const std::string_view found = find_name<from, to>(layer_names, stem.substr(end + 1));
  if (found.empty()) return {};
  return std::string(other_layer) + std::string(stem.substr(0, end + 1)) + std::string(found) + std::string(suffix);
}

}  // namespace

std::string hugging_face_name(std::string_view name) {
  return other_name<&Names::first, &Names::second>(name, gguf_layer, directory_layer);
}

std::string gguf_name(std::string_view name) {
  std::string found = other_name<&Names::second, &Names::first>(name, directory_layer, gguf_layer);
  if (found.empty()) throw InvalidArgument("gguf: there is no name for the tensor " + std::string(name));
  return found;
}

}  // namespace anyaccel::llm
