// Implements child_count.h: queries a vendor's driver, which must be started for that, in a child process.
#include "base/process/child_count.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

namespace anyaccel {
namespace {

bool write_all(int end, const void* from, size_t size) {
  const char* next = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t written = write(end, next, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    next += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

// The child writes the length of the text before the text, because other processes that a vendor's runtime starts may
// keep the pipe open.
[[noreturn]] void run_child(const std::function<std::string()>& ask, int end) {
  // The caller must not see what the driver prints meanwhile.
  if (const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC); nothing >= 0) {
    dup2(nothing, STDOUT_FILENO);
    dup2(nothing, STDERR_FILENO);
  }
  const std::string text = ask();
  const auto length = static_cast<uint32_t>(text.size());
  _exit(write_all(end, &length, sizeof(length)) && write_all(end, text.data(), length) ? 0 : 1);
}

using Deadline = std::chrono::steady_clock::time_point;

// Returns true if all of `into` arrived before the limit.
bool read_all(int end, void* into, size_t size, Deadline until, bool& in_time) {
  for (size_t have = 0; have < size;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    pollfd waiting{end, POLLIN, 0};
    const int ready = left <= 0 ? 0 : poll(&waiting, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      in_time = false;
      return false;
    }
    const ssize_t got = read(end, static_cast<char*>(into) + have, size - have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;  // the child has died
    have += static_cast<size_t>(got);
  }
  return true;
}

bool read_text(int end, std::string& text, Deadline until, bool& in_time) {
  uint32_t length = 0;
  if (!read_all(end, &length, sizeof(length), until, in_time)) return false;
  text.resize(length);
  return read_all(end, text.data(), length, until, in_time);
}

}  // namespace

ChildAnswer ask_child(const std::function<std::string()>& ask, std::chrono::milliseconds limit) {
  ChildAnswer result;
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
  bool in_time = true;
  const bool whole = read_text(ends[0], result.text, std::chrono::steady_clock::now() + limit, in_time);
  close(ends[0]);
  if (!whole) kill(child, SIGKILL);
  int status = 0;
  pid_t gone;
  do {
    gone = waitpid(child, &status, 0);
  } while (gone < 0 && errno == EINTR);
  if (whole) return result;
  if (!in_time) {
    result.problem = "starting the driver in a child process took longer than " + std::to_string(limit.count()) + " ms";
  } else {
    // A program that ignores SIGCHLD learns no status.
    const std::string how =
        gone == child && WIFSIGNALED(status) ? " by signal " + std::to_string(WTERMSIG(status)) : "";
    result.problem = "the driver ended the child process that started it" + how;
  }
  return result;
}

ChildCount count_in_child(const std::function<void(ChildCount& answer)>& ask, std::chrono::milliseconds limit) {
  struct Told {
    int init;
    int counted;
    int count;
  };
  const auto count = [&ask] {
    ChildCount answer;
    ask(answer);
    const Told told{answer.init, answer.counted, answer.count};
    return std::string(reinterpret_cast<const char*>(&told), sizeof(told));
  };
  const ChildAnswer answer = ask_child(count, limit);
  ChildCount result;
  result.problem = answer.problem;
  if (!answer.problem.empty()) return result;
  Told told{};
  std::memcpy(&told, answer.text.data(), sizeof(told));
  result.init = told.init;
  result.counted = told.counted;
  result.count = told.count;
  return result;
}

}  // namespace anyaccel
