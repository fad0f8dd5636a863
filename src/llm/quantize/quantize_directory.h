// Writes a model as a Hugging Face directory with quantized matrices.
#pragma once

#include <string>

#include "anyaccel/llm/quantize.h"

namespace anyaccel::llm {

// Implements quantize_model() for an `out` that is a directory. The matrices of the layers become whole numbers of 4 or 8
// bits ("int4", "int8") in the format pack-quantized of compressed-tensors, 32 neighbouring values of a row sharing a
// scale; all other tensors are copied, and so are the files of the tokenizer.
QuantizeResult quantize_directory(const std::string& in, const std::string& out, const QuantizeOptions& options);

}  // namespace anyaccel::llm
