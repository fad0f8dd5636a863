// Receives signals through a descriptor, and names them.
#pragma once

#include <signal.h>

#include <string>

namespace anyaccel::launcher {

// While it exists, SIGCHLD, SIGINT, SIGQUIT, SIGTERM and SIGHUP of this process are read from a descriptor (signalfd; a
// child that shares it reads its own), and SIGPIPE is ignored. Signals that are ignored already (nohup) stay ignored.
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
