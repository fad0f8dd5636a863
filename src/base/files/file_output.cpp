// Writes files so that a full disk, a quota or a limit on the size of files is an error with a reason.
#include "anyaccel/file_output.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>
#include <system_error>

#include "base/files/unfinished_files.h"

namespace anyaccel {

namespace fs = std::filesystem;

namespace {

// Blocks the signals of a write in this thread, SIGXFSZ (too large a file) and SIGPIPE (nobody reads the pipe), so that the
// write reports them instead.
class NoWriteSignals {
 public:
  NoWriteSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGXFSZ);
    sigaddset(&signals_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~NoWriteSignals() {
    const int error = errno;
    for (const int signal : {SIGXFSZ, SIGPIPE}) {
      if (sigismember(&before_, signal) == 1) sigdelset(&signals_, signal);
    }
    const timespec now{};
    while (sigtimedwait(&signals_, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  NoWriteSignals(const NoWriteSignals&) = delete;
  NoWriteSignals& operator=(const NoWriteSignals&) = delete;

 private:
  sigset_t signals_{};
  sigset_t before_{};
};

// Writes a new file in the folder of `path` and renames it. `like`: the existing file, whose permissions are kept;
// null: permissions follow the umask.
std::string write_beside(const fs::path& path, std::string_view text, const struct stat* like) {
  const fs::path fresh = unfinished_path(path);
  std::optional<UnfinishedFile> unfinished;
  const int file = create_unfinished_file(fresh, 0666, unfinished);
  if (file < 0) return write_problem(errno);
  if (like != nullptr) (void)!::fchmod(file, like->st_mode & 07777);
  std::string reason = write_all(file, text.data(), text.size());
  if (::close(file) != 0 && reason.empty()) reason = write_problem(errno);
  if (reason.empty() && std::rename(fresh.c_str(), path.c_str()) == 0) return "";
  if (reason.empty()) reason = write_problem(errno);
  ::unlink(fresh.c_str());
  return reason;
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// Returns whether the process may write to the path; if not, errno has the reason.
bool may_write(const fs::path& path) {
  std::error_code error;
  const int how = fs::is_directory(path, error) ? W_OK | X_OK : W_OK;
  return faccessat(AT_FDCWD, path.c_str(), how, AT_EACCESS) == 0;
}

}  // namespace

std::string write_problem(int error) {
  std::string text = std::strerror(error);
  rlimit limit{};
  if (error == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    text += ": the limit on the size of files of this process is " + std::to_string(limit.rlim_cur) +
            " bytes; raise it with `ulimit -f`";
  }
  if (error == ENOSPC) text += "; make room there, or write to another disk";
  if (error == EDQUOT) text += "; delete files of yours there, or write to another disk";
  return text;
}

std::string write_all(int file, const void* data, size_t bytes) {
  const NoWriteSignals guard;
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return write_problem(errno);
    if (written == 0) return "the file system takes no more";
    next += written;
    bytes -= static_cast<size_t>(written);
  }
  return "";
}

std::string write_output_file(const fs::path& path, std::string_view text) {
  const fs::path target = path_to_replace(path);
  struct stat found {};
  const bool there = ::stat(target.c_str(), &found) == 0;
  // A file in a folder that is not writable can only be overwritten in place.
  if (there && (!S_ISREG(found.st_mode) || !may_write(folder_of(target)))) {
    const int file = ::open(target.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (file < 0) return write_problem(errno);
    std::string reason = write_all(file, text.data(), text.size());
    if (::close(file) != 0 && reason.empty()) reason = write_problem(errno);
    return reason;
  }
  return write_beside(target, text, there ? &found : nullptr);
}

std::string output_file_problem(const fs::path& path) {
  if (!path.has_filename()) return std::strerror(EISDIR);
  const fs::path target = path_to_replace(path);
  struct stat found {};
  if (::stat(target.c_str(), &found) == 0) {
    if (S_ISDIR(found.st_mode)) return std::strerror(EISDIR);
    return may_write(target) ? "" : std::strerror(errno);
  }
  if (errno != ENOENT) return std::strerror(errno);
  const fs::path folder = folder_of(target);
  return may_write(folder) ? "" : "the folder " + folder.string() + ": " + std::strerror(errno);
}

}  // namespace anyaccel
