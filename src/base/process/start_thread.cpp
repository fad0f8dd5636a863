// Implements start_thread.h.
#include "base/process/start_thread.h"

#include <cerrno>
#include <cstring>

namespace anyaccel {

std::string cure_of_refusal(int error) {
  // The C library falls back to clone() only where the kernel does not know clone3().
  if (error == EPERM) {
    return "; if a filter of system calls (seccomp) refuses clone3() with this error, as Docker before 20.10.10 "
           "does, use a newer container runtime, or a filter that allows it or answers ENOSYS (docker run "
           "--security-opt seccomp=...)";
  }
  if (error == EAGAIN) {
    return "; raise the limit on processes and threads (ulimit -u, or that of the container or its control group: "
           "pids.max), or on memory (ulimit -v)";
  }
  return {};
}

std::string refused_thread(int error) {
  return "no thread can be started: " + std::string(std::strerror(error)) + cure_of_refusal(error);
}

}  // namespace anyaccel
