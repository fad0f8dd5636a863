// Parses options of the commands that load a model.
#include "cli/commands/model_options.h"

#include "cli/commands/command_support.h"

namespace anyaccel::cli {

DType wanted_dtype(const std::string& text) {
  if (text == "auto") return DType::None;
  const auto dtype = parse_dtype(text);
  if (!dtype || !is_op_float(*dtype)) throw UsageError("--dtype is '" + text + "'; expected auto, fp32, bf16 or fp16");
  return *dtype;
}

llm::Activations wanted_activations(const std::string& text) {
  if (text == "auto") return llm::Activations::Auto;
  if (text == "fp32") return llm::Activations::F32;
  if (text == "bf16") return llm::Activations::BF16;
  throw UsageError("--activations is '" + text + "'; expected auto, fp32 or bf16");
}

}  // namespace anyaccel::cli
