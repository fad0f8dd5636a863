// Implements model_options.h: adds and parses the options, and prints the summary.
#include "cli/commands/model_options.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "anyaccel/format_bytes.h"
#include "cli/commands/command_support.h"
#include "cli/progress.h"

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

llm::TextGenerator load_generator(const std::string& path, llm::LoadOptions options, bool show_progress) {
  Progress progress("loading", ProgressUnit::Bytes, show_progress);
  if (progress.is_shown()) {
    options.progress = [&progress](const llm::LoadProgress& loaded) {
      progress(loaded.bytes_done, loaded.bytes_total);
    };
  }
  return llm::TextGenerator::load(path, options);
}

llm::CacheType wanted_cache(const std::string& text) {
  if (text == "auto") return llm::CacheType::Model;
  if (text == "int8") return llm::CacheType::Int8;
  if (text == "fp8") return llm::CacheType::Fp8;
  throw UsageError("--kv-cache is '" + text + "'; expected auto, int8 or fp8");
}

void check_type(const std::string& option, const std::string& type, const std::string& known) {
  std::string lower = type;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (type.empty() || (", " + known + ", ").find(", " + lower + ", ") != std::string::npos) return;
  throw UsageError(option + " is '" + type + "'; expected one of " + known);
}

void add_adapter_options(CommandLine& line, std::vector<std::string>& adapters, std::vector<std::string>& used,
                         const std::string& help) {
  line.add_option("--adapter", adapters,
                  "Directory with a LoRA adapter of this model, as PEFT stores it; as NAME=DIR it is kept apart for "
                  "--use-adapter, and may be given several times; see docs/models.md")
      .type("[NAME=]DIR")
      .one_each()
      .not_empty();
  line.add_option("--use-adapter", used, help).type("NAME").one_each();
}

void apply_adapters(const std::vector<std::string>& adapters, const std::vector<std::string>& used,
                    llm::LoadOptions& options) {
  for (const std::string& text : adapters) {
    const size_t sign = text.find('=');
    std::error_code error;
    if (sign == std::string::npos || std::filesystem::is_directory(text, error)) {
      if (!options.adapter.empty()) {
        throw UsageError("--adapter gives the directories " + options.adapter + " and " + text +
                         ", and one can be added to the model's matrices; expected NAME=DIR for each of several");
      }
      options.adapter = text;
      continue;
    }
    const std::string name = text.substr(0, sign);
    const bool known = std::ranges::any_of(options.adapters, [&](const auto& other) { return other.name == name; });
    if (name.empty() || sign + 1 == text.size() || known) {
      throw UsageError("--adapter is '" + text + "'; expected NAME=DIR, with another name for each");
    }
    options.adapters.push_back({name, text.substr(sign + 1)});
  }
  for (const std::string& name : used) {
    if (name.empty() || std::ranges::any_of(options.adapters, [&](const auto& one) { return one.name == name; }))
      continue;
    throw UsageError("--use-adapter is '" + name + "', and no --adapter " + name + "=DIR is given");
  }
}

void print_model_summary(const std::string& path, const std::string& share, const llm::TextGenerator& generator) {
  const llm::Model& model = generator.model();
  std::fprintf(
      stderr, "model: %s, %s of weights%s as %s%s, ready in %.0f ms\n", path.c_str(),
      format_bytes(static_cast<double>(model.weight_bytes())).c_str(), share.c_str(),
      (model.quantized_formats().empty() ? std::string(dtype_name(model.dtype())) : model.quantized_formats()).c_str(),
      model.mapped_bytes() > 0 ? ", used from the file" : "", generator.load_seconds() * 1000.0);
  for (const std::string& note : model.notes()) std::fprintf(stderr, "note: %s\n", note.c_str());
  for (const std::string& note : generator.tokenizer()->notes()) std::fprintf(stderr, "note: %s\n", note.c_str());
  for (const std::string& warning : generator.generation_config().warnings) {
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  }
}

}  // namespace anyaccel::cli
