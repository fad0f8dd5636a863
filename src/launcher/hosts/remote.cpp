// Implements jobs on several hosts, and the internal commands that runners start.
#include "launcher/hosts/remote.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/files/install_paths.h"
#include "base/files/open_files.h"
#include "base/process/shell.h"
#include "launcher/hosts/control.h"
#include "launcher/hosts/probe.h"
#include "launcher/hosts/runners.h"
#include "launcher/plan/place.h"
#include "launcher/plan/surroundings.h"
#include "launcher/processes/node.h"
#include "launcher/processes/spawn.h"

namespace anyaccel::launcher {
namespace {

// The variable is removed, so that ranks do not see it.
std::string take_job_variable() {
  const char* text = std::getenv(job_variable);
  if (!text) {
    throw CommunicationError(std::string(job_variable) +
                             " is not set: this form of the command is for the launcher, or the runner dropped it");
  }
  std::string copy = text;
  unsetenv(job_variable);
  return copy;
}

void enter(const JobPlan& job, const std::string& version) {
  use_log_level(job.log_level);
  try {
    check_version(job, version);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(own_host_name() + ": " + error.what());
  }
  if (job.directory.empty()) return;
  std::error_code error;
  std::filesystem::current_path(job.directory, error);
  if (error) {
    throw InvalidArgument(own_host_name() + ": the folder \"" + job.directory +
                          "\", where the job was started, cannot be entered here: " + error.message());
  }
}

}  // namespace

int run_remote(const LaunchOptions& options, Plan plan, const std::string& self) {
  const std::string program = find_runner(plan.runner);
  if (plan.runner != Runner::Slurm && !options.no_ssh_check) {
    std::vector<Host> others;
    for (const Host& host : plan.job.hosts) {
      if (plan.runner == Runner::Pdsh || !is_this_host(host.name)) others.push_back(host);
    }
    check_ssh(others, options.ssh_port);
  }
  // One connection from each host, or from each rank if MPI or Slurm starts them one by one.
  const int connections = plan.job.hosts.empty()        ? plan.nodes * plan.per_node
                          : plan.runner == Runner::Pdsh ? static_cast<int>(plan.job.hosts.size())
                                                        : plan.job.world_size();
  const std::string room = make_room_for_files(static_cast<size_t>(connections) + 16);
  if (!room.empty()) throw UnavailableError("the launcher cannot be connected with its hosts: " + room);
  ControlServer control(OwnMachine().random_text(), plan.job, plan.runner == Runner::Slurm);
  plan.job.control = control.point();
  const Variables own = own_environment();
  const Command command = runner_command(options, plan, program, self, own);

  ProcessSpec process;
  process.name = command.argv.front();
  process.file = find_program(program);
  process.argv = command.argv;
  process.environment = merged(own, command.environment);
  process.stdin_open = true;
  SupervisorOptions supervision;
  supervision.companion = &control;
  return supervise({process}, supervision);
}

int start_node(int node, const std::string& version) {
  const std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  const JobPlan job = parse_job(text, version);
  enter(job, version);
  return run_ranks(job, node, {}, own_program());
}

int start_rank(const std::string& version) {
  JobPlan job;
  try {
    job = parse_job(take_job_variable(), version);
    enter(job, version);
    const Place place = read_place(job, own_environment());
    return run_ranks(job, place.node, {place.local_rank}, own_program());
  } catch (const std::exception& error) {
    // An mpirun may wait for its other processes when one ends that has not started MPI (MPICH does).
    report_failure(job.control, own_host_name(), 2, own_host_name() + ": " + error.what() + "; the job is ended");
    throw;
  }
}

int start_ssh(const std::string& host, int ssh_port, const std::string& version) {
  const std::string text = take_job_variable();
  const JobPlan job = parse_job(text, version);
  int node = 0;
  while (node < static_cast<int>(job.hosts.size()) && job.hosts[static_cast<size_t>(node)].name != host) ++node;
  if (node == static_cast<int>(job.hosts.size())) throw InvalidArgument("the job has no host \"" + host + "\"");

  // An unnamed file is ssh's standard input.
  const int file = memfd_create("job", MFD_CLOEXEC);
  if (file < 0 || write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      lseek(file, 0, SEEK_SET) != 0 || dup2(file, STDIN_FILENO) < 0) {
    throw Error(std::string("the job cannot be handed to ssh: ") + std::strerror(errno));
  }
  std::vector<std::string> argv = ssh_command(job.hosts[static_cast<size_t>(node)].login(), ssh_port,
                                              node_command(own_program(), node), own_environment());
  std::vector<char*> words;
  for (std::string& word : argv) words.push_back(word.data());
  words.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t ssh = fork();
  if (ssh < 0) throw Error(std::string("ssh cannot be started: ") + std::strerror(errno));
  if (ssh == 0) {
    // Whoever ends this process means to end ssh.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == parent) execvp("ssh", words.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(ssh, &status, 0) < 0) {
    if (errno != EINTR) throw Error(std::string("ssh cannot be waited for: ") + std::strerror(errno));
  }
  const bool killed = WIFSIGNALED(status);
  const int code = killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  // The host may not have got far enough to report anything itself, and pdsh waits for all other hosts.
  if (code != 0) {
    report_failure(job.control, host, code,
                   "ssh to " + host +
                       (killed ? " was killed by signal " + std::to_string(WTERMSIG(status))
                               : " exited with code " + std::to_string(code)) +
                       "; the job is ended");
  }
  return code;
}

}  // namespace anyaccel::launcher
