// Implements `anyaccel embed`: prints vectors that stand for texts.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/llm/embed.h"
#include "anyaccel/llm/tokenizer.h"
#include "base/text/json.h"
#include "cli/commands/command_support.h"
#include "cli/commands/commands.h"
#include "cli/commands/model_options.h"
#include "cli/json_output.h"
#include "cli/prompt_file.h"

namespace anyaccel::cli {
namespace {

llm::Pooling parse_pooling(const std::string& text) {
  if (text == "mean") return llm::Pooling::Mean;
  if (text == "last") return llm::Pooling::Last;
  throw UsageError("--pooling is '" + text + "'; expected mean or last");
}

// Divides by the Euclidean norm. A vector of zeros stays one.
void normalize(std::vector<float>& vector) {
  double squares = 0;
  for (const float x : vector) squares += static_cast<double>(x) * static_cast<double>(x);
  if (squares == 0) return;
  for (float& x : vector) x = static_cast<float>(static_cast<double>(x) / std::sqrt(squares));
}

}  // namespace

int run_embed(int argc, char** argv) {
  CommandLine line("Prints a vector for each text: the model's last hidden state, pooled over the tokens",
                   "anyaccel embed");
  std::string model;
  std::vector<std::string> texts, files;
  std::string pooling = "mean";
  std::string dtype = "auto";
  std::vector<std::string> adapters, used_adapters;
  llm::LoadOptions load;
  bool unit = false;
  bool no_bos = false;
  bool json = false;
  bool quiet = false;
  line.add_option("--model", model, "A Hugging Face directory or a .gguf file").required().not_empty();
  line.add_option("--text", texts, "A text; give it again for more").one_each();
  line.add_option("--file", files, "A file that holds one text; - reads standard input").one_each().not_empty();
  line.add_option("--pooling", pooling, "mean, over all tokens, or last, the last token").show_default();
  line.add_flag("--normalize", unit, "Divide each vector by its length");
  line.add_option("--dtype", dtype, "auto, fp32, bf16 or fp16").show_default();
  add_adapter_options(line, adapters, used_adapters,
                      "Embed with the adapter of this name; several are one for each text");
  line.add_flag("--no-bos", no_bos, "Add no tokens around a text");
  line.add_json_flag(json, "Print one JSON object");
  line.add_quiet_flag("--quiet", quiet, "No messages on standard error");

  return run_command(line, argc, argv, [&] {
    require_one_process("embed");
    load.dtype = wanted_dtype(dtype);
    const llm::Pooling wanted = parse_pooling(pooling);
    for (const std::string& text : texts) check_prompt_text(text, "--text");
    for (const std::string& file : files) texts.push_back(read_text_file(file, "--file"));
    if (texts.empty()) throw UsageError("no text; give one with --text TEXT or --file FILE");
    apply_adapters(adapters, used_adapters, load);
    if (used_adapters.size() > 1 && used_adapters.size() != texts.size()) {
      throw UsageError("--use-adapter gives " + std::to_string(used_adapters.size()) + " adapters for " +
                       std::to_string(texts.size()) + " texts; expected one for all, or one for each");
    }
    used_adapters.resize(texts.size(), used_adapters.empty() ? "" : used_adapters.front());
    get_accelerator();
    const llm::TextGenerator generator = load_generator(model, load, !quiet);
    if (!quiet) print_model_summary(model, "", generator);
    const std::shared_ptr<const llm::Model> shared(std::shared_ptr<void>(), &generator.model());
    JsonValue embeddings = JsonArray();
    for (size_t number = 0; number < texts.size(); ++number) {
      const std::vector<int32_t> ids = generator.tokenizer()->encode(texts[number], !no_bos);
      std::vector<float> vector = llm::embed(shared, ids, wanted, used_adapters[number]);
      if (unit) normalize(vector);
      if (json) {
        embeddings.push_back({{"tokens", ids.size()}, {"embedding", vector}});
        continue;
      }
      for (size_t i = 0; i < vector.size(); ++i)
        std::printf("%s%.9g", i == 0 ? "" : " ", static_cast<double>(vector[i]));
      std::printf("\n");
    }
    if (json) print_json({{"model", model}, {"pooling", pooling}, {"embeddings", std::move(embeddings)}});
    return 0;
  });
}

}  // namespace anyaccel::cli
