// Declares the Unicode properties that tokenizers need, and the normalization forms.
#pragma once

#include <string>
#include <string_view>

namespace anyaccel::llm {

bool is_white_space(char32_t c) noexcept;      // property White_Space
bool is_numeric(char32_t c) noexcept;          // categories Nd, Nl, No
bool is_punctuation(char32_t c) noexcept;      // ASCII punctuation and categories P* of Unicode 8
bool is_mark(char32_t c) noexcept;             // categories M*
bool is_nonspacing_mark(char32_t c) noexcept;  // category Mn of Unicode 8
bool is_other(char32_t c) noexcept;            // categories Cc, Cf and Co of Unicode 8

enum class NormalForm { NFC, NFD, NFKC, NFKD };
// `text` is valid UTF-8.
std::string normalize(std::string_view text, NormalForm form);
// Converts character by character, without context (a final sigma is treated as an ordinary one).
std::string lowercase(std::string_view text);

}  // namespace anyaccel::llm
