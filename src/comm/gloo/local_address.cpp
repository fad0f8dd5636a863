// Finds the local address that other hosts of the job can reach.
#include "comm/gloo/local_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "anyaccel/error.h"

namespace anyaccel::comm {

std::string local_address_towards(const std::string& peer) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(peer.c_str(), "9", &hints, &found)) {
    throw CommunicationError("MASTER_ADDR=" + peer + " does not resolve on this host: " + gai_strerror(error));
  }
  std::string address, problem = "it has no address";
  for (const addrinfo* at = found; at && address.empty(); at = at->ai_next) {
    // Connecting a datagram socket sends nothing: the kernel chooses the route and with it the local address.
    const int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof(own);
    char text[NI_MAXHOST] = {};
    if (connect(fd, at->ai_addr, at->ai_addrlen) != 0 ||
        getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) != 0) {
      problem = std::strerror(errno);
    } else if (const int error = getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof(text), nullptr, 0,
                                             NI_NUMERICHOST)) {
      problem = gai_strerror(error);
    } else {
      address = text;
    }
    close(fd);
  }
  freeaddrinfo(found);
  if (address.empty()) throw CommunicationError("this host has no way to MASTER_ADDR=" + peer + ": " + problem);
  return address;
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

}  // namespace anyaccel::comm
