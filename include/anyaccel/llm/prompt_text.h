// What a prompt may be made of.
#pragma once

#include <cstddef>
#include <string_view>

namespace anyaccel::llm {

// Bytes before the first that is not UTF-8; all of them when the text is valid. Generation takes any bytes, but a tokenizer
// that was made from text has no sensible tokens for others.
size_t valid_utf8_prefix(std::string_view text) noexcept;

}  // namespace anyaccel::llm
