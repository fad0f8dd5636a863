// Provides the training text, and a tokenizer of bytes for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Generates `count` short documents from a small grammar, each about seventy characters of plain ASCII. The same seed
// gives the same documents everywhere.
std::vector<std::string> make_documents(uint64_t seed, size_t count);

// Reads the documents of a file, which are separated by lines of nothing but dashes; spaces around documents are
// removed. Throws std::runtime_error.
std::vector<std::string> read_documents(const std::string& path);

// The tokens for bytes: 0 begins a document, 1 ends it, and byte b is b + 2.
inline constexpr int32_t kBegin = 0, kEnd = 1, kFirstByte = 2, kByteTokens = 258;
std::vector<int32_t> byte_tokens(const std::string& text);
// Returns the tokenizer.json for these tokens.
std::string byte_tokenizer_json();
