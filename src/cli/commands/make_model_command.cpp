// Implements `anyaccel make-model`: writes random weights of a named shape as a Hugging Face directory.
#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "anyaccel/dtype.h"
#include "anyaccel/format_bytes.h"
#include "anyaccel/llm/make_model.h"
#include "base/text/nearest_name.h"
#include "cli/commands/command_support.h"
#include "cli/commands/commands.h"
#include "cli/progress.h"

namespace anyaccel::cli {

namespace {

std::string shape_names() {
  std::string names;
  for (const llm::ModelShape& shape : llm::known_model_shapes()) names += (names.empty() ? "" : ", ") + shape.name;
  return names;
}

std::string nearest_shape(const std::string& asked) {
  std::vector<std::string> names;
  for (const llm::ModelShape& shape : llm::known_model_shapes()) names.push_back(shape.name);
  return did_you_mean(asked, names);
}

}  // namespace

int run_make_model(int argc, char** argv) {
  CommandLine line(
      "Writes a model with random weights: config.json, generation_config.json, model.safetensors, tokenizer.json",
      "anyaccel make-model");
  std::string shape_name;
  std::string directory;
  std::string dtype_text = "bf16";
  std::string seed = "0";
  bool quiet = false;
  line.add_option("--shape", shape_name, "One of: " + shape_names()).required();
  line.add_option("--out", directory, "Directory to write to; made when it is not there").required();
  line.add_option("--dtype", dtype_text, "bf16, fp16 or fp32").show_default();
  line.add_option("--seed", seed, "The same seed gives the same weights").type("N").show_default();
  line.add_quiet_flag("--quiet", quiet, "No messages on standard error");

  return run_command(line, argc, argv, [&] {
    const llm::ModelShape* shape = nullptr;
    for (const llm::ModelShape& known : llm::known_model_shapes()) {
      if (known.name == shape_name) shape = &known;
    }
    if (shape == nullptr)
      throw UsageError("--shape is '" + shape_name + "'; expected one of " + shape_names() + nearest_shape(shape_name));
    llm::MakeModelOptions options;
    const auto dtype = parse_dtype(dtype_text);
    if (!dtype || !is_op_float(*dtype))
      throw UsageError("--dtype is '" + dtype_text + "'; expected bf16, fp16 or fp32");
    options.dtype = *dtype;
    options.seed = parse_seed("--seed", seed);

    const auto begin = std::chrono::steady_clock::now();
    {
      Progress progress("writing", ProgressUnit::Bytes, !quiet);
      options.progress = [&](uint64_t done, uint64_t total) { progress(done, total); };
      llm::make_model(*shape, directory, options);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!quiet) {
      const double bytes = static_cast<double>(shape->parameters()) * static_cast<double>(dtype_size(options.dtype));
      std::cerr << shape->name << ": " << format_bytes(bytes) << " of weights in " << directory << ", "
                << format_bytes(bytes / seconds) << "/s\n";
    }
    return 0;
  });
}

}  // namespace anyaccel::cli
