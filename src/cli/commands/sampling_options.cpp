// Implements sampling_options.h: adds, checks and applies the options.
#include "cli/commands/sampling_options.h"

#include <cstdint>
#include <limits>
#include <random>

#include "base/text/json.h"
#include "cli/commands/command_support.h"

namespace anyaccel::cli {

namespace {

// Writes the number of an option that was given to `value`.
void read_number(const char* option, const std::optional<std::string>& text, double low, double high, float& value) {
  if (text) value = static_cast<float>(parse_number(option, *text, low, high));
}

// Parses "ID=VALUE".
llm::SequenceBias parse_logit_bias(const std::string& text) {
  const size_t sign = text.find('=');
  if (sign == std::string::npos) {
    throw UsageError("--logit-bias is '" + text + "'; expected ID=VALUE, a token's id and a number");
  }
  llm::SequenceBias bias;
  const std::string value = text.substr(sign + 1);
  bias.ids = {static_cast<int32_t>(
      parse_integer("--logit-bias", text.substr(0, sign), 0, std::numeric_limits<int32_t>::max()))};
  bias.bias = value == "-inf" ? -std::numeric_limits<float>::infinity()
                              : static_cast<float>(parse_number("--logit-bias", value, -1e4, 1e4));
  return bias;
}

}  // namespace

void SamplingOptions::add(CommandLine& line) {
  line.add_option("--temperature", temperature_, "0 takes the most likely token; higher is more random").type("X");
  line.add_option("--top-k", top_k_, "Draw among the N most likely tokens; 0 is all").type("N");
  line.add_option("--top-p", top_p_, "Draw among the most likely tokens that make up this probability").type("X");
  line.add_option("--min-p", min_p_, "Draw among tokens at least X times as likely as the likeliest").type("X");
  line.add_option("--typical-p", typical_p_,
                  "Draw among the tokens of this probability that are as surprising as the average one; slower")
      .type("X");
  line.add_option("--repetition-penalty", repetition_penalty_, "Over 1 makes tokens that have appeared less likely")
      .type("X");
  line.add_option("--presence-penalty", presence_penalty_,
                  "-2 to 2; over 0 makes tokens that the answer has less likely")
      .type("X");
  line.add_option("--frequency-penalty", frequency_penalty_, "-2 to 2; the same for each time that the answer has them")
      .type("X");
  line.add_option("--no-repeat-ngram-size", no_repeat_ngram_size_,
                  "No N tokens in a row appear twice in prompt and answer")
      .type("N");
  line.add_option("--logit-bias", logit_bias_,
                  "Adds VALUE to the logit of token ID (-inf forbids it); may be given several times")
      .type("ID=VALUE")
      .one_each();
  line.add_option("--bad-words", bad_words_,
                  "Never these tokens in a row, with or without a space before them; may be given several times")
      .type("TEXT")
      .one_each();
  line.add_option("--grammar", grammar_file_,
                  "The answer is a text of this grammar, in llama.cpp's notation (GBNF); see docs/generation.md")
      .type("FILE")
      .not_empty();
  line.add_option("--json-schema", json_schema_file_, "The answer is a JSON text that is valid under this JSON Schema")
      .type("FILE")
      .not_empty();
  line.add_flag("--greedy", greedy_, "Always the most likely token, whatever generation_config.json says");
  line.add_option("--seed", seed_, "The same seed gives the same text; without one, a new seed is chosen").type("N");
}

void SamplingOptions::check() const {
  if (greedy_ && (temperature_ || top_k_ || top_p_ || min_p_ || typical_p_)) {
    throw UsageError(
        "--greedy always takes the most likely token; it cannot go with --temperature, --top-k, --top-p, --min-p or "
        "--typical-p");
  }
  for (const std::string& words : bad_words_) {
    if (words.empty()) throw UsageError("--bad-words is empty; expected some text");
  }
  if (grammar_file_ && json_schema_file_) {
    throw UsageError("--grammar and --json-schema both say what the answer is; give one of them");
  }
  constexpr size_t most_bytes = size_t{1} << 20;
  if (grammar_file_) grammar_ = llm::Grammar::parse_gbnf(read_whole_file(*grammar_file_, most_bytes), *grammar_file_);
  if (json_schema_file_) {
    grammar_ = llm::Grammar::parse_json_schema(read_whole_file(*json_schema_file_, most_bytes), *json_schema_file_);
  }
  llm::GenerateOptions unused;
  apply_numbers(unused);
}

bool SamplingOptions::draws() const {
  llm::GenerateOptions options;
  apply_numbers(options);
  return options.sampling.temperature > 0.0f;
}

void SamplingOptions::apply(llm::GenerateOptions& options, const llm::Tokenizer& tokenizer) const {
  apply_numbers(options);
  options.grammar = grammar_;
  for (const std::string& words : bad_words_) {
    // Most tokenizers have separate tokens for a word after a space.
    for (const char* before : {"", " "}) {
      const auto ids = tokenizer.encode(before + words, /*add_special=*/false);
      if (!ids.empty()) options.rules.bad_words_ids.push_back(ids);
    }
  }
}

void SamplingOptions::apply_numbers(llm::GenerateOptions& options) const {
  llm::Sampling& sampling = options.sampling;
  // These imply sampling.
  if ((top_k_ || top_p_ || min_p_ || typical_p_) && sampling.temperature == 0.0f) sampling.temperature = 1.0f;
  read_number("--temperature", temperature_, 0.0, 1e6, sampling.temperature);
  if (greedy_) sampling.temperature = 0.0f;
  if (top_k_) {
    sampling.top_k = static_cast<int32_t>(parse_integer("--top-k", *top_k_, 0, std::numeric_limits<int32_t>::max()));
  }
  read_number("--top-p", top_p_, 1e-6, 1.0, sampling.top_p);
  read_number("--min-p", min_p_, 0.0, 1.0, sampling.min_p);
  read_number("--typical-p", typical_p_, 1e-6, 1.0, sampling.typical_p);
  read_number("--repetition-penalty", repetition_penalty_, 1e-3, 1e3, sampling.repetition_penalty);
  read_number("--presence-penalty", presence_penalty_, -2.0, 2.0, sampling.presence_penalty);
  read_number("--frequency-penalty", frequency_penalty_, -2.0, 2.0, sampling.frequency_penalty);
  llm::TokenRules& rules = options.rules;
  if (no_repeat_ngram_size_) {
    rules.no_repeat_ngram_size =
        parse_integer("--no-repeat-ngram-size", *no_repeat_ngram_size_, 0, std::numeric_limits<int32_t>::max());
  }
  for (const std::string& text : logit_bias_) rules.sequence_bias.push_back(parse_logit_bias(text));
  if (seed_) {
    options.seed = parse_seed("--seed", *seed_);
  } else {
    std::random_device entropy;
    // 53 bits, which also those readers of --json keep that know doubles only.
    options.seed = ((uint64_t{entropy()} << 32) | entropy()) >> 11;
  }
}

}  // namespace anyaccel::cli
