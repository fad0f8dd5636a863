// Provides the options of the commands that load a model, and the summary that they print once it is loaded.
#pragma once

#include <string>
#include <vector>

#include "anyaccel/dtype.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/text_generation.h"
#include "cli/command_line.h"

namespace anyaccel::cli {

// Parses the text of --dtype; None for "auto". Throws UsageError.
DType wanted_dtype(const std::string& text);
// Parses the text of --activations. Throws UsageError.
llm::Activations wanted_activations(const std::string& text);

// Loads a model with its tokenizer. If `show_progress` and standard error is a terminal, a line shows how far it is.
llm::TextGenerator load_generator(const std::string& path, llm::LoadOptions options, bool show_progress);

// Parses the text of --kv-cache. Throws UsageError.
llm::CacheType wanted_cache(const std::string& text);

// Refuses a type that is neither empty nor in `known`, a list as load_types() returns it, in upper or lower case. Throws
// UsageError.
void check_type(const std::string& option, const std::string& type, const std::string& known);

// Adds --adapter and --use-adapter, which `help` explains, to the command line.
void add_adapter_options(CommandLine& line, std::vector<std::string>& adapters, std::vector<std::string>& used,
                         const std::string& help);
// Reads the texts of --adapter: a directory is added to the model's matrices, NAME=DIR is kept apart. UsageError for two
// directories without a name, and for a name of --use-adapter that --adapter does not give.
void apply_adapters(const std::vector<std::string>& adapters, const std::vector<std::string>& used,
                    llm::LoadOptions& options);

// Writes to standard error how the model was loaded, and its notes and warnings. `share` follows the size of the weights:
// " on rank 0 of 2".
void print_model_summary(const std::string& path, const std::string& share, const llm::TextGenerator& generator);

}  // namespace anyaccel::cli
