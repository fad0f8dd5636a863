// Reads how the weights of a Hugging Face directory are quantized, from the quantization_config of its config.json.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/text/json.h"

namespace anyaccel::llm {

struct WeightQuantization {
  enum class Kind {
    Gptq,      // qweight, qzeros, scales, g_idx: whole numbers, packed along the inputs
    Awq,       // qweight, qzeros, scales: packed along the outputs
    Packed,    // compressed-tensors: weight_packed, weight_scale, weight_zero_point, weight_g_idx
    Int8,      // compressed-tensors: weight in int8, weight_scale, weight_zero_point
    Float8,    // weight in float8_e4m3fn with weight_scale_inv or weight_scale
    MxFloat4,  // blocks of 32 float4 with a power of two each
  };
  Kind kind = Kind::Gptq;
  std::string method;  // "gptq", for messages
  int bits = 4;
  int64_t group = 0;            // inputs that share a scale; 0: all of a row
  bool symmetric = true;        // zero is in the middle, and compressed-tensors stores none
  bool has_order = false;       // a tensor says which group each input is in (act-order)
  bool zeros_less_one = false;  // GPTQ's first version stores zero points minus one
  // The outputs and inputs that share a scale, for Float8 with blocks; 0: there is a scale for each row or for all.
  int64_t block_rows = 0;
  int64_t block_columns = 0;
};

// Reads every field, which is used, ignored because it has no effect on the weights, or refused. CheckpointError names
// the field. Adds notes about the parts of the definition that are not implemented (rounding of activations). Null if the
// weights are not quantized: llm-compressor writes the object for rotations, too.
std::shared_ptr<const WeightQuantization> read_quantization(const JsonRef& config, std::vector<std::string>& notes);

}  // namespace anyaccel::llm
