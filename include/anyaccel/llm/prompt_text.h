// Checks the encoding of a prompt.
#pragma once

#include <cstddef>
#include <string_view>

namespace anyaccel::llm {

// Returns the number of bytes before the first one that is not valid UTF-8; the size of the text if all are. Generation
// accepts any bytes, but a tokenizer that was trained on text has no sensible tokens for bytes that are not UTF-8.
size_t valid_utf8_prefix(std::string_view text) noexcept;

}  // namespace anyaccel::llm
