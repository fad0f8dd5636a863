// Looks up names, addresses and ports of hosts.
#include "launcher/plan/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>

#include "anyaccel/error.h"

namespace anyaccel::launcher {
namespace {

class Socket {
 public:
  Socket(int family, int type) : descriptor_(socket(family, type | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

// Binds a port as a server would: a port in TIME_WAIT counts as free.
bool bind_port(int descriptor, int port) {
  const int on = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
         listen(descriptor, 1) == 0;
}

std::string text_of(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST];
  if (getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text;
}

addrinfo* look_up(const std::string& name, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  return getaddrinfo(name.c_str(), nullptr, &hints, &list) == 0 ? list : nullptr;
}

}  // namespace

bool port_is_free(int port) {
  const Socket server(AF_INET, SOCK_STREAM);
  return server.get() >= 0 && bind_port(server.get(), port);
}

int free_port() {
  // The port is bound by a rank, later. Until then the kernel may give any port of its own range to another socket.
  constexpr int first = 10240;
  int kernel_first = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> kernel_first;
  if (kernel_first > first) {
    std::random_device random;
    std::uniform_int_distribution<int> ports(first, kernel_first - 1);
    for (int attempt = 0; attempt < 64; ++attempt) {
      const int port = ports(random);
      if (port_is_free(port)) return port;
    }
  }
  const Socket server(AF_INET, SOCK_STREAM);
  sockaddr_in address{};
  socklen_t length = sizeof address;
  if (server.get() < 0 || !bind_port(server.get(), 0) ||
      getsockname(server.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw Error(std::string("there is no free TCP port: ") + std::strerror(errno));
  }
  return ntohs(address.sin_port);
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> version4;
  std::vector<std::string> version6;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP) || (entry->ifa_flags & IFF_LOOPBACK)) continue;
    if (entry->ifa_addr->sa_family == AF_INET) {
      version4.push_back(text_of(entry->ifa_addr, sizeof(sockaddr_in)));
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* address = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      if (!IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)) {
        version6.push_back(text_of(entry->ifa_addr, sizeof(sockaddr_in6)));
      }
    }
  }
  freeifaddrs(list);
  version4.insert(version4.end(), version6.begin(), version6.end());
  return version4;
}

std::string resolve(const std::string& name) {
  addrinfo* list = look_up(name, 0);
  if (!list) return {};
  const addrinfo* best = list;
  for (const addrinfo* entry = list; entry; entry = entry->ai_next) {
    if (entry->ai_family == AF_INET) {
      best = entry;
      break;
    }
  }
  const std::string text = text_of(best->ai_addr, best->ai_addrlen);
  freeaddrinfo(list);
  return text;
}

bool is_loopback(const std::string& address) { return address.compare(0, 4, "127.") == 0 || address == "::1"; }

std::string source_address(const std::string& address) {
  addrinfo* list = look_up(address, AI_NUMERICHOST);
  if (!list) return {};
  std::string text;
  const Socket socket(list->ai_family, SOCK_DGRAM);
  sockaddr_storage target{};
  std::memcpy(&target, list->ai_addr, list->ai_addrlen);
  if (target.ss_family == AF_INET) {  // any port: nothing is sent
    reinterpret_cast<sockaddr_in*>(&target)->sin_port = htons(9);
  } else {
    reinterpret_cast<sockaddr_in6*>(&target)->sin6_port = htons(9);
  }
  if (socket.get() >= 0 && connect(socket.get(), reinterpret_cast<const sockaddr*>(&target), list->ai_addrlen) == 0) {
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0) {
      text = text_of(reinterpret_cast<const sockaddr*>(&own), length);
    }
  }
  freeaddrinfo(list);
  return text;
}

}  // namespace anyaccel::launcher
