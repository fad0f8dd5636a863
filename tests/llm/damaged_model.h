// A copy of a reference model with weights changed by hand, as a damaged file or a number format that is too narrow has them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "llm/model_fixtures.h"

namespace anyaccel::testing {

// For a model whose weights are bf16 in one file.
class DamagedModel {
 public:
  explicit DamagedModel(const std::string& name) {
    namespace fs = std::filesystem;
    fs::copy(models_directory() + "/" + name, directory_.path(), fs::copy_options::recursive);
    fs::permissions(file(), fs::perms::owner_write, fs::perm_options::add);
    std::ifstream stream(file(), std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(stream), {});
    uint64_t header_size = 0;
    std::memcpy(&header_size, bytes_.data(), sizeof header_size);
    data_ = sizeof header_size + header_size;
    header_ = nlohmann::json::parse(bytes_.substr(sizeof header_size, header_size));
  }

  const std::string& directory() const { return directory_.path(); }

  // Elements [begin, end) of a tensor, in the order of the file.
  void set(const std::string& tensor, size_t begin, size_t end, float value) {
    const auto element = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
    const auto first = data_ + header_.at(tensor).at("data_offsets").at(0).get<size_t>();
    for (size_t i = begin; i < end; ++i) std::memcpy(bytes_.data() + first + 2 * i, &element, sizeof element);
    write();
  }
  // Every weight of the file.
  void set_all(float value) {
    for (const auto& [name, entry] : header_.items()) {
      if (name != "__metadata__") set(name, 0, count(entry), value);
    }
  }

 private:
  std::filesystem::path file() const { return std::filesystem::path(directory()) / "model.safetensors"; }
  static size_t count(const nlohmann::json& entry) {
    return (entry.at("data_offsets").at(1).get<size_t>() - entry.at("data_offsets").at(0).get<size_t>()) / 2;
  }
  void write() const { std::ofstream(file(), std::ios::binary) << bytes_; }

  TemporaryDirectory directory_;
  std::string bytes_;
  size_t data_ = 0;  // where the tensors begin
  nlohmann::json header_;
};

}  // namespace anyaccel::testing
