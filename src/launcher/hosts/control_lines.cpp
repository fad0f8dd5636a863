// Sends and receives lines of text over a TCP connection, without blocking.
#include "launcher/hosts/control_lines.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace anyaccel::launcher {
namespace {

// Longer than any line; a peer that sends more is not a launcher.
constexpr size_t longest_line = 8192;

void set_option(int descriptor, int level, int name, int value) {
  setsockopt(descriptor, level, name, &value, sizeof value);
}

}  // namespace

ControlLines::ControlLines(int descriptor) : descriptor_(descriptor) {
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, 8000);
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
}

ControlLines::~ControlLines() { close(descriptor_); }

void ControlLines::send(const std::string& line) {
  const std::string text = line + "\n";
  if (::send(descriptor_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(text.size())) {
    shutdown(descriptor_, SHUT_RDWR);
  }
}

bool ControlLines::receive() {
  char buffer[4096];
  while (text_.size() < longest_line) {
    const ssize_t got = recv(descriptor_, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got > 0) {
      text_.append(buffer, static_cast<size_t>(got));
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return true;
    } else {
      reason_ = got == 0 ? "closed" : std::strerror(errno);
      return false;
    }
  }
  reason_ = "too long a line";
  return text_.find('\n') != std::string::npos;
}

bool ControlLines::same_machine() const noexcept {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_length = sizeof own;
  socklen_t peer_length = sizeof peer;
  if (getsockname(descriptor_, reinterpret_cast<sockaddr*>(&own), &own_length) != 0 ||
      getpeername(descriptor_, reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0 ||
      own.ss_family != peer.ss_family) {
    return false;
  }
  if (own.ss_family == AF_INET) {
    return reinterpret_cast<sockaddr_in*>(&own)->sin_addr.s_addr ==
           reinterpret_cast<sockaddr_in*>(&peer)->sin_addr.s_addr;
  }
  return std::memcmp(&reinterpret_cast<sockaddr_in6*>(&own)->sin6_addr,
                     &reinterpret_cast<sockaddr_in6*>(&peer)->sin6_addr, sizeof(in6_addr)) == 0;
}

bool ControlLines::next(std::string& line) {
  const size_t end = text_.find('\n');
  if (end == std::string::npos) return false;
  line = text_.substr(0, end);
  text_.erase(0, end + 1);
  return true;
}

}  // namespace anyaccel::launcher
