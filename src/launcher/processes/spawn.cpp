// Starts one program; the child process itself sets its cores, memory, files and signals.
#include "launcher/processes/spawn.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "launcher/plan/core_list.h"

namespace anyaccel::launcher {
namespace {

enum class Step : int { Orphaned, Input, Files, LogFile, Affinity, Memory, Execute };
struct Problem {
  Step step;
  int error;
};

// All data that the child needs, prepared before the fork: the child may only make system calls.
struct Prepared {
  std::vector<char*> argv;
  std::vector<char*> environment;
  cpu_set_t* processors = nullptr;
  size_t processors_bytes = 0;
  std::vector<unsigned long> nodes;
  bool keep_group = false;

  explicit Prepared(const ProcessSpec& process) {
    for (const std::string& word : process.argv) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    for (const std::string& entry : process.environment) environment.push_back(const_cast<char*>(entry.c_str()));
    environment.push_back(nullptr);
    if (!process.binding.processors.empty()) {
      const size_t count = static_cast<size_t>(process.binding.processors.back()) + 1;
      processors = CPU_ALLOC(count);
      processors_bytes = CPU_ALLOC_SIZE(count);
      CPU_ZERO_S(processors_bytes, processors);
      for (const int p : process.binding.processors) CPU_SET_S(static_cast<size_t>(p), processors_bytes, processors);
    }
    constexpr size_t bits = 8 * sizeof(unsigned long);
    for (const int node : process.binding.memory.nodes) {
      const size_t word = static_cast<size_t>(node) / bits;
      if (nodes.size() <= word) nodes.resize(word + 1);
      nodes[word] |= 1UL << (static_cast<size_t>(node) % bits);
    }
    // A process outside the terminal's foreground group would be stopped when it reads from the terminal.
    keep_group = process.stdin_open && isatty(STDIN_FILENO) == 1;
  }
  ~Prepared() {
    if (processors) CPU_FREE(processors);
  }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
};

void tell(int status, Step step) {
  const Problem problem = {step, errno};
  (void)!write(status, &problem, sizeof problem);
}

[[noreturn]] void give_up(int status, Step step) {
  tell(status, step);
  _exit(127);
}

void reset_signals() {
  struct sigaction fresh {};
  fresh.sa_handler = SIG_DFL;
  for (const int ignored_by_us : {SIGPIPE, SIGXFSZ}) sigaction(ignored_by_us, &fresh, nullptr);
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

void redirect(const ProcessSpec& process, const ChildOutput& output, int status) {
  if (!process.stdin_open) {
    const int empty = open("/dev/null", O_RDONLY);
    if (empty < 0) give_up(status, Step::Input);
    if (empty != STDIN_FILENO && dup2(empty, STDIN_FILENO) < 0) give_up(status, Step::Files);
    if (empty > STDERR_FILENO) close(empty);
  }
  if (!process.log_file.empty()) {
    const int log = open(process.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (log < 0) give_up(status, Step::LogFile);
    if (dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0) give_up(status, Step::Files);
    if (log > STDERR_FILENO) close(log);
  }
  if (output.out >= 0 && dup2(output.out, STDOUT_FILENO) < 0) give_up(status, Step::Files);
  if (output.err >= 0 && dup2(output.err, STDERR_FILENO) < 0) give_up(status, Step::Files);
}

[[noreturn]] void become(const ProcessSpec& process, const Prepared& prepared, const ChildOutput& output, int status,
                         pid_t parent) {
  if (!prepared.keep_group) setpgid(0, 0);
  // The parent may have ended already, which would go unnoticed.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) give_up(status, Step::Orphaned);
  redirect(process, output, status);
  if (prepared.processors && sched_setaffinity(0, prepared.processors_bytes, prepared.processors) != 0) {
    give_up(status, Step::Affinity);
  }
  if (!prepared.nodes.empty()) {
    const long mode = process.binding.memory.kind == MemoryPolicy::Kind::Bind ? MPOL_BIND : MPOL_PREFERRED;
    // The kernel reads one bit less than this number.
    const unsigned long bits = 8 * sizeof(unsigned long) * prepared.nodes.size() + 1;
    if (syscall(SYS_set_mempolicy, mode, prepared.nodes.data(), bits) != 0) tell(status, Step::Memory);
  }
  reset_signals();
  execve(process.file.c_str(), prepared.argv.data(), prepared.environment.data());
  give_up(status, Step::Execute);
}

std::string explain(const ProcessSpec& process, const Problem& problem) {
  const std::string why = std::strerror(problem.error);
  switch (problem.step) {
    case Step::Orphaned: return "the launcher ended while it was started";
    case Step::Input: return "/dev/null, its standard input, cannot be opened: " + why;
    case Step::Files: return "its standard input and output cannot be set: " + why;
    case Step::LogFile: return "its log file \"" + process.log_file + "\" cannot be written: " + why;
    case Step::Affinity:
      return "it cannot be bound to cores " + format_core_list(process.binding.processors) + ": " + why;
    case Step::Memory: return "its memory cannot be bound: " + why;
    case Step::Execute: return "\"" + process.file + "\" cannot be run: " + why;
  }
  return why;
}

}  // namespace

Child start_process(const ProcessSpec& process, const ChildOutput& output) {
  const Prepared prepared(process);
  int status[2];
  if (pipe2(status, O_CLOEXEC) != 0) throw Error(process.name + ": no pipe: " + std::strerror(errno));
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become(process, prepared, output, status[1], parent);
  const int error = errno;
  close(status[1]);
  if (pid < 0) {
    close(status[0]);
    throw Error(process.name + " cannot be started: " + std::strerror(error));
  }
  return {pid, status[0]};
}

void finish_start(const ProcessSpec& process, Child& child) {
  Problem problem{};
  std::string fatal;
  while (true) {
    const ssize_t got = read(child.status, &problem, sizeof problem);
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<ssize_t>(sizeof problem)) break;
    if (problem.step == Step::Memory) {
      log_warning(process.name + ": " + explain(process, problem));
    } else {
      fatal = explain(process, problem);
    }
  }
  close(child.status);
  child.status = -1;
  if (!fatal.empty()) throw Error(process.name + ": " + fatal);
}

}  // namespace anyaccel::launcher
