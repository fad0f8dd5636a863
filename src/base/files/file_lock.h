// Implements a lock between processes that records its owner and cannot outlive it.
#pragma once

#include <chrono>
#include <filesystem>

namespace anyaccel {

class FileLock {
 public:
  // Takes the lock of a file (created if missing), waiting for its owner for at most `patience`. Gives up at once if
  // the recorded owner is a process of this host or container that has ended (a surviving child inherited its lock), if
  // the file system has no locks, or if the name is a symbolic link, a pipe or a device. Only its owner can open the
  // file, so that no other user holds the lock. `what` names the work in messages.
  FileLock(const std::filesystem::path& file, std::chrono::milliseconds patience, const std::string& what);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Returns whether this object holds the lock; false: continue without it, other processes may be doing the same work.
  bool held() const noexcept { return held_; }

 private:
  int descriptor_ = -1;
  bool held_ = false;
};

// "<host> <pid> <start time>": identifies the running process in a form that another process can check.
std::string process_identity();
// Returns whether a process_identity() is of this host and its namespace of processes, and its process has ended.
bool is_gone(const std::string& identity);

}  // namespace anyaccel
