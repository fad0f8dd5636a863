// Runs a small job of this program on this host.
#include "cli/bench/rank_processes.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <string_view>

#include "anyaccel/error.h"
#include "launcher/plan/addresses.h"

extern char** environ;

namespace anyaccel::cli::bench {

namespace {

std::string random_token() {
  std::random_device entropy;
  std::string token;
  for (int i = 0; i < 32; ++i) token += "0123456789abcdef"[entropy() % 16];
  return token;
}

// Returns the environment of this process with `changes` ("NAME=value") applied.
std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  std::vector<std::string> result = changes;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const bool changed =
        std::any_of(changes.begin(), changes.end(), [&](const auto& c) { return c.starts_with(name); });
    if (!changed) result.emplace_back(text);
  }
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string read_line(int fd) {
  std::string line;
  char letter = 0;
  for (;;) {
    const ssize_t got = read(fd, &letter, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw Error("a rank of the benchmark ended early");
    if (letter == '\n') return line;
    line += letter;
  }
}

}  // namespace

RankProcesses::RankProcesses(const std::vector<std::vector<int>>& cores, const std::vector<std::string>& arguments) {
  const std::string size = std::to_string(cores.size());
  const std::string port = std::to_string(launcher::free_port());
  const std::string token = random_token();
  try {
    for (size_t i = 0; i < cores.size(); ++i) {
      const std::string rank = std::to_string(i);
      start(static_cast<int>(i), cores[i], arguments,
            environment_with({"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port, "WORLD_SIZE=" + size, "RANK=" + rank,
                              "LOCAL_RANK=" + rank, "LOCAL_SIZE=" + size, "CROSS_RANK=0", "CROSS_SIZE=1",
                              "OMP_NUM_THREADS=" + std::to_string(cores[i].size()), "ANYACCEL_JOB_TOKEN=" + token}));
    }
  } catch (...) {
    end();
    throw;
  }
}

RankProcesses::~RankProcesses() { end(); }

void RankProcesses::end() {
  // End of input ends a working rank.
  for (const Process& process : processes_) close(process.commands);
  constexpr int tries = 500;
  for (const Process& process : processes_) {
    bool ended = false;
    for (int i = 0; i < tries && !ended; ++i) {
      ended = waitpid(process.pid, nullptr, WNOHANG) != 0;
      if (!ended) usleep(10'000);
    }
    if (!ended) {
      kill(process.pid, SIGKILL);
      waitpid(process.pid, nullptr, 0);
    }
    close(process.answers);
  }
}

void RankProcesses::start(int rank, const std::vector<int>& cores, const std::vector<std::string>& arguments,
                          const std::vector<std::string>& environment) {
  int commands[2];
  int answers[2];
  if (pipe2(commands, O_CLOEXEC) != 0) throw Error("cannot make a pipe to rank " + std::to_string(rank));
  if (pipe2(answers, O_CLOEXEC) != 0) {
    close(commands[0]);
    close(commands[1]);
    throw Error("cannot make a pipe from rank " + std::to_string(rank));
  }
  // All memory is allocated before the fork: the child of a process with threads may only make system calls.
  std::vector<std::string> words = {"/proc/self/exe"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = environment;
  const std::vector<char*> argv = pointers_to(words);
  const std::vector<char*> envp = pointers_to(variables);
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(commands[0], STDIN_FILENO);
    dup2(answers[1], STDOUT_FILENO);
    if (sched_setaffinity(0, sizeof(set), &set) == 0) execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  close(commands[0]);
  close(answers[1]);
  if (pid < 0) {
    close(commands[1]);
    close(answers[0]);
    throw Error("cannot start rank " + std::to_string(rank));
  }
  processes_.push_back({pid, commands[1], answers[0]});
}

std::vector<std::string> RankProcesses::ask(const std::string& command) {
  const std::string line = command + "\n";
  for (const Process& process : processes_) {
    if (write(process.commands, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      throw Error("a rank of the benchmark ended early");
    }
  }
  std::vector<std::string> lines;
  for (const Process& process : processes_) lines.push_back(read_line(process.answers));
  return lines;
}

}  // namespace anyaccel::cli::bench
