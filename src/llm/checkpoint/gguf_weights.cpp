// Opens GGUF files as weights: gives their tensors the names of a Hugging Face directory.
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "anyaccel/error.h"
#include "base/block_format.h"
#include "base/text/json.h"
#include "llm/checkpoint/gguf.h"

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

template <size_t N>
std::string_view find_name(const std::array<Names, N>& names, std::string_view name) {
  for (const auto& [gguf, hugging_face] : names) {
    if (gguf == name) return hugging_face;
  }
  return {};
}

// "blk.3.attn_q.weight" to "model.layers.3.self_attn.q_proj.weight"; empty for a name that is not known.
std::string hugging_face_name(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view suffix = name.substr(dot);
  if (suffix != ".weight" && suffix != ".bias") return {};
  std::string_view stem = name.substr(0, dot);
  if (!stem.starts_with("blk.")) {
    const std::string_view found = find_name(model_names, stem);
    return found.empty() ? std::string() : std::string(found) + std::string(suffix);
  }
  stem.remove_prefix(4);
  const size_t end = stem.find('.');
  if (end == std::string_view::npos || stem.find_first_not_of("0123456789") != end || end == 0) return {};
  const std::string_view found = find_name(layer_names, stem.substr(end + 1));
  if (found.empty()) return {};
  return "model.layers." + std::string(stem.substr(0, end)) + "." + std::string(found) + std::string(suffix);
}

// The dtype of the values, and how they are quantized.
void read_type(const GgufTensor& found, const std::string& source, TensorInfo& tensor) {
  constexpr std::array<std::pair<uint32_t, DType>, 3> types = {{{0, DType::F32}, {1, DType::F16}, {30, DType::BF16}}};
  for (const auto& [type, dtype] : types) {
    if (type == found.type) tensor.dtype = dtype;
  }
  if (tensor.dtype != DType::None) return;
  tensor.format = find_block_format(found.type);
  const std::string what = source + ": the tensor " + quote_text(found.name) + " is " + ggml_type_name(found.type);
  if (tensor.format == nullptr) {
    throw CheckpointError(what + "; expected F32, F16, BF16 or a type of quantized weights");
  }
  if (found.shape.size() != 2) {
    throw CheckpointError(what + " of " + std::to_string(found.shape.size()) +
                          " dimensions; expected 2: other tensors are not quantized");
  }
  tensor.dtype = DType::F32;
}

// Tensors that others are computed from, or that nothing needs.
bool is_no_weight(std::string_view name) {
  return name == "rope_freqs.weight" || name.ends_with(".attn_rot_embd") || name.ends_with(".rope_freqs.weight");
}

class GgufFile : public WeightFile {
 public:
  GgufFile(const std::filesystem::path& path, const GgufHeader& header, int64_t paired_head, FileAccess access)
      : WeightFile(path) {
    std::vector<TensorInfo> tensors;
    for (const GgufTensor& found : header.tensors) {
      if (is_no_weight(found.name)) continue;
      TensorInfo tensor;
      tensor.name = hugging_face_name(found.name);
      if (tensor.name.empty()) {
        throw CheckpointError(path.string() + ": the tensor " + quote_text(found.name) +
                              " is not known: this model needs a computation that is not supported");
      }
      read_type(found, path.string(), tensor);
      tensor.shape = found.shape;
      tensor.offset = found.offset;
      tensor.bytes = found.bytes;
      const bool rotates =
          found.name.find(".attn_q.") != std::string::npos || found.name.find(".attn_k.") != std::string::npos;
      if (rotates && paired_head > 0) {
        if (tensor.shape[0] % paired_head != 0) {
          throw CheckpointError(path.string() + ": the tensor " + quote_text(found.name) + " has " +
                                std::to_string(tensor.shape[0]) + " rows; expected a multiple of the " +
                                std::to_string(paired_head) + " of a head");
        }
        tensor.paired_rows = paired_head;
      }
      tensors.push_back(std::move(tensor));
    }
    set_tensors(std::move(tensors), access);
  }
};

}  // namespace

std::vector<std::shared_ptr<const WeightFile>> open_gguf_weights(const std::filesystem::path& path, FileAccess access) {
  const GgufModel model = open_gguf(path);
  const int64_t paired_head = gguf_paired_head(model.metadata());
  std::vector<std::shared_ptr<const WeightFile>> files;
  for (size_t i = 0; i < model.parts.size(); ++i) {
    files.push_back(std::make_shared<GgufFile>(model.paths[i], model.parts[i], paired_head, access));
    files.back()->check_unchanged();
  }
  return files;
}

int64_t gguf_head_size(const GgufMetadata& metadata) {
  constexpr int64_t most = int64_t{1} << 24;
  const std::string prefix = metadata.required_text("general.architecture") + ".";
  const int64_t hidden = metadata.required_whole(prefix + "embedding_length", 1, most);
  const int64_t layers = metadata.required_whole(prefix + "block_count", 1, most);
  const auto heads = metadata.whole_of_layers(prefix + "attention.head_count", 1, most, layers);
  if (!heads) metadata.error(prefix + "attention.head_count", "is missing; expected a whole number");
  if (const auto size = metadata.whole(prefix + "attention.key_length", 2, most)) return *size;
  if (hidden % *heads != 0) {
    metadata.error(prefix + "attention.head_count", "is " + std::to_string(*heads) + "; expected a divisor of " +
                                                        std::to_string(hidden) + ", the embedding_length");
  }
  return hidden / *heads;
}

int64_t gguf_paired_head(const GgufMetadata& metadata) {
  return metadata.required_text("general.architecture") == "llama" ? gguf_head_size(metadata) : 0;
}

}  // namespace anyaccel::llm
