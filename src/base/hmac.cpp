// Computes SHA-256 and HMAC with libsodium.
#include "base/hmac.h"

#include <sodium/crypto_auth_hmacsha256.h>
#include <sodium/crypto_hash_sha256.h>
#include <sodium/crypto_verify_32.h>

namespace anyaccel {

namespace {

const unsigned char* bytes(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

}  // namespace

// These calls cannot fail and need no sodium_init(), which only prepares random numbers and the choice of faster
// ciphers.
Digest sha256(std::string_view data) {
  Digest digest{};
  static_assert(sizeof(digest) == crypto_hash_sha256_BYTES);
  crypto_hash_sha256(digest.data(), bytes(data), data.size());
  return digest;
}

Digest hmac_sha256(std::string_view key, std::string_view data) {
  Digest digest{};
  static_assert(sizeof(digest) == crypto_auth_hmacsha256_BYTES);
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, bytes(key), key.size());
  crypto_auth_hmacsha256_update(&state, bytes(data), data.size());
  crypto_auth_hmacsha256_final(&state, digest.data());
  return digest;
}

bool equal_digests(const Digest& a, const Digest& b) noexcept {
  static_assert(sizeof(a) == crypto_verify_32_BYTES);
  return crypto_verify_32(a.data(), b.data()) == 0;
}

}  // namespace anyaccel
