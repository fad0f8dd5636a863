// Creates models and prompts for the benchmarks of language models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "anyaccel/llm/model.h"
#include "base/files/files.h"

namespace anyaccel::cli::bench {

// Creates a model directory of random weights in the temporary folder; it is removed with the object.
class TemporaryModel {
 public:
  // `shape` as in make-model. Blocks until it is written; prints a line on standard error.
  explicit TemporaryModel(const std::string& shape);
  const std::string& path() const { return path_; }

 private:
  TemporaryFolder folder_;
  std::string path_;
};

// Returns token ids of the model's vocabulary, the same every time.
std::vector<int32_t> random_prompt(const llm::Model& model, size_t length);

}  // namespace anyaccel::cli::bench
