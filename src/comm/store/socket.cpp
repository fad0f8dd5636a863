// Resolves names, and opens TCP sockets.
#include "comm/store/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "anyaccel/error.h"
#include "base/files/open_files.h"

namespace anyaccel::comm {

std::string SocketAddress::text() const {
  char host[NI_MAXHOST] = "?";
  char port[NI_MAXSERV] = "?";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&storage), length, host, sizeof(host), port, sizeof(port),
                NI_NUMERICHOST | NI_NUMERICSERV);
  return storage.ss_family == AF_INET6 ? "[" + std::string(host) + "]:" + port : std::string(host) + ":" + port;
}

bool SocketAddress::is_loopback() const {
  if (storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
  return storage.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

std::vector<SocketAddress> resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error == EAI_AGAIN) return {};
  if (error != 0) {
    throw InvalidArgument("MASTER_ADDR=" + host + ": " + ::gai_strerror(error) +
                          "; it must be a name or address of rank 0's host that every host knows");
  }
  std::vector<SocketAddress> result;
  for (const addrinfo* entry = found; entry; entry = entry->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
    result.push_back(address);
  }
  ::freeaddrinfo(found);
  return result;
}

std::vector<FileDescriptor> listen_on(const std::string& host, int port) {
  const std::vector<SocketAddress> addresses = resolve(host, port);
  if (addresses.empty()) throw CommunicationError("MASTER_ADDR=" + host + " cannot be looked up just now");
  std::vector<FileDescriptor> sockets;
  std::string reasons;
  for (const SocketAddress& address : addresses) {
    FileDescriptor fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    // Closing connections of an earlier job do not block the port; a program that listens does.
    if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (fd && address.storage.ss_family == AF_INET6) {
      ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    }
    if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0 ||
        ::listen(fd.get(), SOMAXCONN) != 0) {
      const int error = errno;
      if (error == EADDRINUSE) {
        throw CommunicationError("port " + std::to_string(port) + " on " + host +
                                 " is in use by another program, and rank 0 wants to serve the job's store there: set "
                                 "MASTER_PORT to a free port on every rank, or end the job that uses this one");
      }
      if (error == EACCES) {
        throw CommunicationError("port " + std::to_string(port) + " on " + host + ": " + std::strerror(error) +
                                 "; set MASTER_PORT to one above 1023");
      }
      reasons += (reasons.empty() ? "" : ", ") + address.text() + ": " + system_error_text(error);
      continue;
    }
    sockets.push_back(std::move(fd));
  }
  if (sockets.empty()) {
    throw CommunicationError("rank 0 cannot serve the job's store at MASTER_ADDR=" + host + " (" + reasons +
                             "): it must be an address of the host that rank 0 runs on");
  }
  return sockets;
}

FileDescriptor connect_to(const SocketAddress& address, std::chrono::steady_clock::time_point deadline,
                          std::string& why) {
  FileDescriptor fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) {
    why = address.text() + ": " + system_error_text(errno);
    return {};
  }
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0) {
    int error = errno;
    if (error == EINPROGRESS) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      pollfd entry{fd.get(), POLLOUT, 0};
      socklen_t size = sizeof(error);
      error = ETIMEDOUT;
      if (::poll(&entry, 1, static_cast<int>(std::max<int64_t>(left.count(), 0))) > 0) {
        ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      }
    }
    if (error != 0) {
      why = address.text() + ": " + std::strerror(error);
      return {};
    }
  }
  // If no program listens, a port in the ephemeral range may connect to itself.
  SocketAddress own;
  own.length = sizeof(own.storage);
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.length) == 0 &&
      own.text() == address.text()) {
    why = address.text() + ": " + std::strerror(ECONNREFUSED);
    return {};
  }
  send_at_once(fd.get());
  return fd;
}

void send_at_once(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

FileDescriptor make_wake() {
  FileDescriptor fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) throw CommunicationError("eventfd: " + system_error_text(errno));
  return fd;
}

void wake(const FileDescriptor& fd) noexcept {
  const uint64_t one = 1;
  if (::write(fd.get(), &one, sizeof(one)) < 0) return;  // full: it is awake already
}

}  // namespace anyaccel::comm
