// Implements beam_options.h.
#include "cli/commands/beam_options.h"

#include "cli/commands/command_support.h"

namespace anyaccel::cli {

void BeamOptions::add(CommandLine& line) {
  line.add_option("--beams", beams_, "Search for the most likely answer among N at a time; see docs/generation.md")
      .type("N");
  line.add_option(
          "--length-penalty", length_penalty_,
          "With --beams: divides an answer's score by its length to this power; else 1, over 0 favours long ones")
      .type("X");
  line.add_option(
          "--early-stopping", early_stopping_,
          "With --beams: yes ends with N finished answers, no (default) when better ones are unlikely, never when "
          "there can be none")
      .type("yes|no|never");
}

void BeamOptions::check(const SamplingOptions& sampling) const {
  if (!beams_ && (length_penalty_ || early_stopping_)) {
    throw UsageError("--length-penalty and --early-stopping are about --beams N; give that too");
  }
  if (settings({}).beams > 1 && sampling.draws()) {
    throw UsageError(
        "--beams searches for the most likely answer, and --temperature, --top-k, --top-p, --min-p and --typical-p "
        "draw tokens; leave one out");
  }
}

llm::BeamSettings BeamOptions::settings(llm::BeamSettings of_file) const {
  llm::BeamSettings result = of_file;
  if (beams_) result.beams = static_cast<int32_t>(parse_integer("--beams", *beams_, 1, llm::max_beams));
  if (length_penalty_) {
    result.length_penalty = static_cast<float>(parse_number("--length-penalty", *length_penalty_, -100.0, 100.0));
  }
  if (early_stopping_ == "yes") {
    result.early_stopping = llm::EarlyStopping::Yes;
  } else if (early_stopping_ == "no") {
    result.early_stopping = llm::EarlyStopping::No;
  } else if (early_stopping_ == "never") {
    result.early_stopping = llm::EarlyStopping::Never;
  } else if (early_stopping_) {
    throw UsageError("--early-stopping is '" + *early_stopping_ + "'; expected yes, no or never");
  }
  return result;
}

void BeamOptions::apply(llm::GenerateOptions& options, const llm::GenerationConfig& config) const {
  const llm::BeamSettings chosen = settings(config.beams);
  if (chosen.beams < 2) return;
  options.beams = chosen;
  options.sampling.temperature = 0.0f;  // of generation_config.json
}

}  // namespace anyaccel::cli
