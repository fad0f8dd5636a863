// The functions that fuzzers call with arbitrary bytes. They read the bytes as a file from outside and use the result;
// errors of the family anyaccel::Error are what bad files are meant to give, everything else is a defect.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anyaccel::fuzz {

// The header and data of a safetensors file.
void safetensors(const uint8_t* data, size_t size);
// The header of a GGUF file, and its tokenizer.
void gguf(const uint8_t* data, size_t size);
// A config.json and a generation_config.json.
void config(const uint8_t* data, size_t size);
// A tokenizer.json when the bytes begin with "{"; the files of a directory, each behind a line "=== <name>", when they
// begin with "=== "; else a tokenizer.model. Encodes and decodes a text with what they make.
void tokenizer(const uint8_t* data, size_t size);
// An adapter_config.json, a line "===", and the header of a safetensors file with 3072 bytes of data.
void adapter(const uint8_t* data, size_t size);
// A chat template, with which a conversation is rendered.
void chat_template(const uint8_t* data, size_t size);

// A grammar in GBNF, or a JSON Schema, with which texts are read.
void grammar(const uint8_t* data, size_t size);

// A file of --prompt-cache.
void prompt_cache(const uint8_t* data, size_t size);

}  // namespace anyaccel::fuzz
