// Opens GGUF files as weight files and gives their tensors the names of a Hugging Face directory.
#include <array>
#include <optional>
#include <utility>

#include "anyaccel/error.h"
#include "base/block_format.h"
#include "base/text/json.h"
#include "llm/checkpoint/gguf.h"
#include "llm/checkpoint/gguf_names.h"

namespace anyaccel::llm {
namespace {

// Sets the dtype of the tensor's values and their quantization format.
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
  if (found.shape.size() < 2) {
    throw CheckpointError(what + " of " + std::to_string(found.shape.size()) +
                          " dimensions; expected 2 or 3: other tensors are not quantized");
  }
  tensor.dtype = DType::F32;
}

// Returns whether the tensor is not a weight: the configuration is computed from it, or nothing needs it.
bool is_no_weight(std::string_view name) {
  return name == "rope_freqs.weight" || name.ends_with(".attn_rot_embd") || name.ends_with(".rope_freqs.weight") ||
         name == "rope_factors_long.weight" || name == "rope_factors_short.weight";
}

struct HeadRows {
  int64_t query = 0;   // rows of all query heads
  int64_t key = 0;     // of all key heads, and of all value heads
  int64_t paired = 0;  // rows of a head whose rows are stored as pairs; 0: they are not
};

HeadRows head_rows(const GgufMetadata& metadata) {
  const std::string prefix = metadata.required_text("general.architecture") + ".attention.";
  const int64_t size = gguf_head_size(metadata);
  const auto count = [&](const char* key) {
    const int64_t layers =
        metadata.required_whole(metadata.required_text("general.architecture") + ".block_count", 1, int64_t{1} << 24);
    return metadata.whole_of_layers(prefix + key, 1, int64_t{1} << 24, layers);
  };
  const int64_t heads = count("head_count").value_or(0);  // gguf_head_size() has checked that it is there
  return {heads * size, count("head_count_kv").value_or(heads) * size, gguf_paired_head(metadata)};
}

// Splits a tensor that stores the rows of several: "blk.3.attn_qkv.weight" has the rows of attn_q, then those of attn_k
// and attn_v. Other tensors are returned unchanged.
std::vector<GgufTensor> apart(const GgufTensor& tensor, const HeadRows& heads, const std::string& source) {
  const size_t at = tensor.name.find(".attn_qkv.");
  if (at == std::string::npos) return {tensor};
  const int64_t rows = heads.query + 2 * heads.key;
  if (tensor.shape[0] != rows) {
    throw CheckpointError(source + ": the tensor " + quote_text(tensor.name) + " has " +
                          std::to_string(tensor.shape[0]) + " rows; expected " + std::to_string(rows) +
                          ", those of all query, key and value heads");
  }
  const uint64_t row_bytes = tensor.bytes / static_cast<uint64_t>(rows);
  std::vector<GgufTensor> parts;
  uint64_t offset = tensor.offset;
  for (const auto& [name, count] :
       {std::pair(".attn_q.", heads.query), std::pair(".attn_k.", heads.key), std::pair(".attn_v.", heads.key)}) {
    GgufTensor part = tensor;
    part.name.replace(at, std::string_view(".attn_qkv.").size(), name);
    part.shape[0] = count;
    part.offset = offset;
    part.bytes = row_bytes * static_cast<uint64_t>(count);
    offset += part.bytes;
    parts.push_back(std::move(part));
  }
  return parts;
}

class GgufFile : public WeightFile {
 public:
  // If `heads` is null, tensors are as they are in the file. Else those of the first four families get the names and
  // parts of a directory's.
  GgufFile(const std::filesystem::path& path, const GgufHeader& header, const HeadRows* heads, FileAccess access)
      : WeightFile(path) {
    std::vector<TensorInfo> tensors;
    for (const GgufTensor& stored : header.tensors) {
      if (is_no_weight(stored.name)) continue;
      if (heads == nullptr) {
        TensorInfo tensor = as_it_is(stored);
        tensor.name = stored.name;
        // Some programs store the one row of this matrix as a vector.
        if (tensor.shape.size() == 1 && stored.name.ends_with(".ffn_gate_inp_shexp.weight")) {
          tensor.shape.insert(tensor.shape.begin(), 1);
        }
        tensors.push_back(std::move(tensor));
        continue;
      }
      for (const GgufTensor& part : apart(stored, *heads, path.string())) tensors.push_back(renamed(part, *heads));
    }
    set_tensors(std::move(tensors), access);
  }

 private:
  TensorInfo as_it_is(const GgufTensor& found) const {
    TensorInfo tensor;
    read_type(found, path().string(), tensor);
    tensor.shape = found.shape;
    tensor.offset = found.offset;
    tensor.bytes = found.bytes;
    return tensor;
  }
  TensorInfo renamed(const GgufTensor& found, const HeadRows& heads) const {
    TensorInfo tensor = as_it_is(found);
    tensor.name = hugging_face_name(found.name);
    if (tensor.name.empty()) {
      throw CheckpointError(path().string() + ": the tensor " + quote_text(found.name) +
                            " is not known: this model needs a computation that is not supported");
    }
    const bool rotates =
        found.name.find(".attn_q.") != std::string::npos || found.name.find(".attn_k.") != std::string::npos;
    if (!rotates || heads.paired == 0) return tensor;
    if (tensor.shape[0] % heads.paired != 0) {
      throw CheckpointError(path().string() + ": the tensor " + quote_text(found.name) + " has " +
                            std::to_string(tensor.shape[0]) + " rows; expected a multiple of the " +
                            std::to_string(heads.paired) + " of a head");
    }
    tensor.paired_rows = heads.paired;
    return tensor;
  }
};

}  // namespace

std::vector<std::shared_ptr<const WeightFile>> open_gguf_weights(const std::filesystem::path& path, FileAccess access) {
  const std::shared_ptr<const GgufModel> opened = open_gguf(path);
  const GgufModel& model = *opened;
  const bool translates = gguf_is_of_first_families(model.metadata());
  const HeadRows heads = translates ? head_rows(model.metadata()) : HeadRows{};
  std::vector<std::shared_ptr<const WeightFile>> files;
  for (size_t i = 0; i < model.parts.size(); ++i) {
    files.push_back(std::make_shared<GgufFile>(model.paths[i], model.parts[i], translates ? &heads : nullptr, access));
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
  // With latent attention, the other key has the size of what keys are computed from.
  for (const char* key : {"attention.key_length_mla", "attention.key_length"}) {
    if (const auto size = metadata.whole(prefix + key, 2, most)) return *size;
  }
  if (hidden % *heads != 0) {
    metadata.error(prefix + "attention.head_count", "is " + std::to_string(*heads) + "; expected a divisor of " +
                                                        std::to_string(hidden) + ", the embedding_length");
  }
  return hidden / *heads;
}

bool gguf_is_of_first_families(const GgufMetadata& metadata) {
  const std::string name = metadata.required_text("general.architecture");
  if (name == "llama") return metadata.whole("llama.expert_count", 0, int64_t{1} << 24).value_or(0) == 0;
  return name == "qwen2" || name == "qwen3" || name == "internlm2";
}

int64_t gguf_paired_head(const GgufMetadata& metadata) {
  const std::string name = metadata.required_text("general.architecture");
  return name == "llama" || name == "internlm2" ? gguf_head_size(metadata) : 0;
}

}  // namespace anyaccel::llm
