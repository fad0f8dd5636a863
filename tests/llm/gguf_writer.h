// Writes GGUF files for tests, and the reference models as such files.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/llm/model_config.h"
#include "anyaccel/llm/safetensors.h"

namespace anyaccel::llm::testing {

class GgufWriter {
 public:
  template <typename T>
  static void put(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static void put_text(std::string& out, std::string_view text) {
    put<uint64_t>(out, text.size());
    out += text;
  }

  void add(const std::string& key, uint32_t value) { begin(key, 4), put(pairs_, value); }
  void add(const std::string& key, uint64_t value) { begin(key, 10), put(pairs_, value); }
  void add(const std::string& key, float value) { begin(key, 6), put(pairs_, value); }
  void add(const std::string& key, bool value) { begin(key, 7), put<uint8_t>(pairs_, value ? 1 : 0); }
  void add(const std::string& key, const char* value) { begin(key, 8), put_text(pairs_, value); }
  void add(const std::string& key, const std::vector<std::string>& values) {
    begin_list(key, 8, values.size());
    for (const std::string& value : values) put_text(pairs_, value);
  }
  void add(const std::string& key, const std::vector<int32_t>& values) {
    begin_list(key, 5, values.size());
    for (const int32_t value : values) put(pairs_, value);
  }
  void add(const std::string& key, const std::vector<float>& values) {
    begin_list(key, 6, values.size());
    for (const float value : values) put(pairs_, value);
  }
  // `shape`: outermost first.
  void add_tensor(const std::string& name, std::vector<int64_t> shape, uint32_t type, std::string_view bytes) {
    put_text(tensors_, name);
    put(tensors_, static_cast<uint32_t>(shape.size()));
    for (size_t i = shape.size(); i-- > 0;) put(tensors_, static_cast<uint64_t>(shape[i]));
    put(tensors_, type);
    put<uint64_t>(tensors_, data_.size());
    data_ += bytes;
    data_.resize((data_.size() + 31) / 32 * 32);
    ++tensor_count_;
  }
  std::string file(uint32_t version = 3) const {
    std::string out = "GGUF";
    put(out, version);
    put(out, tensor_count_);
    put(out, pair_count_);
    out += pairs_ + tensors_;
    out.resize((out.size() + 31) / 32 * 32);
    return out + data_;
  }

 private:
  void begin(const std::string& key, uint32_t type) {
    put_text(pairs_, key);
    put(pairs_, type);
    ++pair_count_;
  }
  void begin_list(const std::string& key, uint32_t type, size_t count) {
    begin(key, 9);
    put(pairs_, type);
    put<uint64_t>(pairs_, count);
  }

  std::string pairs_, tensors_, data_;
  uint64_t pair_count_ = 0, tensor_count_ = 0;
};

// The GGUF name of a tensor of a directory.
inline std::string gguf_name(std::string name) {
  constexpr std::pair<const char*, const char*> parts[] = {{"model.embed_tokens", "token_embd"},
                                                           {"model.norm", "output_norm"},
                                                           {"lm_head", "output"},
                                                           {"model.layers", "blk"},
                                                           {"post_attention_layernorm", "ffn_norm"},
                                                           {"input_layernorm", "attn_norm"},
                                                           {"self_attn.q_proj", "attn_q"},
                                                           {"self_attn.k_proj", "attn_k"},
                                                           {"self_attn.v_proj", "attn_v"},
                                                           {"self_attn.o_proj", "attn_output"},
                                                           {"self_attn.q_norm", "attn_q_norm"},
                                                           {"self_attn.k_norm", "attn_k_norm"},
                                                           {"mlp.gate_proj", "ffn_gate"},
                                                           {"mlp.up_proj", "ffn_up"},
                                                           {"mlp.down_proj", "ffn_down"}};
  for (const auto& [from, to] : parts) {
    if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, std::strlen(from), to);
  }
  return name;
}

// The rows of each head as llama.cpp's converter stores them: reshape(heads, 2, D / 2, ...).swapaxes(1, 2).
inline std::string pair_rows(std::string_view bytes, int64_t rows, int64_t head) {
  const size_t row_bytes = bytes.size() / static_cast<size_t>(rows);
  std::string out;
  for (int64_t first = 0; first < rows; first += head) {
    for (int64_t j = 0; j < head / 2; ++j) {
      for (int64_t half = 0; half < 2; ++half) {
        out += bytes.substr(static_cast<size_t>(first + half * (head / 2) + j) * row_bytes, row_bytes);
      }
    }
  }
  return out;
}

inline std::string gguf_architecture(const ModelConfig& config) {
  return config.family == Family::Qwen2 ? "qwen2" : config.family == Family::Qwen3 ? "qwen3" : "llama";
}

// The keys of a directory's model, without those of a tokenizer. `named`: as a file of this architecture.
inline GgufWriter gguf_keys_of_directory(const std::string& directory, const std::string& named = "") {
  const ModelConfig config = load_model_config(directory);
  GgufWriter out;
  const std::string arch = named.empty() ? gguf_architecture(config) : named;
  out.add("general.architecture", arch.c_str());
  const auto whole = [&](const char* key, int64_t value) { out.add(arch + "." + key, static_cast<uint32_t>(value)); };
  whole("block_count", config.num_hidden_layers);
  whole("embedding_length", config.hidden_size);
  whole("feed_forward_length", config.intermediate_size);
  whole("context_length", config.max_position_embeddings);
  whole("attention.head_count", config.num_attention_heads);
  whole("attention.head_count_kv", config.num_key_value_heads);
  whole("attention.key_length", config.head_dim);
  whole("attention.value_length", config.head_dim);
  out.add(arch + ".attention.layer_norm_rms_epsilon", config.rms_norm_eps);
  out.add(arch + ".rope.freq_base", static_cast<float>(config.rope.theta));
  if (config.rope.type == RopeType::Linear) {
    out.add(arch + ".rope.scaling.type", "linear");
    out.add(arch + ".rope.scaling.factor", static_cast<float>(config.rope.factor));
  }
  if (config.rope.type == RopeType::Yarn) {
    out.add(arch + ".rope.scaling.type", "yarn");
    out.add(arch + ".rope.scaling.factor", static_cast<float>(config.rope.factor));
    out.add(arch + ".rope.scaling.yarn_beta_fast", static_cast<float>(config.rope.beta_fast));
    out.add(arch + ".rope.scaling.original_context_length",
            static_cast<uint32_t>(config.rope.original_max_position_embeddings));
  }
  return out;
}

// Calls add(name, shape, type of ggml, bytes) for each tensor that a directory's model has as a file.
template <class Add>
void for_each_gguf_tensor(const std::string& directory, const Add& add) {
  const ModelConfig config = load_model_config(directory);
  const Checkpoint checkpoint = Checkpoint::open(directory);
  for (const std::string& name : checkpoint.names()) {
    const TensorView& view = checkpoint.at(name);
    std::string bytes(reinterpret_cast<const char*>(view.data), view.bytes);
    const std::string gguf = gguf_name(name);
    const bool rotates = gguf.find("attn_q.") != std::string::npos || gguf.find("attn_k.") != std::string::npos;
    if (rotates && gguf_architecture(config) == "llama") bytes = pair_rows(bytes, view.shape[0], config.head_dim);
    const uint32_t type = view.dtype == DType::F32 ? 0 : view.dtype == DType::F16 ? 1 : 30;
    if (config.tie_word_embeddings && gguf == "output.weight") continue;
    add(gguf, std::vector<int64_t>(view.shape.begin(), view.shape.end()), type, bytes);
  }
  if (config.rope.type == RopeType::Llama3) {
    // As the converter does: the plain frequencies over the scaled ones.
    ModelConfig plain = config;
    plain.rope.type = RopeType::Default;
    const std::vector<float> from = rope_inv_freq(plain).inv_freq;
    const std::vector<float> to = rope_inv_freq(config).inv_freq;
    std::string bytes;
    for (size_t i = 0; i < from.size(); ++i) GgufWriter::put(bytes, from[i] / to[i]);
    add("rope_freqs.weight", std::vector<int64_t>{static_cast<int64_t>(from.size())}, 0u, bytes);
  }
}

// The model of a directory; the keys of a tokenizer are not written.
inline GgufWriter gguf_of_directory(const std::string& directory, const std::string& named = "") {
  GgufWriter out = gguf_keys_of_directory(directory, named);
  for_each_gguf_tensor(directory, [&out](const std::string& name, const std::vector<int64_t>& shape, uint32_t type,
                                         const std::string& bytes) { out.add_tensor(name, shape, type, bytes); });
  return out;
}

// Adds the keys of a byte-level tokenizer.json.
inline void add_tokenizer(GgufWriter& out, const std::string& json_file, const char* pre, uint32_t bos, uint32_t eos) {
  const auto json = nlohmann::json::parse(std::ifstream(json_file));
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  const auto set = [&](size_t id, const std::string& text, int32_t type) {
    tokens.resize(std::max(tokens.size(), id + 1));
    types.resize(tokens.size(), 1);
    tokens[id] = text;
    types[id] = type;
  };
  for (const auto& [text, id] : json.at("model").at("vocab").items()) set(id.get<size_t>(), text, 1);
  for (const auto& token : json.at("added_tokens")) {
    set(token.at("id").get<size_t>(), token.at("content").get<std::string>(), token.at("special").get<bool>() ? 3 : 4);
  }
  std::vector<std::string> merges;
  for (const auto& pair : json.at("model").at("merges")) {
    merges.push_back(pair.is_string() ? pair.get<std::string>()
                                      : pair[0].get<std::string>() + " " + pair[1].get<std::string>());
  }
  out.add("tokenizer.ggml.model", "gpt2");
  out.add("tokenizer.ggml.pre", pre);
  out.add("tokenizer.ggml.tokens", tokens);
  out.add("tokenizer.ggml.token_type", types);
  out.add("tokenizer.ggml.merges", merges);
  out.add("tokenizer.ggml.bos_token_id", bos);
  out.add("tokenizer.ggml.eos_token_id", eos);
}

}  // namespace anyaccel::llm::testing
