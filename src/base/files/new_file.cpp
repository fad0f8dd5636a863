// Writes to a temporary file that is renamed at the end.
#include "base/files/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "anyaccel/error.h"
#include "anyaccel/file_output.h"

namespace anyaccel {

NewFile::NewFile(const std::filesystem::path& path) : path_(path_to_replace(path)), temporary_(unfinished_path(path_)) {
  std::error_code error;
  const std::filesystem::file_status there = std::filesystem::status(path_, error);
  std::string reason;
  if (std::filesystem::is_directory(there)) {
    reason = std::strerror(EISDIR);
  } else if (std::filesystem::is_other(there)) {
    reason = "it is a device or a pipe, which the new file would replace; name a file";
  }
  if (reason.empty()) {
    fd_ = create_unfinished_file(temporary_, 0666, unfinished_);
    if (fd_ < 0) reason = write_problem(errno);
  }
  if (!reason.empty()) throw Error(path_.string() + ": cannot be created: " + reason);
}

NewFile::~NewFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void NewFile::append(std::span<const std::byte> bytes) {
  const std::string reason = write_all(fd_, bytes.data(), bytes.size());
  if (!reason.empty()) throw Error(path_.string() + ": cannot be written: " + reason);
}

void NewFile::finish() {
  if (::fsync(fd_) != 0) throw Error(path_.string() + ": cannot be written: " + write_problem(errno));
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const std::string reason = write_problem(errno);
    ::unlink(temporary_.c_str());
    throw Error(path_.string() + ": cannot be written: " + reason);
  }
}

}  // namespace anyaccel
