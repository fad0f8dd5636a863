// Implements --save_pid: a file with the launcher's process id for other programs.
#pragma once

#include <sys/types.h>

#include <string>

namespace anyaccel::launcher {

// /tmp/PID.anyaccel (or in TMPDIR), where PID is this process's id, which is also its contents. The process that
// created the file removes it when the object is destroyed. Error if it cannot be written.
class PidFile {
 public:
  explicit PidFile(bool wanted);
  ~PidFile();
  PidFile(const PidFile&) = delete;
  PidFile& operator=(const PidFile&) = delete;

 private:
  std::string path_;  // empty: none
  pid_t owner_;
};

}  // namespace anyaccel::launcher
