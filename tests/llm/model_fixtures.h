// Reads the reference models of tests/data/models; see tests/data/README.md for what the files hold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "temporary_folder.h"
#include "test_paths.h"

namespace anyaccel::testing {

struct ReferenceRun {
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> greedy_ids;
};

struct ReferenceModel {
  std::string name;
  std::string directory;
  ReferenceRun run;
  std::vector<ReferenceRun> batch;
  int64_t vocab = 0;
  std::vector<float> prompt_logits;  // [prompt, vocab]
  std::vector<float> step_logits;    // [greedy, vocab]
};

inline std::string models_directory() { return test_data() + "/models"; }

inline std::vector<std::string> reference_model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(models_directory())) {
    if (std::filesystem::exists(entry.path() / "expected.json")) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline ReferenceModel load_reference_model(const std::string& name) {
  ReferenceModel model;
  model.name = name;
  model.directory = models_directory() + "/" + name;
  const auto json = nlohmann::json::parse(std::ifstream(model.directory + "/expected.json"));
  const auto read_run = [](const nlohmann::json& run) {
    return ReferenceRun{run.at("prompt_ids").get<std::vector<int32_t>>(),
                        run.at("greedy_ids").get<std::vector<int32_t>>()};
  };
  model.run = read_run(json);
  if (json.contains("batch")) {
    for (const auto& run : json["batch"]) model.batch.push_back(read_run(run));
  }

  std::ifstream file(model.directory + "/expected.safetensors", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  const auto header = nlohmann::json::parse(bytes.substr(8, header_size));
  const auto read_tensor = [&](const char* tensor) {
    const auto& entry = header.at(tensor);
    const auto begin = entry.at("data_offsets").at(0).get<size_t>();
    const auto end = entry.at("data_offsets").at(1).get<size_t>();
    model.vocab = entry.at("shape").at(1).get<int64_t>();
    std::vector<float> values((end - begin) / sizeof(float));
    std::memcpy(values.data(), bytes.data() + 8 + header_size + begin, end - begin);
    return values;
  };
  model.prompt_logits = read_tensor("prompt_logits");
  model.step_logits = read_tensor("step_logits");
  return model;
}

// A folder whose path is a text.
class TemporaryDirectory {
 public:
  const std::string& path() const { return path_; }

 private:
  test::TemporaryFolder folder_;
  std::string path_ = folder_.path().string();
};

}  // namespace anyaccel::testing
