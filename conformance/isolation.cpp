// Implements isolation.h: runs a case in a process of its own, under a watchdog.
#include "conformance/isolation.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <thread>

namespace anyaccel::conformance {
namespace {

using Clock = std::chrono::steady_clock;

const char* while_doing(Stage stage) {
  switch (stage) {
    case Stage::opening: return "while the driver was opened";
    case Stage::running: return "while the case ran";
    case Stage::closing: return "while the driver was closed";
    case Stage::finished: return "after the driver was closed";
  }
  return "";
}

// Waits for a child to end and writes its status; returns false if the time is over first. SIGCHLD is not used, since a
// program that uses the suite may have a handler for it.
bool ends(pid_t child, Clock::time_point deadline, int& status) {
  auto pause = std::chrono::microseconds(100);
  for (;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return true;
    if (ended < 0 && errno != EINTR) return true;  // reaped by somebody else: the slot decides
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(5000));
  }
}

// The first bytes of a file, on one line.
std::string beginning(int file) {
  char buffer[200];
  const ssize_t size = pread(file, buffer, sizeof(buffer), 0);
  std::string text(buffer, size > 0 ? static_cast<size_t>(size) : 0);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

SharedSlot::SharedSlot() {
  void* memory = mmap(nullptr, sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  slot_ = new (memory) Slot;
}

SharedSlot::~SharedSlot() { munmap(slot_, sizeof(Slot)); }

void SharedSlot::reset() const noexcept { new (slot_) Slot; }

std::string run_in_child(const std::function<void()>& body, const Slot& slot, std::chrono::milliseconds timeout,
                         std::string& printed) {
  std::fflush(nullptr);  // otherwise the child would write buffered output a second time
  const int output = memfd_create("standard output of a case", MFD_CLOEXEC);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    const std::string reason = std::strerror(errno);
    if (output >= 0) close(output);
    return "there could be no process for the case: fork: " + reason;
  }
  if (child == 0) {
    setpgid(0, 0);  // a process group that includes its own children, so that all of them can be killed
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    // Standard output is reserved for the report.
    dup2(output >= 0 ? output : STDERR_FILENO, STDOUT_FILENO);
    body();
    std::fflush(stdout);
    _exit(0);  // no destructors: they belong to the parent
  }
  setpgid(child, child);  // parent and child both set it, whichever runs first
  int status = 0;
  const bool ended = ends(child, Clock::now() + timeout, status);
  if (!ended || slot.stage != Stage::finished) kill(-child, SIGKILL);
  if (!ended) {
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  }
  printed = output >= 0 ? beginning(output) : "";
  if (output >= 0) close(output);
  const Stage stage = slot.stage;
  if (!ended) {
    return "it did not end within " + std::to_string(timeout.count() / 1000) + " s and was killed " +
           while_doing(stage);
  }
  if (stage == Stage::finished) return "";
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return "the process died of signal " + std::to_string(number) + " (" + strsignal(number) + ") " +
           while_doing(stage);
  }
  return "the process ended by itself with exit code " + std::to_string(WEXITSTATUS(status)) + " " + while_doing(stage);
}

}  // namespace anyaccel::conformance
