// Parses the command line with one table of options.
#include "options.h"

#include <charconv>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <vector>

namespace {

struct Option {
  const char* name;
  const char* value;  // placeholder of the value in the help; null: the option has no value
  const char* meaning;
  std::function<void(const std::string&)> set;
};

template <class Number>
Number parse_number(const std::string& name, const std::string& text, Number low, Number high) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= low && value <= high)) {
    throw std::runtime_error(name + ": '" + text + "' is not a number from " + std::to_string(low) + " to " +
                             std::to_string(high));
  }
  return value;
}

template <class Number>
std::string shortest_text(Number number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

std::vector<Option> table(Options& o) {
  const auto whole = [](const char* name, const char* meaning, int64_t& to, int64_t low, int64_t high) {
    return Option{name, "N", meaning, [=, &to](const std::string& text) { to = parse_number(name, text, low, high); }};
  };
  const auto number = [](const char* name, const char* meaning, double& to, double low, double high) {
    return Option{name, "X", meaning, [=, &to](const std::string& text) { to = parse_number(name, text, low, high); }};
  };
  const auto text = [](const char* name, const char* value, const char* meaning, std::string& to) {
    return Option{name, value, meaning, [=, &to](const std::string& given) {
                    if (given.empty())
                      throw std::runtime_error(std::string(name) + ": expected " + value + " after it, not ''");
                    to = given;
                  }};
  };
  const auto choice = [](const char* name, const char* choices, const char* meaning, std::string& to) {
    return Option{name, choices, meaning, [=, &to](const std::string& given) {
                    const std::string list = std::string("|") + choices + "|";
                    if (given.empty() || list.find("|" + given + "|") == std::string::npos) {
                      throw std::runtime_error(std::string(name) + ": '" + given + "' is not one of " + choices);
                    }
                    to = given;
                  }};
  };
  constexpr int64_t kMany = int64_t{1} << 30;
  return {
      choice("--model", "decoder|encoder", "kind of model", o.model),
      whole("--hidden", "hidden size", o.hidden, 1, kMany),
      whole("--layers", "layers", o.layers, 1, 10000),
      whole("--heads", "query heads", o.heads, 1, kMany),
      whole("--kv-heads", "key/value heads (decoder)", o.kv_heads, 1, kMany),
      whole("--intermediate", "intermediate size of the MLP", o.intermediate, 1, kMany),
      number("--dropout", "dropout probability (encoder)", o.dropout, 0, 0.9),
      whole("--steps", "steps of the whole training run", o.steps, 1, kMany),
      whole("--until", "stop after this step; --resume continues later", o.until, 1, kMany),
      whole("--batch", "sequences per step, over all ranks", o.batch, 1, kMany),
      whole("--length", "tokens per sequence", o.length, 2, kMany),
      whole("--pieces", "micro-batches into which each rank splits its sequences", o.pieces, 1, kMany),
      choice("--schedule", "constant|linear|cosine", "learning rate schedule", o.schedule),
      number("--rate", "largest learning rate", o.rate, 0, 10),
      number("--final-rate", "learning rate of the last step, as a fraction of the largest", o.final_rate, 0, 1),
      whole("--warmup", "steps over which the learning rate rises to the largest", o.warmup, 0, kMany),
      number("--clip", "largest norm of the gradients; 0: they are not clipped", o.clip, 0, 1e9),
      choice("--optimizer", "adam|lamb|lion|adagrad", "optimizer", o.optimizer),
      number("--weight-decay", "weight decay of the matrices", o.weight_decay, 0, 10),
      choice("--dtype", "float32|bfloat16|float16", "dtype of matrix products and activations", o.dtype),
      text("--offload", "host|DIR", "keep the optimizer states on the host, or in a file in DIR", o.offload),
      {"--seed", "N", "seed of the initial weights, the batches and dropout",
       [&o](const std::string& given) { o.seed = parse_number("--seed", given, uint64_t{0}, UINT64_MAX); }},
      text("--text", "FILE", "text to train on; lines of dashes separate its documents (decoder)", o.text),
      text("--tokenizer", "DIR", "use the tokenizer of this model directory instead of bytes (decoder)", o.tokenizer),
      text("--weights", "DIR", "start from the weights of this model directory (decoder)", o.weights),
      whole("--save-every", "steps between checkpoints (default: one at the end)", o.save_every, 1, kMany),
      {"--resume", nullptr, "continue from the newest checkpoint in OUT",
       [&o](const std::string&) { o.resume = true; }},
      whole("--bench", "time N steps, print JSON and save nothing", o.bench, 1, 1000000),
      {"--help", nullptr, "print this help", [&o](const std::string&) { o.help = true; }},
  };
}

}  // namespace

std::string usage() {
  Options defaults;
  std::string text =
      "usage: anyaccel_train OUT [options]\n\n"
      "Trains a small model on the detected accelerator, and writes checkpoints and a plot of the loss to OUT.\n"
      "On several ranks: anyaccel launch --num_accelerators N anyaccel_train OUT [options]\n\n";
  for (const Option& option : table(defaults)) {
    std::string line = std::string("  ") + option.name + (option.value ? std::string(" ") + option.value : "");
    line.resize(std::max<size_t>(line.size() + 2, 44), ' ');
    text += line + option.meaning + "\n";
  }
  return text;
}

Options parse_options(int argc, char** argv) {
  Options options;
  const auto known = table(options);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.empty() || argument[0] != '-') {
      if (!options.out.empty()) throw std::runtime_error("'" + argument + "': expected one folder only");
      options.out = argument;
      continue;
    }
    const Option* found = nullptr;
    for (const Option& option : known) found = argument == option.name ? &option : found;
    if (!found) throw std::runtime_error("unknown option '" + argument + "'; --help lists them");
    if (found->value && i + 1 == argc) throw std::runtime_error(argument + ": expected " + found->value + " after it");
    found->set(found->value ? argv[++i] : "");
  }
  if (options.help) return options;
  if (options.out.empty() && options.bench == 0)
    throw std::runtime_error("expected a folder for the results; --help shows the usage");
  if (options.heads < 1 || options.hidden % options.heads != 0) {
    throw std::runtime_error("--hidden: " + std::to_string(options.hidden) + " is not a multiple of --heads, " +
                             std::to_string(options.heads));
  }
  if (options.model == "decoder" && options.heads % options.kv_heads != 0) {
    throw std::runtime_error("--heads: " + std::to_string(options.heads) + " is not a multiple of --kv-heads, " +
                             std::to_string(options.kv_heads));
  }
  if (options.model == "decoder" && options.hidden / options.heads % 2 != 0) {
    throw std::runtime_error("--hidden: " + std::to_string(options.hidden) + " divided by --heads is " +
                             std::to_string(options.hidden / options.heads) + "; expected an even number");
  }
  if (options.model == "encoder" && (!options.text.empty() || !options.tokenizer.empty() || !options.weights.empty())) {
    throw std::runtime_error("--text, --tokenizer and --weights need --model decoder");
  }
  return options;
}

std::string number_text(double number) { return shortest_text(number); }
std::string number_text(float number) { return shortest_text(number); }

std::map<std::string, std::string> Options::notes() const {
  return {{"model", model},
          {"hidden", std::to_string(hidden)},
          {"layers", std::to_string(layers)},
          {"heads", std::to_string(heads)},
          {"kv_heads", std::to_string(kv_heads)},
          {"intermediate", std::to_string(intermediate)},
          {"dropout", number_text(dropout)},
          {"steps", std::to_string(steps)},
          {"batch", std::to_string(batch)},
          {"length", std::to_string(length)},
          {"schedule", schedule},
          {"rate", number_text(rate)},
          {"final_rate", number_text(final_rate)},
          {"warmup", std::to_string(warmup)},
          {"clip", number_text(clip)},
          {"optimizer", optimizer},
          {"weight_decay", number_text(weight_decay)},
          {"dtype", dtype},
          {"seed", std::to_string(seed)}};
}
