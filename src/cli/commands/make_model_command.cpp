// Implements `anyaccel make-model`: writes random weights of a named shape as a Hugging Face directory.
#include <algorithm>
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

std::string names_of(const std::vector<llm::ModelShape>& shapes) {
  std::string names;
  for (const llm::ModelShape& shape : shapes) names += (names.empty() ? "" : ", ") + shape.name;
  return names;
}

std::string nearest(const std::vector<llm::ModelShape>& shapes, const std::string& asked) {
  std::vector<std::string> names;
  for (const llm::ModelShape& shape : shapes) names.push_back(shape.name);
  return did_you_mean(asked, names);
}

const llm::ModelShape* find(const std::vector<llm::ModelShape>& shapes, const std::string& name) {
  const auto found = std::ranges::find(shapes, name, &llm::ModelShape::name);
  return found == shapes.end() ? nullptr : &*found;
}

}  // namespace

int run_make_model(int argc, char** argv) {
  CommandLine line(
      "Writes a model with random weights: config.json, generation_config.json, model.safetensors, tokenizer.json",
      "anyaccel make-model");
  std::string shape_name;
  std::string family;
  std::string directory;
  std::string dtype_text = "bf16";
  std::string seed = "0";
  bool quiet = false;
  line.add_option("--shape", shape_name, "One of: " + names_of(llm::known_model_shapes())).required().not_empty();
  line.add_option("--family", family,
                  "Another family with the sizes of the shape, as far as it has them, such as gemma2")
      .not_empty();
  line.add_option("--out", directory, "Directory to write to; made when it is not there").required().not_empty();
  line.add_option("--dtype", dtype_text, "bf16, fp16 or fp32").show_default();
  line.add_option("--seed", seed, "The same seed gives the same weights").type("N").show_default();
  line.add_quiet_flag("--quiet", quiet, "No messages on standard error");

  return run_command(line, argc, argv, [&] {
    const llm::ModelShape* shape = find(llm::known_model_shapes(), shape_name);
    if (shape == nullptr) {
      throw UsageError("--shape is '" + shape_name + "'; expected one of " + names_of(llm::known_model_shapes()) +
                       nearest(llm::known_model_shapes(), shape_name));
    }
    std::vector<llm::ModelShape> of_families;
    if (!family.empty()) {
      of_families = llm::family_shapes(*shape);
      shape = find(of_families, family);
      if (shape == nullptr) {
        throw UsageError("--family is '" + family + "'; expected one of " + names_of(of_families) +
                         nearest(of_families, family));
      }
    }
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
