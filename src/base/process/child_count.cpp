// Implements child_count.h: counting devices in a child process, where the vendor's driver can only be asked by
// starting it.
#include "base/process/child_count.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace anyaccel {
namespace {

struct Told {
  int init;
  int counted;
  int count;
};

[[noreturn]] void run_child(const std::function<void(ChildCount& answer)>& ask, int end) {
  // The caller must not see what the driver prints meanwhile.
  if (const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC); nothing >= 0) {
    dup2(nothing, STDOUT_FILENO);
    dup2(nothing, STDERR_FILENO);
  }
  ChildCount answer;
  ask(answer);
  const Told told{answer.init, answer.counted, answer.count};
  const ssize_t written = write(end, &told, sizeof(told));
  _exit(written == sizeof(told) ? 0 : 1);
}

// Returns true if all of `told` arrived before the limit.
bool read_all(int end, Told& told, std::chrono::milliseconds limit, bool& in_time) {
  const auto until = std::chrono::steady_clock::now() + limit;
  size_t have = 0;
  in_time = true;
  while (have < sizeof(told)) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    pollfd waiting{end, POLLIN, 0};
    const int ready = left <= 0 ? 0 : poll(&waiting, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      in_time = false;
      return false;
    }
    const ssize_t got = read(end, reinterpret_cast<char*>(&told) + have, sizeof(told) - have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;  // it died
    have += static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

ChildCount count_in_child(const std::function<void(ChildCount& answer)>& ask, std::chrono::milliseconds limit) {
  ChildCount result;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    result.problem = std::string("no pipe to a child process: ") + std::strerror(errno);
    return result;
  }
  const pid_t child = fork();
  if (child < 0) {
    result.problem = std::string("no child process can be made: ") + std::strerror(errno);
    close(ends[0]);
    close(ends[1]);
    return result;
  }
  if (child == 0) {
    close(ends[0]);
    run_child(ask, ends[1]);
  }
  close(ends[1]);
  Told told{};
  bool in_time = true;
  const bool whole = read_all(ends[0], told, limit, in_time);
  close(ends[0]);
  if (!whole) kill(child, SIGKILL);
  int status = 0;
  pid_t gone;
  do {
    gone = waitpid(child, &status, 0);
  } while (gone < 0 && errno == EINTR);
  if (whole) {
    result.init = told.init;
    result.counted = told.counted;
    result.count = told.count;
  } else if (!in_time) {
    result.problem = "starting the driver in a child process took longer than " + std::to_string(limit.count()) + " ms";
  } else {
    // A program that ignores SIGCHLD learns no status.
    const std::string how =
        gone == child && WIFSIGNALED(status) ? " by signal " + std::to_string(WTERMSIG(status)) : "";
    result.problem = "the driver ended the child process that started it" + how;
  }
  return result;
}

}  // namespace anyaccel
