// Generates answers by beam search: runs a session for the beams of all prompts at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "anyaccel/llm/session.h"
#include "anyaccel/llm/text_generation.h"
#include "anyaccel/llm/token_rules.h"
#include "anyaccel/llm/tokenizer.h"

namespace anyaccel::llm {

// InvalidArgument for GenerateOptions::beams out of range, or together with options that have no meaning for it.
void check_beams(const GenerateOptions& options);

// Fills the completions and timings of `result`, which has one completion for each prompt with its prompt_ids. The
// session has a sequence for each beam of each prompt and keeps logits. `rules` is complete; `context` bounds prompt and
// answer. The tokenizer may be null. All ranks of the model make the same call and get the same result.
void generate_with_beams(Session& session, const GenerateOptions& options, const TokenRules& rules, int64_t context,
                         const Tokenizer* tokenizer, GenerateResult& result);

}  // namespace anyaccel::llm
