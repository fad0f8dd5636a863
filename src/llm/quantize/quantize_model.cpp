// Writes a model as a GGUF file with quantized matrices, a piece at a time.
#include <algorithm>
#include <array>
#include <filesystem>

#include "anyaccel/error.h"
#include "anyaccel/llm/quantize.h"
#include "llm/checkpoint/gguf.h"
#include "llm/checkpoint/gguf_file_writer.h"
#include "llm/checkpoint/gguf_names.h"
#include "llm/config/gguf_config.h"
#include "llm/model/model_files.h"
#include "llm/quantize/gguf_model_keys.h"
#include "llm/quantize/importance.h"
#include "llm/quantize/quantize_directory.h"
#include "llm/quantize/quantize_rows.h"

namespace anyaccel::llm {
namespace {

constexpr uint32_t type_f32 = 0;

// Returns general.file_type, which tells people the format of most matrices in the file.
int64_t file_type(const BlockFormat& format) {
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
  return std::ranges::find(types, format.name, &std::pair<std::string_view, int>::first)->second;
}

struct Part {
  const TensorSlot* slot = nullptr;
  const BlockFormat* format = nullptr;  // null: not quantized, see GgufTensorSpec::type
  int64_t head = 0;                     // rows of a head that become pairs; 0: rows stay in their order
};

// Row p * head / 2 + j of each head becomes row 2 j + p, which is the order in a llama file.
void pair_rows(std::vector<float>& values, int64_t columns, int64_t head) {
  std::vector<float> paired(values.size());
  const int64_t rows = static_cast<int64_t>(values.size()) / columns;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t within = row % head;
    const int64_t to = row - within + within % (head / 2) * 2 + within / (head / 2);
    std::copy_n(values.begin() + row * columns, columns, paired.begin() + to * columns);
  }
  values = std::move(paired);
}

class ModelQuantizer {
 public:
  ModelQuantizer(const std::string& in, const std::string& out, const QuantizeOptions& options)
      : in_(in),
        out_(out),
        options_(options),
        wanted_(quantized_type(options.type.empty() ? "q8_0" : options.type)),
        held_(is_gguf(in) ? open_gguf(in) : nullptr),
        config_(load_model_config(in)),
        files_(in, FileAccess::Map, config_, result_.notes) {}

  QuantizeResult run() {
    std::error_code error;
    if (std::filesystem::equivalent(in_, out_, error)) {
      throw InvalidArgument("quantize: the output '" + out_ + "' is the input; expected another file");
    }
    const GgufKeys keys = this->keys();
    choose_parts();
    importance_ = measured_importance(in_, options_);
    GgufFileWriter writer(out_, keys, specs_);
    for (const RopeTensor& tensor : ropes_) writer.append(std::as_bytes(std::span(tensor.factors)));
    for (const Part& part : parts_) write(part, writer);
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
  GgufKeys keys() const {
    GgufKeys keys;
    if (held_ != nullptr && !gguf_is_of_first_families(held_->metadata())) {
      throw CheckpointError(in_ + ": a GGUF file of the architecture " +
                            held_->metadata().required_text("general.architecture") +
                            " cannot be quantized into another one; expected one of llama (without experts), qwen2, "
                            "qwen3 and internlm2");
    }
    if (held_ != nullptr) {
      held_->metadata().for_each([&](const std::string& key, const GgufValue& value) {
        if (key == "general.file_type" || key == "general.quantization_version" || key == "general.alignment" ||
            key.starts_with("split.")) {
          return;
        }
        keys.add(key, value);
      });
    } else {
      add_model_keys(config_, in_, keys);
      add_tokenizer_keys(in_, *Tokenizer::load(in_), config_, keys);
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
    const bool pairs = held_ == nullptr && gguf_architecture(config_) == "llama";
    for (const TensorSlot& slot : files_.slots()) {
      const TensorView& view = files_.at(slot);
      if (view.format != nullptr || view.packed != nullptr) {
        throw CheckpointError(in_ + ": the tensor '" + slot.name + "' is quantized already (" +
                              (view.packed != nullptr ? config_.quantization->method : std::string(view.format->name)) +
                              "); expected a model with weights of 16 or 32 bits");
      }
      Part part{&slot, nullptr, 0};
      const std::vector<int64_t> shape(slot.shape.dims().begin(), slot.shape.dims().end());
      uint32_t type = type_f32;
      if (slot.kind == TensorKind::Matrix) {
        const bool is_output = slot.is_lm_head() || (config_.tie_word_embeddings && slot.is_embedding());
        part.format = format_of_matrix(wanted_, shape[1], is_output);
        type = part.format != nullptr ? part.format->number : view.dtype == DType::BF16 ? 30 : 1;
        if (part.format != &wanted_) changed_.push_back(slot.name);
      }
      const bool rotates =
          slot.split == SplitBy::QueryHeads ? slot.split_dim == 0 : slot.name.find(".k_proj.") != std::string::npos;
      if (pairs && rotates) part.head = config_.head_dim;
      specs_.push_back({gguf_name(slot.name), type, shape});
      parts_.push_back(part);
      total_ += view.bytes;
    }
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
    constexpr int64_t piece_values = int64_t{4} << 20;
    const TensorView& view = files_.at(*part.slot);
    const int64_t rows = view.shape[0];
    const int64_t columns = view.shape.size() > 1 ? view.shape[1] : 1;
    const int64_t unit = std::max<int64_t>(part.head, 1);
    const int64_t step = (std::max<int64_t>(piece_values / columns, 1) + unit - 1) / unit * unit;
    const uint64_t row_bytes = view.bytes / static_cast<uint64_t>(rows);
    std::vector<std::byte> blocks;
    for (int64_t first = 0; first < rows; first += step) {
      const int64_t count = std::min(step, rows - first);
      TensorView piece = view;
      piece.offset += row_bytes * static_cast<uint64_t>(first);
      if (piece.data != nullptr) piece.data += row_bytes * static_cast<uint64_t>(first);
      piece.bytes = row_bytes * static_cast<uint64_t>(count);
      std::vector<float> values = values_as_floats(files_.checkpoint(), piece);
      if (part.head > 0) pair_rows(values, columns, part.head);
      if (part.format != nullptr) {
        blocks.resize(values.size() / part.format->values * part.format->bytes);
        error_ += quantize_rows({*part.format, {}, importance_.of(part.slot->name)}, values, blocks, part.slot->name);
        writer.append(blocks);
      } else if (part.slot->kind != TensorKind::Matrix) {
        writer.append(std::as_bytes(std::span(values)));
      } else {
        std::vector<uint16_t> halves(values.size());
        const bool bf16 = view.dtype == DType::BF16;
        std::ranges::transform(values, halves.begin(),
                               [&](float value) { return bf16 ? float_to_bf16(value) : float_to_fp16(value); });
        writer.append(std::as_bytes(std::span(halves)));
      }
      files_.checkpoint().release(piece);
      done_ += piece.bytes;
      if (options_.progress) options_.progress(done_, total_);
    }
  }

  std::string in_;
  std::string out_;
  const QuantizeOptions& options_;
  const BlockFormat& wanted_;
  std::shared_ptr<const GgufModel> held_;
  QuantizeResult result_;
  ModelConfig config_;
  ModelFiles files_;
  Importance importance_;
  std::vector<RopeTensor> ropes_;
  std::vector<Part> parts_;
  std::vector<GgufTensorSpec> specs_;  // those of the ropes, then those of the parts
  std::vector<std::string> changed_;   // matrices in another format than requested
  QuantizedError error_;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
};

}  // namespace

QuantizeResult quantize_model(const std::string& in, const std::string& out, const QuantizeOptions& options) {
  return out.ends_with(".gguf") ? ModelQuantizer(in, out, options).run() : quantize_directory(in, out, options);
}

}  // namespace anyaccel::llm
