// Implements `anyaccel launch`: runs one program on many cores, devices and hosts.
#pragma once

#include <string>
#include <vector>

namespace anyaccel::launcher {

enum class Runner { Local, Pdsh, OpenMpi, Mpich, Impi, Slurm, Mvapich };

// The options of a command line, checked for syntax only.
struct LaunchOptions {
  std::string hostfile;  // empty: /job/hostfile, which may be missing
  std::string include;
  std::string exclude;
  int num_nodes = 0;         // 0: all
  int num_accelerators = 0;  // of each host; 0: its slots, or one per device
  std::string master_addr;   // empty: the first host
  int master_port = 0;       // 0: 29500, or a free one where that is taken
  int node_rank = -1;        // with no_ssh
  bool no_ssh = false;       // the user starts the launcher on every host
  bool no_ssh_check = false;
  int ssh_port = 0;  // 0: ssh's own
  Runner runner = Runner::Pdsh;
  bool runner_given = false;
  std::vector<std::string> launcher_args;
  bool force_multi = false;  // use the runner although there is one host
  bool bind_cores = false;
  std::string core_list;
  std::string log_dir;
  bool prefix_output = false;
  bool save_pid = false;
  bool pass_local_rank = false;
  bool env_files = true;           // .deepspeed_env
  std::string log_level = "info";  // debug, info, warning, error, critical
  int join_timeout = 0;            // seconds until all ranks must have joined; 0: ANYACCEL_JOIN_TIMEOUT, or 5 minutes
  bool dry_run = false;
  std::string version;               // of this program; the launchers of other hosts must have the same one
  std::vector<std::string> program;  // and its arguments
};

// "pdsh", ...; InvalidArgument for another name.
Runner parse_runner(const std::string& name);

// Runs the job to its end and returns the exit code: that of the rank that failed first, 128 + signal. With dry_run it
// only prints the commands. Throws anyaccel::Error and its derived classes if nothing was started; InvalidArgument for
// errors in the command line.
int launch(const LaunchOptions& options);

// The internal commands that runners start; see runners.h. They return the exit code. `version` is that of this program.
int start_node(int node, const std::string& version);  // the job is standard input
int start_rank(const std::string& version);            // the job is in a variable, the rank comes from MPI or Slurm
int start_ssh(const std::string& host, int ssh_port, const std::string& version);  // runs ssh

// Sets the minimum level of this process's messages, by the names of LaunchOptions::log_level; InvalidArgument for
// others.
void use_log_level(const std::string& level);

}  // namespace anyaccel::launcher
