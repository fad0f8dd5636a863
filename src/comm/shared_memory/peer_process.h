// Checks whether another process is still alive, without confusing it with a new process with the same id.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "comm/store/socket.h"

namespace anyaccel::comm::shm {

// The identity that a process sends to others.
struct ProcessIdentity {
  int64_t pid = 0;
  uint64_t start_time = 0;     // clock ticks since boot
  uint64_t pid_namespace = 0;  // pids are not valid in another one
  friend auto operator<=>(const ProcessIdentity&, const ProcessIdentity&) = default;
};
ProcessIdentity own_identity();

// A descriptor of the calling process that becomes readable when the process ends. Empty if the kernel does not support
// it (before Linux 5.3) or denies it.
FileDescriptor open_own_pidfd() noexcept;

class PeerProcess {
 public:
  PeerProcess() = default;
  // `pidfd` is the peer's own; without one its number and start time are looked up in /proc. All groups of this process
  // share one descriptor per peer, and have none for this process itself, whose threads may be ranks.
  PeerProcess(const ProcessIdentity& identity, FileDescriptor pidfd);

  // Returns false once it has ended, even if it is still a zombie. Returns true if unknown.
  bool alive() const noexcept;

 private:
  ProcessIdentity identity_;
  std::shared_ptr<const FileDescriptor> pidfd_;
  bool own_ = false;
};

}  // namespace anyaccel::comm::shm
