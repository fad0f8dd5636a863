// Provides the options of the commands that load a model, and the summary that they print once it is loaded.
#pragma once

#include <string>

#include "anyaccel/dtype.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/text_generation.h"

namespace anyaccel::cli {

// Parses the text of --dtype; None for "auto". Throws UsageError.
DType wanted_dtype(const std::string& text);
// Parses the text of --activations. Throws UsageError.
llm::Activations wanted_activations(const std::string& text);

// Loads a model with its tokenizer. If `show_progress` and standard error is a terminal, a line shows how far it is.
llm::TextGenerator load_generator(const std::string& path, llm::LoadOptions options, bool show_progress);

// Parses the text of --kv-cache. Throws UsageError.
llm::CacheType wanted_cache(const std::string& text);

// Writes to standard error how the model was loaded, and its notes and warnings. `share` follows the size of the weights:
// " on rank 0 of 2".
void print_model_summary(const std::string& path, const std::string& share, const llm::TextGenerator& generator);

}  // namespace anyaccel::cli
