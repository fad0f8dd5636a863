// Implements the greeting of the store's connections.
#include "comm/store/handshake.h"

#include <sys/random.h>

#include <cstring>

#include "anyaccel/error.h"
#include "base/hmac.h"
#include "comm/store/wire.h"

namespace anyaccel::comm::wire {

std::string random_nonce() {
  std::string nonce(nonce_size, '\0');
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) {
    throw CommunicationError("the operating system gave no random bytes (getrandom)");
  }
  return nonce;
}

std::string greeting(bool has_token, std::string_view nonce) {
  return std::string(magic) + (has_token ? '\1' : '\0') + std::string(nonce);
}

std::string proof(std::string_view token, std::string_view who, std::string_view server_nonce,
                  std::string_view client_nonce) {
  std::string data(who);
  data.append(server_nonce).append(client_nonce);
  const Digest digest = hmac_sha256(token, data);
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

bool proofs_equal(std::string_view a, std::string_view b) {
  Digest left{};
  Digest right{};
  if (a.size() != left.size() || b.size() != right.size()) return false;
  std::memcpy(left.data(), a.data(), left.size());
  std::memcpy(right.data(), b.data(), right.size());
  return equal_digests(left, right);
}

}  // namespace anyaccel::comm::wire
