// Reads vocab.json and merges.txt, in which GPT-2 and the tokenizers after it kept their tokens before there was a
// tokenizer.json.
#pragma once

#include "llm/tokenizer/settings.h"

namespace anyaccel::llm {

// Returns the tokenizer.json that has these tokens and merges, with GPT-2's steps; it bears the path of the vocab.json.
// CheckpointError for a file that is not of its kind, naming it.
TokenizerFile join_merges(const TokenizerFile& vocab_json, const TokenizerFile& merges_txt);

}  // namespace anyaccel::llm
