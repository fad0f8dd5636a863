// Builds the greeting of the store's connections (see wire.h) as bytes; both sides use it, and so do tests.
#pragma once

#include <string>
#include <string_view>

namespace anyaccel::comm::wire {

std::string random_nonce();  // nonce_size bytes of the operating system
// The fixed bytes that each side sends first.
std::string greeting(bool has_token, std::string_view nonce);
// HMAC of both nonces. who: "client" or "server".
std::string proof(std::string_view token, std::string_view who, std::string_view server_nonce,
                  std::string_view client_nonce);
bool proofs_equal(std::string_view a, std::string_view b);

}  // namespace anyaccel::comm::wire
