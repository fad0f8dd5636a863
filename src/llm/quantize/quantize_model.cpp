// Writes a model as a GGUF file, a piece at a time.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>

#include "anyaccel/error.h"
#include "anyaccel/llm/quantize.h"
#include "base/copy_bytes.h"
#include "llm/checkpoint/gguf.h"
#include "llm/checkpoint/gguf_file_writer.h"
#include "llm/checkpoint/gguf_names.h"
#include "llm/config/gguf_config.h"
#include "llm/families/families.h"
#include "llm/model/model_files.h"
#include "llm/quantize/gguf_model_keys.h"
#include "llm/quantize/importance.h"
#include "llm/quantize/quantize_directory.h"
#include "llm/quantize/quantize_rows.h"
#include "llm/quantize/slot_rows.h"

namespace anyaccel::llm {
namespace {

constexpr uint32_t type_f32 = 0, type_f16 = 1, type_bf16 = 30;

// Returns general.file_type, which tells people the format of most matrices in the file.
int64_t file_type(const FileType& type) {
  if (type.format == nullptr) return type.dtype == DType::F32 ? 0 : type.dtype == DType::F16 ? 1 : 32;
  if (type.mixed) return type.format->name == "Q4_K" ? 15 : 17;
  constexpr std::array<std::pair<std::string_view, int>, 13> types = {{{"Q4_0", 2},
                                                                       {"Q4_1", 3},
                                                                       {"Q8_0", 7},
                                                                       {"Q5_0", 8},
                                                                       {"Q5_1", 9},
                                                                       {"Q2_K", 10},
                                                                       {"Q3_K", 11},
                                                                       {"Q4_K", 14},
                                                                       {"Q5_K", 16},
                                                                       {"Q6_K", 18},
                                                                       {"IQ4_NL", 25},
                                                                       {"IQ4_XS", 30},
                                                                       {"MXFP4", 38}}};
  return std::ranges::find(types, type.format->name, &std::pair<std::string_view, int>::first)->second;
}

uint32_t type_of(DType dtype) { return dtype == DType::F32 ? type_f32 : dtype == DType::BF16 ? type_bf16 : type_f16; }

// A tensor of the model, and its place in the file, which may have several in one tensor.
struct Part {
  const TensorSlot* from = nullptr;
  const TensorSlot* to = nullptr;
  FileType type;
  int64_t head = 0;    // rows of a head that become pairs; 0: rows stay in their order
  uint64_t bytes = 0;  // in the input
};

// Row p * head / 2 + j of each head becomes row 2 j + p, which rotates with its neighbour.
void pair_rows(std::vector<std::byte>& rows, size_t row_bytes, size_t head) {
  std::vector<std::byte> paired(rows.size());
  for (size_t row = 0; row < rows.size() / row_bytes; ++row) {
    const size_t within = row % head;
    const size_t to = row - within + within % (head / 2) * 2 + within / (head / 2);
    copy_bytes(paired.data() + to * row_bytes, rows.data() + row * row_bytes, row_bytes);
  }
  rows = std::move(paired);
}

// CheckpointError for a number that fp16 cannot represent.
std::vector<std::byte> converted(const std::vector<float>& values, DType dtype, const std::string& tensor,
                                 QuantizedError& error) {
  if (dtype == DType::F32) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
  }
  std::vector<uint16_t> halves(values.size());
  std::vector<float> found(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    halves[i] = dtype == DType::BF16 ? float_to_bf16(values[i]) : float_to_fp16(values[i]);
    found[i] = dtype == DType::BF16 ? bf16_to_float(halves[i]) : fp16_to_float(halves[i]);
    if (std::isfinite(values[i]) && !std::isfinite(found[i])) {
      throw CheckpointError("the tensor '" + tensor + "' has the value " + std::to_string(values[i]) +
                            ", which 16 bits cannot represent so; expected the type f32 or bf16");
    }
  }
  error.add(values, found, {});
  const std::span<const std::byte> bytes = std::as_bytes(std::span(halves));
  return {bytes.begin(), bytes.end()};
}

bool same_tensor(const TensorSlot& a, const TensorSlot& b) {
  return a.layer == b.layer && a.layer_member == b.layer_member && a.model_member == b.model_member &&
         a.expert_member == b.expert_member && a.expert == b.expert;
}

class ModelQuantizer {
 public:
  ModelQuantizer(const std::string& in, const std::string& out, const QuantizeOptions& options)
      : in_(in),
        out_(out),
        options_(options),
        wanted_(type_to_write(options.type.empty() ? "q8_0" : options.type)),
        held_(is_gguf(in) ? open_gguf(in) : nullptr),
        config_(load_model_config(in)),
        files_(in, FileAccess::Map, config_, false, result_.notes) {}

  QuantizeResult run() {
    refuse_input_as_output();
    const GgufKeys keys = this->keys();
    choose_parts();
    importance_ = measured_importance(in_, options_);
    GgufFileWriter writer(out_, keys, specs_);
    for (const RopeTensor& tensor : ropes_) writer.append(std::as_bytes(std::span(tensor.factors)));
    for (const std::vector<Part>& parts : tensors_) {
      for (const Part& part : parts) write(part, writer);
    }
    files_.checkpoint().check_unchanged();
    writer.finish();
    result_.type = options_.type.empty() ? "q8_0" : options_.type;
    result_.bytes_before = total_;
    result_.bytes_after = writer.total();
    result_.relative_error = error_.relative();
    if (importance_.is_measured()) result_.weighted_error = error_.relative_weighted();
    return std::move(result_);
  }

 private:
  // The parts of a split file are the input too: one of them would be replaced by the result, and the model be lost.
  void refuse_input_as_output() const {
    std::vector<std::filesystem::path> inputs = {in_};
    if (held_ != nullptr) inputs = held_->paths;
    for (const std::filesystem::path& input : inputs) {
      std::error_code missing;  // an output that does not exist yet is no input
      if (!std::filesystem::equivalent(input, out_, missing)) continue;
      throw InvalidArgument("quantize: the output '" + out_ + "' is " + (inputs.size() == 1 ? "" : "a part of ") +
                            "the input; expected another file");
    }
  }

  // Returns the keys of the file, and sets described_.
  GgufKeys keys() {
    GgufKeys keys;
    if (held_ != nullptr) {
      held_->metadata().for_each([&](const std::string& key, const GgufValue& value) {
        if (key == "general.file_type" || key == "general.quantization_version" || key == "general.alignment" ||
            key.starts_with("split.")) {
          return;
        }
        keys.add(key, value);
      });
      described_ = config_;
      if (has_first_families_rules(config_.family)) described_.names = gguf_tensor_names;
    } else {
      described_ = add_model_keys(config_, in_, keys);
      add_tokenizer_keys(in_, *Tokenizer::load(in_), config_, keys, result_.notes);
    }
    keys.add_whole("general.file_type", file_type(wanted_));
    keys.add_whole("general.quantization_version", 2);
    return keys;
  }

  void choose_parts() {
    ropes_ = held_ != nullptr ? ropes_of_file() : rope_tensors(config_);
    for (const RopeTensor& tensor : ropes_) {
      specs_.push_back({tensor.name, type_f32, {static_cast<int64_t>(tensor.factors.size())}});
    }
    written_ = decoder_tensors(described_);
    std::map<std::string, size_t, std::less<>> known;
    const std::vector<TensorSlot>& from = files_.slots();
    size_t next = 0;
    for (const TensorSlot& to : written_) {
      // The keys' part of a matrix precedes the values' part.
      if (next == from.size() || !same_tensor(from[next], to)) --next;
      if (!same_tensor(from.at(next), to)) throw InvalidArgument("quantize: no tensor for " + to.name);
      const Part part = part_of(from[next++], to);
      const auto [place, is_new] = known.try_emplace(to.name, tensors_.size());
      if (is_new) {
        const Shape shape = to.file_shape();
        const uint32_t type = part.type.format != nullptr ? part.type.format->number : type_of(part.type.dtype);
        specs_.push_back({to.name, type, {shape.dims().begin(), shape.dims().end()}});
        tensors_.emplace_back();
      }
      tensors_[place->second].push_back(part);
      total_ += part.bytes;
    }
  }

  Part part_of(const TensorSlot& from, const TensorSlot& to) const {
    Part part{&from, &to, {.dtype = DType::F32}, 0, 0};
    const TensorView view = files_.at(from);
    part.bytes = from.is_gathered() && !from.part && view.packed == nullptr
                     ? static_cast<uint64_t>(from.shape.numel()) * dtype_size(view.dtype)
                     : view.bytes;
    if (to.part && !from.part) {
      part.bytes = part.bytes / static_cast<uint64_t>(to.head_size) * static_cast<uint64_t>(to.part->rows);
    }
    const bool rotates = to.layer_member == &LayerWeights::q || to.layer_member == &LayerWeights::k ||
                         to.layer_member == &LayerWeights::q_bias || to.layer_member == &LayerWeights::k_bias;
    if (rotates && described_.rope_interleaved && !config_.rope_interleaved) part.head = config_.head_dim;
    if (to.kind != TensorKind::Matrix || to.is_of_router()) return part;
    part.type = wanted_;
    if (wanted_.format == nullptr) return part;
    part.type.format = format_of_matrix(*wanted_.format, wanted_.mixed, to, to.file_shape().dims().back(), config_);
    if (part.type.format == nullptr) part.type.dtype = view.dtype == DType::BF16 ? DType::BF16 : DType::F16;
    const bool keeps_numbers = view.packed != nullptr && !to.part && view.packed->block_format() == part.type.format;
    if (view.format != nullptr || (view.packed != nullptr && !keeps_numbers)) {
      throw CheckpointError(in_ + ": the tensor '" + from.name + "' is quantized already (" +
                            (view.packed != nullptr ? config_.quantization->method : std::string(view.format->name)) +
                            "); expected a model with weights of 16 or 32 bits, or the type f32, f16 or bf16, which "
                            "decodes it");
    }
    return part;
  }

  std::vector<RopeTensor> ropes_of_file() const {
    std::vector<RopeTensor> found;
    for (const char* name : {"rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"}) {
      size_t part = 0;
      const GgufTensor* tensor = held_->find(name, &part);
      if (tensor == nullptr) continue;
      // Type and shape were checked when the configuration was read.
      RopeTensor copy{name, std::vector<float>(tensor->bytes / sizeof(float))};
      held_->files[part].read(tensor->offset, std::as_writable_bytes(std::span(copy.factors)));
      found.push_back(std::move(copy));
    }
    return found;
  }

  void write(const Part& part, GgufFileWriter& writer) {
    const uint64_t done_before = done_;
    const auto report = [&](int64_t rows, int64_t all) {
      done_ = done_before + part.bytes * static_cast<uint64_t>(rows) / static_cast<uint64_t>(all);
      if (options_.progress) options_.progress(done_, total_);
    };
    if (part.to->part) {
      std::vector<float> values =
          part.from->part ? values_as_floats(files_.checkpoint(), files_.at(*part.from))
                          : head_parts(*part.to, SlotRows(files_, *part.from).read({0, part.from->shape[0]}));
      writer.append(encoded(part, values));
      return report(1, 1);
    }
    constexpr int64_t piece_values = int64_t{4} << 20;
    const int64_t rows = part.to->shape[0];
    const int64_t columns = part.to->shape.dims().size() > 1 ? part.to->shape[1] : 1;
    const int64_t unit = std::max<int64_t>(part.head, 1);
    const int64_t step = (std::max<int64_t>(piece_values / columns, 1) + unit - 1) / unit * unit;
    const SlotRows source(files_, *part.from);
    const bool keeps_numbers = files_.at(*part.from).packed != nullptr && part.type.format != nullptr;
    for (int64_t first = 0; first < rows; first += step) {
      const Slice piece{first, std::min(first + step, rows)};
      std::vector<std::byte> bytes;
      if (keeps_numbers) {
        const auto blocks = static_cast<uint64_t>(piece.size() * columns) / part.type.format->values;
        bytes.resize(blocks * part.type.format->bytes);
        source.read_blocks(piece, bytes);
      } else {
        bytes = encoded(part, source.read(piece));
      }
      if (part.head > 0) {
        pair_rows(bytes, bytes.size() / static_cast<size_t>(piece.size()), static_cast<size_t>(part.head));
      }
      writer.append(bytes);
      report(piece.end, rows);
    }
  }

  std::vector<std::byte> encoded(const Part& part, const std::vector<float>& values) {
    const std::string& name = part.from->name;
    if (part.type.format == nullptr) return converted(values, part.type.dtype, name, error_);
    std::vector<std::byte> blocks(values.size() / part.type.format->values * part.type.format->bytes);
    const std::span<const float> importance = part.to->part ? std::span<const float>() : importance_.of(name);
    error_ += quantize_rows({*part.type.format, {}, importance}, values, blocks, name);
    return blocks;
  }

  std::string in_;
  std::string out_;
  const QuantizeOptions& options_;
  FileType wanted_;
  std::shared_ptr<const GgufModel> held_;
  QuantizeResult result_;
  ModelConfig config_;
  ModelFiles files_;
  ModelConfig described_;            // as a reader of the file derives it
  std::vector<TensorSlot> written_;  // those of described_
  Importance importance_;
  std::vector<RopeTensor> ropes_;
  std::vector<std::vector<Part>> tensors_;  // of the file, after those of the ropes
  std::vector<GgufTensorSpec> specs_;       // of both
  QuantizedError error_;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
};

}  // namespace

QuantizeResult quantize_model(const std::string& in, const std::string& out, const QuantizeOptions& options) {
  return out.ends_with(".gguf") ? ModelQuantizer(in, out, options).run() : quantize_directory(in, out, options);
}

}  // namespace anyaccel::llm
