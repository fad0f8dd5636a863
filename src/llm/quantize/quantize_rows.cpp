// Encodes rows of weights as blocks, and chooses the format of each matrix.
#include "llm/quantize/quantize_rows.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <utility>

#include "anyaccel/error.h"
#include "anyaccel/llm/quantize.h"
#include "base/process/all_cores.h"
#include "base/text/json.h"
#include "base/text/text.h"
#include "llm/quantize/whole_numbers.h"

namespace anyaccel::llm {
namespace {

const BlockFormat& format_called(std::string_view name) { return *find_block_format(name); }

// Returns a format with blocks of 32 values and at least as many bits.
const BlockFormat& with_small_blocks(const BlockFormat& format) {
  if (format.values == 32) return format;
  if (format.name == "Q6_K") return format_called("Q8_0");
  if (format.name == "Q5_K") return format_called("Q5_1");
  if (format.name == "Q4_K") return format_called("Q5_0");
  return format_called("IQ4_NL");
}

double bits(const BlockFormat& format) { return 8.0 * format.bytes / format.values; }

struct Mixture {
  std::string_view name;
  std::string_view most;       // format of most matrices
  std::string_view fused_qkv;  // of queries, keys and values in one tensor
};
constexpr std::array<Mixture, 2> mixtures = {{{"q4_k_m", "Q4_K", "Q5_K"}, {"q5_k_m", "Q5_K", "Q6_K"}}};

std::string lower_case(std::string name) {
  for (char& c : name) c = ascii_lower(c);
  return name;
}

// Returns the block format, or mixture of them, of that name; no format for another text.
MatrixType block_type(const std::string& name) {
  const auto mixture = std::ranges::find(mixtures, lower_case(name), &Mixture::name);
  if (mixture != mixtures.end()) return {.format = &format_called(mixture->most), .mixed = true};
  const BlockFormat* format = find_block_format(std::string_view(name));
  return {.format = format != nullptr && can_encode(*format) ? format : nullptr};
}

// Returns the format that a mixture around `most` gives the matrix. The rules are those of llama.cpp (llama-quant.cpp) for
// models without experts: values and down projections have Q6_K in the first and last eighth of the layers and in every third
// of the others.
const BlockFormat& format_in_mixture(const BlockFormat& most, const TensorSlot& slot, int64_t layers) {
  const auto member = slot.layer_member;
  const bool is_values = member == &LayerWeights::v;
  if ((member == &LayerWeights::q || member == &LayerWeights::k || is_values) && slot.source &&
      slot.source->shape[0] != slot.shape[0]) {
    return format_called(std::ranges::find(mixtures, most.name, &Mixture::most)->fused_qkv);
  }
  const bool is_down = member == &LayerWeights::down || slot.expert_member == &ExpertWeights::down;
  const int64_t eighth = layers / 8, i = slot.layer;
  const bool is_finer = i < eighth || i >= 7 * layers / 8 || (i - eighth) % 3 == 2;
  return (is_values || is_down) && is_finer ? format_called("Q6_K") : most;
}

}  // namespace

std::string quantized_types() {
  std::string names;
  for (const BlockFormat& format : block_formats()) {
    if (!can_encode(format)) continue;
    names += names.empty() ? "" : ", ";
    names += lower_case(std::string(format.name));
  }
  for (const Mixture& mixture : mixtures) names += ", " + std::string(mixture.name);
  return names;
}

std::string load_types() { return "int8, int4, " + quantized_types(); }

std::string file_types() { return "f32, f16, bf16, " + quantized_types(); }

FileType type_to_write(const std::string& name) {
  constexpr std::array<std::pair<std::string_view, DType>, 3> plain = {
      {{"f32", DType::F32}, {"f16", DType::F16}, {"bf16", DType::BF16}}};
  const std::string lower = lower_case(name);
  for (const auto& [known, dtype] : plain) {
    if (lower == known) return {.dtype = dtype};
  }
  const MatrixType type = block_type(name);
  if (type.format != nullptr) return {.format = type.format, .mixed = type.mixed};
  throw InvalidArgument("quantize: the type is " + quote_text(name) + "; expected one of " + file_types());
}

MatrixType type_to_load(const std::string& name) {
  if (const BlockFormat* format = whole_number_format(name)) return {.format = format, .whole_numbers = true};
  const MatrixType type = block_type(name);
  if (type.format != nullptr) return type;
  throw InvalidArgument("quantize: the type is " + quote_text(name) + "; expected one of " + load_types());
}

const BlockFormat* format_of_matrix(const BlockFormat& wanted, bool mixed, const TensorSlot& slot, int64_t columns,
                                    const ModelConfig& config) {
  const BlockFormat& finer = format_called("Q6_K");
  const bool is_output = slot.is_lm_head() || (config.tie_word_embeddings && slot.is_embedding());
  const BlockFormat* format = is_output && bits(wanted) < bits(finer) ? &finer
                              : mixed ? &format_in_mixture(wanted, slot, config.num_hidden_layers)
                                      : &wanted;
  if (columns % format->values != 0) format = &with_small_blocks(*format);
  return columns % format->values == 0 ? format : nullptr;
}

std::vector<float> values_as_floats(const Checkpoint& checkpoint, const TensorView& view) {
  std::vector<std::byte> buffer;
  const std::byte* data = view.data;
  if (data == nullptr) {
    buffer.resize(view.bytes);
    checkpoint.read(view, buffer);
    data = buffer.data();
  }
  if (view.format != nullptr) {
    std::vector<float> decoded(view.bytes / view.format->bytes * view.format->values);
    decode_blocks(*view.format, {data, view.bytes}, decoded);
    return decoded;
  }
  std::vector<float> values(view.bytes / dtype_size(view.dtype));
  const auto convert = [&]<class T>(T, auto&& to_float) {
    for (size_t i = 0; i < values.size(); ++i) {
      T value;
      std::memcpy(&value, data + i * sizeof value, sizeof value);
      values[i] = to_float(value);
    }
  };
  switch (view.dtype) {
    case DType::F32: convert(float{}, [](float v) { return v; }); break;
    case DType::F64: convert(double{}, [](double v) { return static_cast<float>(v); }); break;
    case DType::F16: convert(uint16_t{}, [](uint16_t v) { return fp16_to_float(v); }); break;
    case DType::BF16: convert(uint16_t{}, [](uint16_t v) { return bf16_to_float(v); }); break;
    default: throw InvalidArgument("values_as_floats: " + std::string(dtype_name(view.dtype)));
  }
  return values;
}

void check_finite(std::span<const float> values, const std::string& tensor) {
  if (std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) return;
  throw CheckpointError("tensor " + quote_text(tensor) +
                        " has values that are NaN or infinite and cannot be quantized; `anyaccel generate "
                        "--check-tensors` lists them");
}

void QuantizedError::add(std::span<const float> values, std::span<const float> found, std::span<const float> weights) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    const double miss = value - static_cast<double>(found[i]);
    const double weight = weights.empty() ? 1.0 : static_cast<double>(weights[i]);
    squared_error += miss * miss;
    squared_values += value * value;
    weighted_error += weight * miss * miss;
    weighted_values += weight * value * value;
  }
}

QuantizedError& QuantizedError::operator+=(const QuantizedError& other) {
  squared_error += other.squared_error;
  squared_values += other.squared_values;
  weighted_error += other.weighted_error;
  weighted_values += other.weighted_values;
  return *this;
}

double QuantizedError::relative() const { return std::sqrt(squared_error / std::max(squared_values, 1e-300)); }
double QuantizedError::relative_weighted() const {
  return std::sqrt(weighted_error / std::max(weighted_values, 1e-300));
}

QuantizedError quantize_rows(const RowQuantization& how, std::span<const float> values, std::span<std::byte> blocks,
                             const std::string& tensor) {
  constexpr size_t blocks_at_once = 64;
  const BlockFormat& format = how.format;
  const size_t count = values.size() / format.values;
  std::atomic<size_t> next{0};
  std::mutex lock;
  QuantizedError total;
  const auto quantize = [&](size_t block, std::span<float> decoded, QuantizedError& error) {
    const std::span<const float> from = values.subspan(block * format.values, format.values);
    const std::span<std::byte> to = blocks.subspan(block * format.bytes, format.bytes);
    const std::span<const float> weights =
        how.importance.empty() ? how.importance
                               : how.importance.subspan(block * format.values % how.importance.size(), format.values);
    check_finite(from, tensor);
    if (how.number_scales) {
      const NumberGroup group = quantize_group(format, *how.number_scales, from, weights);
      encode_numbers(format, float_to_fp16(group.scale), group.numbers, to.data());
    } else {
      encode_blocks(format, from, to, weights);
    }
    decode_blocks(format, to, decoded);
    error.add(from, decoded, weights);
  };
  on_all_cores((count + blocks_at_once - 1) / blocks_at_once, [&] {
    std::vector<float> decoded(format.values);
    QuantizedError own;
    for (size_t first = next.fetch_add(blocks_at_once); first < count; first = next.fetch_add(blocks_at_once)) {
      for (size_t block = first; block < std::min(first + blocks_at_once, count); ++block) {
        quantize(block, decoded, own);
      }
    }
    const std::lock_guard guard(lock);
    total += own;
  });
  return total;
}

}  // namespace anyaccel::llm
