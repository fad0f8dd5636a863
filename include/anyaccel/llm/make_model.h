// Writes models of real shapes with random weights as Hugging Face directories, for benchmarks and tests without a
// network.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "anyaccel/dtype.h"

namespace anyaccel::llm {

// A named shape. `family` is config.json's model_type, of any family that runs. What the family has no field for does
// not apply, such as kv_heads in GPT-2, and fields that are 0 here have the family's default.
struct ModelShape {
  std::string name;
  std::string family;
  int64_t hidden_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;
  int64_t vocab_size = 0;
  int64_t max_positions = 0;
  double rope_theta = 0;
  double norm_eps = 0;
  bool tied = false;    // the output matrix is the embedding
  int64_t experts = 0;  // of each layer, whose inner size is intermediate_size; 0: the family's default, if it has them
  int64_t experts_per_token = 0;
  std::string fields = {};  // a JSON object with more fields of config.json; empty: none

  // Returns the number of weights; tied ones are counted once.
  int64_t parameters() const;
};

// Returns the shapes "tiny", "stories", "qwen2.5-0.5b", "qwen3-0.6b", "llama-100m", "llama-1b", "llama-8b" and
// "mixtral-600m", of whose weights a token needs a third.
const std::vector<ModelShape>& known_model_shapes();
// Returns a shape for each family and each form in which its layers are computed differently, with the sizes of `like`
// as far as the family has them, and its own defaults for everything else. Experts are smaller, so that those of a
// token have about the size of the dense block, and blocks without a gate have one and a half times the inner size, so
// that their two matrices are as large as three.
std::vector<ModelShape> family_shapes(const ModelShape& like);
// Throws InvalidArgument, which lists the known names, for any other name.
const ModelShape& find_model_shape(const std::string& name);

struct MakeModelOptions {
  DType dtype = DType::BF16;  // BF16, F16 or F32
  uint64_t seed = 0;
  // Called after each tensor with the number of bytes written so far and the size of the whole model.
  std::function<void(uint64_t done, uint64_t total)> progress;
};

// Writes config.json, generation_config.json, model.safetensors and tokenizer.json (byte-level, no merges) to
// `directory`, which is created if it does not exist. Matrices are normal with standard deviation 0.02, norms are 1,
// biases 0. The same shape, dtype and seed give the same bytes. Needs a few MB of memory whatever the model's size;
// blocks until all is written. Throws InvalidArgument for another dtype, a vocabulary that is too small for the bytes
// or above 500,000 tokens, or a directory that already holds a config.json; Error when writing fails, and then leaves
// no partial model.safetensors.
void make_model(const ModelShape& shape, const std::string& directory, const MakeModelOptions& options = {});

}  // namespace anyaccel::llm
