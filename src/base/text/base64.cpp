// Decodes base64 with libsodium.
#include "base/text/base64.h"

#include <sodium/utils.h>

namespace anyaccel {

std::optional<std::string> decode_base64(std::string_view text) {
  std::string bytes(text.size() / 4 * 3 + 3, '\0');
  size_t size = 0;
  const char* end = nullptr;
  const int result = sodium_base642bin(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), text.data(),
                                       text.size(), nullptr, &size, &end, sodium_base64_VARIANT_ORIGINAL);
  if (result != 0 || end != text.data() + text.size()) return std::nullopt;
  bytes.resize(size);
  return bytes;
}

}  // namespace anyaccel
