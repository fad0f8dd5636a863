// Implements quantize_directory.h. The layout is that of pack-quantized in compressed-tensors (vllm-project/compressed-tensors,
// compressors/pack_quantized): of a matrix [N, K], weight_packed I32 [N, K * bits / 32] has the values of a row as fields from
// the lowest bits up, each plus 2^(bits - 1); weight_scale [N, K / 32] has the dtype of the weights; weight_shape is {N, K}.
#include "llm/quantize/quantize_directory.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "anyaccel/error.h"
#include "anyaccel/file_output.h"
#include "base/files/unfinished_files.h"
#include "base/process/all_cores.h"
#include "base/text/json.h"
#include "llm/checkpoint/gguf.h"
#include "llm/model/model_files.h"
#include "llm/quantize/importance.h"
#include "llm/quantize/quantize_rows.h"
#include "llm/quantize/whole_numbers.h"

namespace anyaccel::llm {
namespace {

namespace fs = std::filesystem;

constexpr size_t group = number_group;

// A piece of a matrix as it is stored.
struct PackedRows {
  std::vector<uint32_t> words;
  std::vector<float> scales;
  QuantizedError error;
};

// Quantizes whole rows. `importance` is that of RowQuantization.
PackedRows pack_rows(int bits, DType dtype, std::span<const float> values, std::span<const float> importance,
                     const std::string& tensor) {
  const BlockFormat& format = *whole_number_format(bits == 4 ? "int4" : "int8");
  const size_t fields = 32 / static_cast<size_t>(bits);  // of a word
  constexpr size_t groups_at_once = 512;
  const size_t groups = values.size() / group;
  PackedRows out;
  out.words.resize(values.size() / fields);
  out.scales.resize(groups);
  std::atomic<size_t> next{0};
  std::mutex lock;
  on_all_cores((groups + groups_at_once - 1) / groups_at_once, [&] {
    QuantizedError own;
    std::array<float, group> decoded{};
    for (size_t first = next.fetch_add(groups_at_once); first < groups; first = next.fetch_add(groups_at_once)) {
      for (size_t g = first; g < std::min(groups, first + groups_at_once); ++g) {
        const std::span<const float> from = values.subspan(g * group, group);
        const std::span<const float> weights =
            importance.empty() ? importance : importance.subspan(g * group % importance.size(), group);
        check_finite(from, tensor);
        const NumberGroup found = quantize_group(format, dtype, from, weights);
        out.scales[g] = found.scale;
        for (size_t i = 0; i < group; ++i) {
          const auto field = static_cast<uint32_t>(found.numbers[i] + (1 << (bits - 1)));
          out.words[(g * group + i) / fields] |= field << (i % fields * static_cast<size_t>(bits));
          decoded[i] = found.scale * static_cast<float>(found.numbers[i]);
        }
        own.add(from, decoded, weights);
      }
    }
    const std::lock_guard guard(lock);
    out.error += own;
  });
  return out;
}

std::vector<std::byte> as_dtype(std::span<const float> values, DType dtype) {
  if (dtype == DType::F32) {
    const std::span<const std::byte> bytes = std::as_bytes(values);
    return {bytes.begin(), bytes.end()};
  }
  std::vector<uint16_t> halves(values.size());
  std::ranges::transform(values, halves.begin(), [&](float value) {
    return dtype == DType::BF16 ? float_to_bf16(value) : float_to_fp16(value);
  });
  const std::span<const std::byte> bytes = std::as_bytes(std::span(halves));
  return {bytes.begin(), bytes.end()};
}

// ---- files --------------------------------------------------------------------------------------------------------------

// The folder that is being written, which gets its name when it is complete and else is removed, by a signal too.
class NewFolder {
 public:
  explicit NewFolder(fs::path path) {
    while (!path.has_filename() && path.has_parent_path()) path = path.parent_path();  // "out/"
    path_ = path_to_replace(path);
    std::error_code error;
    const fs::file_status there = fs::symlink_status(path_, error);
    if (fs::exists(there) && !(fs::is_directory(there) && fs::is_empty(path_, error))) {
      throw InvalidArgument("quantize: the output '" + path_.string() +
                            "' exists; expected a name that ends in .gguf, or that of a new directory");
    }
    temporary_ = unfinished_path(path_);
    const FileCreation creation;
    if (!fs::create_directories(temporary_, error)) {
      throw Error("quantize: cannot make the directory '" + temporary_.string() + "': " + error.message(),
                  AA_UNAVAILABLE);
    }
    unfinished_.emplace(temporary_, UnfinishedFile::Kind::FolderWithFiles);
  }
  ~NewFolder() {
    std::error_code ignored;
    if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const fs::path& folder() const noexcept { return temporary_; }
  void finish() {
    std::error_code error;
    fs::rename(temporary_, path_, error);
    if (error) throw Error("quantize: cannot make '" + path_.string() + "': " + error.message(), AA_UNAVAILABLE);
    temporary_.clear();
  }

 private:
  fs::path path_;
  fs::path temporary_;
  std::optional<UnfinishedFile> unfinished_;
};

// Returns whether a file of a model's directory is neither its weights nor its configuration.
bool is_copied(const fs::path& file) {
  const std::string name = file.filename().string();
  if (name == "config.json" || name.starts_with(".") || name.ends_with(".index.json")) return false;
  constexpr std::array<std::string_view, 9> weights = {".safetensors", ".bin", ".pt",      ".pth", ".gguf",
                                                       ".h5",          ".npz", ".msgpack", ".onnx"};
  return std::ranges::none_of(weights, [&](std::string_view end) { return name.ends_with(end); });
}

int bits_of(const std::string& type, const std::string& out) {
  if (type.empty() || type == "int8") return 8;
  if (type == "int4") return 4;
  throw InvalidArgument("quantize: the type is " + quote_text(type) + " and the output, '" + out +
                        "', a directory; expected int4 or int8, or an output that ends in .gguf");
}

class DirectoryQuantizer {
 public:
  DirectoryQuantizer(const std::string& in, const std::string& out, const QuantizeOptions& options)
      : in_(in),
        options_(options),
        bits_(bits_of(options.type, out)),
        config_(load_model_config(in)),
        files_(in, FileAccess::Map, config_, false, result_.notes),
        folder_(out) {}

  QuantizeResult run() {
    result_.type = bits_ == 4 ? "int4" : "int8";
    choose_matrices();
    importance_ = measured_importance(in_, options_);
    copy_files();
    write_weights();
    files_.checkpoint().check_unchanged();
    // This file is written last, as in other directories.
    write_config();
    folder_.finish();
    result_.relative_error = error_.relative();
    if (importance_.is_measured()) result_.weighted_error = error_.relative_weighted();
    return std::move(result_);
  }

 private:
  // The matrices of layers that a file holds as [outputs, inputs] and by itself.
  void choose_matrices() {
    for (const TensorSlot& slot : files_.slots()) {
      const TensorView view = files_.at(slot);
      if (view.packed != nullptr) {
        throw CheckpointError(in_ + ": the tensor '" + slot.name + "' is quantized already (" +
                              config_.quantization->method + "); expected a model with weights of 16 or 32 bits");
      }
      const std::string name = files_.file_name(slot);
      if (slot.kind != TensorKind::Matrix || slot.layer < 0 || slot.is_of_router()) continue;
      if (slot.source) {
        throw CheckpointError(
            in_ + ": the tensor '" + name +
            "' holds several matrices, or one that is transposed, as this family has them; a directory with "
            "quantized weights has each matrix in tensors of its own");
      }
      if (slot.shape[1] % static_cast<int64_t>(group) != 0 || !name.ends_with(".weight")) {
        kept_.insert(name);
        continue;
      }
      quantized_.emplace(name, slot.name);
    }
    if (quantized_.empty()) {
      throw CheckpointError(in_ + ": no matrix of a layer has rows of a multiple of " + std::to_string(group) +
                            " values; expected one that can be quantized");
    }
    if (!kept_.empty()) {
      result_.notes.push_back(
          std::to_string(kept_.size()) + " matrices stay as they are, because their rows are no multiple of " +
          std::to_string(group) + " values or the file has several in one tensor: " + *kept_.begin() +
          (kept_.size() > 1 ? ", ..." : ""));
    }
  }

  void copy_files() const {
    for (const fs::directory_entry& entry : fs::directory_iterator(in_)) {
      if (!entry.is_regular_file() || !is_copied(entry.path())) continue;
      std::error_code error;
      fs::copy_file(entry.path(), folder_.folder() / entry.path().filename(), error);
      if (error) {
        throw Error("quantize: cannot copy '" + entry.path().string() + "': " + error.message(), AA_UNAVAILABLE);
      }
    }
  }

  void write_weights() {
    const Checkpoint& checkpoint = files_.checkpoint();
    std::vector<TensorSpec> specs;
    for (const std::string& name : checkpoint.names()) {
      const TensorView& view = checkpoint.at(name);
      result_.bytes_before += view.bytes;
      if (!quantized_.contains(name)) {
        specs.push_back({name, view.dtype, {view.shape.begin(), view.shape.end()}});
        continue;
      }
      const int64_t rows = view.shape[0];
      const int64_t columns = view.shape[1];
      specs.push_back({name + "_packed", DType::I32, {rows, columns * bits_ / 32}});
      specs.push_back({name + "_scale", scale_dtype(view.dtype), {rows, columns / static_cast<int64_t>(group)}});
      specs.push_back({name + "_shape", DType::I64, {2}});
    }
    SafetensorsWriter writer(folder_.folder() / "model.safetensors", std::move(specs), {{"format", "pt"}});
    for (const std::string& name : checkpoint.names()) {
      const TensorView& view = checkpoint.at(name);
      if (quantized_.contains(name)) {
        write_quantized(name, view, writer);
      } else {
        for_each_piece(view, 1, [&](const TensorView& piece) { copy(piece, writer); });
      }
    }
    result_.bytes_after = writer.total();
    writer.finish();
  }

  // Calls `write` with ranges of whole rows. A row is a part of `rows` of the tensor.
  template <class Write>
  void for_each_piece(const TensorView& view, int64_t rows, const Write& write) {
    constexpr uint64_t piece_bytes = uint64_t{16} << 20;
    const uint64_t row_bytes = rows > 1 ? view.bytes / static_cast<uint64_t>(rows) : 1;
    const uint64_t step = std::max<uint64_t>(piece_bytes / row_bytes, 1) * row_bytes;
    for (uint64_t first = 0; first < view.bytes; first += step) {
      TensorView piece = view;
      piece.offset += first;
      if (piece.data != nullptr) piece.data += first;
      piece.bytes = std::min(step, view.bytes - first);
      write(piece);
      files_.checkpoint().release(piece);
      done_ += piece.bytes;
      if (options_.progress) options_.progress(done_, files_.checkpoint().total_bytes());
    }
  }

  void copy(const TensorView& piece, SafetensorsWriter& writer) const {
    if (piece.data != nullptr) return writer.append({piece.data, piece.bytes});
    std::vector<std::byte> buffer(piece.bytes);
    files_.checkpoint().read(piece, buffer);
    writer.append(buffer);
  }

  void write_quantized(const std::string& name, const TensorView& view, SafetensorsWriter& writer) {
    const std::span<const float> importance = importance_.of(quantized_.at(name));
    std::vector<float> scales;  // of the whole matrix; they follow its numbers
    for_each_piece(view, view.shape[0], [&](const TensorView& piece) {
      const std::vector<float> values = values_as_floats(files_.checkpoint(), piece);
      const PackedRows packed = pack_rows(bits_, scale_dtype(view.dtype), values, importance, name);
      writer.append(std::as_bytes(std::span(packed.words)));
      scales.insert(scales.end(), packed.scales.begin(), packed.scales.end());
      error_ += packed.error;
    });
    writer.append(as_dtype(scales, scale_dtype(view.dtype)));
    writer.append(std::as_bytes(view.shape.first(2)));
  }

  void write_config() const {
    JsonArray ignored = {JsonValue("lm_head")};
    for (const std::string& name : files_.checkpoint().names()) {
      // Readers quantize every linear layer that is not named here.
      const bool is_matrix = files_.checkpoint().at(name).shape.size() == 2 && name.ends_with(".weight");
      if (!is_matrix || quantized_.contains(name)) continue;
      const std::string module = name.substr(0, name.rfind('.'));
      if (module != "lm_head") ignored.emplace_back(module);
    }
    const JsonValue weights = {{"num_bits", bits_},   {"type", "int"},       {"symmetric", true},
                               {"strategy", "group"}, {"group_size", group}, {"dynamic", false}};
    const JsonValue groups = {{"group_0",
                               {{"targets", JsonArray{JsonValue("Linear")}},
                                {"weights", weights},
                                {"input_activations", JsonValue()},
                                {"output_activations", JsonValue()},
                                {"format", "pack-quantized"}}}};
    constexpr size_t most_bytes = size_t{64} << 20;
    const JsonDocument document = JsonDocument::load(fs::path(in_) / "config.json", most_bytes);
    JsonValue config = document.root().value();
    config["quantization_config"] = JsonValue{{"quant_method", "compressed-tensors"},
                                              {"format", "pack-quantized"},
                                              {"quantization_status", "compressed"},
                                              {"config_groups", groups},
                                              {"ignore", ignored}};
    const fs::path path = folder_.folder() / "config.json";
    const std::string reason = write_output_file(path, json_text(config, 2) + "\n");
    if (!reason.empty()) throw Error("quantize: cannot write '" + path.string() + "': " + reason, AA_UNAVAILABLE);
  }

  std::string in_;
  const QuantizeOptions& options_;
  int bits_;
  QuantizeResult result_;
  ModelConfig config_;
  ModelFiles files_;
  Importance importance_;
  NewFolder folder_;
  std::map<std::string, std::string> quantized_;  // names in the files, and those of the slots
  std::set<std::string> kept_;                    // matrices of layers that are not quantized
  QuantizedError error_;
  uint64_t done_ = 0;
};

}  // namespace

QuantizeResult quantize_directory(const std::string& in, const std::string& out, const QuantizeOptions& options) {
  if (is_gguf(in)) {
    throw InvalidArgument("quantize: the input '" + in + "' is a GGUF file, and the output '" + out +
                          "' a directory; expected an input directory, or an output that ends in .gguf");
  }
  return DirectoryQuantizer(in, out, options).run();
}

}  // namespace anyaccel::llm
