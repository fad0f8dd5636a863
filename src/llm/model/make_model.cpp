// Writes models with random weights.
#include "anyaccel/llm/make_model.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <locale>
#include <set>
#include <span>
#include <sstream>
#include <system_error>
#include <utility>

#include "anyaccel/error.h"
#include "anyaccel/file_output.h"
#include "anyaccel/llm/model_config.h"
#include "anyaccel/llm/safetensors.h"
#include "base/files/unfinished_files.h"
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

// The folder of a model that is being written. The destructor, or a signal that ends the process, deletes the files
// unless the model is complete.
class Target {
 public:
  explicit Target(const std::string& directory) : folder_(directory) {
    std::error_code error;
    const FileCreation creation;
    made_folder_ = fs::create_directories(folder_, error);
    if (error) throw Error("make-model: cannot make the directory '" + directory + "': " + error.message());
    if (made_folder_) unfinished_.emplace_back(folder_, UnfinishedFile::Kind::EmptyFolder);
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
    if (!fs::exists(path, error)) {
      files_.push_back(path);
      unfinished_.emplace_back(path);
    }
    return path;
  }
  void write(const char* name, const std::string& text) {
    const fs::path path = file(name);
    const std::string reason = write_output_file(path, text);
    if (!reason.empty()) throw Error("make-model: cannot write '" + path.string() + "': " + reason, AA_UNAVAILABLE);
  }
  void complete() {
    complete_ = true;
    unfinished_.clear();
  }

 private:
  fs::path folder_;
  bool made_folder_ = false;
  std::vector<fs::path> files_;
  std::deque<UnfinishedFile> unfinished_;
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

// Returns the first of the slots that are parts of each tensor of the file.
std::vector<TensorSlot> file_tensors(const ModelConfig& config) {
  std::vector<TensorSlot> tensors;
  std::set<std::string> names;
  for (TensorSlot& slot : decoder_tensors(config)) {
    if (names.insert(slot.name).second) tensors.push_back(std::move(slot));
  }
  return tensors;
}

// Writes the weights with only one piece in memory at a time.
void write_weights(const std::vector<TensorSlot>& slots, const fs::path& path, const MakeModelOptions& options) {
  std::vector<TensorSpec> specs;
  for (const TensorSlot& slot : slots) {
    const Shape shape = slot.file_shape();
    specs.push_back({slot.name, options.dtype, {shape.dims().begin(), shape.dims().end()}});
  }
  SafetensorsWriter writer(path, std::move(specs), {{"format", "pt"}});

  const RandomWeights random(options.seed, options.dtype, made_up_standard_deviation);
  const size_t element = dtype_size(options.dtype);
  const size_t piece_values = written_piece_bytes / element;
  std::vector<std::byte> piece(written_piece_bytes);
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto count = static_cast<uint64_t>(slots[i].file_shape().numel());
    for (uint64_t first = 0; first < count; first += piece_values) {
      const auto now = static_cast<size_t>(std::min<uint64_t>(piece_values, count - first));
      if (slots[i].kind == TensorKind::Matrix) {
        random.fill(piece.data(), i, first, now);
      } else {
        fill_constant(piece, now, options.dtype, slots[i].kind == TensorKind::Norm && !slots[i].adds_one ? 1.0f : 0.0f);
      }
      writer.append({piece.data(), now * element});
    }
    if (options.progress) options.progress(writer.written(), writer.total());
  }
  writer.finish();
}

}  // namespace

int64_t ModelShape::parameters() const {
  int64_t count = 0;
  for (const TensorSlot& slot : decoder_tensors(config_of_shape(*this, DType::F32))) count += slot.shape.numel();
  return count;
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
  write_weights(file_tensors(config), files.file("model.safetensors"), options);

  std::ostringstream tokenizer;
  tokenizer.imbue(std::locale::classic());
  write_made_up_tokenizer(tokenizer, shape.vocab_size);
  files.write("tokenizer.json", tokenizer.str());
  const JsonValue generation = {{"bos_token_id", made_up_bos_id}, {"eos_token_id", made_up_eos_id}};
  files.write("generation_config.json", json_text(generation, 2) + "\n");
  // This file is written last, so that a directory with a config.json is complete.
  files.write("config.json", config_text_of_shape(shape, options.dtype));
  files.complete();
}

}  // namespace anyaccel::llm
