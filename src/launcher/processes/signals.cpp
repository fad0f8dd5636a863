// Receives signals through a descriptor, and names them.
#include "launcher/processes/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "anyaccel/error.h"

namespace anyaccel::launcher {

SignalQueue::SignalQueue() {
  // An ignored SIGCHLD would leave nothing to wait for.
  signal(SIGCHLD, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGCHLD, SIGINT, SIGQUIT, SIGTERM, SIGHUP}) sigaddset(&set, number);
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  descriptor_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor_ < 0) throw Error(std::string("signals cannot be read: ") + std::strerror(errno));
}

SignalQueue::~SignalQueue() {
  close(descriptor_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  signal(SIGPIPE, SIG_DFL);
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return "signal " + std::to_string(signal) + (name ? std::string(" (SIG") + name + ")" : "");
}

}  // namespace anyaccel::launcher
