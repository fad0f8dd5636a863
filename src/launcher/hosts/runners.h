// Builds the command lines that start a job on several hosts. Pure functions of the job, so that --dry_run and the
// tests see the commands that are run.
//
// pdsh runs `anyaccel launch --ssh_host HOST` here once for each host, which runs ssh and starts `anyaccel launch
// --start_node` there with the job on standard input: secrets and variables do not appear in process lists. MPI and
// Slurm run `anyaccel launch --start_rank` once for each rank, so that a rank runs under the MPI that started it, with
// the job in the variable ANYACCEL_LAUNCH_JOB. Cores, logs, signals and cleanup are handled by our own code on every
// host.
#pragma once

#include <string>
#include <vector>

#include "launcher/launch.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/plan.h"

namespace anyaccel::launcher {

constexpr const char* job_variable = "ANYACCEL_LAUNCH_JOB";

struct Command {
  std::vector<std::string> argv;
  Variables environment;  // in addition to this process's own
};

// "openmpi"
std::string runner_name(Runner runner);

// `program`: the program found for the runner ("mpirun.mpich"); `own`: the environment of this process, whose variables
// with further arguments are extended. InvalidArgument for options that contradict the runner.
Command runner_command(const LaunchOptions& options, const Plan& plan, const std::string& program,
                       const std::string& self, const Variables& own);

// Returns the command for ssh that runs a command line on one host.
std::vector<std::string> ssh_command(const std::string& host, int ssh_port, const std::string& remote,
                                     const Variables& own);

// Returns the command that runs on the host.
std::string node_command(const std::string& self, int node);

}  // namespace anyaccel::launcher
