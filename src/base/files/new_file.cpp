// Writes to a temporary file that is renamed at the end.
#include "base/files/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "anyaccel/error.h"
#include "anyaccel/file_output.h"

namespace anyaccel {

NewFile::NewFile(std::filesystem::path path) : path_(std::move(path)) {
  for (int attempt = 0; fd_ < 0; ++attempt) {
    temporary_ = path_;
    temporary_ += ".tmp." + std::to_string(::getpid()) + "." + std::to_string(attempt);
    fd_ = create_unfinished_file(temporary_, 0666, unfinished_);
    if (fd_ < 0 && (errno != EEXIST || attempt == 1000)) {
      throw Error(temporary_.string() + ": cannot be created: " + write_problem(errno));
    }
  }
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
