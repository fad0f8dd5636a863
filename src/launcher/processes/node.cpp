// Runs the ranks of one host.
#include "launcher/processes/node.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "anyaccel/error.h"
#include "base/files/open_files.h"
#include "base/process/processors.h"
#include "base/process/shell.h"
#include "launcher/hosts/control.h"
#include "launcher/plan/addresses.h"
#include "launcher/processes/ended_ranks.h"
#include "launcher/processes/spawn.h"

namespace anyaccel::launcher {
namespace {

void make_log_dir(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!std::filesystem::is_directory(path)) {
    throw InvalidArgument("--enable_each_rank_log: \"" + path + "\" is not a folder and cannot be made one" +
                          (error ? ": " + error.message() : ""));
  }
}

// Returns the file of the program, for execve().
std::string program_file(const std::string& name, const std::string& self) {
  // This is the running program, whether or not PATH has one, because the ranks must use the launcher's version.
  if (name == "anyaccel") return self;
  std::string file = find_program(name);
  if (!file.empty()) return file;
  if (name.find('/') == std::string::npos) throw InvalidArgument("there is no program \"" + name + "\" in PATH");
  throw InvalidArgument("\"" + name + "\" is not a program that can be run: " +
                        (access(name.c_str(), F_OK) == 0 ? "it is not an executable file" : std::strerror(errno)));
}

std::string value_of(const Variables& over, const Variables& base, const std::string& name) {
  if (const auto found = over.find(name); found != over.end()) return found->second;
  const auto found = base.find(name);
  return found == base.end() ? std::string() : found->second;
}

}  // namespace

std::string own_host_name() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

std::vector<RankPlan> plan_ranks(const JobPlan& job, int node, const Machine* machine, const Variables& base) {
  const int count = static_cast<int>(job.hosts[static_cast<size_t>(node)].slots.size());
  if (job.bind_cores && !value_of(job.environment, base, "KMP_AFFINITY").empty()) {
    throw InvalidArgument(
        "the environment variable KMP_AFFINITY is set, and would bind threads to other cores than --bind_cores_to_rank "
        "gives each rank; unset KMP_AFFINITY before launching");
  }
  std::vector<Binding> bindings(static_cast<size_t>(count));
  if (machine) bindings = job.bind_cores ? bind_ranks(*machine, count, job.core_list) : share_threads(*machine, count);
  const std::string omp_threads = value_of(job.environment, base, "OMP_NUM_THREADS");
  std::vector<RankPlan> plans;
  for (int i = 0; i < count; ++i) {
    RankPlan plan;
    plan.rank = job.first_rank(node) + i;
    plan.local_rank = i;
    plan.binding = bindings[static_cast<size_t>(i)];
    if (machine) plan.binding.threads = threads_within(plan.binding.threads, machine->quota / count);
    plan.environment = rank_environment(job, node, i, plan.binding.threads, omp_threads);
    if (!machine) plan.environment.erase("OMP_NUM_THREADS");
    plan.argv = job.program;
    if (job.pass_local_rank) plan.argv.insert(plan.argv.begin() + 1, "--local_rank=" + std::to_string(i));
    if (!job.log_dir.empty()) {
      plan.log_file = job.log_dir + "/" + job.log_stamp + "_rank" + std::to_string(plan.rank) + ".log";
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

int run_ranks(const JobPlan& job, int node, const std::vector<int>& local_ranks, const std::string& self) {
  const Machine machine = read_machine();
  if (job.bind_cores && !machine.this_machine) {
    throw InvalidArgument(
        "HWLOC_XMLFILE or HWLOC_SYNTHETIC describes another machine, whose cores cannot be bound here; "
        "unset it, or ask with --dry_run");
  }
  const Variables base = own_environment();
  const std::string file = program_file(job.program.front(), self);
  if (!job.log_dir.empty()) make_log_dir(job.log_dir);
  const bool has_rank_0 = node == 0 && (local_ranks.empty() || std::count(local_ranks.begin(), local_ranks.end(), 0));
  if (has_rank_0 && !port_is_free(job.master_port)) {
    throw InvalidArgument("port " + std::to_string(job.master_port) + " of " + own_host_name() +
                          ", where the ranks are to meet, is in use; name another with --master_port");
  }
  // The name of a host in the job; in a job of this host only, the machine's name.
  const std::string host = job.hosts.size() > 1 ? job.hosts[static_cast<size_t>(node)].name : own_host_name();

  std::vector<ProcessSpec> processes;
  std::vector<int> ranks;  // their numbers
  for (const RankPlan& plan : plan_ranks(job, node, &machine, base)) {
    if (!local_ranks.empty() && !std::count(local_ranks.begin(), local_ranks.end(), plan.local_rank)) continue;
    ProcessSpec process;
    process.name = "rank " + std::to_string(plan.rank) + " on " + host;
    process.file = file;
    process.argv = plan.argv;
    process.environment = merged(base, plan.environment);
    process.binding = plan.binding;
    process.log_file = plan.log_file;
    if (job.prefix_output && plan.log_file.empty()) process.prefix = "[rank " + std::to_string(plan.rank) + "] ";
    process.stdin_open = plan.rank == 0;
    processes.push_back(std::move(process));
    ranks.push_back(plan.rank);
  }

  // One pipe for each rank's start, two for its output if that gets a prefix, and the launcher's own descriptors.
  const std::string room = make_room_for_files(processes.size() * (job.prefix_output ? 3 : 1) + 16);
  if (!room.empty()) {
    throw UnavailableError(std::to_string(processes.size()) + " ranks cannot be started on " + host + ": " + room);
  }

  SupervisorOptions options;
  const std::unique_ptr<Companion> companion = connect_to_launcher(job.control, host, ranks, processes);
  options.companion = companion.get();
  const comm::StorePlace store = {job.master_addr, job.master_port, job.token};
  EndedRanks ended(store, job.world_size());
  // If MPI or Slurm started this launcher for a single rank, it ends with that rank; the one that the user started
  // continues.
  const bool here = job.runner.empty() || !companion;
  if (job.world_size() > 1) {
    options.ended = [&](size_t i) {
      if (here) {
        ended.add(ranks[i], processes[i].name);
      } else {
        companion->ended(ranks[i], processes[i].name, store, job.world_size());
      }
    };
  }
  return supervise(processes, options);
}

}  // namespace anyaccel::launcher
