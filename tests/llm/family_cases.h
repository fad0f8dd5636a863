// The cases of tests/data/families.json (made by tools/family_fixtures.py): tiny models of each family whose weights follow
// from the tensors' names, and the logits that transformers computed with them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "anyaccel/llm/model.h"
#include "anyaccel/llm/safetensors.h"
#include "anyaccel/llm/session.h"
#include "llm/model_fixtures.h"
#include "test_paths.h"

namespace anyaccel::llm::testing {

using Json = nlohmann::json;

inline const Json& stored_families() {
  static const Json data = Json::parse(std::ifstream(anyaccel::testing::test_data() + "/families.json"));
  return data;
}
inline const Json& family_cases() { return stored_families().at("cases"); }

// The tensors of a case; its layers have the same ones, which the file lists once.
inline Json expanded_tensors(const Json& one_case) {
  Json all = Json::array();
  for (const Json& tensor : one_case.at("tensors")) {
    const std::string name = tensor.at(0);
    const size_t number = name.find("{}");
    const int count = number == std::string::npos ? 1 : one_case.at("layers").get<int>();
    for (int layer = 0; layer < count; ++layer) {
      Json each = tensor;
      if (number != std::string::npos) each[0] = std::string(name).replace(number, 2, std::to_string(layer));
      all.push_back(each);
    }
  }
  return all;
}

// As numbers() of tools/family_fixtures.py.
inline std::vector<float> made_numbers(const std::string& name, uint64_t seed, size_t count, float scale,
                                       float offset) {
  uint64_t base = 0xcbf29ce484222325u;
  for (const char byte : name) base = (base ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  base += seed * 0x9e3779b97f4a7c15u;
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    uint64_t z = base + i;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    const float unit = static_cast<float>(z >> 40) * 0x1p-24f - 0.5f;
    const float scaled = unit * scale;
    values[i] = scaled + offset;
  }
  return values;
}

struct FamilyCase {
  Json data;
  anyaccel::testing::TemporaryDirectory directory;
  std::vector<int32_t> prompt, greedy;
  std::vector<int32_t>
      generated;              // by generate(); the same as the cached steps of `greedy` but where the cache is renewed
  std::vector<float> logits;  // [stored rows, vocabulary]
  int64_t vocab = 0;

  explicit FamilyCase(const std::string& name) {
    for (const Json& each : family_cases()) {
      if (each.at("name") == name) data = each;
    }
    data["tensors"] = expanded_tensors(data);
    prompt = data.at("prompt").get<std::vector<int32_t>>();
    greedy = data.at("greedy").get<std::vector<int32_t>>();
    generated = data.value("generated", greedy);
    vocab = data.at("config").at("vocab_size").get<int64_t>();
    write_config(data.at("config"));
    write_weights();
    read_logits(name);
  }

  void write_config(const Json& config) const { std::ofstream(directory.path() + "/config.json") << config.dump(); }
  std::shared_ptr<const Model> load(DType dtype = DType::F32, std::shared_ptr<comm::ProcessGroup> group = {}) const {
    LoadOptions options;
    options.dtype = dtype;
    options.group = std::move(group);
    return Model::load(directory.path(), options);
  }
  void write_weights() const {
    std::vector<TensorSpec> specs;
    for (const Json& tensor : data.at("tensors")) {
      const bool bytes = tensor.size() > 4 && tensor.at(4) == "uint8";
      specs.push_back({tensor.at(0), bytes ? DType::U8 : DType::F32, tensor.at(1).get<std::vector<int64_t>>()});
    }
    SafetensorsWriter writer(directory.path() + "/model.safetensors", specs, {{"format", "pt"}});
    for (size_t i = 0; i < specs.size(); ++i) {
      const Json& tensor = data.at("tensors").at(i);
      const auto count = static_cast<size_t>(Shape(specs[i].shape).numel());
      const std::vector<float> values = made_numbers(specs[i].name, data.at("seed").get<uint64_t>(), count,
                                                     tensor.at(2).get<float>(), tensor.at(3).get<float>());
      if (specs[i].dtype == DType::U8) {
        std::vector<uint8_t> bytes(count);
        std::ranges::transform(values, bytes.begin(), [](float value) { return static_cast<uint8_t>(value); });
        writer.append(std::as_bytes(std::span(bytes)));
        continue;
      }
      writer.append(std::as_bytes(std::span(values)));
    }
    writer.finish();
  }

 private:
  void read_logits(const std::string& name) {
    std::ifstream file(anyaccel::testing::test_data() + "/families.safetensors", std::ios::binary);
    uint64_t header_size = 0;
    file.read(reinterpret_cast<char*>(&header_size), sizeof header_size);
    std::string header(header_size, ' ');
    file.read(header.data(), static_cast<std::streamsize>(header_size));
    const Json entry = Json::parse(header).at(name);
    const auto begin = entry.at("data_offsets").at(0).get<size_t>(), end = entry.at("data_offsets").at(1).get<size_t>();
    logits.resize((end - begin) / sizeof(float));
    file.seekg(static_cast<std::streamoff>(sizeof header_size + header_size + begin));
    file.read(reinterpret_cast<char*>(logits.data()), static_cast<std::streamsize>(end - begin));
  }
};

// The logits of the rows that are stored, of those after each token of the prompt and of the steps but the last.
inline std::vector<float> found_logits(const FamilyCase& reference, const std::shared_ptr<const Model>& model,
                                       int64_t chunk = 512, bool deterministic = false) {
  SessionOptions options;
  options.deterministic = deterministic;
  options.context = 64;
  options.chunk = chunk;
  Session session(model, options);
  std::vector<float> all;
  int32_t position = 0;
  const auto forward = [&](std::span<const int32_t> ids) {
    std::vector<int32_t> sequence(ids.size(), 0), positions(ids.size()), rows(ids.size());
    std::iota(positions.begin(), positions.end(), position);
    std::iota(rows.begin(), rows.end(), 0);
    position += static_cast<int32_t>(ids.size());
    const std::vector<float> logits = session.forward({ids, sequence, positions}, rows).to_vector<float>();
    all.insert(all.end(), logits.begin(), logits.end());
  };
  forward(reference.prompt);
  for (size_t i = 0; i + 1 < reference.greedy.size(); ++i) forward(std::span(reference.greedy).subspan(i, 1));
  std::vector<float> chosen;
  for (const Json& row : stored_families().at("rows")) {
    const auto begin = all.begin() + row.get<int64_t>() * reference.vocab;
    chosen.insert(chosen.end(), begin, begin + reference.vocab);
  }
  return chosen;
}

// The largest difference of each row over its largest logit, in rising order.
inline std::vector<double> differences(std::span<const float> found, const FamilyCase& reference) {
  EXPECT_EQ(found.size(), reference.logits.size());
  if (found.size() != reference.logits.size()) return {INFINITY};
  std::vector<double> all;
  for (size_t row = 0; row < found.size(); row += static_cast<size_t>(reference.vocab)) {
    double difference = 0, largest = 0;
    for (size_t i = row; i < row + static_cast<size_t>(reference.vocab); ++i) {
      const double gap = std::abs(static_cast<double>(found[i]) - static_cast<double>(reference.logits[i]));
      difference = std::isnan(gap) ? INFINITY : std::max(difference, gap);
      largest = std::max(largest, std::abs(static_cast<double>(reference.logits[i])));
    }
    all.push_back(difference / largest);
  }
  std::ranges::sort(all);
  return all;
}
inline double worst_difference(std::span<const float> found, const FamilyCase& reference) {
  return differences(found, reference).back();
}

}  // namespace anyaccel::llm::testing
