// Implements --save_pid: creates and removes the file.
#include "launcher/processes/pid_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "anyaccel/error.h"
#include "anyaccel/file_output.h"

namespace anyaccel::launcher {

PidFile::PidFile(bool wanted) : owner_(getpid()) {
  if (!wanted) return;
  const char* folder = std::getenv("TMPDIR");
  const std::string pid = std::to_string(owner_);
  path_ = std::string(folder && *folder ? folder : "/tmp") + "/" + pid + ".anyaccel";
  // An existing file of this name is left over from a process with the same id. It is replaced, never written through.
  unlink(path_.c_str());
  const int file = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  const std::string text = pid + "\n";
  const std::string reason = file < 0 ? std::strerror(errno) : write_all(file, text.data(), text.size());
  if (file >= 0) close(file);
  if (reason.empty()) return;
  if (file >= 0) unlink(path_.c_str());
  throw Error("--save_pid: \"" + path_ + "\" cannot be written: " + reason);
}

PidFile::~PidFile() {
  if (!path_.empty() && getpid() == owner_) unlink(path_.c_str());
}

}  // namespace anyaccel::launcher
