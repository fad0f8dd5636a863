// A lock between processes that names its owner and cannot outlive it.
#pragma once

#include <chrono>
#include <filesystem>

namespace anyaccel {

class FileLock {
 public:
  // Takes the lock of a file (made if need be), waiting for its owner for `patience` at most. Gives up at once when the
  // owner on record is a process of this host that is gone (its lock was inherited by something that lives on), or when
  // the file system has no locks, or the name is a symbolic link, a pipe or a device. Only its owner can open the file, so
  // that no other user holds the lock. `what` names the work in messages.
  FileLock(const std::filesystem::path& file, std::chrono::milliseconds patience, const std::string& what);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Whether this object holds the lock; false: go on without it, other processes may be doing the same work.
  bool held() const noexcept { return held_; }

 private:
  int descriptor_ = -1;
  bool held_ = false;
};

// "<host> <pid> <start time>": the running process in a form that another one can check.
std::string process_identity();
// Whether a process_identity() is of this host and its process is gone.
bool is_gone(const std::string& identity);

}  // namespace anyaccel
