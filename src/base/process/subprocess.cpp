// Runs a program to its end and collects its output.
#include "base/process/subprocess.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "anyaccel/error.h"
#include "base/files/files.h"
#include "base/process/start_thread.h"

namespace anyaccel {
namespace {

// `has_status` becomes false if another part of the program has taken how the process ended.
ProcessResult run_once(const std::vector<std::string>& argv, bool& has_status) {
  ProcessResult result;
  std::filesystem::path temporary;
  try {
    temporary = temporary_place();
  } catch (const UnavailableError& error) {
    result.exit_code = 127;
    result.output = argv[0] + ": " + error.what();
    return result;
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    result.output = std::string("pipe: ") + std::strerror(errno);
    return result;
  }
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  // The compiler gets default signal handling, as if a shell had started it.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  // Parts of a compiler exchange files in TMPDIR.
  const std::string place = "TMPDIR=" + temporary.string();
  std::vector<char*> variables{const_cast<char*>(place.c_str())};
  for (char** entry = environ; *entry; ++entry) {
    if (std::strncmp(*entry, "TMPDIR=", 7) != 0) variables.push_back(*entry);
  }
  variables.push_back(nullptr);
  const int error = posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    result.exit_code = 127;
    result.output = argv[0] + ": " + std::strerror(error) + cure_of_refusal(error);
    return result;
  }
  char buffer[4096];
  for (;;) {
    const ssize_t got = read(ends[0], buffer, sizeof(buffer));
    if (got > 0) {
      result.output.append(buffer, static_cast<size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      break;
    }
  }
  close(ends[0]);
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
  }
  has_status = ended == child;
  if (has_status) result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

// Returns whether the kernel discards how children end.
bool ignores_children() {
  struct sigaction action = {};
  return sigaction(SIGCHLD, nullptr, &action) == 0 &&
         (action.sa_handler == SIG_IGN || (action.sa_flags & SA_NOCLDWAIT) != 0);
}

}  // namespace

ProcessResult run_program(const std::vector<std::string>& argv) {
  ProcessResult result;
  bool has_status = true;
  if (!ignores_children()) {
    result = run_once(argv, has_status);
    if (has_status) return result;
  }
  // Nobody knows how the program ended, or another part of this one, which waits for every child. A shell can say it in its
  // output.
  std::vector<std::string> told = {"sh", "-c", "\"$@\"; code=$?; printf '\\n%d' $code; exit $code", "sh"};
  told.insert(told.end(), argv.begin(), argv.end());
  result = run_once(told, has_status);
  const size_t end = result.output.rfind('\n');
  if (end == std::string::npos) return result;
  const char* const last = result.output.data() + result.output.size();
  int code = 0;
  const auto number = std::from_chars(result.output.data() + end + 1, last, code);
  // A process that the program left behind may have written after the shell.
  if (number.ec != std::errc() || number.ptr != last) return result;
  result.exit_code = code;
  result.output.resize(end);
  return result;
}

}  // namespace anyaccel
