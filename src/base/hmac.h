// Computes HMAC-SHA-256 (RFC 2104, FIPS 180-4), with which the members of a job prove to each other that they know its
// token, without sending it. Chosen over SipHash because it accepts a key of any length, and because an observed
// response does not help to find a token by trial faster than its entropy allows. Any thread; nothing blocks or throws.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace anyaccel {

using Digest = std::array<uint8_t, 32>;

Digest sha256(std::string_view data);
Digest hmac_sha256(std::string_view key, std::string_view data);

// Compares in constant time.
bool equal_digests(const Digest& a, const Digest& b) noexcept;

}  // namespace anyaccel
