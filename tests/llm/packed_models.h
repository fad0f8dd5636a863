// Writes model directories from tensors given as bytes, for tests of quantized directories.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "anyaccel/llm/safetensors.h"

namespace anyaccel::llm::testing {

struct TensorData {
  TensorSpec spec;
  std::string bytes;
};

template <class T>
std::string bytes_of_numbers(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

inline void write_model(const std::filesystem::path& to, const std::vector<TensorData>& tensors) {
  std::vector<TensorSpec> specs;
  std::vector<std::span<const std::byte>> data;
  for (const TensorData& tensor : tensors) {
    specs.push_back(tensor.spec);
    data.push_back(std::as_bytes(std::span(tensor.bytes)));
  }
  write_safetensors(to / "model.safetensors", specs, data);
}

// Writes the config.json of `directory` with `settings`, JSON, as its quantization_config unless they are empty.
inline void write_config(const std::filesystem::path& to, const std::string& directory, const std::string& settings) {
  auto config = nlohmann::json::parse(std::ifstream(directory + "/config.json"));
  if (!settings.empty()) config["quantization_config"] = nlohmann::json::parse(settings);
  std::ofstream(to / "config.json") << config;
}

}  // namespace anyaccel::llm::testing
