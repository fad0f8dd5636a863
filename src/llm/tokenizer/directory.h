// Builds a tokenizer from all the files of a model directory that describe it.
#pragma once

#include <filesystem>
#include <memory>

#include "anyaccel/llm/tokenizer.h"
#include "base/text/json.h"
#include "llm/tokenizer/settings.h"

namespace anyaccel::llm {

// Reads the files that exist. CheckpointError for a file that cannot be read or is too large.
TokenizerFiles read_tokenizer_files(const std::filesystem::path& dir);

// Like Tokenizer::load; `dir` names the directory in error messages.
std::unique_ptr<Tokenizer> load_tokenizer(const TokenizerFiles& files, const std::string& dir);

// Returns the built-in steps of a class (not Generic) around its merges, in the form of a tokenizer.json.
JsonDocument class_steps(TokenizerClass kind, const TokenizerSettings& settings);

}  // namespace anyaccel::llm
