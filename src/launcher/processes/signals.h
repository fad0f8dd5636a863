// Signals as things to read, and their names.
#pragma once

#include <signal.h>

#include <string>

namespace anyaccel::launcher {

// While it lives, SIGCHLD, SIGINT, SIGQUIT, SIGTERM and SIGHUP of this process come out of a descriptor (signalfd; a child
// that shares it reads its own), and SIGPIPE is ignored. Signals that are ignored already (nohup) stay ignored.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_ = -1;
  sigset_t before_{};
};

// "signal 9 (SIGKILL)"
std::string signal_name(int signal);

}  // namespace anyaccel::launcher
