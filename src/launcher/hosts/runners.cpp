// Builds the command lines that start a job on several hosts.
#include "launcher/hosts/runners.h"

#include <algorithm>

#include "anyaccel/error.h"
#include "base/process/shell.h"

namespace anyaccel::launcher {
namespace {

using Words = std::vector<std::string>;

void append(Words& words, const Words& more) { words.insert(words.end(), more.begin(), more.end()); }

bool has_word(const Words& words, const Words& any) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return std::count(any.begin(), any.end(), word) > 0; });
}

bool has_beginning(const Words& words, const std::string& begin) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return word.compare(0, begin.size(), begin) == 0; });
}

std::string value_of(const Variables& variables, const std::string& name) {
  const auto found = variables.find(name);
  return found == variables.end() ? std::string() : found->second;
}

// Returns "a:2,b:3", or "a,b".
std::string host_list(const JobPlan& job, bool counts) {
  std::string list;
  for (const Host& host : job.hosts) {
    list += (list.empty() ? "" : ",") + host.name;
    if (counts) list += ":" + std::to_string(host.slots.size());
  }
  return list;
}

Words rank_command(const std::string& self) { return {self, "launch", "--start_rank"}; }

// Returns whether the user requests the runner's own binding, which is off otherwise: ranks bind themselves, and
// unbound ones may run anywhere, as with the other runners.
bool runner_binds(const LaunchOptions& options, const Words& words, const std::string& begin) {
  if (!has_word(options.launcher_args, words) && !has_beginning(options.launcher_args, begin)) return false;
  if (options.bind_cores || !options.core_list.empty()) {
    throw InvalidArgument("--launcher_args binds ranks to cores (" + words.front() +
                          "), and so does --bind_cores_to_rank; use one of them");
  }
  return true;
}

// Adds arguments for ssh that the runner takes from a variable.
void continue_ssh_arguments(Command& command, const LaunchOptions& options, const Variables& own, const char* name) {
  if (!options.ssh_port) return;
  const std::string before = value_of(own, name);
  command.environment[name] = before + (before.empty() ? "" : " ") + "-p " + std::to_string(options.ssh_port);
}

void pdsh(Command& command, const LaunchOptions& options, const Plan& plan, const std::string& self) {
  // -S: return the exit code of the commands; -N: unchanged lines (--prefix_output adds prefixes).
  append(command.argv, {"-S", "-N", "-f", "1024", "-R", "exec", "-w"});
  std::string list;
  for (const Host& host : plan.job.hosts) {
    list += (list.empty() ? "" : ",") + host.name;
  }
  command.argv.push_back(list);
  append(command.argv, options.launcher_args);
  append(command.argv, {self, "launch", "--ssh_host", "%h"});
  if (options.ssh_port) append(command.argv, {"--ssh_port", std::to_string(options.ssh_port)});
}

void openmpi(Command& command, const LaunchOptions& options, const Plan& plan, const std::string& self) {
  const JobPlan& job = plan.job;
  append(command.argv, {"-n", std::to_string(job.world_size()), "-H", host_list(job, true)});
  if (!has_word(options.launcher_args, {"--map-by", "-map-by", "--rank-by", "-rank-by"})) {
    append(command.argv, {"--map-by", "slot"});
  }
  if (!runner_binds(options, {"--bind-to", "-bind-to", "--bind-to-core", "-cpu-set", "--cpu-set"}, "--cpu-list")) {
    append(command.argv, {"--bind-to", "none"});
  }
  if (options.ssh_port) {
    append(command.argv, {"--mca", "plm_rsh_args", "-p " + std::to_string(options.ssh_port)});
  }
  append(command.argv, options.launcher_args);
  append(command.argv, {"-x", job_variable});
  append(command.argv, rank_command(self));
}

void mpich(Command& command, const LaunchOptions& options, const Plan& plan, const std::string& self,
           const Variables& own) {
  append(command.argv, {"-n", std::to_string(plan.job.world_size()), "-hosts", host_list(plan.job, true)});
  if (!runner_binds(options, {"-bind-to", "--bind-to"}, "-bind-to")) append(command.argv, {"-bind-to", "none"});
  append(command.argv, options.launcher_args);
  append(command.argv, rank_command(self));
  continue_ssh_arguments(command, options, own, "HYDRA_LAUNCHER_EXTRA_ARGS");
}

void impi(Command& command, const LaunchOptions& options, const Plan& plan, const std::string& self,
          const Variables& own) {
  append(command.argv, options.launcher_args);
  append(command.argv, {"-genvlist", job_variable, "-genv", "I_MPI_PIN", "0"});
  bool first = true;
  for (const Host& host : plan.job.hosts) {
    if (!first) command.argv.push_back(":");
    first = false;
    append(command.argv, {"-host", host.name, "-n", std::to_string(host.slots.size())});
    append(command.argv, rank_command(self));
  }
  continue_ssh_arguments(command, options, own, "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS");
}

void mvapich(Command& command, const LaunchOptions& options, const Plan& plan, const std::string& self,
             const Variables& own) {
  append(command.argv, {"-np", std::to_string(plan.job.world_size()), "-hosts", host_list(plan.job, true)});
  append(command.argv, options.launcher_args);
  append(command.argv, {"-genvlist", job_variable});
  append(command.argv, rank_command(self));
  continue_ssh_arguments(command, options, own, "HYDRA_LAUNCHER_EXTRA_ARGS");
  // The variables that DeepSpeed sets for this MPI; ranks inherit them with the job.
  for (const auto& [name, value] : Variables{{"MV2_SMP_USE_CMA", "0"},
                                             {"MV2_DEBUG_SHOW_BACKTRACE", "1"},
                                             {"MV2_SUPPORT_DL", "1"},
                                             {"MV2_ENABLE_AFFINITY", "0"},
                                             {"MV2_INTER_ALLGATHER_TUNING", "5"}}) {
    command.environment[name] = value;
  }
}

void slurm(Command& command, const LaunchOptions& options, const Plan& plan, const std::string& self) {
  if (options.ssh_port) {
    throw InvalidArgument("--ssh_port: Slurm starts ranks by its own daemons; there is no ssh with --launcher slurm");
  }
  const JobPlan& job = plan.job;
  if (!job.hosts.empty() && !job.same_slots()) {
    throw InvalidArgument(
        "--launcher slurm needs the same number of ranks on every host; choose with --include, "
        "--exclude or --num_accelerators");
  }
  const int nodes = job.hosts.empty() ? plan.nodes : static_cast<int>(job.hosts.size());
  const int each = job.hosts.empty() ? plan.per_node : static_cast<int>(job.hosts.front().slots.size());
  append(command.argv,
         {"--nodes=" + std::to_string(nodes), "--ntasks=" + std::to_string(nodes * each),
          "--ntasks-per-node=" + std::to_string(each), "--distribution=block", "--kill-on-bad-exit=1", "--export=ALL"});
  if (!job.hosts.empty()) command.argv.push_back("--nodelist=" + host_list(job, false));
  if (!runner_binds(options, {"--cpu-bind"}, "--cpu-bind")) command.argv.push_back("--cpu-bind=none");
  append(command.argv, options.launcher_args);
  append(command.argv, rank_command(self));
}

}  // namespace

std::string runner_name(Runner runner) {
  switch (runner) {
    case Runner::Local: return "local";
    case Runner::Pdsh: return "pdsh";
    case Runner::OpenMpi: return "openmpi";
    case Runner::Mpich: return "mpich";
    case Runner::Impi: return "impi";
    case Runner::Slurm: return "slurm";
    case Runner::Mvapich: return "mvapich";
  }
  return {};
}

Command runner_command(const LaunchOptions& options, const Plan& plan, const std::string& program,
                       const std::string& self, const Variables& own) {
  for (const Host& host : plan.job.hosts) {
    if (host.user.empty() || plan.runner == Runner::Pdsh) continue;
    throw InvalidArgument("the hostfile names the user of " + host.login() + ", which --launcher " +
                          runner_name(plan.runner) + " cannot pass on; name it in ssh's configuration, or use pdsh");
  }
  Command command;
  command.argv.push_back(program);
  switch (plan.runner) {
    case Runner::Local: throw InvalidArgument("this host's ranks need no other program");
    case Runner::Pdsh: pdsh(command, options, plan, self); break;
    case Runner::OpenMpi: openmpi(command, options, plan, self); break;
    case Runner::Mpich: mpich(command, options, plan, self, own); break;
    case Runner::Impi: impi(command, options, plan, self, own); break;
    case Runner::Slurm: slurm(command, options, plan, self); break;
    case Runner::Mvapich: mvapich(command, options, plan, self, own); break;
  }
  command.environment[job_variable] = job_text(plan.job);
  return command;
}

std::vector<std::string> ssh_command(const std::string& host, int ssh_port, const std::string& remote,
                                     const Variables& own) {
  Words argv = {"ssh"};
  // ssh uses the first of contradicting options: the user's.
  append(argv, split_words(value_of(own, "PDSH_SSH_ARGS_APPEND"), "PDSH_SSH_ARGS_APPEND"));
  // No prompts, and the connection ends when the host is silent for 9 s.
  append(argv, {"-T", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=3", "-o",
                "ServerAliveCountMax=3"});
  if (ssh_port) append(argv, {"-p", std::to_string(ssh_port)});
  append(argv, {"--", host, remote});
  return argv;
}

std::string node_command(const std::string& self, int node) {
  return "exec " + quote_words({self, "launch", "--start_node", std::to_string(node)});
}

}  // namespace anyaccel::launcher
