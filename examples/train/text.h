// The text that is trained on, and tokens of bytes for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

// `count` short documents of a small grammar: about seventy characters, plain ASCII. The same for the same seed everywhere.
std::vector<std::string> make_documents(uint64_t seed, size_t count);

// The documents of a file, separated by lines of nothing but dashes, without spaces around them. Throws std::runtime_error.
std::vector<std::string> read_documents(const std::string& path);

// Tokens of bytes: 0 begins a document, 1 ends it, and byte b is b + 2.
inline constexpr int32_t kBegin = 0, kEnd = 1, kFirstByte = 2, kByteTokens = 258;
std::vector<int32_t> byte_tokens(const std::string& text);
// The tokenizer.json that says so.
std::string byte_tokenizer_json();
