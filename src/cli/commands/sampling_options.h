// Provides the options for choosing tokens, from --temperature to --grammar, of the commands that generate text.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anyaccel/llm/text_generation.h"
#include "cli/command_line.h"

namespace anyaccel::cli {

class SamplingOptions {
 public:
  // Adds the options to `line`, which writes into this object when it parses.
  void add(CommandLine& line);
  // Call it after parsing; reads the files of --grammar and --json-schema. UsageError for a text that is not a number or is out of range, and for options that exclude
  // each other.
  void check() const;
  // Returns whether the options ask for tokens to be drawn. After check().
  bool draws() const;
  // Overrides those of `options` that were given; without --seed a new one is chosen. After check(). The tokenizer
  // splits bad words into tokens.
  void apply(llm::GenerateOptions& options, const llm::Tokenizer& tokenizer) const;

 private:
  // The texts of the options; nothing where the option was not given.
  std::optional<std::string> temperature_;
  std::optional<std::string> top_k_;
  std::optional<std::string> top_p_;
  std::optional<std::string> min_p_;
  std::optional<std::string> typical_p_;
  std::optional<std::string> repetition_penalty_;
  std::optional<std::string> presence_penalty_;
  std::optional<std::string> frequency_penalty_;
  std::optional<std::string> no_repeat_ngram_size_;
  std::vector<std::string> logit_bias_;
  std::vector<std::string> bad_words_;
  std::optional<std::string> grammar_file_;
  std::optional<std::string> json_schema_file_;
  mutable std::shared_ptr<const llm::Grammar> grammar_;  // of these files, which check() reads
  std::optional<std::string> seed_;
  bool greedy_ = false;

  void apply_numbers(llm::GenerateOptions& options) const;
};

}  // namespace anyaccel::cli
