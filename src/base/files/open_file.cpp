// Reads files that other processes may write to meanwhile.
#include "base/files/open_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "anyaccel/error.h"

namespace anyaccel {
namespace {

// A system call takes at most 2 GiB.
constexpr size_t most_at_once = size_t{1} << 30;

bool same(const struct timespec& a, const struct timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

}  // namespace

bool has_name(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::symlink_status(path, error));
}

OpenFile::OpenFile(const std::filesystem::path& path)
    : path_(path.string()), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_ < 0 && errno == ENOENT) {
    std::error_code error;
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    throw CheckpointError(path_ + (error ? ": no such file"
                                         : ": is a link to " + target.string() +
                                               ", which does not exist; download the model again, or copy it with the "
                                               "files that its links lead to (cp -rL)"));
  }
  if (fd_ < 0) throw CheckpointError(path_ + ": cannot be opened: " + std::strerror(errno));
  const bool known = ::fstat(fd_, &opened_) == 0;
  if (known && S_ISREG(opened_.st_mode)) return;
  const std::string reason = known ? "not a file" : std::string("cannot be read: ") + std::strerror(errno);
  ::close(fd_);
  throw CheckpointError(path_ + ": " + reason);
}

OpenFile::~OpenFile() { ::close(fd_); }

void OpenFile::read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_, out.data(), std::min(out.size(), most_at_once), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw CheckpointError(path_ + ": byte " + std::to_string(offset) + " cannot be read: " + std::strerror(errno));
    }
    if (got == 0) {
      const std::string what = change();
      throw CheckpointError(path_ + ": has no byte " + std::to_string(offset) + ": " +
                            (what.empty() ? "it has " + std::to_string(bytes()) + " bytes" : what));
    }
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
}

std::string OpenFile::change() const {
  struct stat now = {};
  if (::fstat(fd_, &now) != 0) return std::string("it cannot be looked at any more: ") + std::strerror(errno);
  if (now.st_size != opened_.st_size) {
    return "it had " + std::to_string(opened_.st_size) + " bytes when it was opened and has " +
           std::to_string(now.st_size) + " now";
  }
  if (!same(now.st_mtim, opened_.st_mtim)) return "its time of modification changed since it was opened";
  // A writer can reset the modification time, but not the change time. That also changes with links and permissions.
  const bool explained = now.st_nlink != opened_.st_nlink || now.st_mode != opened_.st_mode ||
                         now.st_uid != opened_.st_uid || now.st_gid != opened_.st_gid;
  if (!same(now.st_ctim, opened_.st_ctim) && !explained) return "its time of change moved since it was opened";
  return {};
}

void OpenFile::check_unchanged() const {
  const std::string what = change();
  if (what.empty()) return;
  throw CheckpointError(path_ + ": was written to while it was in use: " + what +
                        "; start again once it is complete (write new weights beside it and rename them over it, and a "
                        "running program keeps the old ones)");
}

bool OpenFile::is_unchanged_at(const std::filesystem::path& path) const {
  struct stat there = {};
  return ::stat(path.c_str(), &there) == 0 && there.st_dev == opened_.st_dev && there.st_ino == opened_.st_ino &&
         change().empty();
}

}  // namespace anyaccel
