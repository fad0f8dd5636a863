// Options of the commands that load a model.
#pragma once

#include <string>

#include "anyaccel/dtype.h"
#include "anyaccel/llm/model.h"

namespace anyaccel::cli {

// The text of --dtype: None for "auto". UsageError.
DType wanted_dtype(const std::string& text);
// The text of --activations. UsageError.
llm::Activations wanted_activations(const std::string& text);

}  // namespace anyaccel::cli
