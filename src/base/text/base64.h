// Decodes base64.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace anyaccel {

// Returns the bytes of a text in base64 (RFC 4648 section 4, with padding); nothing for any other text.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace anyaccel
