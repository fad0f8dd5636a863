// Plans a job from a command line.
#include "launcher/plan/plan.h"

#include <algorithm>
#include <numeric>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "launcher/plan/hosts.h"

namespace anyaccel::launcher {
namespace {

constexpr const char* default_hostfile = "/job/hostfile";
constexpr int default_port = 29500;

Host numbered(std::string name, int slots) {
  Host host{std::move(name), std::vector<int>(static_cast<size_t>(slots))};
  std::iota(host.slots.begin(), host.slots.end(), 0);
  return host;
}

// Returns the hosts of the hostfile or of Slurm's allocation; none if the job runs on this host only.
std::vector<Host> known_hosts(const LaunchOptions& options, const Surroundings& surroundings) {
  const std::string file = options.hostfile.empty() ? default_hostfile : options.hostfile;
  std::string text;
  if (surroundings.read_file(file, text)) return parse_hostfile(text, file);
  if (!options.hostfile.empty()) {
    throw InvalidArgument("the hostfile \"" + file + "\" cannot be read; leave out --hostfile to use this host alone");
  }
  if (options.runner != Runner::Slurm) return {};
  std::vector<Host> hosts;
  const std::string list = surroundings.variable("SLURM_JOB_NODELIST");
  if (list.empty()) return {};
  const int slots = options.num_accelerators ? options.num_accelerators : surroundings.device_count();
  for (const std::string& name : expand_host_list(list)) hosts.push_back(numbered(name, slots));
  return hosts;
}

// Returns hosts that the user starts one by one, and which therefore need no real names.
std::vector<Host> unnamed_hosts(const LaunchOptions& options) {
  if (!options.num_accelerators) {
    throw InvalidArgument("--no_ssh on " + std::to_string(options.num_nodes) +
                          " hosts without a hostfile needs --num_accelerators: how many ranks each host has");
  }
  std::vector<Host> hosts;
  for (int i = 0; i < options.num_nodes; ++i) {
    // Their names are not known; messages must not look as if they were ("node1" may be another one's).
    hosts.push_back(numbered("node_rank=" + std::to_string(i), options.num_accelerators));
  }
  return hosts;
}

std::vector<Host> this_host(const LaunchOptions& options, const Surroundings& surroundings) {
  if (options.num_nodes > 1) {
    if (options.no_ssh) return unnamed_hosts(options);
    throw InvalidArgument("--num_nodes is " + std::to_string(options.num_nodes) +
                          " but no extra nodes are available: there is no hostfile");
  }
  return {numbered("localhost", options.num_accelerators ? options.num_accelerators : surroundings.device_count())};
}

std::vector<Host> choose(std::vector<Host> hosts, const LaunchOptions& options) {
  const bool filtered = !options.include.empty() || !options.exclude.empty();
  if (filtered && (options.num_nodes || options.num_accelerators)) {
    throw InvalidArgument("--num_nodes and --num_accelerators cannot be combined with --include and --exclude");
  }
  hosts = filter_hosts(hosts, options.include, options.exclude);
  if (options.num_nodes > static_cast<int>(hosts.size())) {
    throw InvalidArgument("--num_nodes is " + std::to_string(options.num_nodes) + ", and there are " +
                          std::to_string(hosts.size()) + " hosts");
  }
  if (options.num_nodes) hosts.resize(static_cast<size_t>(options.num_nodes));
  if (options.num_accelerators) {
    for (Host& host : hosts) host = numbered(host.name, options.num_accelerators);
  }
  return hosts;
}

// Returns the variables that are set to the chosen slots. If the job uses only this host and nothing was selected, the
// user's values are kept.
std::vector<std::string> devices_variables(const LaunchOptions& options, const Surroundings& surroundings,
                                           bool from_hostfile) {
  const bool filtered = !options.include.empty() || !options.exclude.empty();
  if (!from_hostfile && !filtered) return {};
  std::vector<std::string> names = surroundings.visible_devices_variables();
  for (const std::string& name : names) {
    const std::string value = surroundings.variable(name);
    if (value.empty()) continue;
    log_info(name + "=" + value + " is replaced by the slots of " +
             (filtered ? "--include and --exclude" : "the hostfile"));
  }
  return names;
}

void check_no_ssh(const LaunchOptions& options, const std::vector<Host>& hosts) {
  if (!options.no_ssh) {
    if (options.node_rank >= 0) throw InvalidArgument("--node_rank goes with --no_ssh only");
    return;
  }
  if (options.runner_given && options.runner != Runner::Local && options.runner != Runner::Pdsh) {
    throw InvalidArgument("--no_ssh starts this host's ranks here; --launcher cannot be combined with it");
  }
  if (options.node_rank < 0 || options.node_rank >= static_cast<int>(hosts.size())) {
    throw InvalidArgument("--no_ssh needs --node_rank, the number of this host from 0 to " +
                          std::to_string(hosts.size() - 1) + "; it is " + std::to_string(options.node_rank));
  }
}

// `elsewhere`: the only host is another one than this.
Runner choose_runner(const LaunchOptions& options, const std::vector<Host>& hosts, bool elsewhere) {
  if (options.no_ssh) return Runner::Local;
  if (options.runner == Runner::Local) {
    if (hosts.size() > 1 || options.force_multi || elsewhere) {
      throw InvalidArgument("--launcher local starts ranks on this host alone, and " +
                            (options.force_multi ? std::string("--force_multi asks for another way")
                             : elsewhere         ? "the host \"" + hosts.front().name + "\" is another one"
                                                 : std::to_string(hosts.size()) + " hosts are chosen") +
                            "; use pdsh, openmpi, mpich, impi, slurm or mvapich");
    }
    return Runner::Local;
  }
  // If the user names an MPI or Slurm, programs must run under it, on one host too.
  const bool named = options.runner_given && options.runner != Runner::Pdsh;
  return hosts.size() > 1 || options.force_multi || named || elsewhere ? options.runner : Runner::Local;
}

}  // namespace

Plan make_plan(const LaunchOptions& options, const Surroundings& surroundings) {
  Plan plan;
  JobPlan& job = plan.job;
  std::vector<Host> hosts = known_hosts(options, surroundings);
  const bool from_file = !hosts.empty();
  const bool slurm_decides = !from_file && options.runner == Runner::Slurm && options.num_nodes > 0;
  if (slurm_decides) {
    if (!options.include.empty() || !options.exclude.empty()) {
      throw InvalidArgument("--include and --exclude need hosts: a hostfile, or an allocation of Slurm around this");
    }
    plan.nodes = options.num_nodes;
    plan.per_node = options.num_accelerators ? options.num_accelerators : surroundings.device_count();
    plan.runner = Runner::Slurm;
  } else {
    if (!from_file) hosts = this_host(options, surroundings);
    const bool unnamed = !from_file && hosts.size() > 1;
    LaunchOptions choice = options;
    if (!from_file && !unnamed) choice.num_nodes = 0;
    const bool filtered = !options.include.empty() || !options.exclude.empty();
    if (filtered || from_file) hosts = choose(std::move(hosts), choice);
    job.hosts = std::move(hosts);
    check_no_ssh(options, job.hosts);
    const bool elsewhere = from_file && job.hosts.size() == 1 && !surroundings.is_this_host(job.hosts.front().name);
    plan.runner = choose_runner(options, job.hosts, elsewhere);
    plan.node = options.no_ssh ? options.node_rank : 0;
  }
  job.visible_devices = devices_variables(options, surroundings, from_file);

  const bool several = slurm_decides || job.hosts.size() > 1 || (from_file && plan.runner != Runner::Local);
  if (!options.master_addr.empty()) {
    job.master_addr = options.master_addr;
  } else if (!several) {
    job.master_addr = "127.0.0.1";
  } else if (options.no_ssh && !from_file) {
    throw InvalidArgument("--no_ssh on several hosts needs --master_addr: an address of host 0 that all can reach");
  } else if (!slurm_decides) {
    job.master_addr = surroundings.address_of(job.hosts);
  }
  job.master_port = options.master_port;
  // On one host each job gets a different port: two that start at the same time would both find the default one free.
  if (!job.master_port) job.master_port = several ? default_port : surroundings.free_port();
  // Hosts that are started one by one can share a secret only if the user gives it to all of them.
  if (options.no_ssh && job.hosts.size() > 1) {
    job.token = surroundings.variable("ANYACCEL_JOB_TOKEN");
    if (job.token.empty()) {
      log_warning("ANYACCEL_JOB_TOKEN is not set: any process that can reach " + job.master_addr + ":" +
                  std::to_string(job.master_port) + " can join the job; set it to the same secret on every host");
    }
  } else {
    job.token = options.dry_run ? "made-at-start" : surroundings.random_text();
  }

  job.bind_cores = options.bind_cores || !options.core_list.empty();
  job.core_list = options.core_list;
  job.log_dir = options.log_dir;
  job.log_stamp = surroundings.time_stamp();
  job.prefix_output = options.prefix_output;
  job.pass_local_rank = options.pass_local_rank;
  job.log_level = options.log_level;
  job.join_timeout = options.join_timeout;
  job.program = options.program;
  return plan;
}

}  // namespace anyaccel::launcher
