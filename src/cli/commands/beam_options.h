// Provides the options of beam search: --beams, --length-penalty and --early-stopping.
#pragma once

#include <optional>
#include <string>

#include "anyaccel/llm/text_generation.h"
#include "cli/command_line.h"
#include "cli/commands/sampling_options.h"

namespace anyaccel::cli {

class BeamOptions {
 public:
  // Adds the options to `line`, which writes into this object when it parses.
  void add(CommandLine& line);
  // Call it after parsing. UsageError for a text that is out of range, and together with options for drawing tokens.
  void check(const SamplingOptions& sampling) const;
  // Sets GenerateOptions::beams if --beams asks for more than one; what the other options do not say is that of
  // generation_config.json. After check().
  void apply(llm::GenerateOptions& options, const llm::GenerationConfig& config) const;
  bool asked() const { return beams_.has_value(); }

 private:
  // The texts of the options; nothing where the option was not given.
  std::optional<std::string> beams_, length_penalty_, early_stopping_;

  // Overrides what was given.
  llm::BeamSettings settings(llm::BeamSettings of_file) const;
};

}  // namespace anyaccel::cli
