// Implements lora_adapter.h.
#include "llm/model/lora_adapter.h"

#include <algorithm>
#include <atomic>

#include "anyaccel/error.h"
#include "anyaccel/tensor.h"
#include "base/files/open_file.h"
#include "base/process/all_cores.h"
#include "llm/checkpoint/hub_folder.h"

namespace anyaccel::llm {

LoraAdapter::LoraAdapter(const std::filesystem::path& directory) {
  constexpr size_t max_config_bytes = size_t{16} << 20;
  const std::filesystem::path file = directory / "adapter_config.json";
  if (!has_name(file)) refuse_hub_folder(directory);
  const JsonDocument config = JsonDocument::load(file, max_config_bytes);
  file_ = SafetensorsFile::open(directory / "adapter_model.safetensors", FileAccess::Read);
  factors_ = read_lora_factors(config, file_->tensors(), file_->path().string());
}

std::vector<std::string> LoraAdapter::tensors() const {
  std::vector<std::string> names;
  for (const auto& [name, pair] : factors_.pairs) names.push_back(name);
  return names;
}

int64_t LoraAdapter::rank() const {
  int64_t most = 0;
  for (const auto& [name, pair] : factors_.pairs) most = std::max(most, pair.a->shape[0]);
  return most;
}

std::pair<Tensor, Tensor> LoraAdapter::factors(const std::string& tensor) const {
  const LoraPair& pair = factors_.pairs.at(tensor);
  const auto host = [](const TensorInfo& info, const std::vector<float>& values) {
    return Tensor::from_host(values.data(), Shape({info.shape[0], info.shape[1]}), DType::F32);
  };
  std::vector<float> b = read(*pair.b);
  for (float& value : b) value *= pair.scale;
  return {host(*pair.a, read(*pair.a)), host(*pair.b, b)};
}

void LoraAdapter::check_shape(const std::string& tensor, int64_t rows, int64_t columns, bool transposed) const {
  const LoraPair& pair = factors_.pairs.at(tensor);
  const int64_t out = transposed ? columns : rows, in = transposed ? rows : columns;
  if (pair.b->shape[0] == out && pair.a->shape[1] == in) return;
  throw CheckpointError(file_->path().string() + ": the factors of " + quote_text(tensor) + " are for a matrix of " +
                        std::to_string(pair.b->shape[0]) + " outputs and " + std::to_string(pair.a->shape[1]) +
                        " inputs, and the model's has " + std::to_string(out) + " and " + std::to_string(in) +
                        "; expected the adapter of this model");
}

std::vector<float> LoraAdapter::read(const TensorInfo& tensor) const {
  const Tensor stored = Tensor::empty(Shape({tensor.shape[0], tensor.shape[1]}), tensor.dtype);
  file_->read(tensor.offset, {static_cast<std::byte*>(stored.data()), stored.nbytes()});
  return stored.to(DType::F32).to_vector<float>();
}

void LoraAdapter::add_to(const std::string& tensor, int64_t first, int64_t columns, bool transposed,
                         std::span<float> values) const {
  const LoraPair& pair = factors_.pairs.at(tensor);
  const std::vector<float> a = read(*pair.a), b = read(*pair.b);
  const auto rank = static_cast<size_t>(pair.a->shape[0]), width = static_cast<size_t>(columns);
  const auto inputs = static_cast<size_t>(pair.a->shape[1]), outputs = static_cast<size_t>(pair.b->shape[0]);
  // Row k of the right factor as a row of the tensor: of lora_A, or of lora_B transposed.
  std::vector<float> right = transposed ? std::vector<float>(rank * width) : a;
  if (transposed) {
    for (size_t k = 0; k < rank; ++k) {
      for (size_t i = 0; i < outputs; ++i) right[k * width + i] = b[i * rank + k];
    }
  }
  constexpr size_t rows_at_once = 16;
  const size_t rows = values.size() / width;
  std::atomic<size_t> next{0};
  on_all_cores((rows + rows_at_once - 1) / rows_at_once, [&] {
    std::vector<float> sum(width);
    for (size_t begin = next.fetch_add(rows_at_once); begin < rows; begin = next.fetch_add(rows_at_once)) {
      for (size_t row = begin; row < std::min(begin + rows_at_once, rows); ++row) {
        const size_t at = static_cast<size_t>(first) + row;
        std::ranges::fill(sum, 0.0f);
        for (size_t k = 0; k < rank; ++k) {
          const float factor = transposed ? a[k * inputs + at] : b[at * rank + k];
          const float* const from = right.data() + k * width;
          for (size_t i = 0; i < width; ++i) sum[i] += factor * from[i];
        }
        float* const to = values.data() + row * width;
        for (size_t i = 0; i < width; ++i) to[i] += pair.scale * sum[i];
      }
    }
  });
}

}  // namespace anyaccel::llm
