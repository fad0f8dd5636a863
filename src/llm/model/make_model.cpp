// Writes models with random weights.
#include "anyaccel/llm/make_model.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>
#include <sstream>
#include <system_error>
#include <utility>

#include "anyaccel/error.h"
#include "anyaccel/file_output.h"
#include "anyaccel/llm/model_config.h"
#include "anyaccel/llm/safetensors.h"
#include "base/text/json.h"
#include "llm/config/shape_config.h"
#include "llm/model/decoder_tensors.h"
#include "llm/model/random_weights.h"
#include "llm/tokenizer/byte_tokenizer.h"

namespace anyaccel::llm {

namespace {

namespace fs = std::filesystem;

// Number of bytes that are generated and written at a time.
constexpr size_t written_piece_bytes = size_t{4} << 20;

JsonValue config_json(const ModelShape& shape, DType dtype) {
  const char* architecture = shape.family == "mistral"   ? "MistralForCausalLM"
                             : shape.family == "mixtral" ? "MixtralForCausalLM"
                             : shape.family == "qwen2"   ? "Qwen2ForCausalLM"
                             : shape.family == "qwen3"   ? "Qwen3ForCausalLM"
                                                         : "LlamaForCausalLM";
  JsonValue json = {{"architectures", JsonArray{architecture}},
                    {"model_type", shape.family},
                    {"vocab_size", shape.vocab_size},
                    {"hidden_size", shape.hidden_size},
                    {"intermediate_size", shape.intermediate_size},
                    {"num_hidden_layers", shape.layers},
                    {"num_attention_heads", shape.heads},
                    {"num_key_value_heads", shape.kv_heads},
                    {"head_dim", shape.head_dim},
                    {"hidden_act", "silu"},
                    {"max_position_embeddings", shape.max_positions},
                    {"rms_norm_eps", shape.norm_eps},
                    {"rope_theta", shape.rope_theta},
                    {"tie_word_embeddings", shape.tied},
                    {"initializer_range", 0.02},
                    {"bos_token_id", made_up_bos_id},
                    {"eos_token_id", made_up_eos_id},
                    {"torch_dtype", dtype_name(dtype)},
                    {"use_cache", true}};
  if (shape.family == "llama") {
    json["attention_bias"] = false;
    json["mlp_bias"] = false;
  }
  if (shape.experts > 0) {
    json["num_local_experts"] = shape.experts;
    json["num_experts_per_tok"] = shape.experts_per_token;
  }
  return json;
}

// The folder of a model that is being written. The destructor deletes the files unless the model is complete.
class Target {
 public:
  explicit Target(const std::string& directory) : folder_(directory) {
    std::error_code error;
    made_folder_ = fs::create_directories(folder_, error);
    if (error) throw Error("make-model: cannot make the directory '" + directory + "': " + error.message());
  }
  ~Target() {
    if (complete_) return;
    std::error_code ignored;
    for (const fs::path& file : files_) fs::remove(file, ignored);
    if (made_folder_) fs::remove(folder_, ignored);  // when nothing else is in it
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  // Returns the file's path; the destructor deletes the file, unless it existed before.
  fs::path file(const char* name) {
    const fs::path path = folder_ / name;
    std::error_code error;
    if (!fs::exists(path, error)) files_.push_back(path);
    return path;
  }
  void write(const char* name, const std::string& text) {
    const fs::path path = file(name);
    const std::string reason = write_output_file(path, text);
    if (!reason.empty()) throw Error("make-model: cannot write '" + path.string() + "': " + reason, AA_UNAVAILABLE);
  }
  void complete() { complete_ = true; }

 private:
  fs::path folder_;
  bool made_folder_ = false;
  std::vector<fs::path> files_;
  bool complete_ = false;
};

void fill_constant(std::span<std::byte> piece, size_t count, DType dtype, float value) {
  const uint16_t half = dtype == DType::BF16 ? float_to_bf16(value) : float_to_fp16(value);
  for (size_t i = 0; i < count; ++i) {
    if (dtype == DType::F32) {
      std::memcpy(&piece[i * sizeof value], &value, sizeof value);
    } else {
      std::memcpy(&piece[i * sizeof half], &half, sizeof half);
    }
  }
}

// Writes the weights with only one piece in memory at a time.
void write_weights(const std::vector<TensorSlot>& slots, const fs::path& path, const MakeModelOptions& options) {
  std::vector<TensorSpec> specs;
  for (const TensorSlot& slot : slots) {
    const std::span<const int64_t> dims = slot.shape.dims();
    specs.push_back({slot.name, options.dtype, {dims.begin(), dims.end()}});
  }
  SafetensorsWriter writer(path, std::move(specs), {{"format", "pt"}});

  const RandomWeights random(options.seed, options.dtype, made_up_standard_deviation);
  const size_t element = dtype_size(options.dtype);
  const size_t piece_values = written_piece_bytes / element;
  std::vector<std::byte> piece(written_piece_bytes);
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto count = static_cast<uint64_t>(slots[i].shape.numel());
    for (uint64_t first = 0; first < count; first += piece_values) {
      const auto now = static_cast<size_t>(std::min<uint64_t>(piece_values, count - first));
      if (slots[i].kind == TensorKind::Matrix) {
        random.fill(piece.data(), i, first, now);
      } else {
        fill_constant(piece, now, options.dtype, slots[i].kind == TensorKind::Norm ? 1.0f : 0.0f);
      }
      writer.append({piece.data(), now * element});
    }
    if (options.progress) options.progress(writer.written(), writer.total());
  }
  writer.finish();
}

}  // namespace

std::string config_text_of_shape(const ModelShape& shape, DType dtype) {
  return json_text(config_json(shape, dtype), 2) + "\n";
}

ModelConfig config_of_shape(const ModelShape& shape, DType dtype) {
  return parse_model_config(config_text_of_shape(shape, dtype), "the configuration of " + shape.name);
}

int64_t ModelShape::parameters() const {
  const int64_t q_size = heads * head_dim;
  const int64_t kv_size = kv_heads * head_dim;
  int64_t layer = 2 * hidden_size + 2 * hidden_size * q_size + 2 * hidden_size * kv_size;
  layer += 3 * hidden_size * intermediate_size * std::max<int64_t>(experts, 1) + experts * hidden_size;
  if (family == "qwen2") layer += q_size + 2 * kv_size;
  if (family == "qwen3") layer += 2 * head_dim;
  return layers * layer + (tied ? 1 : 2) * vocab_size * hidden_size + hidden_size;
}

const std::vector<ModelShape>& known_model_shapes() {
  static const std::vector<ModelShape> shapes = {
      // name, family, hidden, layers, heads, kv heads, head dim, intermediate, vocabulary, positions, theta, eps, tied
      {"tiny", "llama", 64, 2, 4, 2, 16, 176, 512, 512, 10000.0, 1e-5, false},
      {"stories", "llama", 192, 6, 6, 2, 32, 512, 2048, 512, 10000.0, 1e-5, true},
      {"qwen2.5-0.5b", "qwen2", 896, 24, 14, 2, 64, 4864, 151936, 32768, 1000000.0, 1e-6, true},
      {"qwen3-0.6b", "qwen3", 1024, 28, 16, 8, 128, 3072, 151936, 40960, 1000000.0, 1e-6, true},
      {"llama-100m", "llama", 768, 12, 12, 4, 64, 2048, 16384, 2048, 10000.0, 1e-5, false},
      {"llama-1b", "llama", 2048, 22, 32, 4, 64, 5632, 32000, 2048, 10000.0, 1e-5, false},
      {"llama-8b", "llama", 4096, 32, 32, 8, 128, 14336, 128256, 8192, 500000.0, 1e-5, false},
      {"mixtral-600m", "mixtral", 768, 12, 12, 4, 64, 2688, 16384, 2048, 1000000.0, 1e-5, false, 8, 2},
  };
  return shapes;
}

const ModelShape& find_model_shape(const std::string& name) {
  std::string names;
  for (const ModelShape& shape : known_model_shapes()) {
    if (shape.name == name) return shape;
    names += (names.empty() ? "" : ", ") + shape.name;
  }
  throw InvalidArgument("make-model: unknown shape '" + name + "'; expected one of " + names);
}

void make_model(const ModelShape& shape, const std::string& directory, const MakeModelOptions& options) {
  if (!is_op_float(options.dtype)) {
    throw InvalidArgument("make-model: dtype is " + std::string(dtype_name(options.dtype)) +
                          "; expected bfloat16, float16 or float32");
  }
  if (shape.vocab_size < made_up_smallest_vocab || shape.vocab_size > 500000) {
    throw InvalidArgument("make-model: vocab_size is " + std::to_string(shape.vocab_size) + "; expected " +
                          std::to_string(made_up_smallest_vocab) + " to 500000");
  }
  const fs::path target = directory;
  std::error_code status;
  if (fs::exists(target / "config.json", status)) {
    throw InvalidArgument("make-model: '" + directory + "' already holds a config.json; choose another directory");
  }
  Target files(directory);

  const ModelConfig config = config_of_shape(shape, options.dtype);
  write_weights(decoder_tensors(config), files.file("model.safetensors"), options);

  std::ostringstream tokenizer;
  write_made_up_tokenizer(tokenizer, shape.vocab_size);
  files.write("tokenizer.json", tokenizer.str());
  const JsonValue generation = {{"bos_token_id", made_up_bos_id}, {"eos_token_id", made_up_eos_id}};
  files.write("generation_config.json", json_text(generation, 2) + "\n");
  // This file is written last, so that a directory with a config.json is complete.
  files.write("config.json", config_text_of_shape(shape, options.dtype));
  files.complete();
}

}  // namespace anyaccel::llm
