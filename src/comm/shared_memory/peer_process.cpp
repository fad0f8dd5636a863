// Checks whether another process is still alive, without confusing it with a new process with the same id.
#include "comm/shared_memory/peer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace anyaccel::comm::shm {
namespace {

// Field 22 of /proc/PID/stat; 0 when there is no such process or it is a zombie.
uint64_t start_time_of(int64_t pid) noexcept {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%lld/stat", static_cast<long long>(pid));
  const FileDescriptor file(open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return 0;
  char text[1024];
  const ssize_t got = read(file.get(), text, sizeof(text) - 1);
  if (got <= 0) return 0;
  text[got] = '\0';
  // The program's name is in parentheses and may contain anything, parentheses too.
  const char* at = std::strrchr(text, ')');
  if (!at || at[1] == '\0' || at[2] == 'Z' || at[2] == 'X') return 0;
  ++at;  // before field 3
  for (int field = 3; field < 22 && at; ++field) at = std::strchr(at + 1, ' ');
  return at ? std::strtoull(at, nullptr, 10) : 0;
}

uint64_t own_pid_namespace() noexcept {
  struct stat file {};
  return stat("/proc/self/ns/pid", &file) == 0 ? static_cast<uint64_t>(file.st_ino) : 0;
}

// Returns the descriptor of that process that other groups already hold, else this one.
std::shared_ptr<const FileDescriptor> kept_pidfd(const ProcessIdentity& identity, FileDescriptor pidfd) {
  static std::mutex mutex;
  static auto* const kept =
      new std::map<ProcessIdentity, std::weak_ptr<const FileDescriptor>>;  // outlives every thread
  const std::lock_guard lock(mutex);
  std::erase_if(*kept, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const FileDescriptor>& known = (*kept)[identity];
  if (auto descriptor = known.lock()) return descriptor;
  auto descriptor = std::make_shared<const FileDescriptor>(std::move(pidfd));
  known = descriptor;
  return descriptor;
}

}  // namespace

ProcessIdentity own_identity() { return {getpid(), start_time_of(getpid()), own_pid_namespace()}; }

FileDescriptor open_own_pidfd() noexcept {
#ifdef SYS_pidfd_open
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
#else
  return {};
#endif
}

PeerProcess::PeerProcess(const ProcessIdentity& identity, FileDescriptor pidfd)
    : identity_(identity), own_(identity == own_identity()) {
  if (!pidfd || own_) return;
  if (identity.start_time == 0) {  // cannot be distinguished from another with the same id
    pidfd_ = std::make_shared<FileDescriptor>(std::move(pidfd));
    return;
  }
  pidfd_ = kept_pidfd(identity, std::move(pidfd));
}

bool PeerProcess::alive() const noexcept {
  if (own_) return true;
  if (pidfd_) {
    pollfd entry{pidfd_->get(), POLLIN, 0};
    return poll(&entry, 1, 0) <= 0;
  }
  if (identity_.start_time == 0 || identity_.pid_namespace != own_pid_namespace()) return true;
  return start_time_of(identity_.pid) == identity_.start_time;
}

}  // namespace anyaccel::comm::shm
