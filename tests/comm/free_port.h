// A port of the loopback interface that is free at the moment.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "comm/store/socket.h"

namespace anyaccel::comm {

// Not one that the system chooses: before the caller listens, the system might give it to a connection of another process. Its
// ports for connections usually begin at 32768. Processes that run at once mostly begin their search at different ports.
inline int free_port() {
  static std::atomic<int> next{getpid() % 1000 * 19};
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (int tried = 0; tried < 19'000; ++tried) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int port = 10'000 + next++ % 19'000;
    address.sin_port = htons(static_cast<uint16_t>(port));
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return port;
  }
  ADD_FAILURE() << "no port from 10000 to 28999 is free: " << std::strerror(errno);
  return 0;
}

}  // namespace anyaccel::comm
