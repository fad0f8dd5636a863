// Resolves, listens and connects for the store's TCP sockets, with errors that name address and port.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/files/file_descriptor.h"

namespace anyaccel::comm {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  std::string text() const;  // "10.0.0.1:29500", "[::1]:29500"
  bool is_loopback() const;
};

// InvalidArgument for an unknown name; an empty list if name resolution fails temporarily.
std::vector<SocketAddress> resolve(const std::string& host, int port);

// Non-blocking sockets that listen on every address of `host` that this machine has, and on no other.
// CommunicationError if the port is in use or none of the addresses is this machine's.
std::vector<FileDescriptor> listen_on(const std::string& host, int port);

// A non-blocking, connected socket, or an empty one and the reason in `why`.
FileDescriptor connect_to(const SocketAddress& address, std::chrono::steady_clock::time_point deadline,
                          std::string& why);

// Sets TCP_NODELAY, so that small messages are not delayed.
void send_at_once(int socket);

// A non-blocking eventfd, to wake a thread that polls.
FileDescriptor make_wake();
void wake(const FileDescriptor& fd) noexcept;

}  // namespace anyaccel::comm
