// Starts programs and reads their output, for figures that need a new process.
#include "cli/bench/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "anyaccel/error.h"

extern char** environ;

namespace anyaccel::cli::bench {

std::string output_of(const std::string& program, const std::vector<std::string>& arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error("cannot make a pipe for the output of " + program);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<std::string> texts{program};
  texts.insert(texts.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawn(&child, program.c_str(), &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string output;
  char buffer[256];
  ssize_t got = 0;
  while (error == 0 && (got = read(ends[0], buffer, sizeof(buffer))) > 0) {
    output.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  if (error != 0) throw Error("cannot start " + program);
  int status = 0;
  waitpid(child, &status, 0);
  return output;
}

std::string own_output(const std::vector<std::string>& arguments) { return output_of("/proc/self/exe", arguments); }

}  // namespace anyaccel::cli::bench
