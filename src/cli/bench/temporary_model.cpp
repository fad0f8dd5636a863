// Creates models and prompts for the benchmarks of language models.
#include "cli/bench/temporary_model.h"

#include <cstdio>

#include "anyaccel/llm/make_model.h"

namespace anyaccel::cli::bench {

TemporaryModel::TemporaryModel(const std::string& shape) : folder_("bench"), path_(folder_.file("model")) {
  std::fprintf(stderr, "making a %s model of random weights in %s\n", shape.c_str(), path_.c_str());
  llm::make_model(llm::find_model_shape(shape), path_);
}

std::vector<int32_t> random_prompt(const llm::Model& model, size_t length) {
  std::vector<int32_t> ids(length);
  uint64_t state = 88172645463325252ull;
  for (int32_t& id : ids) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    id = static_cast<int32_t>(state % static_cast<uint64_t>(model.config().vocab_size));
  }
  return ids;
}

}  // namespace anyaccel::cli::bench
