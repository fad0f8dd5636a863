// --save_pid: a file that tells other programs which process the launcher is.
#pragma once

#include <sys/types.h>

#include <string>

namespace anyaccel::launcher {

// /tmp/PID.anyaccel (or in TMPDIR), PID being this process, which is also what it holds. Gone when the object goes in the
// process that made it. Error when it cannot be written.
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
