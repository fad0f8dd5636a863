// Implements `anyaccel quantize` and `anyaccel perplexity`.
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/format_bytes.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/perplexity.h"
#include "anyaccel/llm/quantize.h"
#include "anyaccel/llm/tokenizer.h"
#include "cli/commands/command_support.h"
#include "cli/commands/commands.h"
#include "cli/commands/model_options.h"
#include "cli/json_output.h"
#include "cli/progress.h"
#include "cli/prompt_file.h"

namespace anyaccel::cli {

namespace {

struct Measuring {
  std::string window = "0";
  std::string stride = "0";
  std::string cache = "auto";

  void add_options(CommandLine& line) {
    line.add_option("--window", window,
                    "Tokens that the model sees at once; 0 is the least of 2048, its limit and the text")
        .type("N")
        .show_default();
    line.add_option("--stride", stride, "Tokens from one window to the next; 0 is half a window")
        .type("N")
        .show_default();
    line.add_option("--kv-cache", cache,
                    "Elements of the cache of keys and values: auto (those of the model), int8 or fp8")
        .show_default();
  }
  llm::PerplexityOptions parse() const {
    constexpr int64_t most = int64_t{1} << 31;
    llm::PerplexityOptions options;
    options.window = parse_integer("--window", window, 0, most);
    options.stride = parse_integer("--stride", stride, 0, most);
    options.cache = wanted_cache(cache);
    return options;
  }
};

llm::Perplexity measure(const std::string& model_path, const llm::LoadOptions& load, const std::string& text,
                        llm::PerplexityOptions options, bool show) {
  const std::shared_ptr<const llm::Model> model = llm::Model::load(model_path, load);
  const std::vector<int32_t> ids = llm::Tokenizer::load(model_path)->encode(text);
  Progress progress("reading the text", ProgressUnit::Count, show);
  options.progress = [&](int64_t done, int64_t total) {
    progress(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
  };
  return llm::perplexity(model, ids, options);
}

std::string perplexity_text(const llm::Perplexity& found) {
  char text[160];
  std::snprintf(text, sizeof text, "%.4f (+- %.4f) over %lld tokens, %.4f bits each", found.value,
                found.value * found.mean_error, static_cast<long long>(found.predicted), found.bits);
  return text;
}

JsonValue perplexity_json(const llm::Perplexity& found) {
  return {{"perplexity", found.value},
          {"bits_per_token", found.bits},
          {"tokens", found.predicted},
          {"standard_error", found.value * found.mean_error}};
}

}  // namespace

int run_quantize(int argc, char** argv) {
  CommandLine line(
      "Quantizes the matrices of a model (a Hugging Face directory, or a GGUF file of 16 or 32 bits) and writes a GGUF "
      "file, or a directory in the format of compressed-tensors; docs/quantization.md describes the types",
      "anyaccel quantize");
  std::string model;
  std::string out;
  std::string type;
  std::string text_file;
  std::string importance_file;
  Measuring measuring;
  bool json = false;
  bool quiet = false;
  line.add_option("MODEL", model, "What to read: a Hugging Face directory or a .gguf file").required().not_empty();
  line.add_option("OUT", out, "The .gguf file, or the directory, to write").required().not_empty();
  line.add_option(
          "--type", type,
          "For a .gguf file (else q8_0) one of " + llm::file_types() + "; for a directory int4 or int8 (the default)")
      .type("TYPE")
      .not_empty();
  line.add_option(
          "--importance", importance_file,
          "Let the model read this file's text first, and keep those weights most precise whose inputs are large "
          "there; prints the perplexity of the text of --text, or of this one, before and after")
      .type("FILE")
      .not_empty();
  line.add_option("--text", text_file, "Also print the perplexity of this file's text before and after")
      .type("FILE")
      .not_empty();
  measuring.add_options(line);
  line.add_json_flag(json, "Print one JSON object");
  line.add_quiet_flag("--quiet", quiet, "No messages on standard error");

  return run_command(line, argc, argv, [&] {
    require_one_process("quantize");
    const llm::PerplexityOptions options = measuring.parse();
    check_type("--type", type, llm::file_types() + ", int4, int8");
    if (text_file == "-" && importance_file == "-") {
      throw UsageError("--text and --importance both read standard input; expected a file for one of them");
    }
    llm::QuantizeOptions quantize;
    quantize.type = type;
    if (!importance_file.empty()) quantize.importance_text = read_text_file(importance_file, "--importance");
    const std::string text = text_file.empty() ? quantize.importance_text : read_text_file(text_file, "--text");
    std::optional<llm::QuantizeResult> result;
    {
      Progress progress("quantizing", ProgressUnit::Bytes, !quiet);
      quantize.progress = [&](uint64_t done, uint64_t total) { progress(done, total); };
      result = llm::quantize_model(model, out, quantize);
    }
    if (!quiet) {
      for (const std::string& note : result->notes) std::fprintf(stderr, "note: %s\n", note.c_str());
    }
    JsonValue object = {{"input", model},
                        {"output", out},
                        {"type", result->type},
                        {"bytes_before", result->bytes_before},
                        {"bytes_after", result->bytes_after},
                        {"relative_error", result->relative_error}};
    if (!importance_file.empty()) object["weighted_error"] = result->weighted_error;
    if (!json) {
      std::printf("%s: %s of weights, %s before; relative error of the quantized ones %.5f", out.c_str(),
                  format_bytes(static_cast<double>(result->bytes_after)).c_str(),
                  format_bytes(static_cast<double>(result->bytes_before)).c_str(), result->relative_error);
      if (!importance_file.empty()) std::printf(", %.5f weighted by their inputs", result->weighted_error);
      std::printf("\n");
      std::fflush(stdout);
    }
    if (!text.empty()) {
      const llm::Perplexity before = measure(model, {}, text, options, !quiet);
      const llm::Perplexity after = measure(out, {}, text, options, !quiet);
      object["before"] = perplexity_json(before);
      object["after"] = perplexity_json(after);
      if (!json) {
        std::printf("perplexity before: %s\nperplexity after:  %s\n", perplexity_text(before).c_str(),
                    perplexity_text(after).c_str());
      }
    }
    if (json) print_json(object);
    return 0;
  });
}

int run_perplexity(int argc, char** argv) {
  CommandLine line("Prints the perplexity of a text under a model: exp of the mean loss of its tokens",
                   "anyaccel perplexity");
  std::string model;
  std::string text_file;
  std::string activations = "auto";
  std::string dtype = "auto";
  std::vector<std::string> adapters, used_adapters;
  llm::LoadOptions load;
  Measuring measuring;
  bool json = false;
  bool quiet = false;
  line.add_option("--model", model, "A Hugging Face directory or a .gguf file").required().not_empty();
  line.add_option("FILE", text_file, "The text; - reads standard input").required().not_empty();
  line.add_option("--dtype", dtype, "auto, fp32, bf16 or fp16").show_default();
  line.add_option("--activations", activations, "auto, fp32 or bf16; see anyaccel generate --help").show_default();
  line.add_option("--quantize", load.quantize, "Quantize the matrices while they load: " + llm::load_types())
      .type("TYPE")
      .not_empty();
  add_adapter_options(line, adapters, used_adapters, "Measure with the adapter of this name");
  measuring.add_options(line);
  line.add_json_flag(json, "Print one JSON object");
  line.add_quiet_flag("--quiet", quiet, "No messages on standard error");

  return run_command(line, argc, argv, [&] {
    require_one_process("perplexity");
    apply_adapters(adapters, used_adapters, load);
    check_type("--quantize", load.quantize, llm::load_types());
    if (used_adapters.size() > 1) throw UsageError("--use-adapter gives several adapters; expected one");
    load.dtype = wanted_dtype(dtype);
    load.activations = wanted_activations(activations);
    llm::PerplexityOptions options = measuring.parse();
    if (!used_adapters.empty()) options.adapter = used_adapters.front();
    const llm::Perplexity found = measure(model, load, read_text_file(text_file, "FILE"), options, !quiet);
    if (json) {
      print_json(perplexity_json(found));
    } else {
      std::printf("perplexity: %s\n", perplexity_text(found).c_str());
    }
    return 0;
  });
}

}  // namespace anyaccel::cli
