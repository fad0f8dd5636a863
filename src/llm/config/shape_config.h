// Builds the configuration of a named shape.
#pragma once

#include <string>

#include "anyaccel/llm/make_model.h"
#include "anyaccel/llm/model_config.h"

namespace anyaccel::llm {

// The standard deviation of the matrices of models with random weights.
inline constexpr float made_up_standard_deviation = 0.02f;

// Returns the text of config.json.
std::string config_text_of_shape(const ModelShape& shape, DType dtype);
ModelConfig config_of_shape(const ModelShape& shape, DType dtype);

}  // namespace anyaccel::llm
